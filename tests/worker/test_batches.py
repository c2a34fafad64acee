"""Batches of real workers: exact counts under failures, retries and kills, and callbacks that run once."""

from __future__ import annotations

import subprocess
import sys
from os import environ

import pytest

from holdfast import Holdfast, errors
from tests.apps import batch_app
from tests.apps.batch_app import gate, part, report, slow_part, split
from tests.support.workers import ROOT, Crew, Worker, until

APP = "tests.apps.batch_app"


def start(crew: Crew, *options: str) -> Worker:
    return crew.start("--processes", "4", "--lease", "2s", *options, app=APP)


def reports(crew: Crew, what: str = "report") -> list[list[str]]:
    return crew.said(what)


def test_a_thousand_members_with_failures_and_retries(crew: Crew) -> None:
    start(crew)
    with crew.app.batch("import", then=report.bind("import"), on_failure=report.bind("import", "failure")) as batch:
        batch.enqueue_many(part.bind(number) for number in range(1000))
    ended = batch.wait(timeout="60s")
    assert (ended.state, ended.total, ended.pending) == ("done", 1000, 0)
    assert (ended.succeeded, ended.failed, ended.cancelled) == (870, 130, 0)
    until(lambda: reports(crew) and reports(crew, "failure"))
    assert reports(crew) == [["import", "done", "1000", "0", "870", "130", "0"]]
    assert sum(1 for _ in batch.jobs(state="failed")) == 130

    crew.app.retry_all(state="failed", task=part)  # they fail again, and no callback runs again
    until(lambda: batch.status().failed == 130)
    crew.put(batch_app.gate, "open").cancel()
    assert crew.app.count(queue="default", state="waiting") == 0
    assert len(reports(crew)) == len(reports(crew, "failure")) == 1
    crew.held()


def test_members_add_members_while_the_batch_is_closed(crew: Crew) -> None:
    with crew.app.batch("tree", on_success=report.bind("tree")) as batch:
        batch.enqueue(split.bind("tree", 6))
    with pytest.raises(errors.WrongState, match="closed"):
        batch.enqueue(split.bind("tree", 0))
    start(crew)
    assert batch.wait(timeout="60s").succeeded == 2**7 - 1
    until(lambda: reports(crew))
    assert reports(crew) == [["tree", "done", "127", "0", "127", "0", "0"]]
    with pytest.raises(errors.WrongState, match="done"):
        batch.enqueue(split.bind("tree", 0))


def test_kills_of_workers_neither_lose_nor_repeat_a_count_or_a_callback(crew: Crew) -> None:
    workers = [start(crew) for _ in range(2)]
    with crew.app.batch("kills", then=report.bind("kills"), on_success=report.bind("kills", "success")) as batch:
        batch.enqueue_many(slow_part.options(crashes=100, lost=100).bind(number) for number in range(300))
    for done in (50, 120, 200):
        until(lambda: batch.status().ended >= done)  # noqa: B023 - called at once
        workers.pop(0).end()
        workers.append(start(crew))
    ended = batch.wait(timeout="60s")
    assert (ended.total, ended.succeeded, ended.pending) == (300, 300, 0)
    [then, success] = [crew.app.get(each.id) for each in ended.callbacks]
    assert then.result(timeout="30s") == success.result(timeout="30s") == "done"
    assert {int(number) for (number,) in crew.said("part", "ends")} == set(range(300))
    assert crew.events("batch_done") == [["kills"]]
    crew.held()


def test_a_producer_that_is_killed_leaves_the_batch_open(crew: Crew) -> None:
    start(crew)
    code = f"from tests.apps import batch_app; batch_app.produce_and_die({'half'!r})"
    here = {"HOLDFAST_URL": crew.url, "HOLDFAST_NAMESPACE": crew.namespace}
    killed = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environ | here, check=False)
    assert killed.returncode == -9
    batch = crew.app.batch("half")
    until(lambda: batch.status().ended == 10)
    assert batch.status().state == "open"
    assert [each.name for each in crew.app.batches(state="open")] == ["half"]
    with pytest.raises(errors.ResultTimeout, match="still open"):
        batch.wait(timeout="10ms")
    assert reports(crew) == []

    with crew.app.batch("half") as again:  # the producer starts again
        again.enqueue_many(part.bind(number) for number in range(60, 70))
    assert again.wait(timeout="30s").succeeded == 20
    until(lambda: reports(crew))
    assert reports(crew) == [["half", "done", "20", "0", "20", "0", "0"]]


def test_a_batch_is_cancelled_while_its_jobs_run(crew: Crew) -> None:
    start(crew, "--concurrency", "2")
    with crew.app.batch("stop", then=report.bind("stop")) as batch:
        batch.enqueue_many(gate.bind("never") for _ in range(30))
    until(lambda: crew.app.count(state="running"))
    counts = batch.cancel(reason="wrong file")
    assert counts.keys() <= {"cancelled", "cancelling"}
    assert sum(counts.values()) == 30
    assert batch.wait(timeout="30s").cancelled == 30
    until(lambda: reports(crew))
    assert reports(crew) == [["stop", "done", "30", "0", "0", "0", "30"]]


def test_callbacks_carry_no_surprise_into_another_namespace(crew: Crew) -> None:
    other = Holdfast(crew.url, namespace=f"{crew.namespace}x")
    with crew.app.batch("here"), pytest.raises(errors.BatchNotFound):
        other.batch("here").status()
    other.close()
