"""The work queue of QuantumLeap, managed over REST alone, with a real worker.

Its tasks are queued, run, and succeed; or fail, wait 20 s, 40 s, 80 s ... for a retry, and at last fail for good; and
are removed after a time. Clients query, inspect, count and delete tasks. Here the first wait is a tenth of a second.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from itertools import pairwise
from typing import Any

import pytest

from holdfast.client.filters import NAMES
from holdfast.store import Store
from holdfast.web.security.users import LOCAL
from holdfast.web.site import Site
from tests.support.varied_store import claim, put
from tests.support.workers import Crew, until
from tests.web.examples import make_world
from tests.web.serving import Web, serve
from tests.web.test_jobs import ids_in

TASK = "tests.apps.web_app.notify"
WAIT = 0.1  # seconds before the first retry
RETRIES = 3


@pytest.fixture
def web(crew: Crew) -> Iterator[Web]:
    with serve(Site(crew.app, lambda _: LOCAL)) as made:
        yield made


def notify(web: Web, entity: str, **options: Any) -> str:
    """Do what the endpoint `notify` does: store a task, and answer."""
    body = {"task": TASK, "arguments": {"entity": {"id": entity, "type": "Room"}}, "queue": "notify", **options}
    id: str = web.call("POST", "/jobs", json=body, headers={"Idempotency-Key": entity})["id"]
    return id


def show(web: Web, id: str) -> Any:
    return web.call("GET", f"/jobs/{id}")


def count(web: Web, state: str) -> int:
    found: int = web.call("GET", f"/jobs:count?queue=notify&state={state}")["count"]
    return found


def ended(web: Web, id: str) -> Any:
    """Wait for the end of a task, as a client does."""

    def result() -> Any:
        response = web.get(f"/api/v1/jobs/{id}/result", headers={"Prefer": "wait=30"})
        return response.json() if response.status_code == 200 else None

    return until(result)


def test_a_task_goes_through_its_life_cycle(crew: Crew, web: Web) -> None:
    retries = {"max": RETRIES, "jitter": 0}
    failing = notify(web, "sensor-1", retries=retries, backoff=WAIT)
    assert (show(web, failing)["state"], count(web, "pending"), count(web, "waiting")) == ("waiting", 1, 1)
    crew.start("--queues", "notify", app="tests.apps.web_app")

    # It fails, is scheduled for a retry after each attempt but the last, and fails for good: r = M.
    assert ended(web, failing)["state"] == "failed"
    found = show(web, failing)
    assert (found["attempt"], found["retries_used"], found["final_reason"]) == (RETRIES + 1, RETRIES, "exhausted")
    assert [(each["outcome"], each["failure"]["message"]) for each in found["attempts"]] == [
        ("error", "the database does not answer")
    ] * (RETRIES + 1)
    assert (count(web, "pending"), count(web, "failed")) == (0, 1)
    assert [wait >= WAIT * 2**retry for retry, wait in enumerate(waits(found))] == [True] * RETRIES
    story = [each["what"] for each in web.call("GET", f"/jobs/{failing}/timeline")["items"]]
    assert story[:4] == ["created", "claimed", "started", "error"]
    assert (story.count("due"), story[-1]) == (RETRIES, "failed")

    # The database is back: the task is retried by hand, and succeeds.
    crew.open("sensor-1")
    web.call("POST", f"/jobs/{failing}:retry")
    assert ended(web, failing) == {"id": failing, "state": "succeeded", "result": "inserted sensor-1", "why": ""}
    assert (count(web, "succeeded"), count(web, "failed")) == (1, 0)


def waits(job: Any) -> list[float]:
    """Return how long a job waited for each of its retries to be due, in seconds."""
    times = [[datetime.fromisoformat(each[name]) for name in ("queued_at", "ended_at")] for each in job["attempts"]]
    return [(later[0] - before[1]).total_seconds() for before, later in pairwise(times)]


def test_tasks_are_queried_inspected_counted_and_deleted_by_any_predicate(crew: Crew, web: Web) -> None:
    crew.start("--queues", "notify", app="tests.apps.web_app")
    crew.open("good")
    for number in range(6):
        notify(web, f"bad-{number}", retries=0, tags=["room-1" if number % 2 else "room-2"])
    good = notify(web, "good")
    until(lambda: count(web, "failed") == 6 and count(web, "succeeded") == 1)

    # Query and inspect: inputs and what is known of the run.
    one = web.call("GET", "/jobs?state=failed&tag=room-1&group=ConnectionError&limit=2")
    rest = web.call("GET", "/jobs", params={"state": "failed", "tag": "room-1", "cursor": one["next"]})
    assert len(ids_in(one) + ids_in(rest)) == 3
    found = show(web, ids_in(one)[0])
    assert found["arguments"]["entity"]["type"] == "Room"
    assert (found["group"], found["attempts"][0]["node"]) == ("ConnectionError", "node")

    # Count by any predicate, and delete by it.
    assert web.call("GET", "/jobs:count?task=tests.apps.web_app.notify&since=1h")["count"] == 7
    body = {"action": "delete", "filter": {"tag": "room-1", "state": ["failed"]}}
    started = web.call("POST", "/operations", json=body)["operation"]
    operation = until(lambda: each if (each := _operation(web, started["id"]))["state"] == "done" else None)
    assert operation["counts"] == {"deleted": 3}
    assert (count(web, "failed"), web.call("GET", "/jobs:count?tag=room-1")["count"]) == (3, 0)
    assert web.client.delete(f"/api/v1/jobs/{good}").status_code == 204
    assert web.get(f"/api/v1/jobs/{good}").status_code == 404


def _operation(web: Web, id: str) -> Any:
    return web.call("GET", f"/operations/{id}")


# By each filter: a value, and which jobs match it, by what the export says of them.
PREDICATES: dict[str, tuple[Any, Callable[[Any], bool]]] = {
    "queue": (["mail", "ends"], lambda job: job["queue"] in ("mail", "ends")),
    "state": (["pending"], lambda job: job["state"] not in ("succeeded", "failed", "cancelled")),
    "task": ("raw", lambda job: job["task"] == "raw"),
    "group": ("Net", lambda job: job["group"] == "Net"),
    "fingerprint": ("8f6fa43e864c82e9", lambda job: job["fingerprint"] == "8f6fa43e864c82e9"),
    "tag": ("z", lambda job: "z" in job["tags"]),
    "scope": ("/x", lambda job: job["scope"].startswith("/x/")),
    "batch": ("import", lambda job: job["batch"] == "import"),
    "waits_for": ("first", lambda job: "first" in [each["id"] for each in job["after"]]),
    "stalled": (True, lambda job: job["stalled"]),
    "worker": ("node/one", lambda job: job["worker"] == "node/one" and job["state"] == "running"),
    "since": ("1h", lambda job: job["id"] != "old"),
    "until": ("1h", lambda job: job["id"] == "old"),
    "id_prefix": ("member", lambda job: job["id"].startswith("member")),
}


def test_each_predicate_selects_the_same_jobs_in_every_request(web: Web) -> None:
    assert PREDICATES.keys() == set(NAMES)
    make_world(web.jobs)
    past = Store(web.jobs.address, clock=lambda: time.time_ns() // 1_000_000 - 2 * 3_600_000)
    put(past, "old", "late")
    assert claim(past, "late") == ["old"]
    past.close()
    everything = _lines(web, "/jobs:export")
    wanted = {name: {job["id"] for job in everything if matches(job)} for name, (_, matches) in PREDICATES.items()}
    for name, (value, _) in PREDICATES.items():
        query = {name: "true" if value is True else value}
        assert 0 < len(wanted[name]) < len(everything), name
        assert {job["id"] for job in _lines(web, "/jobs", **query)} == wanted[name], name
        assert {job["id"] for job in _lines(web, "/jobs:export", **query)} == wanted[name], name
        assert web.call("GET", "/jobs:count", params=query)["count"] == len(wanted[name]), name
        counted = {"action": "tag", "tags": ["t"], "filter": {name: value}, "dry_run": True}
        assert web.call("POST", "/operations", json=counted)["matched"] == len(wanted[name]), name

    # Delete by it: of those that match, the jobs that have ended.
    final = {job["id"] for job in everything if job["state"] in ("succeeded", "failed", "cancelled")}
    for name in ("group", "tag", "batch", "queue", "since"):
        body = {"action": "delete", "filter": {name: PREDICATES[name][0]}}
        id = web.call("POST", "/operations", json=body)["operation"]["id"]
        until(lambda id=id: _operation(web, id)["state"] == "done")  # type: ignore[misc]
        final -= wanted[name]
        left = {job["id"] for job in _lines(web, "/jobs:export", state=["succeeded", "failed", "cancelled"])}
        assert left == final, name
    assert not final


def _lines(web: Web, path: str, **query: Any) -> list[Any]:
    response = web.get(f"/api/v1{path}", params=query, headers={"Accept": "application/x-ndjson"})
    *lines, last = map(json.loads, response.text.splitlines())
    assert last == {"next": None}
    return [line for line in lines if "id" in line]


def test_a_task_is_removed_after_its_time_to_live(crew: Crew, web: Web) -> None:
    crew.open("short")
    id = notify(web, "short", keep="1s")
    crew.start("--queues", "notify", app="tests.apps.web_app")
    assert ended(web, id)["state"] == "succeeded"
    until(lambda: web.get(f"/api/v1/jobs/{id}").status_code == 404)
