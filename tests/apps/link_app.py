"""Tasks whose threads speak for them, also when they are over, and that speak while they are stopped."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

from holdfast import Holdfast, HoldfastError, current_job
from holdfast.store.commands import Command
from holdfast.store.store import AsyncStore
from tests.apps.worker_app import wait_for, write

jobs = Holdfast()

BIG = 250_000  # bytes, more than a socket takes at once


def own(words: str) -> str:
    return words


def _in_thread(name: str, speak: Callable[[], object]) -> threading.Thread:
    """Speak when the gate is open, and say in the ledger how that ended."""

    def wait_and_speak() -> None:
        wait_for(f"{name}-speaks")
        write(name, "speaks")
        try:
            speak()
            write(name, "ended", "heard")
        except (HoldfastError, EOFError) as error:
            write(name, "ended", type(error).__name__)

    thread = threading.Thread(target=wait_and_speak, daemon=True)
    thread.start()
    return thread


@jobs.task(runner="process")
def haunt(name: str) -> int:
    """Leaves a thread behind that asks for it."""
    job = current_job()
    _in_thread(name, lambda: job.once("step", own, "a ghost's"))
    return os.getpid()


@jobs.task(runner="process")
def leave_asking(name: str) -> int:
    """Leaves a thread behind that has asked already, and has no answer yet."""
    job = current_job()
    _in_thread(name, lambda: job.once("step", own, "a ghost's"))
    wait_for(name)
    return os.getpid()


@jobs.task(runner="process")
def leave_copy(name: str) -> int:
    """Leaves a copy of its process behind, that goes on speaking for it."""
    job = current_job()
    if os.fork() == 0:
        wait_for(f"{name}-speaks")
        job.save("a ghost's")
        job._link._channel.send(_question(job._link))  # type: ignore[attr-defined] # as `once` does, without hearing
        write(name, "ended")
        os._exit(0)
    return os.getpid()


def _question(link: Any) -> bytes:
    from holdfast.worker import messages

    return messages.pack(messages.Request(link._turn, 1_000_000, "once", ["step", b'"a ghost\'s"']))


@jobs.task(runner="process")
def do_step(name: str) -> tuple[int, str]:
    write(name, "runs", os.getpid())
    wait_for(name)
    return os.getpid(), current_job().once("step", own, "my own")


@jobs.task
def speak_while_a_thread_asks(name: str) -> str:
    """Goes on until it is told to stop, though a thread of it gets no answer."""
    job = current_job()
    write(name, "runs", os.getpid())
    thread = _in_thread(name, lambda: job.save("flushed", flush=True))
    wait_for(f"{name}-speaks")
    while not job.stopping:
        job.report(0.5)
        job.log("here")
    write(name, "told")
    thread.join()
    return job.stop_reason


@jobs.task
def ask_at_once(threads: int, steps: int) -> list[bool]:
    """Has many threads ask, and looks whether each hears its own answers."""
    job, right = current_job(), []

    def ask(number: int) -> None:
        words = [f"{number}-{step}" for step in range(steps)]
        right.append([job.once(f"step-{word}", own, word) for word in words] == words)

    asking = [threading.Thread(target=ask, args=(number,)) for number in range(threads)]
    for thread in asking:
        thread.start()
    while any(thread.is_alive() for thread in asking):
        _ = job.stopping
    return right


@jobs.task
def save_much() -> None:
    """Is in the middle of a save nearly always: it has no work but that. The last one is made when it is stopped."""
    job = current_job()
    checkpoint = b'"' + b"x" * BIG + b'"'
    try:
        while True:
            job._link.save(checkpoint, None)
    finally:
        job.save("y" * BIG)


# A machine on which some calls fail: only in processes of a worker that is told so


async def _fails_first(self: AsyncStore, command: Command[Any]) -> Any:
    if command.function == "once" and _errors:
        raise _errors.pop()
    return await _run(self, command)


_run = AsyncStore.run
_FAILURES: dict[str, list[Exception]] = {
    "": [],
    "machine": [OSError("no descriptors left"), RuntimeError("can't start new thread")],
    "bug": [KeyError("a bug of ours")],
}
_errors = _FAILURES[os.environ.get("FAIL_STEPS", "")]
if _errors:
    AsyncStore.run = _fails_first  # type: ignore[method-assign]


@jobs.task(retries=0)
def step_here() -> str:
    return current_job().once("step", own, "done")
