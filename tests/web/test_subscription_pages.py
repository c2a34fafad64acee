"""The page of subscriptions: what each has delivered, how far it lags; paused, resumed and removed."""

from __future__ import annotations

from holdfast import Event, Holdfast
from holdfast.store import commands
from tests.web.acting import act, check_commands, main, page, row_of, rows, toast
from tests.web.conftest import Serving
from tests.web.serving import Web, user_of


def declare(jobs: Holdfast, name: str = "alert", queue: str = "alerts") -> None:
    """Declare a subscription, as a worker of an app does."""

    @jobs.on("failed", queue="mail")
    @jobs.task(name=name, queue=queue)
    def handler(event: Event) -> None: ...

    for declared in jobs.declared_subscriptions.values():
        jobs.store.run(commands.declare_subscription(**declared))


def test_subscriptions_are_listed(web: Web) -> None:
    declare(web.jobs)
    [subscription] = web.jobs.subscriptions()
    found = main(page(web, "/subscriptions"))
    row = row_of(found, subscription.name)
    assert "failed queue=mail" in row.text
    assert "alertin alerts" in row.text
    assert "none delivers it" in row.text
    check_commands(found)


def test_a_subscription_is_paused_resumed_and_removed(web: Web) -> None:
    declare(web.jobs)
    [subscription] = web.jobs.subscriptions()
    name = subscription.name
    assert "as far as they are still kept" in row_of(page(web, "/subscriptions"), name).text
    assert toast(act(web, "/subscriptions", f"Pause subscription {name}")) == f"Paused subscription {name}"
    assert web.jobs.subscriptions()[0].paused
    act(web, "/subscriptions", f"Resume subscription {name}")
    assert not web.jobs.subscriptions()[0].paused
    assert "No subscriptions" in act(web, "/subscriptions", f"Remove subscription {name}").text


def test_an_empty_list_says_what_would_be_here(web: Web) -> None:
    found = main(page(web, "/subscriptions"))
    assert "stays until it is removed" in found.text
    check_commands(found)


def test_a_user_sees_and_changes_those_of_his_queues(serving: Serving) -> None:
    web = serving(auth=user_of)
    declare(web.jobs)
    assert main(page(web, "/subscriptions", "viewer")).all("form") == []
    assert "Remove…" not in main(page(web, "/subscriptions", "operator")).buttons()
    assert len(rows(main(page(web, "/subscriptions", "operator alerts")))) == 1
    assert "No subscriptions" in main(page(web, "/subscriptions", "operator mail")).text
