"""Answers requests for the stack of a running job (`holdfast stack`).

A job with its own process is inspected there. For other jobs the executor answers; if a coroutine blocks its event
loop, the stacks of all its threads are shown.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import msgspec

from holdfast.client.running_jobs import StackResponse
from holdfast.store import commands
from holdfast.worker.event_loop import wait_for_first
from holdfast.worker.messages import StackReply, StackRequest
from holdfast.worker.processes import command_line, process_stat, tree, usage_of
from holdfast.worker.retrying_store import RetryingStore
from holdfast.worker.stacks import stack_of
from holdfast.worker.supervisor.executor_process import ExecutorProcess

EXECUTOR_TIMEOUT = 1.0  # seconds
MAX_CHARACTERS = 40_000  # of an answer
MAX_PROCESSES = 50
NOT_STARTED = "has been claimed, but has not started yet"
HAS_ENDED = "has just ended"
NO_STACK = "runs, but its stack cannot be read: it handles SIGUSR2 itself, or has closed all its files"
STATES = {"R": "running", "S": "sleeping", "D": "waiting for a disk", "T": "stopped", "t": "traced", "Z": "dead"}


class StackRequests:
    """The requests that a worker is answering."""

    def __init__(self, store: RetryingStore, executors: Mapping[str, ExecutorProcess]) -> None:
        self._store = store
        self._executors = executors
        self._answering: set[asyncio.Task[None]] = set()
        self._pending: dict[str, asyncio.Future[str | None]] = {}  # at executors, by inbox

    def add(self, executor: str, id: str, attempt: str, inbox: str) -> None:
        """Answer a request in the background."""
        answering = asyncio.create_task(self._answer(executor, id, int(attempt), inbox))
        self._answering.add(answering)
        answering.add_done_callback(self._answering.discard)

    def reply(self, reply: StackReply) -> None:
        """Handle the reply of an executor."""
        if (pending := self._pending.get(reply.inbox)) and not pending.done():
            pending.set_result(reply.stack)

    async def _answer(self, executor: str, id: str, attempt: int, inbox: str) -> None:
        found = self._executors.get(executor)
        answer = await self._inspect(found, id, attempt, inbox) if found else StackResponse(why=HAS_ENDED)
        answer.stack = answer.stack[:MAX_CHARACTERS]
        await self._store.run(commands.respond(inbox, msgspec.json.encode(answer)))

    async def _inspect(self, executor: ExecutorProcess, id: str, attempt: int, inbox: str) -> StackResponse:
        if pid := executor.pid_of(id, attempt):
            return await asyncio.to_thread(_inspect_process, pid)
        pending = self._pending[inbox] = asyncio.get_running_loop().create_future()
        executor.send(StackRequest(id, attempt, inbox))
        try:
            await wait_for_first(pending, timeout=EXECUTOR_TIMEOUT)
        finally:
            del self._pending[inbox]
        if not pending.done():
            return await asyncio.to_thread(_inspect_executor, executor.pid)
        stack = pending.result()
        if stack is None:
            return StackResponse(why=HAS_ENDED, soon=True)  # or the executor has not received its claim yet
        return StackResponse(stack=stack) if stack else StackResponse(why=NOT_STARTED, soon=True)


def _inspect_process(pid: int) -> StackResponse:
    """Return the stacks of a job's process, and the processes that it started: it often waits for one of them."""
    stack = stack_of(pid)
    lines = [line for each in list(tree(pid))[:MAX_PROCESSES] if (line := _describe(each))]
    if not lines:
        return StackResponse(why=HAS_ENDED)
    if not stack:
        stack = f"process {pid} {NO_STACK}\n"
    return StackResponse(stack="\n".join([stack, "Processes:", *lines]) + "\n")


def _inspect_executor(pid: int) -> StackResponse:
    stack = stack_of(pid)
    head = "its executor is unresponsive: a coroutine blocks its event loop. All threads of the executor:\n\n"
    return StackResponse(stack=head + stack) if stack else StackResponse(why=NO_STACK)


def _describe(pid: int) -> str:
    """Return a line about a process; empty if it has exited."""
    stat, command = process_stat(pid), command_line(pid)
    if not stat.state:
        return ""
    if " -m holdfast.entrypoints." in command:
        command = "the job itself"
    used = usage_of(pid)
    state = STATES.get(stat.state, stat.state)
    return f"  {pid} {state}, {used.memory >> 20} MiB, {used.cpu_seconds:.1f} s of CPU: {(command or stat.name)[:200]}"
