"""How jobs are stopped: by cancelling them, and by stopping their worker."""

from __future__ import annotations

import asyncio
import signal
import tempfile
from pathlib import Path
from typing import Any

import pytest
import redis

from holdfast import Job, JobCancelled, Task
from holdfast.store.store import Address, AsyncStore
from holdfast.worker.executor.claiming import Claiming
from holdfast.worker.settings import ExecutorStart, Pool, WorkerSettings
from holdfast.worker.supervisor.supervisor import Supervisor
from tests.apps import worker_app as app
from tests.support.relay import Relay
from tests.support.workers import PATIENCE, Crew, children, descendants, is_alive, said_of, until

# Cancelling


@pytest.mark.parametrize("task", [app.clean_up, app.clean_up_async], ids=["sync", "async"])
def test_a_job_that_is_cancelled_ends_through_its_finally_blocks(company: Crew, task: Task[[str], None]) -> None:
    job = company.put(task, task.name)
    company.pids(task.name, "runs")

    assert job.cancel() == "cancelling"

    with pytest.raises(JobCancelled):
        job.result(timeout="30s")
    assert company.outcomes(job) == ["cancelled"]
    assert company.said(task.name, "cleaned") == [[]]
    assert company.said(task.name, "ends") == []


def test_a_cancelled_job_that_ignores_it_is_killed_with_its_children(company: Crew) -> None:
    job = company.put(app.ignore, "stubborn")
    pids = company.pids("stubborn", "runs") + company.pids("stubborn", "started")

    job.cancel()

    assert company.ended(job).state == "cancelled"
    assert until(lambda: not any(map(is_alive, pids)))


def test_a_success_that_arrives_before_the_cancellation_stands(company: Crew) -> None:
    job = company.put(app.return_when_told, "quick")
    company.pids("quick", "runs")

    assert job.cancel() == "cancelling"

    assert job.result(timeout="30s") == "done"
    assert company.get(job).state == "succeeded"


def test_a_cancellation_whose_message_was_lost_is_found_by_the_next_renewal(crew: Crew) -> None:
    worker = crew.start("--lease", "2s")
    job = crew.put(app.hold, "held")
    crew.pids("held", "runs")
    worker.send(signal.SIGSTOP)
    with redis.Redis.from_url(crew.url) as client:
        for connection in client.client_list():
            if connection["cmd"] == "blpop":
                client.client_kill_filter(_id=connection["id"])
        job.cancel()
        assert client.delete(*client.scan_iter(f"hf:{{{crew.namespace}}}:inbox:node/*")) == 1
    worker.send(signal.SIGCONT)

    assert crew.ended(job).state == "cancelled"


def test_a_coroutine_that_ignores_its_cancellation_is_abandoned_and_its_executor_replaced(crew: Crew) -> None:
    worker = crew.start()
    stubborn, neighbour = crew.put(app.ignore_async, "deaf"), crew.put(app.hold_async, "neighbour")
    (executor,) = crew.pids("deaf", "runs")
    crew.pids("neighbour", "runs")

    stubborn.cancel()

    assert crew.ended(stubborn).state == "cancelled"
    assert is_alive(executor), "its neighbour still runs there"
    crew.open("neighbour")
    assert neighbour.result(timeout="30s") == "neighbour"
    assert crew.put(app.add_async, 1, 2).result(timeout="30s") == 3
    assert not is_alive(executor)
    assert children(worker.pid) != [executor]
    assert crew.get(neighbour).attempt == 1
    assert "died" not in worker.log


def test_an_executor_whose_event_loop_is_blocked_is_killed_when_a_job_of_it_is_cancelled(crew: Crew) -> None:
    worker = crew.start("--lease", "2s")
    blocked = crew.put(app.block, "blocked")
    (executor,) = crew.pids("blocked", "runs")

    blocked.cancel()

    assert crew.ended(blocked).state == "cancelled"
    assert not is_alive(executor)
    assert "is unresponsive" in worker.log


