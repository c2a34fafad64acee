"""A worker inside a program: what it does there, and that it starts and ends with its block."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

import pytest
import redis

from holdfast import Holdfast, Invalid, JobCancelled, JobFailed, current_job
from holdfast.errors import HoldfastError
from holdfast.store import commands
from holdfast.worker.embedded import _EmbeddedSupervisor
from holdfast.worker.settings import Pool
from holdfast.worker.supervisor.executor_process import ExecutorProcess
from tests.support.relay import Relay
from tests.support.servers import running_server
from tests.support.workers import PATIENCE, until

colour: ContextVar[str] = ContextVar("colour", default="none")


@pytest.fixture
def jobs(server_url: str, namespace: str) -> Iterator[Holdfast]:
    made = Holdfast(server_url, namespace=namespace)
    yield made
    made.close()


@pytest.fixture(autouse=True)
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    yield
    gc.collect()  # connections that were left open are said in the test that left them


def known_workers(jobs: Holdfast) -> list[str]:
    return [worker.name for worker in jobs.workers()]


def test_coroutines_run_in_the_program_s_own_loop_and_functions_in_its_threads(jobs: Holdfast) -> None:
    loops: list[asyncio.AbstractEventLoop] = []

    @jobs.task(name="where")
    async def where() -> str:
        loops.append(asyncio.get_running_loop())
        return f"{os.getpid()} {colour.get()}"

    @jobs.task(name="thread")
    def thread() -> str:
        return threading.current_thread().name

    async def program() -> tuple[str, str]:
        colour.set("red")
        async with jobs.worker(queues=["default"], concurrency=3) as worker:
            first, second = await where.aenqueue(), await thread.aenqueue()
            found = await first.aresult(timeout="30s"), await second.aresult(timeout="30s")
            assert [one.name for one in await jobs.aworkers()] == [worker.name]
        assert await jobs.aworkers() == []
        assert loops == [asyncio.get_running_loop()]
        await jobs.aclose()
        return found

    slot, name = asyncio.run(program())

    assert slot == f"{os.getpid()} none"
    assert name.startswith("job")


def test_a_sync_program_has_a_worker_in_a_thread(jobs: Holdfast) -> None:
    @jobs.task(name="add")
    async def add(x: int, y: int) -> int:
        return x + y

    @jobs.task(name="fail")
    def fail() -> None:
        raise ValueError("no good")

    with jobs.worker(lease="2s", queues="default,other"):
        many = jobs.enqueue_many([add.bind(number, 1) for number in range(100)])
        failing = fail.options(retries=0, queue="other").enqueue()
        assert [job.result(timeout="30s") for job in many] == list(range(1, 101))
        with pytest.raises(JobFailed, match="no good"):
            failing.result(timeout="30s")

    assert known_workers(jobs) == []
    assert "holdfast-worker" not in [thread.name for thread in threading.enumerate()]


def test_leases_are_renewed_and_cancellations_received(jobs: Holdfast) -> None:
    go = threading.Event()

    @jobs.task(name="hold")
    async def hold() -> str:
        while not go.is_set():
            await asyncio.sleep(0.01)
        return "done"

    with jobs.worker(lease="1s"):
        kept, cancelled = hold.enqueue(), hold.enqueue()
        until(lambda: jobs.count(state="running") == 2)
        ends = jobs.get(kept.id).lease_ends_at
        for _ in range(6):
            until(lambda ends=ends: jobs.get(kept.id).lease_ends_at != ends)  # type: ignore[misc]
            ends = jobs.get(kept.id).lease_ends_at
        cancelled.cancel()
        with pytest.raises(JobCancelled):
            cancelled.result(timeout="30s")
        go.set()
        assert kept.result(timeout="30s") == "done"

    assert jobs.get(kept.id).attempt == 1


def test_jobs_may_end_or_yield_when_the_block_ends_and_the_others_are_requeued(jobs: Holdfast) -> None:
    @jobs.task(name="polite")
    def polite() -> str:
        job = current_job()
        while not job.stopping:
            os.sched_yield()
        return "ended"

    @jobs.task(name="stubborn")
    async def stubborn() -> None:
        await asyncio.sleep(1000)

    with jobs.worker(stop_within="500ms"):
        ending, back = polite.enqueue(), stubborn.enqueue()
        until(lambda: jobs.count(state="running") == 2)

    assert jobs.get(ending.id).decoded_result() == "ended"
    returned = jobs.get(back.id)
    assert (returned.state, [run.outcome for run in returned.attempts]) == ("waiting", ["released"])
    assert (returned.lost_used, returned.crashes_used) == (0, 0)
    assert known_workers(jobs) == []


def test_a_thread_that_is_abandoned_takes_no_neighbour_with_it(jobs: Holdfast) -> None:
    go = threading.Event()

    @jobs.task(name="deaf")
    def deaf() -> None:
        go.wait()

    @jobs.task(name="add")
    async def add(x: int, y: int) -> int:
        return x + y

    with jobs.worker(lease="1s"):
        job = deaf.enqueue()
        until(lambda: jobs.get(job.id).state == "running")
        job.cancel()
        with pytest.raises(JobCancelled):
            job.result(timeout="30s")
        assert add.enqueue(1, 2).result(timeout="30s") == 3
        go.set()


def test_an_embedded_worker_warns_that_it_starts_no_processes(jobs: Holdfast, caplog: pytest.LogCaptureFixture) -> None:
    @jobs.task(runner="process", name="apart")
    def apart() -> int:
        return os.getpid()

    with jobs.worker():
        assert apart.enqueue().result(timeout="30s") == os.getpid()

    assert "starts no processes, so jobs of apart run in threads" in caplog.text
    with pytest.raises(Invalid, match="an embedded worker has no setting 'processes'"):
        jobs.worker(processes=3)  # type: ignore[call-arg]
    with pytest.raises(Invalid, match="concurrency is 0"):
        jobs.worker(concurrency=0)


def test_the_banner_of_an_embedded_worker_names_no_processes_and_the_program_keeps_its_name(
    jobs: Holdfast, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "holdfast.worker")
    name = Path("/proc/self/comm").read_text()

    with jobs.worker(concurrency=7):
        until(lambda: " is ready" in caplog.text)

    assert "    slots   7 coroutines or threads\n" in caplog.text
    assert Path("/proc/self/comm").read_text() == name


def test_a_job_that_may_have_killed_an_executor_is_left_to_other_workers(jobs: Holdfast) -> None:
    @jobs.task(name="suspect")
    async def suspect() -> None: ...

    suspects = [suspect.enqueue(), suspect.enqueue()]
    jobs.store.run(commands.claim("node/dead.1", commands.claim_args(["default"], counter=1, limit=2)))
    jobs.store.run(commands.requeue_orphaned(executor="node/dead.1", reason="the executor died"))

    with jobs.worker():
        until(lambda: all(len(jobs.get(job.id).attempts) > 1 for job in suspects))

    for job in suspects:
        found = jobs.get(job.id)
        assert {run.outcome for run in found.attempts} == {"released"}
        assert found.attempts[1].reason == "it must run alone; an embedded worker cannot"
        assert found.state in ("scheduled", "waiting")


def test_a_worker_runs_once(jobs: Holdfast) -> None:
    worker = jobs.worker()
    with worker:
        pass

    with pytest.raises(HoldfastError, match="has already run"), worker:
        pass


def test_a_block_that_ends_while_the_worker_starts_ends(jobs: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    start = _EmbeddedSupervisor.start_executor

    async def start_when_it_is_to_stop(self: _EmbeddedSupervisor, pool: Pool) -> ExecutorProcess:
        self.stopping.set()
        for _ in range(5):
            await asyncio.sleep(0)  # others have their turns
        return await start(self, pool)

    monkeypatch.setattr(_EmbeddedSupervisor, "start_executor", start_when_it_is_to_stop)

    async def program() -> None:
        worker = jobs.worker()
        async with asyncio.timeout(PATIENCE), worker:
            await worker._supervisor.stopping.wait()

    asyncio.run(program())


@pytest.mark.parametrize("store", ["there", "away"])
def test_a_block_that_is_cancelled_while_it_ends_leaves_no_job_running(namespace: str, store: str) -> None:
    ended: list[str] = []
    with running_server() as url:
        jobs = Holdfast(url, namespace=namespace, timeout="200ms")

        @jobs.task(name="stay")
        async def stay() -> None:
            try:
                await asyncio.sleep(1000)
            finally:
                ended.append("it has ended")

        async def serve() -> None:
            async with jobs.worker():
                await asyncio.sleep(1000)

        async def program() -> None:
            job = await stay.aenqueue()
            serving = asyncio.create_task(serve())
            while (await jobs.aget(job.id)).state != "running":
                await asyncio.sleep(0.01)
            if store == "away":
                with redis.Redis.from_url(url) as client:
                    client.shutdown(nosave=True)
            serving.cancel()
            await asyncio.sleep(0.01)  # it has begun to end
            serving.cancel()
            async with asyncio.timeout(PATIENCE):
                await asyncio.wait({serving})
            assert serving.cancelled()
            assert ended == ["it has ended"]
            if store == "there":
                assert (await jobs.aget(job.id)).state == "waiting"
            await jobs.aclose()

        asyncio.run(program())
        jobs.close()


def test_workers_leave_no_descriptor_open(jobs: Holdfast) -> None:
    async def use_some() -> int:
        jobs.worker()  # which is not entered
        async with jobs.worker():  # which ends before it starts
            pass
        async with jobs.worker() as worker:
            while [one.name for one in await jobs.aworkers()] != [worker.name]:
                await asyncio.sleep(0.01)
        async with jobs.worker() as worker:
            while [one.name for one in await jobs.aworkers()] != [worker.name]:
                await asyncio.sleep(0.01)
            assert worker._task
            worker._task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await worker._task
            worker._task = None
        return len(os.listdir("/proc/self/fd"))

    async def program() -> None:
        before = await use_some()
        for _ in range(3):
            await use_some()
        async with asyncio.timeout(PATIENCE):
            while len(os.listdir("/proc/self/fd")) > before:  # the loop closes a connection in its next turns
                await asyncio.sleep(0.01)
        await jobs.aclose()

    asyncio.run(program())


def test_a_worker_whose_event_loop_cannot_be_created_raises(jobs: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise OSError("too many open files")

    monkeypatch.setattr("asyncio.events.new_event_loop", fail)

    with pytest.raises(OSError, match="too many open files"), jobs.worker():
        pass


def test_a_worker_in_a_thread_that_fails_raises_at_the_end_of_its_block(jobs: Holdfast, tmp_path: Path) -> None:
    (tmp_path / f"holdfast-workers-{os.getuid()}").mkdir(mode=0o777)
    (tmp_path / f"holdfast-workers-{os.getuid()}").chmod(0o777)

    worker = jobs.worker()
    with pytest.raises(HoldfastError, match="is not a private directory"), worker:
        until(lambda: worker._thread and not worker._thread.is_alive())


def test_a_program_that_ends_its_block_while_the_store_is_away_does_not_hang(namespace: str) -> None:
    with running_server() as url:
        jobs = Holdfast(url, namespace=namespace, timeout="200ms")

        @jobs.task(name="stay")
        async def stay() -> None:
            await asyncio.sleep(1000)

        worker = jobs.worker(stop_within="100ms")
        with worker:
            job = stay.enqueue()
            until(lambda: jobs.get(job.id).state == "running")
            with redis.Redis.from_url(url) as client:
                client.shutdown(nosave=True)
        jobs.close()


def test_the_block_is_entered_at_once_while_the_store_is_away(tmp_path: Path, namespace: str) -> None:
    jobs = Holdfast(f"unix://{tmp_path}/nowhere", namespace=namespace)

    with jobs.worker():
        pass


@pytest.mark.parametrize("is_idle", [True, False])
def test_a_drained_worker_ends_when_its_jobs_have_and_the_block_goes_on(jobs: Holdfast, is_idle: bool) -> None:
    go = threading.Event()

    @jobs.task(name="hold")
    def hold() -> str:
        go.wait()
        return "done"

    with jobs.worker() as worker:
        until(lambda: known_workers(jobs) == [worker.name])
        running = [] if is_idle else [hold.enqueue()]
        until(lambda: jobs.count(state="running") == len(running))
        jobs.drain(worker.name)
        if running:
            until(lambda: jobs.workers()[0].is_draining)
            other = hold.enqueue()
        go.set()
        until(lambda: known_workers(jobs) == [])
        if running:
            assert [jobs.get(job.id).state for job in (*running, other)] == ["succeeded", "waiting"]


def test_a_drained_worker_in_the_program_s_own_loop_ends_too(jobs: Holdfast) -> None:
    async def program() -> None:
        async with asyncio.timeout(PATIENCE), jobs.worker() as worker:
            while [one.name for one in await jobs.aworkers()] != [worker.name]:
                await asyncio.sleep(0.01)
            await jobs.adrain(worker.name)
            while await jobs.aworkers():
                await asyncio.sleep(0.01)
        await jobs.aclose()

    asyncio.run(program())


def test_a_worker_that_is_drained_can_be_stopped_before_its_jobs_have_ended(jobs: Holdfast) -> None:
    @jobs.task(name="stay")
    async def stay() -> None:
        await asyncio.sleep(1000)

    with jobs.worker(stop_within="100ms") as worker:
        job = stay.enqueue()
        until(lambda: jobs.get(job.id).state == "running")
        jobs.drain(worker.name)
        until(lambda: jobs.workers()[0].is_draining)

    assert jobs.get(job.id).state == "waiting"
    assert known_workers(jobs) == []


@contextmanager
def sibling(log: Path, **env: str) -> Iterator[None]:
    """A worker on the same node, of other queues."""
    line = [sys.executable, "-m", "holdfast", "work", "tests.apps.other_app", "--queues", "elsewhere"]
    with log.open("wb") as file:
        worker = subprocess.Popen(line, env=os.environ | env, stdout=file, stderr=file)
    try:
        yield
    finally:
        worker.send_signal(signal.SIGTERM)
        worker.wait()


def test_logs_that_cannot_be_sent_when_the_block_ends_are_sent_by_the_next_worker_of_the_node(
    server_url: str, namespace: str, tmp_path: Path
) -> None:
    relay = Relay(tmp_path, server_url)
    jobs = Holdfast(relay.url, namespace=namespace, timeout="200ms")
    go, has_spoken = threading.Event(), threading.Event()

    @jobs.task(name="speak")
    def speak() -> None:
        go.wait()
        current_job().log("words")
        has_spoken.set()

    with jobs.worker(stop_within="100ms"):
        job = speak.enqueue()
        until(lambda: jobs.get(job.id).state == "running")
        relay.close()
        go.set()
        has_spoken.wait(PATIENCE)
    (tmp_path / "r").unlink()
    relay = Relay(tmp_path, server_url)

    with sibling(tmp_path / "log", HOLDFAST_URL=relay.url, HOLDFAST_NAMESPACE=namespace):
        until(lambda: jobs.get(job.id).logs(attempt=1).lines == ["words"])
        until(lambda: not list((tmp_path / f"holdfast-workers-{os.getuid()}").glob("*@" + job_worker(jobs, job.id))))
    jobs.close()
    relay.close()


def job_worker(jobs: Holdfast, id: str) -> str:
    """The last part of the name of the worker that first ran a job."""
    return jobs.get(id).attempts[0].executor.rpartition(".")[0].rpartition("/")[2]


PROGRAM = """
import asyncio, os, sys
from holdfast import Holdfast

