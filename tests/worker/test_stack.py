"""The stack of a running job, requested from outside."""

from __future__ import annotations

import asyncio
import signal
from functools import partial
from typing import Any

import pytest

from holdfast import Holdfast, Job, errors
from tests.apps import long_app
from tests.support.servers import running_server
from tests.support.shells import Shell
from tests.support.workers import Crew, until

APP = "tests.apps.long_app"


@pytest.mark.parametrize("kind", ["fork", "spawn", "process", "thread", "async"])
def test_the_stack_of_a_running_job_shows_where_it_is_and_the_job_continues(crew: Crew, kind: str) -> None:
    crew.start(app=APP)
    job = crew.put(long_app.jobs.tasks[f"wait-{kind}"], str(crew.folder / "go"))
    until(lambda: job.refresh().state == "running")

    stack = until(lambda: stack_with(crew.app, job.id, "look_for" if kind == "async" else "_wait_for"))

    assert ("await_file" if kind == "async" else "wait_inside") in stack
    if kind in ("thread", "async"):
        assert "executor.py" not in stack, "of its own thread or task only"
        assert stack.startswith(f'  File "{long_app.__file__}"'), "our own calls are left out"
    (crew.folder / "go").touch()
    assert job.result(timeout="30s") == "found"
    assert crew.outcomes(job) == ["succeeded"]


def is_running(job: Job[Any]) -> bool:
    return job.refresh().state == "running"


def stack_with(app: Holdfast, id: str, words: str) -> str:
    """The stack, once the job has come so far."""
    stack = app.stack(id)
    return stack if words in stack else ""


def test_a_job_that_holds_the_interpreter_has_a_stack_too(crew: Crew) -> None:
    crew.start(app=APP)
    job = crew.put(long_app.hold_the_interpreter)
    until(lambda: job.refresh().checkpoint_bytes)

    assert until(lambda: stack_with(crew.app, job.id, "in hold_the_interpreter"))
    job.cancel()


def test_of_a_coroutine_that_keeps_its_event_loop_the_threads_of_its_executor_are_shown(crew: Crew) -> None:
    crew.start(app=APP)
    job = crew.put(long_app.block_the_loop, str(crew.folder / "go"))
    until(lambda: job.refresh().state == "running")

    stack = until(lambda: stack_with(crew.app, job.id, "block_the_loop"))

    assert stack.startswith("its executor is unresponsive")
    assert "block_the_loop" in asyncio.run(astack(crew.app, job.id))
    (crew.folder / "go").touch()
    assert job.result(timeout="30s") == "found"


async def astack(app: Holdfast, id: str) -> str:
    try:
        return await app.astack(id)
    finally:
        await app.aclose()


def test_the_programs_that_a_job_has_started_are_listed(crew: Crew) -> None:
    crew.start(app=APP)
    job = crew.put(long_app.wait_for_program, str(crew.folder / "go"))
    until(lambda: job.refresh().state == "running")

    stack = until(lambda: stack_with(crew.app, job.id, "subprocess.py"))

    assert "s of CPU: the job itself\n" in stack
    assert "s of CPU: /bin/sh" in stack
    assert "wait_for_program" in stack.split("Processes:")[0].splitlines()[-2], "our own calls are left out"
    (crew.folder / "go").touch()
    assert job.result(timeout="30s") == 0


def test_a_job_that_has_not_started_yet_is_waited_for(crew: Crew) -> None:
    crew.start(app=APP)
    for number in range(5):
        job = crew.put(long_app.wait_for_file, str(crew.folder / f"go{number}"))
        until(partial(is_running, job))
        assert crew.app.stack(job.id)
        (crew.folder / f"go{number}").touch()


def test_a_job_that_does_not_run_has_no_stack(crew: Crew) -> None:
    job = crew.put(long_app.wait_for_file, "")

    with pytest.raises(errors.WrongState, match=f"job {job.id} is waiting: only a running job has a stack"):
        job.stack()
    with pytest.raises(errors.JobNotFound):
        crew.app.stack("nobody")


def test_a_worker_that_does_not_answer_is_named(crew: Crew) -> None:
    worker = crew.start(app=APP)
    job = crew.put(long_app.wait_for_file, str(crew.folder / "go"))
    name = until(lambda: job.refresh().worker)
    worker.send(signal.SIGSTOP)

    with pytest.raises(errors.ResultTimeout, match=f"worker {name}, which runs job {job.id}, has not answered"):
        crew.app.stack(job.id, timeout="50ms")
    worker.send(signal.SIGCONT)


def test_inside_of_a_program_jobs_have_stacks_too() -> None:
    async def run(url: str) -> None:
        jobs = Holdfast(url)
        gate = asyncio.Event()

        @jobs.task(name="wait")
        async def wait_for_gate() -> str:
            await gate.wait()
            return "open"

        async with jobs.worker():
            job = await wait_for_gate.aenqueue()
            while not (stack := await stack_once_begun(jobs, job.id)):
                await asyncio.sleep(0.01)
            assert "wait_for_gate" in stack
            gate.set()
            assert await job.aresult(timeout="30s") == "open"
        await jobs.aclose()

    with running_server() as url:
        asyncio.run(run(url))


async def stack_once_begun(app: Holdfast, id: str) -> str:
    try:
        return await app.astack(id)
    except errors.WrongState:
        return ""


def test_the_command_line_shows_the_stack(shell: Shell, crew: Crew, namespace: str) -> None:
    crew.start(app=APP, HOLDFAST_NAMESPACE=namespace)
    job = shell.client.enqueue(long_app.wait_for_file.bind(str(crew.folder / "go")))
    assert until(lambda: "_wait_for" in shell("stack", job.id).out)
    assert "_wait_for" in shell("stack", job.id, "--json").json["stack"]
    (crew.folder / "go").touch()
    assert shell.client.get(job.id).result(timeout="30s") == "found"

    assert shell("stack", job.id).code == 1
    assert "is succeeded: only a running job" in shell("stack", job.id).err
    assert shell("stack", "nobody").code == 3
