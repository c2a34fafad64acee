"""Subscriptions over REST: listed, paused, resumed, removed."""

from __future__ import annotations

from holdfast import Event, Holdfast
from holdfast.store import commands
from tests.web.conftest import Serving
from tests.web.serving import Web, as_user, refusal, user_of


def _alert(event: Event) -> None: ...


def subscribe(jobs: Holdfast, name: str, queue: str) -> None:
    jobs.on("failed", queue="mail")(jobs.task(name=name, queue=queue)(_alert))
    jobs.store.run(commands.declare_subscription(**jobs.declared_subscriptions[name]))


def test_a_subscription_is_shown_paused_and_removed(web: Web) -> None:
    subscribe(web.jobs, "alert", "alerts")
    [found] = web.call("GET", "/subscriptions")["items"]
    assert (found["subscription"], found["task"], found["paused"]) == ("alert", "alert", False)
    assert "failed" in web.call("GET", "/subscriptions/alert")["events"]
    assert web.call("POST", "/subscriptions/alert:pause")["paused"]
    assert web.jobs.get_subscription("alert").paused
    assert not web.call("POST", "/subscriptions/alert:resume")["paused"]
    assert web.call("DELETE", "/subscriptions/alert") is None
    assert web.jobs.subscriptions() == []
    subscribe(web.jobs, "other", "alerts")
    assert "other" in refusal(web.get("/api/v1/subscriptions/alert")).detail


def test_subscriptions_are_those_of_the_queues_that_a_user_may_see(serving: Serving) -> None:
    web = serving(auth=user_of)
    for queue in ("mail", "video"):
        subscribe(web.jobs, f"alert.{queue}", queue)
    found = web.call("GET", "/subscriptions", **as_user("viewer mail"))["items"]
    assert [each["subscription"] for each in found] == ["alert.mail"]
    assert refusal(web.post("/api/v1/subscriptions/alert.video:pause", **as_user("admin mail"))).status == 404
    assert refusal(web.client.delete("/api/v1/subscriptions/alert.mail", **as_user("operator mail"))).status == 403
    assert web.post("/api/v1/subscriptions/alert.mail:pause", **as_user("operator mail")).status_code == 200
