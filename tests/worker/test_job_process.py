"""Messages between a job's process and its executor: from threads, after its end, and while it is stopped."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Coroutine
from functools import partial
from typing import Any, TypeVar

import pytest

from holdfast import Job, LeaseLost
from holdfast.job.outcome import Outcome, Release, Succeed
from holdfast.store.commands import ClaimedJob
from holdfast.task.program import PROGRAM
from holdfast.worker import messages
from holdfast.worker.attempt import SOFT, WORKER, Attempt, ExecutorContext
from holdfast.worker.executor import saving
from holdfast.worker.pending_saves import PendingSaves, Update
from holdfast.worker.runners import job_process
from holdfast.worker.runners.job_process import JobProcess
from holdfast.worker.runners.process_runner import ProcessRunner
from holdfast.worker.transport import READ_SIZE, Channel, MessageBuffer
from tests.apps import link_app as app
from tests.support.relay import Relay
from tests.support.workers import Crew, Worker, until

T = TypeVar("T")


def start(crew: Crew, *options: str, **env: str) -> Worker:
    crew.app.tasks.update(app.jobs.tasks)
    return crew.start("--processes", "1", *options, app="tests.apps.link_app", **env)


def checkpoint(crew: Crew, job: Job[Any]) -> bytes | None:
    return crew.get(job).checkpoint_bytes


# What a job leaves behind


def test_a_thread_that_a_job_leaves_behind_does_no_step_of_the_next_job(crew: Crew) -> None:
    start(crew)
    process = crew.put(app.haunt, "ghost").result(timeout="30s")
    after = crew.put(app.do_step, "after")
    crew.pids("after", "runs")

    crew.open("ghost-speaks")
    until(lambda: crew.said("ghost", "ended"))
    crew.open("after")

    assert after.result(timeout="30s") == (process, "my own")
    assert crew.said("ghost", "ended") == [["LeaseLost"]]


def test_a_request_of_a_thread_in_an_idle_process_takes_no_job(crew: Crew) -> None:
    start(crew)
    process = crew.put(app.haunt, "ghost").result(timeout="30s")

    crew.open("ghost-speaks")
    until(lambda: crew.said("ghost", "speaks"))
    crew.open("after")

    assert crew.put(app.do_step, "after").result(timeout="30s") == (process, "my own")
    assert crew.said("ghost", "ended") == [["LeaseLost"]]


def test_a_thread_that_still_waits_for_an_answer_holds_up_neither_its_job_nor_the_next(
    crew: Crew, relay: Relay
) -> None:
    worker = start(crew, "--log-level", "debug", HOLDFAST_URL=relay.url)
    job = crew.put(app.leave_asking, "ghost")
    until(lambda: crew.get(job).state == "running")
    relay.cut()
    crew.open("ghost-speaks")
    until(lambda: crew.said("ghost", "speaks"))

    crew.open("ghost")
    crew.open("after")
    until(lambda: f"{job.id}: attempt 1 of {app.leave_asking.name} succeeded" in worker.log)
    relay.mend()

    process = job.result(timeout="30s")
    assert crew.put(app.do_step, "after").result(timeout="30s") == (process, "my own")


def test_a_forked_copy_left_behind_sends_nothing_for_the_next_job(crew: Crew) -> None:
    start(crew)
    process = crew.put(app.leave_copy, "ghost").result(timeout="30s")
    after = crew.put(app.do_step, "after")
    crew.pids("after", "runs")

    crew.open("ghost-speaks")
    until(lambda: [] in crew.said("ghost", "ended"))
    crew.open("after")

    assert after.result(timeout="30s") == (process, "my own")
    assert not checkpoint(crew, after)


# Threads of a job


def test_a_job_sends_and_receives_while_one_of_its_threads_waits_for_a_reply(crew: Crew, relay: Relay) -> None:
    start(crew, HOLDFAST_URL=relay.url)
    job = crew.put(app.speak_while_a_thread_asks.options(soft_timeout="1s"), "both")
    crew.pids("both", "runs")
    relay.cut()
    crew.open("both-speaks")

    until(lambda: crew.said("both", "told"))
    assert crew.said("both", "ended") == []
    relay.mend()

    assert job.result(timeout="30s") == "soft_timeout"
    assert crew.said("both", "ended") == [["heard"]]


def test_each_of_many_threads_gets_its_own_replies(crew: Crew) -> None:
    start(crew)

    assert crew.put(app.ask_at_once, 8, 40).result(timeout="40s") == [True] * 8


# A job that is stopped while it speaks


def test_the_last_save_of_jobs_that_are_stopped_in_the_middle_of_one_arrives(crew: Crew) -> None:
    start(crew)
    for _ in range(4):  # it is always in the middle of one, but for moments
        job = crew.put(app.save_much)
        until(partial(checkpoint, crew, job))

        crew.app.cancel(job.id)

        assert crew.ended(job).state == "cancelled"
        assert checkpoint(crew, job) == b'"' + b"y" * app.BIG + b'"'


# An executor that cannot do what it is asked for


def test_a_step_is_kept_though_the_machine_had_nothing_left_for_a_while(crew: Crew) -> None:
    start(crew, FAIL_STEPS="machine")

    assert crew.put(app.step_here).result(timeout="30s") == "done"


def test_a_job_gets_an_error_of_its_executor(crew: Crew) -> None:
    start(crew, FAIL_STEPS="bug")

    ended = crew.ended(crew.put(app.step_here))

    assert ended.state == "failed"
    assert ended.failure
    assert "a bug of ours" in ended.failure.message


# The executor's end of it, with a process that is played


class Played:
    """A process whose messages the test sends and receives. It is forked when the test starts it."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        ours, self.its = socket.socketpair()
        self.its.setblocking(False)
        self._forked: asyncio.Future[Any] = loop.create_future()
        self._ended: asyncio.Future[Any] = loop.create_future()
        self.process = JobProcess(self._forked, ours)

    def __enter__(self) -> Played:
        return self

    def __exit__(self, *_: object) -> None:
        self.its.close()
        self.process.close()

    def fork(self) -> None:
        self._forked.set_result(job_process.ForkedProcess(PID, self._ended))

    def refuse(self) -> None:
        self._forked.set_result(None)

    def received(self) -> list[Any]:
        arriving: MessageBuffer[messages.ToJob] = MessageBuffer(messages.decoder(messages.ToJob))
        return [type(message).__name__ for message in arriving.add(self.its.recv(READ_SIZE))]

    def die(self, *_: object) -> None:
        self._ended.set_result(job_process.ProcessEnd(9, 0))
        self.its.close()


