"""What becomes of calls when the store cannot be reached: the choice of the app, of a task, or of a call.

    raise    StoreUnavailable, within two seconds
    inline   the task runs here and now
    keep     the call is written to disk, and sent later: in order, and stored once

While anything is kept, later calls that are to be kept line up behind it: the store is not even asked.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, get_args

import msgspec

from holdfast import errors, job, server
from holdfast.budget import Budget
from holdfast.commands import Command
from holdfast.job import Job
from holdfast.limits import MOST_PAYLOAD
from holdfast.options import WhenUnreachable
from holdfast.store import Address
from holdfast.storing import AT_ONCE, store_command, store_part, stored_job, times_of
from holdfast.task import BoundCall, Task
from holdfast.verbs import Act, Steps

if TYPE_CHECKING:  # loaded when they are needed: most programs never do
    from logging import Logger

    from holdfast.sender import Place, Sender
    from holdfast.spool import Spool

Calls = Sequence[BoundCall[Any]]
Jobs = list[Job[Any]]


class App(job.App, Protocol):
    """Where calls are stored."""

    @property
    def unreachable(self) -> Unreachable: ...
    @property
    def tasks(self) -> dict[str, Task[..., Any]]: ...


def store_calls(calls: Calls, app: App, *, fresh: bool = False) -> Steps[Jobs]:
    """Store calls in order; up to 1,000 are stored together or not at all, more in parts of that size."""
    app.unreachable.choice_of(calls)
    jobs: Jobs = []
    for first in range(0, len(calls), AT_ONCE):
        try:
            jobs += yield from store_or_else(calls[first : first + AT_ONCE], app, fresh=fresh)
        except errors.StoreUnavailable as error:
            error.maybe_done = error.maybe_done or first > 0
            raise
    return jobs


def store_or_else(calls: Calls, app: App, *, fresh: bool = False) -> Steps[Jobs]:
    """Store up to 1,000 calls, together or not at all; or do what they choose if the store cannot be reached."""
    otherwise, choice = app.unreachable, app.unreachable.choice_of(calls)
    command = store_command(calls, app, fresh=fresh)
    jobs: Jobs
    if choice == "keep" and otherwise.spool.is_waiting and not (yield otherwise.catching_up()):
        jobs = yield otherwise.keeping(command, calls, app, None)
        return jobs
    _get_ready()
    try:
        jobs = yield from store_part(command, calls, app, Budget(size=sum(map(len, command.blobs))), fresh=fresh)
        otherwise.is_out = False
    except errors.StoreUnavailable as error:
        if choice == "raise":
            raise
        jobs = yield (
            otherwise.keeping(command, calls, app, error) if choice == "keep" else otherwise.running(calls, app, error)
        )
    return jobs


@cache
def _get_ready() -> None:
    """Load what takes a while the first time: that is not the store's."""
    import holdfast.conversation  # noqa: F401