def test_a_coroutine_that_blocks_its_event_loop_does_not_outlive_its_timeout(crew: Crew) -> None:
    worker = crew.start("--lease", "2s")
    blocked = crew.put(app.block.options(timeout="2s", retries=0), "blocked")
    (executor,) = crew.pids("blocked", "runs")
    neighbour = crew.put(app.hold, "neighbour")

    assert crew.ended(blocked).group == "timeout"
    assert not is_alive(executor)
    assert "is unresponsive" in worker.log
    crew.open("neighbour")
    assert crew.ended(neighbour).crashes_used == 0


def test_an_executor_whose_event_loop_is_blocked_for_long_is_warned_of_once_and_goes_on(crew: Crew) -> None:
    worker = crew.start("--lease", "2s")
    blocked = crew.put(app.block, "blocked")
    until(lambda: "a coroutine blocks its event loop" in worker.log)

    crew.open("blocked")

    assert crew.ended(blocked).attempt == 1
    assert worker.log.count("a coroutine blocks its event loop") == 1


# Stopping a worker


def test_a_job_that_yields_is_resumed_by_another_worker_ahead_of_later_jobs_without_using_up_a_retry(
    crew: Crew,
) -> None:
    first = crew.start("--processes", "1")
    job = crew.put(app.step, "steps", 3)
    until(lambda: crew.said("steps", "item", "0"))
    crew.put(app.say, "later")
    first.send(signal.SIGTERM)
    until(lambda: "is stopping" in first.log)
    crew.open("steps-0")
    assert first.wait() == 0
    assert crew.get(job).state == "waiting"

    crew.open("steps-1")
    crew.open("steps-2")
    crew.start("--processes", "1")

    assert job.result(timeout="30s") == [1, 2]
    until(lambda: crew.said("later"))
    assert crew.said() == [["steps", "item", "0"], ["steps", "item", "1"], ["steps", "item", "2"], ["later"]]
    ended = crew.get(job)
    assert (ended.retries_used, ended.crashes_used, ended.lost_used) == (0, 0, 0)
    assert crew.outcomes(job) == ["released", "succeeded"]


def test_a_coroutine_that_yields_is_resumed_from_its_checkpoint(crew: Crew) -> None:
    first = crew.start()
    job = crew.put(app.step_async, "yielding")
    until(lambda: crew.said("yielding", "attempt", "1"))
    assert first.stop() == 0
    assert said_of(crew.get(job)) == (0.5, "half of it")

    crew.start()

    assert job.result(timeout="30s") == "resumed"
    assert crew.outcomes(job) == ["released", "succeeded"]


def test_a_worker_that_stops_lets_its_job_end_and_claims_no_other(crew: Crew) -> None:
    worker = crew.start("--processes", "4")
    running = crew.put(app.hold, "running")
    crew.pids("running", "runs")
    worker.send(signal.SIGTERM)
    until(lambda: "is stopping" in worker.log)
    other = crew.put(app.say, "other")
    crew.open("running")

    assert worker.wait() == 0

    assert running.result(timeout="30s") == "running"
    assert crew.get(other).attempt == 0
    assert crew.app.workers() == []
    assert crew.held() == []


def test_a_job_that_does_not_stop_by_the_deadline_is_killed_and_requeued_without_using_up_a_retry(crew: Crew) -> None:
    worker = crew.start("--stop-within", "300ms", "--processes", "4")
    jobs: list[Job[Any]] = [
        crew.put(app.ignore, "process"),
        crew.put(app.ignore_async, "coroutine"),
        crew.put(app.hold, "plain"),
    ]
    pids = [pid for name in ("process", "coroutine", "plain") for pid in crew.pids(name, "runs")]
    pids += crew.pids("process", "started") + descendants(worker.pid)
    assert crew.directories()

    assert worker.stop() == 0

    assert not any(map(is_alive, pids))
    for job in jobs:
        back = crew.get(job)
        assert (back.state, crew.outcomes(job)) == ("waiting", ["released"])
        assert (back.retries_used, back.crashes_used, back.lost_used) == (0, 0, 0)
    assert crew.app.workers() == []
    assert crew.held() == []
    assert crew.directories() == []