class Zygote:
    """Starts what the test has ready."""

    def __init__(self, *ready: Played) -> None:
        self.ready = [*ready]

    def start(self, _: bytes) -> JobProcess:
        return self.ready.pop(0).process


PID = 1 << 30  # of no process
NO_STORE: Any = None  # for what does not need one
GARBAGE = (3).to_bytes(4) + b"\xc1\xff\xff"


def claimed(task: str = "task") -> Attempt:
    async def answer(*_: object) -> tuple[str, Any]:
        return "", None

    nobody = lambda *_: None  # noqa: E731
    context = ExecutorContext("node/worker.1", "", "", False, False, nobody, nobody, nobody, answer, lambda: 0.0)
    return Attempt(ClaimedJob("job", 1, "default", task, "json", b"[[],{}]", b"", 0, 1, False), context, 0.0)


async def soon() -> None:
    """Let the event loop come to rest."""
    for _ in range(10):
        await asyncio.sleep(0)


def play(main: Coroutine[Any, Any, T]) -> T:
    async def within_seconds() -> T:
        async with asyncio.timeout(10):
            return await main

    return asyncio.run(within_seconds())


@pytest.mark.parametrize("how", ["stop", "interrupt"])
def test_a_job_that_is_to_stop_while_its_process_is_forked_does_not_start(how: str) -> None:
    async def main() -> None:
        attempt = claimed()
        with Played() as played:
            running = asyncio.create_task(played.process.run(attempt, stays=False))
            await soon()

            getattr(attempt, how)("worker")
            played.fork()

            assert await running == Release("worker" if how == "interrupt" else "stopping")
            assert attempt.finish(Release("")).unstarted
            with pytest.raises(BlockingIOError):
                played.received()

    play(main())


async def run_with_message(message: bytes, monkeypatch: pytest.MonkeyPatch, *, stays: bool) -> Outcome:
    """Run a job whose process sends an invalid message, and is killed for it."""
    with Played() as played:
        monkeypatch.setattr(job_process, "kill_group", played.die)
        played.fork()
        running = asyncio.create_task(played.process.run(claimed(), stays=stays))
        await soon()
        played.its.sendall(message)
        try:
            return await running
        finally:
            assert played.process.is_dead


