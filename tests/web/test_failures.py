"""Failures over REST: by group, fingerprint, task and queue; details with traceback and examples."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest

from holdfast import Holdfast
from holdfast.job.failure import Failure, encode
from holdfast.job.outcome import Error
from holdfast.store import commands
from holdfast.store.commands import Finish, LogBlock
from tests.support.varied_store import ONE, claim, put
from tests.web.conftest import Serving
from tests.web.serving import Web, as_user, refusal, user_of

PRINT = "f" * 16


def fail(
    jobs: Holdfast,
    id: str,
    queue: str = "mail",
    group: str = "Net",
    fingerprint: str = PRINT,
    *,
    message: str = "secret",
) -> None:
    put(jobs.store, id, queue)
    claim(jobs.store, queue)
    failure = Failure(
        type="ValueError", message=message, traceback=f"Traceback\nValueError: {message}", group=group,
        fingerprint=fingerprint, place="tasks:add", notes=(f"{message} note",),
    )  # fmt: skip
    jobs.store.run(commands.finish(ONE, [Finish(id, 1, Error(encode(failure), group, final=True))]))


def names(web: Web, path: str, **options: Any) -> list[tuple[str, int]]:
    return [(each["name"], each["count"]) for each in web.call("GET", path, **options)["items"]]


def test_failures_are_listed_by_what_they_have_in_common(web: Web) -> None:
    for number in range(4):
        fail(web.jobs, f"job-{number}", ("mail", "video")[number % 2], f"group-{number // 2}")
    assert sorted(names(web, "/failures")) == [("group-0", 2), ("group-1", 2)]
    assert names(web, "/failures?by=queue") == [("mail", 2), ("video", 2)]
    assert sorted(names(web, "/failures?queue=mail")) == [("group-0", 1), ("group-1", 1)]
    [found] = web.call("GET", "/failures?by=fingerprint")["items"]
    assert (found["name"], found["type"], found["place"], found["errors"]) == (PRINT, "ValueError", "tasks:add", 4)
    assert found["retry"] == f"holdfast retry --all --fingerprint {PRINT}"
    assert refusal(web.get("/api/v1/failures?queue=male")).status == 404
    assert refusal(web.get("/api/v1/failures?queue=mail&by=queue")).status == 422


def test_of_a_queue_with_many_failed_jobs_the_latest_are_counted(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    failure = encode(Failure(type="ValueError", message="", traceback="", group="Net", fingerprint=PRINT))
    task = web.jobs.task(name="task", queue="mail")(lambda: None)
    web.jobs.enqueue_many(task.bind() for _ in range(3000))
    for _ in range(3):
        ended = [Finish(id, 1, Error(failure, "Net", final=True)) for id in claim(web.jobs.store, "mail", 1000)]
        web.jobs.store.run(commands.finish(ONE, ended))
    whole = web.call("GET", "/failures?queue=mail")
    assert ([each["count"] for each in whole["items"]], "looked_at" in whole) == ([3000], False)
    monkeypatch.setattr("holdfast.web.resources.failures.MAX_LOOKED_AT", 1)
    part = web.call("GET", "/failures?queue=mail")
    assert part["items"][0]["count"] == part["looked_at"] < 3000
    assert f"of the {part['looked_at']:,} jobs that failed last" in web.get("/failures?queue=mail").text


@pytest.mark.parametrize("filters", ["", "&queue=mail"])
def test_failures_have_pages(web: Web, filters: str) -> None:
    for number in range(5):
        fail(web.jobs, f"job-{number}", group=f"group {number}")
    found, cursor = [], ""
    while True:
        page = web.call("GET", f"/failures?limit=2&cursor={quote(cursor)}{filters}")
        found += [each["name"] for each in page["items"]]
        cursor = page.get("next")
        if not cursor:
            break
    assert sorted(found) == [f"group {number}" for number in range(5)]
    assert refusal(web.get(f"/api/v1/failures?cursor=nonsense{filters}")).status == 422


def test_a_fingerprint_is_shown_with_its_traceback_and_examples(web: Web) -> None:
    for number in range(3):
        fail(web.jobs, f"job-{number}")
    found = web.call("GET", f"/failures/{PRINT}?examples=2")
    assert (found["by"], found["count"], found["message"], found["errors"]) == ("fingerprint", 3, "secret", 3)
    assert (found["traceback"], found["notes"]) == ("Traceback\nValueError: secret", ["secret note"])
    assert found["traceback_of"][1] == 1
    assert [each["id"] for each in found["examples"]] == ["job-2", "job-1"]
    assert found["first_seen"] <= found["last_seen"]


def test_a_group_a_task_and_a_queue_are_shown_with_examples(web: Web) -> None:
    fail(web.jobs, "one")
    for path, by in (("Net", "group"), ("task?by=task", "task"), ("mail?by=queue", "queue")):
        found = web.call("GET", f"/failures/{path}")
        assert (found["by"], found["count"], found["traceback"]) == (by, 1, "")
        assert [(each["id"], each["fingerprint"]) for each in found["examples"]] == [("one", PRINT)]
    for path in ("nothing", "Net?by=fingerprint", f"{PRINT}?by=group"):
        assert refusal(web.get(f"/api/v1/failures/{path}")).status == 404


def test_failures_are_those_of_the_queues_that_a_user_may_see(serving: Serving) -> None:
    web = serving(auth=user_of)
    fail(web.jobs, "one")
    assert names(web, "/failures?queue=mail", **as_user("viewer mail")) == [("Net", 1)]
    for path in ("", "?queue=video", f":trends?name={PRINT}"):
        assert refusal(web.get(f"/api/v1/failures{path}", **as_user("viewer mail"))).status == 403
    fail(web.jobs, "other", "video")
    fail(web.jobs, "hidden", "video", group="Disk", fingerprint="d" * 16)
    found = web.call("GET", f"/failures/{PRINT}", **as_user("viewer mail"))
    assert (found["count"], found["example"], found["errors"]) == (1, "one", None)
    assert [each["id"] for each in found["examples"]] == ["one"]
    assert web.call("GET", "/failures/Net", **as_user("viewer mail"))["count"] == 1
    assert web.call("GET", "/failures/mail?by=queue", **as_user("viewer mail"))["count"] == 1
    for path, status in (("d" * 16, 404), ("Disk", 404), ("video?by=queue", 403)):
        assert refusal(web.get(f"/api/v1/failures/{path}", **as_user("viewer mail"))).status == status

    for path in (f"/failures/{PRINT}", "/failures?by=fingerprint"):
        assert "secret" not in web.get(f"/api/v1{path}", **as_user("viewer")).text
        assert "secret" in web.get(f"/api/v1{path}", **as_user("operator")).text


def test_what_failed_in_another_queue_is_no_example_of_an_error(serving: Serving) -> None:
    web = serving(auth=user_of)
    fail(web.jobs, "foreign-1", "video", message="foreign data")
    fail(web.jobs, "one", "mail", message="my data")
    fail(web.jobs, "foreign-2", "video", message="foreign data")
    for path in (f"/api/v1/failures/{PRINT}", "/api/v1/failures?by=fingerprint&queue=mail", f"/failures/{PRINT}",
                 "/failures", "/failures?queue=mail", "/api/v1/attention", "/"):  # fmt: skip
        text = web.get(path, headers={"x-user": "operator mail"}).text
        assert "foreign" not in text, path
    found = web.call("GET", f"/failures/{PRINT}", **as_user("operator mail"))
    assert (found["message"], found["notes"]) == ("my data", ["my data note"])
    assert found["traceback"] is None  # the store has only that of `foreign-1`
    [listed] = web.call("GET", "/failures?by=fingerprint&queue=mail", **as_user("operator mail"))["items"]
    assert (listed["message"], listed["example"], listed["errors"]) == ("my data", "one", None)
    assert "my data" not in web.get(f"/api/v1/failures/{PRINT}", **as_user("viewer mail")).text


def test_the_traceback_of_a_job_in_another_queue_is_not_shown_with_ones_own_job(serving: Serving) -> None:
    web = serving(auth=user_of)
    fail(web.jobs, "foreign-1", "video", message="foreign data")
    fail(web.jobs, "one", "mail", message="my data")
    web.jobs.store.run(commands.log([LogBlock("one", _created(web.jobs, "one"), 1, 0, b"output")]))
    for path in ("/api/v1/jobs/one", "/api/v1/jobs:show?id=one", "/api/v1/jobs:export", "/api/v1/jobs/one/log",
                 "/api/v1/jobs/one/timeline", "/jobs/one"):  # fmt: skip
        text = web.get(path, headers={"x-user": "operator mail"}).text
        assert "foreign" not in text, path
        assert path.endswith("timeline") or "foreign data" in web.get(path, headers={"x-user": "operator"}).text, path
        both = web.get(path, headers={"x-user": "operator mail,video"}).text
        assert path.endswith("timeline") or "foreign data" in both, path


def _created(jobs: Holdfast, id: str) -> int:
    return int(jobs.get(id).created_at.timestamp() * 1000)


def test_trends_say_when_jobs_failed(web: Web) -> None:
    for number in range(3):
        fail(web.jobs, f"job-{number}", fingerprint=("a" if number else "b") * 16)
    path = f"/failures:trends?name={'a' * 16}&name={'b' * 16}&name=none&step=1h&count=24"
    rows = web.call("GET", path)["items"]
    assert [each["name"] for each in rows] == ["a" * 16, "b" * 16, "none"]
    assert [sum(each["counts"]) for each in rows] == [2, 1, 0]
    assert {(len(each["counts"]), each["step_seconds"]) for each in rows} == {(24, 3600.0)}
    for wrong in ("", "?name=x&step=1ms", "?name=x&count=101", "?name=x&by=queue"):
        assert refusal(web.get(f"/api/v1/failures:trends{wrong}")).status == 422
