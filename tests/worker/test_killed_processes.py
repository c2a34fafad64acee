"""`kill -9` of each kind of process in the middle of 200 jobs, and processes that are stopped for a while.

The store is compared with a ledger outside of it, to which jobs write a line at each start and end.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator

import pytest

from holdfast.job.job import Job
from holdfast.task.task import Task
from tests.apps import kill_app
from tests.support.processes import Site, kill_tree, new_site, send, tree
from tests.support.workers import is_alive, until

JOBS = 200
LONG, SHORT = 30, 5  # steps of a hundredth of a second
REASONS = {"error", "crash", "lost", "released"}
BUSY = ("--processes", "6", "--concurrency", "6")


@pytest.fixture
def site() -> Iterator[Site]:
    with new_site() as site:
        yield site


def put_jobs(site: Site) -> list[str]:
    """Enqueue 200 jobs: three in four have processes of their own, the others are coroutines; some are longer."""
    calls = [
        (kill_app.awork if place % 4 == 0 else kill_app.work).bind(LONG if place % 5 == 0 else SHORT)
        for place in range(JOBS)
    ]
    return [job.id for job in site.app.enqueue_many(calls)]


def check(site: Site, ids: list[str]) -> list[Job[int]]:
    """Nothing is lost, nothing completed twice, and each attempt but the last says why there is another."""
    account = site.settle(ids)
    assert account.lost == []
    assert account.completed_twice == []
    assert account.succeeded == JOBS
    assert site.entries("overlap") == []
    records = site.records(ids)
    for job in records:
        *earlier, last = job.attempts
        assert last.outcome == "succeeded"
        assert job.decoded_result() == last.number
        for run in earlier:
            assert run.outcome in REASONS
            assert run.reason or run.failure
    return records


def outcomes(records: list[Job[int]]) -> set[str]:
    return {run.outcome for job in records for run in job.attempts[:-1]}


def test_job_processes_that_are_killed_lose_and_repeat_nothing(site: Site) -> None:
    ids = put_jobs(site)
    executors = {site.start(*BUSY).executor for _ in range(2)}
    for count in (20, 60, 100):
        site.wait_for_ends(count)
        victims = {entry.pid for entry in site.running()} - executors
        send(signal.SIGKILL, *victims)

    records = check(site, ids)
    assert "crash" in outcomes(records)
    assert outcomes(records) <= {"crash", "released"}


def test_executor_that_is_killed_loses_and_repeats_nothing(site: Site) -> None:
    ids = put_jobs(site)
    victim, _ = site.start(*BUSY), site.start(*BUSY)
    site.wait_for_ends(50)
    until(lambda: held_by(site, victim.pid))
    send(signal.SIGKILL, victim.executor)

    records = check(site, ids)
    assert outcomes(records) & {"crash", "released"}
    assert any("the executor died: signal SIGKILL" in run.reason for job in records for run in job.attempts)


def test_worker_that_is_killed_with_all_it_started_loses_and_repeats_nothing(site: Site) -> None:
    ids = put_jobs(site)
    victim, _ = site.start(*BUSY), site.start(*BUSY)
    site.wait_for_ends(50)
    until(lambda: held_by(site, victim.pid))
    kill_tree(victim)

    records = check(site, ids)
    assert "lost" in outcomes(records)


def test_supervisor_that_is_killed_takes_its_processes_with_it(site: Site) -> None:
    ids = put_jobs(site)
    victim, _ = site.start(*BUSY), site.start(*BUSY)
    site.wait_for_ends(50)
    until(lambda: held_by(site, victim.pid))
    processes = tree(victim)
    victim.kill()
    until(lambda: not any(map(is_alive, processes)), what="the end of the worker's processes")

    assert "lost" in outcomes(check(site, ids))


def test_server_that_is_killed_loses_and_repeats_nothing(site: Site) -> None:
    ids = put_jobs(site)
    for _ in range(2):
        site.start(*BUSY)
    site.wait_for_ends(50)
    killed = site.server()
    send(signal.SIGKILL, killed)
    until(lambda: not is_alive(killed))

    check(site, ids)
    assert site.server() != killed


def held_by(site: Site, supervisor: int) -> list[str]:
    """The jobs that a worker holds, by the store; the worker is known by its process id."""
    return [held.id for worker in site.app.workers() if worker.pid == supervisor for held in worker.held]


@pytest.mark.parametrize("task", [kill_app.hold, kill_app.ahold], ids=["fork", "async"])
def test_job_that_holds_the_interpreter_for_three_leases_keeps_its_lease(site: Site, task: Task[[float], None]) -> None:
    for node in ("one", "two"):
        site.start("--processes", "1", lease="1s", node=node)
    job = site.app.enqueue(task.bind(3.0))
    site.settle([job.id])

    assert [run.outcome for run in site.app.get(job.id).attempts] == ["succeeded"]
    assert [entry.attempt for entry in site.ledger.read()] == [1, 1]


def test_worker_that_was_stopped_past_its_leases_changes_nothing_afterwards(site: Site) -> None:
    gate = site.folder / "gate"
    acts = ("save", "finish", "release")
    stale = site.start("--processes", "3", lease="1s", node="one")
    jobs = [site.app.enqueue(kill_app.be_late.bind(act, str(gate))) for act in acts]
    until(lambda: len(site.entries("start")) == len(jobs))
    processes, runs = tree(stale), site.entries("start")
    send(signal.SIGSTOP, *processes)
    site.start("--processes", "3", lease="1s", node="two")
    until(lambda: site.app.count(state="pending") == 0)
    before = site.records([job.id for job in jobs])
    gate.touch()
    send(signal.SIGCONT, *processes)
    until(lambda: not any(is_alive(run.pid) for run in runs), what="the end of the stale jobs")
    until(lambda: all(any(job.id in line and "lost" in line for line in stale.log.splitlines()) for job in jobs))

    after = site.records([job.id for job in jobs])
    for job, unchanged in zip(before, after, strict=True):
        assert [run.outcome for run in job.attempts] == ["lost", "succeeded"]
        assert job.decoded_result() == "second"
        assert (job.state, job.attempts, job.result_bytes, job.checkpoint_bytes) == (
            unchanged.state, unchanged.attempts, unchanged.result_bytes, unchanged.checkpoint_bytes,
        )  # fmt: skip
    assert stale.stop() == 0


def test_server_that_was_stopped_for_two_leases_costs_no_worker_a_job(site: Site) -> None:
    for node in ("one", "two"):
        site.start("--processes", "4", "--concurrency", "4", lease="1s", node=node)
    calls = [task.bind(steps) for steps in (300, 300, 100, 50, 20, 5, 5, 5) for task in (kill_app.work, kill_app.awork)]
    ids = [job.id for job in site.app.enqueue_many(calls)]
    until(lambda: len(site.entries("start")) >= 4)
    stopped = site.server()
    send(signal.SIGSTOP, stopped)
    try:
        time.sleep(2.2)  # two leases
    finally:
        send(signal.SIGCONT, stopped)

    account = site.settle(ids)
    assert account.lost == []
    assert account.completed_twice == []
    assert account.recovered == []
    assert [len(job.attempts) for job in site.records(ids)] == [1] * len(ids)