class Unreachable:
    """An app's choice, and how it is carried out."""

    def __init__(self, app: Place, choice: WhenUnreachable | None) -> None:
        self.is_out = False
        self._app = app
        self.choice = _checked(choice or os.environ.get("HOLDFAST_WHEN_UNREACHABLE") or "raise")
        self._folder = _find_folder(app.address)

    @cached_property
    def sender(self) -> Sender:
        """Sends what is kept."""
        from holdfast.sender import Sender

        return Sender(self._app, self._folder)

    @property
    def spool(self) -> Spool:
        """The calls that are kept."""
        return self.sender.spool

    def choice_of(self, calls: Calls) -> WhenUnreachable:
        if unbound := [call for call in calls if not isinstance(call, BoundCall)]:
            raise errors.Invalid(
                f"{unbound[0]!r} is no call that can be stored; bind a task to its arguments: task.bind(...)"
            )
        choices = {task.chosen.when_unreachable or self.choice for task in {call.task for call in calls}}
        if len(choices) > 1:
            words = ", ".join(sorted(choices))
            raise errors.Invalid(f"calls that are enqueued together must agree on when_unreachable, not {words}")
        return choices.pop() if choices else self.choice

    # Inline

    def running(self, calls: Calls, app: App, error: errors.StoreUnavailable) -> Act[Jobs]:
        """Make calls here and now, one after the other."""
        from holdfast.inline import arun_inline, run_inline

        def run() -> Jobs:
            self._check_inline(calls, app, error)
            return [run_inline(call, _unstored(call, app, _now())) for call in calls]

        async def arun() -> Jobs:
            self._check_inline(calls, app, error, awaited=True)
            return [await arun_inline(call, _unstored(call, app, _now())) for call in calls]

        return Act(run, arun)

    def _check_inline(self, calls: Calls, app: App, error: errors.StoreUnavailable, *, awaited: bool = False) -> None:
        """Refuse before the first of them has run.

        Raises:
            StoreUnavailable: one of them cannot be run here and now.
        """
        from holdfast.inline import cannot_be_run

        for call in calls:
            why = cannot_be_run(call, _now(), awaited=awaited)
            if call.name not in app.tasks:
                why = "its task is not known here"
            if call.chosen.at_most_once and error.maybe_done:
                why = "it may have been stored all the same, and must not run twice"
            if why:
                refusal = errors.StoreUnavailable(f"{error}; and job {call.id} cannot be run inline: {why}")
                refusal.maybe_done = error.maybe_done
                raise refusal from error
        self._say_once("%s; calls run inline until it is back", error)

    # Keep

    def keeping(self, command: Command[Any], calls: Calls, app: App, error: Exception | None) -> Act[Jobs]:
        """Write calls down, to be sent later."""

        def run() -> Jobs:
            return self._keep(command, calls, app, error)

        async def arun() -> Jobs:
            import asyncio

            return await asyncio.to_thread(run)

        return Act(run, arun)

    def _keep(self, command: Command[Any], calls: Calls, app: App, error: Exception | None) -> Jobs:
        for call in calls:
            if len(call.payload) > MOST_PAYLOAD:
                raise errors.TooBig(
                    f"the payload of job {call.id} has {len(call.payload)} bytes; {MOST_PAYLOAD} are allowed"
                )
        from holdfast.kept import Kept

        now = _now()
        try:
            self.spool.keep(Kept.of(command, now))
        except OSError as reason:
            why = error or f"earlier calls to {self._app.address.words} wait on disk"
            refusal = errors.StoreUnavailable(f"{why}; and it cannot be kept on disk: {reason}")
            refusal.maybe_done = isinstance(error, errors.StoreUnavailable) and error.maybe_done
            raise refusal from error
        if error is not None:
            self._say_once("%s; calls are kept in %s until it is back", error, self.spool.folder)
        self.sender.start()
        return [msgspec.structs.replace(_unstored(call, app, now), kept_on_disk=True) for call in calls]

    def catching_up(self) -> Act[bool]:
        """Send what another process has kept, before the first call of this one. Returns whether all was sent."""

        def run() -> bool:
            if not self.is_out and self.sender.catch_up():
                return True
            folder = self.spool.folder
            self._say_once("%s: earlier calls are not sent yet; calls line up behind them", folder)
            return False

        async def arun() -> bool:
            import asyncio

            return await asyncio.to_thread(run)

        return Act(run, arun)

    def sending(self) -> Act[int]:
        """Send what is kept."""

        async def arun() -> int:
            import asyncio

            return await asyncio.to_thread(self.sender.send)

        return Act(self.sender.send, arun)

    def _say_once(self, words: str, *values: object) -> None:
        """Warn when an outage begins."""
        if not self.is_out:
            self.is_out = True
            _log().warning(words, *values)


def _log() -> Logger:
    import logging

    return logging.getLogger("holdfast.unreachable")


def _checked(choice: str) -> WhenUnreachable:
    for known in get_args(WhenUnreachable):
        if choice == known:
            found: WhenUnreachable = known
            return found
    raise errors.Invalid(f"when_unreachable is {choice!r}; it must be one of 'raise', 'inline', 'keep'")


def _find_folder(address: Address) -> Path:
    """Look now, not when it is needed: the process may have gone to another directory by then."""
    if chosen := os.environ.get("HOLDFAST_SPOOL"):
        return Path(chosen).expanduser().absolute()
    try:
        return (address.home or server.find_home()) / "spool"
    except OSError:  # the directory that it is in is gone
        return Path("/nonexistent")


def _unstored(call: BoundCall[Any], app: App, now: int) -> Job[Any]:
    """The snapshot of a job that would be stored now."""
    job = stored_job(call, call.id, app, times_of(call.chosen, now))
    return msgspec.structs.replace(job, state="blocked", due_at=None) if call.chosen.after else job


def _now() -> int:
    return time.time_ns() // 1_000_000
