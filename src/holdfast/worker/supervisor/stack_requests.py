"""Tells whoever asks what a job does just now.

Of a job that has a process of its own, the process says it. Others are asked for by their executor; if a coroutine
keeps that from hearing, its process says what all its threads do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import msgspec

from holdfast.client.jobs import StackAnswer
from holdfast.store import commands
from holdfast.worker.messages import StackReply, StackRequest
from holdfast.worker.processes import command_line, process_stat, tree, usage_of
from holdfast.worker.retrying import RetryingStore
from holdfast.worker.stacks import stack_of
from holdfast.worker.supervisor.executor_process import ExecutorProcess
from holdfast.worker.waiting import first

HEARS_WITHIN = 1.0  # seconds
MOST = 40_000  # characters of an answer
MOST_PROCESSES = 50
NOT_STARTED = "has been claimed, but has not started yet"
HAS_ENDED = "has just ended"
CANNOT_SAY = "runs, but cannot be looked into: it has a handler of its own for SIGUSR2, or has closed all its files"
STATES = {"R": "running", "S": "sleeping", "D": "waiting for a disk", "T": "stopped", "t": "traced", "Z": "dead"}


class StackRequests:
    """The questions that a worker was asked."""

    def __init__(self, store: RetryingStore, executors: Mapping[str, ExecutorProcess]) -> None:
        self._store = store
        self._executors = executors
        self._answering: set[asyncio.Task[None]] = set()
        self._asked: dict[str, asyncio.Future[str | None]] = {}  # of executors, by inbox

    def ask(self, executor: str, id: str, attempt: str, inbox: str) -> None:
        """Answer into an inbox, in a while: what the store says to us goes on meanwhile."""
        answering = asyncio.create_task(self._answer(executor, id, int(attempt), inbox))
        self._answering.add(answering)
        answering.add_done_callback(self._answering.discard)

    def heard(self, reply: StackReply) -> None:
        if (asked := self._asked.get(reply.inbox)) and not asked.done():
            asked.set_result(reply.stack)

    async def _answer(self, executor: str, id: str, attempt: int, inbox: str) -> None:
        found = self._executors.get(executor)
        answer = await self._look(found, id, attempt, inbox) if found else StackAnswer(why=HAS_ENDED)
        answer.stack = answer.stack[:MOST]
        await self._store.run(commands.respond(inbox, msgspec.json.encode(answer)))

    async def _look(self, executor: ExecutorProcess, id: str, attempt: int, inbox: str) -> StackAnswer:
        if pid := executor.pid_of(id, attempt):
            return await asyncio.to_thread(_look_at_process, pid)
        asked = self._asked[inbox] = asyncio.get_running_loop().create_future()
        executor.send(StackRequest(id, attempt, inbox))
        try:
            await first(asked, timeout=HEARS_WITHIN)
        finally:
            del self._asked[inbox]
        if not asked.done():
            return await asyncio.to_thread(_look_at_executor, executor.pid)
        doing = asked.result()
        if doing is None:
            return StackAnswer(why=HAS_ENDED, soon=True)  # or its claim has not come yet: the store knows
        return StackAnswer(stack=doing) if doing else StackAnswer(why=NOT_STARTED, soon=True)


def _look_at_process(pid: int) -> StackAnswer:
    """The stacks of a job's process; and which others it has started, which are often what it waits for."""
    stack = stack_of(pid)
    lines = [line for each in list(tree(pid))[:MOST_PROCESSES] if (line := _describe(each))]
    if not lines:
        return StackAnswer(why=HAS_ENDED)
    if not stack:
        stack = f"process {pid} {CANNOT_SAY}\n"
    return StackAnswer(stack="\n".join([stack, "Processes:", *lines]) + "\n")


def _look_at_executor(pid: int) -> StackAnswer:
    stack = stack_of(pid)
    words = "its executor does not answer, so a coroutine keeps its event loop. All threads of the executor:\n\n"
    return StackAnswer(stack=words + stack) if stack else StackAnswer(why=CANNOT_SAY)


def _describe(pid: int) -> str:
    """One line about a process; nothing, if it is gone."""
    stat, command = process_stat(pid), command_line(pid)
    if not stat.state:
        return ""
    if " -m holdfast.entrypoints." in command:
        command = "the job itself"
    used = usage_of(pid)
    state = STATES.get(stat.state, stat.state)
    return f"  {pid} {state}, {used.memory >> 20} MiB, {used.cpu_seconds:.1f} s of CPU: {(command or stat.name)[:200]}"
