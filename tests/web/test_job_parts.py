"""Parts of a job over REST: result, explanation, time line, graph, usage, log and stored bytes."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from holdfast.web.graph import MAX_NODES
from holdfast.web.security.users import LOCAL
from holdfast.web.site import Site
from tests.support.workers import Crew, until
from tests.web.conftest import Serving
from tests.web.serving import Web, refusal, serve, user_of
from tests.web.test_jobs import as_user, put

APP = "tests.apps.web_app"


@pytest.fixture
def served(crew: Crew) -> Iterator[Web]:
    """A web server for the jobs of a crew with a worker."""
    crew.start(app=APP)
    with serve(Site(crew.app, lambda _: LOCAL)) as web:
        yield web


def talk(web: Web, id: str, gate: str) -> None:
    web.call("PUT", f"/jobs/{id}", json={"task": "tests.apps.web_app.talk", "arguments": {"name": gate}})


# Result


def test_a_result_is_there_once_the_job_has_ended(web: Web) -> None:
    put(web.jobs, "a")
    found = web.get("/api/v1/jobs/a/result")
    assert (found.status_code, found.json()["state"]) == (202, "waiting")
    found = web.get("/api/v1/jobs/a/result", headers={"Prefer": "respond-async, wait=0"})
    assert (found.status_code, found.headers["preference-applied"]) == (202, "wait=0")
    web.jobs.fail("a", group="bad", reason="no such file")
    found = web.get("/api/v1/jobs/a/result", headers={"Prefer": "wait=1000000"})
    assert (found.status_code, found.json()["state"], found.headers["preference-applied"]) == (200, "failed", "wait=60")
    assert "no such file" in found.json()["why"]


def test_who_waits_for_a_result_is_woken_by_the_end(web: Web) -> None:
    put(web.jobs, "a")
    answers: list[httpx.Response] = []

    def wait() -> None:
        answers.append(httpx.get(f"{web.url}/api/v1/jobs/a/result", headers={"Prefer": "wait=60"}, timeout=60))

    waiter = threading.Thread(target=wait)
    waiter.start()
    web.jobs.cancel("a")
    waiter.join()
    assert (answers[0].status_code, answers[0].json()["state"]) == (200, "cancelled")


# What is known


def test_a_job_is_explained_and_its_story_told(web: Web) -> None:
    put(web.jobs, "a")
    assert web.call("GET", "/jobs/a/explain")["code"] == "no-worker"
    web.call("POST", "/jobs/a:move", json={"priority": 7})
    assert [each["what"] for each in web.call("GET", "/jobs/a/timeline")["items"]] == ["created", "priority"]
    assert web.get("/api/v1/jobs/a/usage").status_code == 204


def test_a_graph_has_what_a_job_waits_for_and_what_waits_for_it(web: Web) -> None:
    put(web.jobs, "a", "b")
    put(web.jobs, "c", after=["a", "b"])
    put(web.jobs, "d", after=["c"])
    web.jobs.cancel("a")
    web.jobs.retry("a")
    found = web.call("GET", "/jobs/c/graph")
    assert {each["id"]: each["level"] for each in found["nodes"]} == {"c": 0, "a": -1, "b": -1, "d": 1}
    edges = {(each["job"], each["on"]) for each in found["edges"]}
    assert (edges, found["truncated"]) == ({("c", "a"), ("c", "b"), ("d", "c")}, False)


def test_a_graph_is_bounded(web: Web) -> None:
    put(web.jobs, "root")
    put(web.jobs, *(f"leaf-{number}" for number in range(MAX_NODES + 10)), after=["root"])
    found = web.call("GET", "/jobs/root/graph")
    assert (len(found["nodes"]), len(found["edges"]), found["truncated"]) == (MAX_NODES, MAX_NODES - 1, True)


def test_a_graph_hides_jobs_of_other_queues(serving: Serving) -> None:
    web = serving(auth=user_of)
    put(web.jobs, "secret", queue="other")
    put(web.jobs, "a", after=["secret"])
    found = web.call("GET", "/jobs/a/graph", **as_user("viewer default"))
    assert [each["id"] for each in found["nodes"]] == ["a"]
    assert found["edges"] == []


# Log


def test_a_log_is_followed_as_text_as_lines_and_as_events(crew: Crew, served: Web) -> None:
    talk(served, "a", "gate")
    path = f"{served.url}/api/v1/jobs/a/attempts/latest/log"
    with httpx.stream("GET", f"{path}?follow=true", timeout=60) as text:
        got = text.iter_text()
        assert next(got) == "first line\n"
        with (
            httpx.stream("GET", path, headers={"Accept": "text/event-stream"}, timeout=60) as events,
            httpx.stream("GET", f"{path}?follow=1", headers={"Accept": "application/x-ndjson"}, timeout=60) as lines,
        ):
            first = next(each for each in messages(events) if each["id"])
            crew.open("gate")
            assert "".join(got) == "last line\n"
            records = [json.loads(line) for line in lines.iter_lines()]
    assert (first["id"], first["data"]["text"]) == ("1.11", "first line\n")
    assert ["".join(each["text"] for each in records), records[0]["attempt"]] == ["first line\nlast line\n", 1]

    with httpx.stream("GET", path, headers={"Accept": "text/event-stream", "Last-Event-ID": "1.11"}) as resumed:
        rest = list(messages(resumed))
    assert [each["data"].get("text") for each in rest] == ["last line\n", None]
    assert (rest[0]["id"], rest[1]["event"]) == ("1.21", "end")


def test_a_log_is_shown_with_its_attempts(crew: Crew, served: Web) -> None:
    talk(served, "a", "gate")
    crew.open("gate")
    until(lambda: served.call("GET", "/jobs/a")["state"] == "succeeded")
    until(lambda: "last" in served.call("GET", "/jobs/a/log")["text"])
    found = served.call("GET", "/jobs/a/log?tail=1")
    assert (found["attempt"], found["attempts"], found["text"]) == (1, [1], "last line\n")
    assert served.get("/api/v1/jobs/a/attempts/1/log?tail=1").text == "last line\n"
    assert served.get("/api/v1/jobs/a/attempts/x/log").status_code == 404
    assert served.call("GET", "/jobs/a/result")["result"] == "gate"
    assert served.get("/api/v1/jobs/a/payload").content == b'{"name":"gate"}'
    assert served.get("/api/v1/jobs/a/checkpoint").content == b'{"done":1}'


def test_an_attempt_that_has_not_begun_has_no_log(web: Web) -> None:
    put(web.jobs, "a")
    for path in ("/jobs/a/attempts/1/log", "/jobs/a/attempts/1/log?follow=true", "/jobs/a/log?attempt=1"):
        assert refusal(web.get(f"/api/v1{path}")) == (404, "NOTFOUND", "job a has no attempt 1; none has begun")
    assert web.get("/api/v1/jobs/a/attempts/latest/log").content == b""


def test_data_is_only_for_those_who_may_see_it(serving: Serving) -> None:
    web = serving(auth=user_of)
    put(web.jobs, "a")
    for part in ("payload", "checkpoint", "attempts/1/log"):
        assert web.get(f"/api/v1/jobs/a/{part}", **as_user("viewer")).status_code == 403
    assert web.get("/api/v1/jobs/a/payload", **as_user("operator")).content == b'{"path":"a.png"}'
    assert web.get("/api/v1/jobs/a/checkpoint", **as_user("operator")).status_code == 404


def messages(response: httpx.Response) -> Iterator[dict[str, Any]]:
    """Read server-sent events: id, event and the decoded data of each."""
    found: dict[str, Any] = {}
    for line in response.iter_lines():
        name, _, value = line.partition(": ")
        if line == "" and "data" in found:
            yield {"id": "", "event": "", **found}
        if line == "":
            found = {}
        elif name in ("id", "event"):
            found[name] = value
        elif name == "data":
            found["data"] = json.loads(value)
