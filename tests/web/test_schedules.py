"""Schedules over REST: added, changed, shown with next and past times, triggered, paused, reset, removed."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from holdfast import Holdfast, every
from holdfast.store import Store, commands
from tests.web.conftest import Serving
from tests.web.serving import Web, as_user, refusal, user_of


def _report(day: str = "today") -> None: ...


def report(jobs: Holdfast) -> Any:
    return jobs.tasks.get("report") or jobs.task(name="report", queue="reports", schedule=every("1h"))(_report)


def test_a_schedule_of_an_unknown_task_is_added_and_changed(web: Web) -> None:
    body = {"task": "sweep", "arguments": {"deep": True}, "queue": "low", "cron": "0 2 * * *", "tz": "Europe/Berlin"}
    response = web.client.put("/api/v1/schedules/nightly", json=body)
    assert (response.status_code, response.headers["location"]) == (201, "/api/v1/schedules/nightly")
    assert (response.json()["cron"], response.json()["tz"], response.json()["queue"]) == (
        "0 2 * * *", "Europe/Berlin", "low",
    )  # fmt: skip
    changed = web.client.put("/api/v1/schedules/nightly", json={**body, "overlap": "skip", "jitter": "5m"})
    assert (changed.status_code, changed.json()["overlap"]) == (200, "skip")
    [schedule] = web.jobs.schedules()
    assert (schedule.task, schedule.overlap) == ("sweep", "skip")


def test_a_known_task_checks_the_arguments_of_a_schedule(web: Web) -> None:
    report(web.jobs)
    body = {"task": "report", "arguments": {"day": "monday"}, "every": "30s"}
    assert web.client.put("/api/v1/schedules/poll", json=body).json()["queue"] == "reports"
    for wrong in ({"day": 7}, {"days": "monday"}):
        assert refusal(web.client.put("/api/v1/schedules/poll", json={**body, "arguments": wrong})).status == 422


@pytest.mark.parametrize(
    "wrong",
    [
        {}, {"cron": "0 2 * *"}, {"cron": "0 0 30 2 *"}, {"cron": "0 2 * * *", "every": "1h"}, {"every": "1ms"},
        {"cron": "0 2 * * *", "tz": "Europe/Berlyn"}, {"every": "1h", "overlap": "maybe"}, {"every": "1h", "id": "x"},
        {"every": "1h", "deadline": "2030-01-01T00:00Z"}, {"every": "1h", "backlog": 0}, {"every": "1h", "delay": 1},
    ],
)  # fmt: skip
def test_a_schedule_that_cannot_be_is_refused(web: Web, wrong: dict[str, Any]) -> None:
    assert refusal(web.client.put("/api/v1/schedules/s", json={"task": "t", **wrong})).status == 422
    assert web.jobs.schedules() == []


def test_a_form_adds_a_schedule(web: Web) -> None:
    form = {"_method": "PUT", "task": "sweep", "every": "30", "offset": "", "missed": "all", "backlog": "5"}
    assert web.post("/api/v1/schedules/s", data=form).json()["every_seconds"] == 30


def test_a_schedule_shows_its_next_and_its_past_times_with_their_jobs(web: Web) -> None:
    jobs = web.jobs
    seconds, _ = jobs.store.execute("TIME")
    hour = int(seconds) // 3600
    past = Store(jobs.address, clock=lambda: (hour * 3600 - 7000) * 1000)
    past.run(commands.schedule("s", {"task": "t", "queue": "q"}, b"{}", spec=SPEC, every=3_600_000, offset=0))
    past.close()
    jobs.upkeep()
    found = web.call("GET", "/schedules/s?limit=2")
    assert [stamp(each["at"]) for each in found["firings"]] == [(hour + 1) * 3600, (hour + 2) * 3600]
    assert [(each["id"], each["state"]) for each in found["history"]] == [
        (f"s@{hour * 3_600_000}", "waiting"), (f"s@{(hour - 1) * 3_600_000}", None),
    ]  # fmt: skip


SPEC = '{"kind": "every", "interval": 3600000, "offset": 0}'


def stamp(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def test_a_schedule_is_triggered_paused_and_resumed(web: Web) -> None:
    web.jobs.schedule("s", report(web.jobs).bind(), every="1h")
    response = web.post("/api/v1/schedules/s:trigger")
    id = response.json()["id"]
    assert (response.status_code, web.jobs.get(id).task) == (201, "report")
    assert web.call("POST", "/schedules/s:pause")["paused"]
    assert web.call("GET", "/schedules/s")["firings"] == []
    assert not web.call("POST", "/schedules/s:resume")["paused"]


def test_a_trigger_with_an_idempotency_key_can_be_repeated(web: Web) -> None:
    web.jobs.schedule("s", report(web.jobs).bind(), every="1h")
    key = {"Idempotency-Key": "now"}
    assert web.call("POST", "/schedules/s:trigger", headers=key) == web.call(
        "POST", "/schedules/s:trigger", headers=key
    )
    assert web.jobs.count() == 1


def test_a_declared_schedule_is_returned_to(web: Web) -> None:
    report(web.jobs)
    web.jobs.store.run(commands.declare_schedule(**web.jobs.declared_schedules["report"]))
    assert refusal(web.post("/api/v1/schedules/repot:reset")).status == 404
    assert web.client.put("/api/v1/schedules/report", json={"task": "report", "every": 60}).status_code == 200
    shown = web.call("GET", "/schedules/report")
    assert (shown["source"], shown["declared_when"]) == ("overridden", "every 1h")
    assert web.call("POST", "/schedules/report:reset")["every_seconds"] == 3600
    web.call("DELETE", "/schedules/report")
    assert web.jobs.schedules() == []
    assert refusal(web.client.delete("/api/v1/schedules/report")).status == 404


def test_schedules_are_those_of_the_queues_that_a_user_may_see(serving: Serving) -> None:
    web = serving(auth=user_of)
    task = report(web.jobs)
    for queue in ("mail", "video"):
        web.jobs.schedule(queue, task.bind("secret").options(queue=queue), every="1h")
    viewer, operator, admin = as_user("viewer mail"), as_user("operator mail"), as_user("admin mail")
    assert [each["schedule"] for each in web.call("GET", "/schedules", **viewer)["items"]] == ["mail"]
    assert "secret" not in web.get("/api/v1/schedules/mail", **viewer).text
    assert web.call("GET", "/schedules/mail", **operator)["arguments"] == {"day": "secret"}
    for method, path in (("GET", ""), ("POST", ":trigger"), ("POST", ":pause"), ("DELETE", "")):
        found = refusal(web.client.request(method, f"/api/v1/schedules/video{path}", **admin))
        assert (found.status, "mail" in found.detail) == (404, True)
    body = {"task": "t", "every": "1h", "queue": "mail"}
    assert refusal(web.client.put("/api/v1/schedules/mail", json=body, **operator)).status == 403
    assert refusal(web.client.put("/api/v1/schedules/video", json=body, **admin)).status == 403
    assert refusal(web.client.put("/api/v1/schedules/new", json={**body, "queue": "video"}, **admin)).status == 403
    assert web.client.put("/api/v1/schedules/mail", json=body, **admin).status_code == 200
    assert web.post("/api/v1/schedules/mail:pause", **operator).status_code == 200
    assert refusal(web.post("/api/v1/schedules/mail:pause", **viewer)).status == 403


def test_only_admins_schedule_programs_and_they_are_checked(web: Web) -> None:
    body = {"program": ["sweep", "--all"], "env": {"A": "b"}, "every": "1h"}
    assert web.client.put("/api/v1/schedules/s", json=body).json()["task"] == "holdfast.program"
    assert refusal(web.client.put("/api/v1/schedules/s", json={**body, "task": "t"})).status == 422