jobs = Holdfast()

@jobs.task(name="stay")
async def stay() -> None:
    await asyncio.sleep(1000)

async def main() -> None:
    async with jobs.worker(lease="60s"):
        await stay.aenqueue()
        await asyncio.sleep(1000)

asyncio.run(main())
"""


FORKING = """
import os, sys, time
from holdfast import Holdfast, current_job

jobs = Holdfast()

@jobs.task(name="write")
def write() -> str:
    (current_job().directory / "file").write_text("here")
    return (current_job().directory / "file").read_text()

with jobs.worker() as worker:
    assert write.enqueue().result(timeout="30s") == "here"
    directory = worker._supervisor._settings.directory
    if (child := os.fork()) == 0:
        sys.exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert os.path.isdir(directory)
    assert write.enqueue().result(timeout="30s") == "here"
    assert [one.name for one in jobs.workers()] == [worker.name]
assert not os.path.exists(directory)
"""


def test_a_forked_copy_of_a_program_that_ends_takes_nothing_from_its_worker(server_url: str, namespace: str) -> None:
    here = {"HOLDFAST_URL": server_url, "HOLDFAST_NAMESPACE": namespace}
    line = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORKING]

    done = subprocess.run(line, env=os.environ | here, timeout=PATIENCE, check=False, capture_output=True, text=True)

    assert done.returncode == 0, done.stderr


def test_the_jobs_of_a_killed_program_are_requeued_by_another_worker_on_the_node(
    jobs: Holdfast, server_url: str, namespace: str, tmp_path: Path
) -> None:
    here = {"HOLDFAST_URL": server_url, "HOLDFAST_NAMESPACE": namespace}
    program = subprocess.Popen([sys.executable, "-c", PROGRAM], env=os.environ | here)
    until(lambda: jobs.count(state="running") == 1)
    (job,) = jobs.list()
    try:
        with sibling(tmp_path / "log", **here):
            until(lambda: len(jobs.workers()) == 2)

            program.send_signal(signal.SIGKILL)
            program.wait()

            until(lambda: jobs.get(job.id).state == "waiting")
            assert [run.outcome for run in jobs.get(job.id).attempts] == ["lost"]
    finally:
        program.kill()
