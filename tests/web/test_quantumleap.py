"""The work queue of QuantumLeap, managed over REST alone, with a real worker.

Its tasks are queued, run, and succeed; or fail, wait 20 s, 40 s, 80 s ... for a retry, and at last fail for good; and
are removed after a time. Clients query, inspect, count and delete tasks. Here the first wait is a tenth of a second.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from itertools import pairwise
from typing import Any

import pytest

from holdfast.web.security.users import LOCAL
from holdfast.web.site import Site
from tests.support.workers import Crew, until
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
    assert [each["outcome"] for each in found["attempts"]] == ["error"] * (RETRIES + 1)
    assert found["failure"]["message"] == "the database does not answer"
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


def test_a_task_is_removed_after_its_time_to_live(crew: Crew, web: Web) -> None:
    crew.open("short")
    id = notify(web, "short", keep="1s")
    crew.start("--queues", "notify", app="tests.apps.web_app")
    assert ended(web, id)["state"] == "succeeded"
    until(lambda: web.get(f"/api/v1/jobs/{id}").status_code == 404)