def test_a_second_signal_requeues_jobs_at_once(crew: Crew) -> None:
    worker = crew.start("--stop-within", "10m")
    job = crew.put(app.hold, "slow")
    crew.pids("slow", "runs")
    worker.send(signal.SIGTERM)
    until(lambda: "is stopping" in worker.log)

    worker.send(signal.SIGTERM)

    assert worker.wait() == 0
    assert crew.outcomes(job) == ["released"]


def test_no_process_waits_for_a_next_job_when_its_worker_stops(crew: Crew) -> None:
    worker = crew.start("--processes", "2")
    crew.put(app.hold, "held")
    (held,) = crew.pids("held", "runs")
    crew.put(app.add, 1, 2).result(timeout="30s")
    until(lambda: len(children(worker.zygote)) == 2)  # one was forked ahead

    worker.send(signal.SIGTERM)

    assert until(lambda: children(worker.zygote) == [held])
    crew.open("held")
    assert worker.wait() == 0


def test_jobs_do_not_end_by_a_sigterm_that_all_processes_get_as_from_systemd(crew: Crew) -> None:
    worker = crew.start()
    job = crew.put(app.step, "steps", 2)
    until(lambda: crew.said("steps", "item", "0"))
    for pid in [*descendants(worker.pid), worker.pid]:
        crew.kill(pid, signal.SIGTERM)
    until(lambda: "is stopping" in worker.log)
    crew.open("steps-0")

    assert worker.wait() == 0
    assert crew.outcomes(job) == ["released"]
    assert crew.get(job).attempts[0].reason == "yielded"


def test_a_worker_deregisters_without_waiting_for_an_unreachable_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))

    async def leave() -> None:
        supervisor = Supervisor(WorkerSettings(app="nothing"))
        supervisor._store.connect(Address(f"unix://{tmp_path}/no-server", None, timeout=0.2))
        async with asyncio.timeout(PATIENCE):
            await supervisor._deregister()
        supervisor._lock.remove()

    asyncio.run(leave())


def test_a_stopping_executor_does_not_wait_for_an_unreachable_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.worker.executor.claiming.TRUSTED_CLAIM_TIME", -1)  # longer than a reply is trusted

    async def claim() -> None:
        store = AsyncStore(Address(f"unix://{tmp_path}/no-server", None, timeout=0.2))
        settings = WorkerSettings(app="nothing")
        start = ExecutorStart(
            name="node/worker.1", parent=1, settings=settings, pool=Pool(), control=-1, lease_clock=-1
        )
        claiming = Claiming(
            store,
            start,
            revision=0,
            is_ending=lambda: True,
            may_pipeline=lambda: False,
            on_wake=lambda: None,
            on_claim=lambda _: None,
        )
        async with asyncio.timeout(PATIENCE):
            assert (await claiming.call([], 1)).claim.jobs == []
        await store.close()

    asyncio.run(claim())


def test_a_worker_that_stops_during_an_outage_does_not_wait_for_the_store(crew: Crew, tmp_path: Path) -> None:
    worker = crew.start("--stop-within", "100ms", HOLDFAST_URL=f"unix://{tmp_path}/no-server")
    until(lambda: "cannot be reached" in worker.log)

    assert worker.stop() == 0
    assert "could not deregister" in worker.log
    assert "a duty of the supervisor failed" not in worker.log


@pytest.mark.parametrize("is_busy", [False, True])
def test_a_stopping_worker_whose_store_no_longer_answers_exits_soon(crew: Crew, is_busy: bool) -> None:
    """Its connections stay open, so each call would run into its time-out, one after the other."""
    with tempfile.TemporaryDirectory(prefix="hf-") as folder:
        relay = Relay(Path(folder), crew.url)
        worker = crew.start("--stop-within", "1s", HOLDFAST_URL=relay.url)
        job = crew.put(app.ignore, "deaf")
        crew.pids("deaf", "started")
        if not is_busy:
            crew.app.cancel(job.id)
            crew.ended(job)

        relay.cut()

        assert worker.stop() == 0
        assert "was not called" in worker.log
        relay.close()
    assert not any(is_alive(pid) for pid in crew.pids("deaf", "started"))