@pytest.mark.parametrize("stays", [True, False])
def test_a_process_that_is_not_understood_is_killed_and_its_job_ends(
    monkeypatch: pytest.MonkeyPatch, stays: bool
) -> None:
    with pytest.raises(ValueError, match="malformed"):
        play(run_with_message(GARBAGE, monkeypatch, stays=stays))


@pytest.mark.parametrize("stays", [True, False])
def test_an_outcome_counts_that_is_followed_by_what_is_not_understood(
    monkeypatch: pytest.MonkeyPatch, stays: bool
) -> None:
    message = messages.pack(messages.JobEnded.of(Succeed(b"1"))) + GARBAGE
    assert play(run_with_message(message, monkeypatch, stays=stays)) == Succeed(b"1")


def test_a_program_is_asked_to_end_once_however_often_it_is_to_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    async def main() -> None:
        attempt = claimed(PROGRAM)
        with Played() as played:
            monkeypatch.setattr(job_process.ForkedProcess, "terminate", lambda process: asked.append(process.pid))
            played.fork()
            running = asyncio.create_task(played.process.run(attempt, stays=False))
            await soon()

            for reason in (SOFT, WORKER, WORKER):
                attempt.stop(reason)

            played.die()
            await running

    play(main())
    assert asked == [PID]


def test_a_job_whose_process_was_dead_and_that_gets_no_other_has_not_started() -> None:
    async def main() -> None:
        attempt = claimed()
        with Played() as dead, Played() as refused:
            runner = ProcessRunner(Zygote(dead, refused), messages.FORK)  # type: ignore[arg-type]
            runner._fork_ahead()
            dead.fork()
            dead.die()
            refused.refuse()

            outcome = await runner.run(attempt)

            assert (outcome, attempt.finish(outcome).unstarted) == (job_process.NO_PROCESS, True)

    play(main())


def test_a_process_is_forked_ahead_unless_there_will_be_no_next_job() -> None:
    async def run(runner: ProcessRunner, played: Played) -> Outcome:
        played.fork()
        running = asyncio.create_task(runner.run(claimed()))
        await soon()
        played.its.sendall(messages.pack(messages.JobReceived()) + messages.pack(messages.JobEnded.of(Succeed(b"1"))))
        await soon()
        played.die()
        return await running

    async def main() -> None:
        with Played() as first, Played() as second, Played() as third, Played() as ahead:
            started = Zygote(first, second, third, ahead)
            runner = ProcessRunner(started, messages.FORK)  # type: ignore[arg-type]
            await run(runner, first)
            assert started.ready == [third, ahead]

            runner.stop_forking_ahead()

            assert second.its.recv(1) == b"", "it was let go"
            await run(runner, third)
            assert started.ready == [ahead]

    play(main())


# What is saved too late


def test_a_flush_of_an_ended_attempt_raises_lease_lost() -> None:
    async def main() -> None:
        attempt = claimed()
        attempt.end(Release("timeout"))

        attempt.save(b"1", None)

        code, words = await saving.handle_request(NO_STORE, attempt, "flush")
        assert (code, attempt.interrupt_reason) == (LeaseLost.code, "")
        assert "nothing was saved" in words

    play(main())


def test_a_flush_ends_when_the_supervisor_reports_that_the_lease_is_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def main() -> None:
        attempt = claimed()
        attempt.save(b"1", None)
        waiting = asyncio.create_task(saving.handle_request(NO_STORE, attempt, "flush"))
        await soon()

        async def lose(_: object, attempt: Attempt, saves: PendingSaves, update: Update) -> bool:
            attempt.interrupt("lost")
            saves.put_back(update)
            return False

        monkeypatch.setattr(saving, "_send", lose)
        monkeypatch.setattr(saving, "SAVE_INTERVAL", 0)
        assert attempt.saves
        await saving.send_saves(NO_STORE, attempt, attempt.saves)

        assert (await waiting)[0] == LeaseLost.code

    play(main())


# Sockets of an app


def test_a_jobs_process_waits_though_its_app_has_a_default_timeout_for_sockets() -> None:
    ours, its = socket.socketpair()
    with ours, its:
        its.settimeout(0.01)

        channel = Channel(its)

        assert its.gettimeout() is None
        assert channel.arrived() == [], "and does not wait where it only looks"
        ours.sendall(messages.pack(messages.StopJob("worker")))
        channel.wait()
        assert channel.arrived() == [messages.StopJob("worker")]
