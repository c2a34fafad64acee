"""The service over REST: who asks, the status, upkeep, the outbox; and plans, which are part of no other noun."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from holdfast import Holdfast
from holdfast.version import __version__
from holdfast.web.resources import plans
from holdfast.web.security.users import LOCAL
from holdfast.web.site import Site
from tests.outbox.apps import add_to_outbox
from tests.support.varied_store import put
from tests.web.conftest import Serving
from tests.web.serving import Web, as_user, refusal, serve, user_of


def _send() -> None: ...


def test_info_says_what_is_served_and_who_asks(serving: Serving) -> None:
    web = serving(auth=user_of)
    found = web.call("GET", "/info", **as_user("viewer mail,video-*"))
    assert (found["version"], found["namespace"], found["functions"]) == (
        __version__, web.jobs.address.namespace, False,
    )  # fmt: skip
    assert found["server"].split()[0] in ("Valkey", "Redis")
    assert found["user"] == {
        "name": "tester", "role": "viewer", "queues": ["mail", "video-*"], "sees_data": False,
    }  # fmt: skip


def test_the_tasks_of_the_app_are_those_of_visible_queues(serving: Serving) -> None:
    web = serving(auth=user_of)
    for queue in ("mail", "video"):
        web.jobs.task(name=f"to-{queue}", queue=queue)(_send)
    web.jobs.task(name="plain")(_send)
    found = web.call("GET", "/tasks", **as_user("viewer"))["items"]
    assert found[0] == {"task": "plain", "queue": "default"}
    assert [each["task"] for each in web.call("GET", "/tasks", **as_user("viewer mail"))["items"]] == ["to-mail"]


def test_the_status_has_the_numbers_and_the_problems(web: Web) -> None:
    put(web.jobs.store, "one", "mail")
    found = web.call("GET", "/status")
    assert (found["jobs"]["waiting"], found["workers"]["live"]) == (1, 0)
    assert "queue mail has 1 waiting job, but no live worker serves it" in found["problems"]
    put(web.jobs.store, "two", "mail")
    assert web.call("GET", "/status")["jobs"]["waiting"] == 2


def test_upkeep_processes_what_is_due(web: Web) -> None:
    put(web.jobs.store, "one", "mail", delay=1)
    assert web.call("POST", "/upkeep")["processed"] in (0, 1)  # each call advances time, this one or an earlier one
    assert web.jobs.get("one").state == "waiting"


def test_the_outbox_is_listed_in_pages_and_sent(web: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_OUTBOX", str(tmp_path))
    send = web.jobs.task(name="send", queue="mail")(_send)
    for number in range(3):
        add_to_outbox(web.jobs, send.bind().options(id=f"job-{number}"))
    first = web.call("GET", "/outbox?limit=2")
    assert ([each["id"] for each in first["items"]], first["next"]) == (["job-0", "job-1"], "2")
    assert web.call("POST", "/outbox:send") == {"sent": 3, "refused": 0}
    assert web.call("GET", "/outbox") == {"items": []}
    assert web.jobs.count(queue="mail") == 3


def test_the_embedded_server_is_shown_if_it_is_used(server_url: str, web: Web, tmp_path: Path) -> None:
    assert "no embedded server" in refusal(web.get("/api/v1/server")).detail
    app = Holdfast(server_url)
    app.address = replace(app.address, home=tmp_path)  # as if its server were that of a project
    with serve(Site(app, lambda _: LOCAL)) as embedded:
        found = embedded.call("GET", "/server")
        assert (found["running"], found["home"]) == (False, str(tmp_path.resolve()))
    app.close()


# Plans


def test_a_plan_forecasts_with_more_workers(web: Web) -> None:
    put(web.jobs.store, "one", "mail")
    found = web.call("GET", "/plan?queue=mail&workers=+2&concurrency=4")  # a plus that was not escaped is a space
    [queue] = found["queues"]
    assert (found["workers"], found["workers_then"], queue["queue"], queue["backlog"]) == (0, 2, "mail", 1)
    assert web.call("GET", "/plan")["queues"][0]["then"] is None
    for query in ("workers=many", "workers=2", "processes=2", "arriving=-1", "workers=+2&processes=0"):
        assert refusal(web.get(f"/api/v1/plan?{query}")).status == 422, query
    assert refusal(web.get("/api/v1/plan?queue=male")).status == 404


def test_plans_are_those_of_the_queues_that_a_user_may_see(serving: Serving) -> None:
    web = serving(auth=user_of)
    put(web.jobs.store, "one", "mail")
    assert web.get("/api/v1/plan?queue=mail", **as_user("viewer mail")).status_code == 200
    for query in ("", "?queue=video", "?queue=mail&queue=video"):
        assert refusal(web.get(f"/api/v1/plan{query}", **as_user("viewer mail"))).status == 403


def test_few_plans_are_made_at_once(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans, "MAX_AT_ONCE", 0)
    for path in ("/api/v1/plan", "/api/v1/plan?queue=nothing"):  # before queues are read
        response = web.get(path)
        assert (refusal(response)[:2], response.headers["retry-after"]) == ((503, "BUSY"), "5")
