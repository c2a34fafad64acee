"""Pages of schedules: in words, with their runs as shapes; triggered, paused, added, changed and removed by forms."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from holdfast import Holdfast
from holdfast.store import commands
from holdfast.web.pages.plain_words import cron_in_words, when_in_words
from tests.web.acting import act, check_commands, commands_of, main, page, row_of, rows, send, toast
from tests.web.conftest import Serving
from tests.web.serving import Web, user_of


def _report(day: str = "today") -> None: ...


def add(jobs: Holdfast, name: str = "nightly", **timing: Any) -> Any:
    task = jobs.tasks.get("report") or jobs.task(name="report", queue="reports")(_report)
    jobs.schedule(name, task.options(priority=7, retries=2, tags=["daily"]).bind(day="monday"), **timing)
    return task


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("*/15 * * * *", "Every 15 minutes"),
        ("* * * * *", "Every minute"),
        ("*/10 * * * * *", "Every 10 seconds"),
        ("*/7 * * * *", "Every seventh minute of every hour"),
        ("45 * * * *", "At minute 45 of every hour"),
        ("0 12 * * mon-fri", "At 12:00 on Monday through Friday"),
        ("30 23 L * *", "At 23:30 on the last day of every month"),
        ("not cron", "not cron"),
    ],
)
def test_a_cron_expression_is_said_in_words(expression: str, words: str) -> None:
    assert cron_in_words(expression) == words


@pytest.mark.parametrize(
    ("seconds", "offset", "words"),
    [
        (30, 0, "Every 30 seconds"),
        (60, 0, "Every minute"),
        (5400, 0, "Every 90 minutes"),
        (86_400, 3600, "Every day, 1 hour later"),
        (0.5, 0, "Every 0.5 seconds"),
        (None, None, "At times that this release does not know"),
    ],
)
def test_an_interval_is_said_in_words(seconds: float | None, offset: float | None, words: str) -> None:
    assert when_in_words({"cron": None, "every_seconds": seconds, "offset_seconds": offset}) == words


def test_schedules_are_listed_in_words_with_their_runs(web: Web) -> None:
    task = add(web.jobs, cron="0 2 * * mon-fri", tz="Europe/Berlin", overlap="skip")
    add(web.jobs, "poll", every="1h")
    web.jobs.pause_schedule("poll")
    past = web.call("GET", "/schedules/nightly")["history"]
    for firing in past[:3]:
        web.jobs.enqueue(task.options(id=firing["id"], queue="reports").bind())
    web.jobs.cancel(past[0]["id"])
    found = main(page(web, "/schedules"))
    nightly, poll = row_of(found, "nightly"), row_of(found, "poll")
    assert "At 02:00 on Monday through Friday" in nightly.text
    assert "0 2 * * mon-fri · Europe/Berlin" in nightly.text
    assert "skip if running" in nightly.text
    runs = nightly.one("span", "runs").all("a")
    assert [each.attributes["aria-label"].rpartition(": ")[2] for each in runs] == ["waiting", "waiting", "cancelled"]
    assert "not while paused" in poll.text
    assert "none yet" in poll.text
    check_commands(found)


def test_a_schedule_has_a_page_with_its_next_ten_times(web: Web) -> None:
    add(web.jobs, cron="30 2 * * *", jitter="5m")
    found = main(page(web, "/schedules/nightly"))
    assert len(found.one("ol", "ten").all("li")) == 10
    assert all("02:30" in each.text for each in found.one("ol", "ten").all("li"))
    assert "up to 5 min" in found.text
    assert '"day": "monday"' in found.text
    check_commands(found)
    assert web.get("/schedules/nightli").status_code == 404


def test_a_schedule_is_paused_resumed_and_triggered(web: Web) -> None:
    add(web.jobs, every="1h")
    assert toast(act(web, "/schedules", "Pause schedule nightly")) == "Paused schedule nightly"
    paused = page(web, "/schedules/nightly")
    assert "It does not fire while it is paused." in paused.text
    act(web, "/schedules/nightly", "Resume schedule nightly")
    assert not web.jobs.schedules()[0].paused
    act(web, "/schedules", "Run schedule nightly now")
    [job] = web.jobs.peek("reports")
    assert job.id.startswith("nightly@")


def test_a_form_adds_a_schedule_of_a_task_that_only_workers_know(web: Web) -> None:
    fields = {"schedule": "weekly", "task": "sweep", "queue": "low", "cron": "0 7 * * mon", "tz": "Europe/Berlin"}
    after = act(web, "/schedules", "Add the schedule", **fields, arguments='{"deep": true, "size": 9007199254740993}')
    assert row_of(after, "weekly")
    details = web.call("GET", "/schedules/weekly")
    assert (details["task"], details["cron"], details["tz"]) == ("sweep", "0 7 * * mon", "Europe/Berlin")
    assert details["arguments"] == {"deep": True, "size": 9007199254740993}
    again = send(web, "/schedules", "Add the schedule", **fields)
    assert (again.status_code, "there is a schedule of the name weekly" in again.text) == (409, True)
    wrong = send(web, "/schedules", "Add the schedule", **{**fields, "schedule": "other"}, arguments="[1]")
    assert (wrong.status_code, "arguments must be a JSON object" in wrong.text) == (422, True)


def test_other_times_leave_the_job_as_it_is(web: Web) -> None:
    add(web.jobs, cron="0 2 * * *", tz="Europe/Berlin", overlap="skip", jitter="90s")
    before = web.call("GET", "/schedules/nightly")
    [stored] = web.jobs.store.run(commands.schedules(["nightly"]))
    assert toast(act(web, "/schedules/nightly", "Change the schedule", cron="", tz="", every="6h", jitter="")) == (
        "Changed schedule nightly"
    )
    after = web.call("GET", "/schedules/nightly")
    assert (after["cron"], after["every_seconds"], after["overlap"], after["jitter_seconds"]) == (
        None,
        21_600,
        "skip",
        0,
    )
    assert [after[name] for name in ("task", "queue", "arguments", "options")] == [
        before[name] for name in ("task", "queue", "arguments", "options")
    ]
    [changed] = web.jobs.store.run(commands.schedules(["nightly"]))
    assert msgspec.json.decode(changed["batch"]) == msgspec.json.decode(stored["batch"])
    assert changed["payload"] == stored["payload"]


@pytest.mark.parametrize(
    "timing",
    [
        {"cron": "0 2 * * *", "tz": "Europe/Berlin", "missed": "skip", "late": "2m", "jitter": "90s"},
        {"every": "1209601s", "offset": "90061s", "missed": "all", "backlog": 7, "overlap": "skip"},
    ],
)
def test_a_form_or_a_command_that_changes_nothing_changes_nothing(web: Web, timing: dict[str, Any]) -> None:
    add(web.jobs, **timing)
    before = web.call("GET", "/schedules/nightly")
    act(web, "/schedules/nightly", "Change the schedule")
    assert web.call("GET", "/schedules/nightly") == before
    lines = commands_of(main(page(web, "/schedules/nightly")))
    body = next(line for line in lines if line.startswith("curl -X PUT")).split("'")[1]
    web.call("PUT", "/schedules/nightly/timing", content=body)
    assert web.call("GET", "/schedules/nightly") == before


def test_a_declared_schedule_is_overridden_and_reset(web: Web) -> None:
    task = web.jobs.task(name="report", queue="reports")(_report)
    web.jobs.schedule("report", task.bind(), every="1h")
    [fields] = web.jobs.store.run(commands.schedules(["report"]))
    web.jobs.unschedule("report")
    batch = msgspec.json.decode(fields["batch"])
    declared = {"name": "report", "batch": batch, "payload": fields["payload"], "spec": fields["spec"]}
    web.jobs.store.run(commands.declare_schedule(**declared, revision=4, every=3_600_000, offset=0))
    found = page(web, "/schedules/report")
    assert "declared by a task" in found.text
    assert "the change overrides the declaration" in found.text
    assert "Reset…" not in found.buttons()
    act(web, "/schedules/report", "Change the schedule", every="2h")
    assert "overridden" in row_of(page(web, "/schedules"), "report").text
    act(web, "/schedules/report", "Reset the schedule")
    assert web.call("GET", "/schedules/report")["every_seconds"] == 3600


def test_a_schedule_is_removed_after_a_question(web: Web) -> None:
    add(web.jobs, every="1h")
    question = page(web, "/schedules/nightly")
    assert "Jobs that it has enqueued stay, and run." in question.text
    after = act(web, "/schedules/nightly", "Remove the schedule")
    assert "No schedules" in after.text
    assert web.jobs.schedules() == []


def test_an_empty_list_says_what_would_be_here(web: Web) -> None:
    found = main(page(web, "/schedules"))
    assert "A schedule stays until it is removed." in found.text
    check_commands(found)


def test_what_a_user_may_do_is_what_he_sees(serving: Serving) -> None:
    web = serving(auth=user_of)
    add(web.jobs, every="1h")
    task = web.jobs.task(name="other", queue="video")(lambda: None)
    web.jobs.schedule("secret", task.bind(), every="1h")
    assert main(page(web, "/schedules", "viewer")).all("form") == []
    viewed = main(page(web, "/schedules/nightly", "viewer"))
    assert (viewed.all("form"), "monday" in viewed.text) == ([], False)
    operator = main(page(web, "/schedules/nightly", "operator"))
    assert "Run now" in operator.buttons()
    assert not {"Remove…", "Change the schedule"} & {*operator.buttons()}
    assert [row[0] for row in rows(main(page(web, "/schedules", "operator reports")))] == ["nightly"]
    assert web.get("/schedules/secret", headers={"x-user": "admin reports"}).status_code == 404
    form = {"_method": "PUT", "every": "5m", "_next": "/schedules"}
    headers = {"x-user": "operator", "Origin": web.url}
    assert web.post("/api/v1/schedules/nightly/timing", data=form, headers=headers).status_code == 403
    headers = {"x-user": "admin reports", "Origin": web.url}
    assert web.post("/api/v1/schedules/secret/timing", data=form, headers=headers).status_code == 404
