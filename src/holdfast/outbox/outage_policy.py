"""The outage policy: what happens to calls that cannot be stored because the server is unreachable.

    raise    raise StoreUnavailable, within two seconds
    inline   run the task in this process, now
    outbox   write the call to disk and send it later: in order, and stored once

An app, a task or a call chooses one with `when_unreachable`. `client.enqueue.store` consults the policy before it asks
the server (`append_behind_unsent`) and when the server did not answer (`fall_back`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, get_args

import msgspec

from holdfast import errors
from holdfast.client.enqueue import Calls, Chunk, Jobs, job_of, job_template
from holdfast.constants import MAX_PAYLOAD
from holdfast.job import job
from holdfast.job.job import Job
from holdfast.job.option_table import WhenUnreachable
from holdfast.job.options import CheckedOptions
from holdfast.server.home import find_home
from holdfast.store import Action, Address, Store, in_thread
from holdfast.task.task import BoundCall, Task

if TYPE_CHECKING:  # imported when needed: most programs never do
    from logging import Logger

    from holdfast.outbox.outbox import Outbox, SendResult
    from holdfast.outbox.sender import Sender


class App(job.App, Protocol):
    """The app whose calls cannot be stored."""

    @property
    def address(self) -> Address: ...
    @property
    def store(self) -> Store: ...
    @property
    def tasks(self) -> dict[str, Task[..., Any]]: ...


class OutagePolicy:
    """The outage policy of an app."""

    def __init__(self, app: App, choice: WhenUnreachable | None) -> None:
        self.is_unreachable = False  # whether the last attempt to store failed
        self._app = app
        self.choice = _check_choice(choice or os.environ.get("HOLDFAST_WHEN_UNREACHABLE") or "raise")
        self._folder = _find_folder(app.address)

    @cached_property
    def sender(self) -> Sender:
        from holdfast.outbox.sender import Sender

        return Sender(self._app.store, self._folder)

    @property
    def outbox(self) -> Outbox:
        return self.sender.outbox

    def check(self, tasks: Iterable[Task[..., Any]]) -> WhenUnreachable:
        """Return the choice that tasks share.

        Raises:
            Invalid: their choices differ.
        """
        choices = {self._choice_of(task.effective_options) for task in tasks}
        if len(choices) > 1:
            found = ", ".join(sorted(choices))
            raise errors.Invalid(f"calls enqueued together must have the same when_unreachable, not {found}")
        return choices.pop() if choices else self.choice

    def _choice_of(self, options: CheckedOptions) -> WhenUnreachable:
        """Jobs of a batch are stored now or not at all: the batch may be closed before an outbox is sent."""
        return "raise" if options.batch else options.when_unreachable or self.choice

    def append_behind_unsent(self, chunk: Chunk) -> Action[Jobs | None] | None:
        """Return the step that puts a chunk behind earlier calls in the outbox; None if it contains no calls.

        The step first sends those calls. If that succeeds it returns None, and the chunk can be stored.
        """
        if self.check(chunk.tasks) != "outbox" or not self.outbox.has_entries:
            return None
        return in_thread(lambda: None if self._catch_up() else self._add_to_outbox(chunk, None))

    def fall_back(self, chunk: Chunk, error: errors.StoreUnavailable) -> Action[Jobs]:
        """Return the step that runs a chunk inline or adds it to the outbox.

        Raises:
            StoreUnavailable: the choice is `raise`.
        """
        choice = self.check(chunk.tasks)
        if choice == "raise":
            raise error
        return (
            self._run_inline(chunk.calls, error)
            if choice == "inline"
            else in_thread(lambda: self._add_to_outbox(chunk, error))
        )

    def send(self) -> Action[SendResult]:
        """Return the step that sends all calls in the outbox."""
        return in_thread(self.sender.send)

    # inline

    def _run_inline(self, calls: Calls, error: errors.StoreUnavailable) -> Action[Jobs]:
        """Return the step that runs calls in this process, one after the other."""
        from holdfast.outbox.inline import arun_inline, run_inline

        def run() -> Jobs:
            self._check_inline(calls, error)
            return [run_inline(call, self._unstored_job(call, _now())) for call in calls]

        async def arun() -> Jobs:
            self._check_inline(calls, error, is_async=True)
            return [await arun_inline(call, self._unstored_job(call, _now())) for call in calls]

        return Action(run, arun)

    def _check_inline(self, calls: Calls, error: errors.StoreUnavailable, *, is_async: bool = False) -> None:
        """Check all calls before the first one runs.

        Raises:
            StoreUnavailable: one of them cannot run inline.
        """
        from holdfast.outbox.inline import why_not_inline

        for call in calls:
            why = why_not_inline(call, _now(), is_async=is_async)
            if call.name not in self._app.tasks:
                why = "its task is not declared in this process"
            if call.effective_options.at_most_once and error.maybe_done:
                why = "it may have been stored, and must not run twice"
            if why:
                refusal = errors.StoreUnavailable(f"{error}; job {call.id} cannot run inline either: {why}")
                refusal.maybe_done = error.maybe_done
                raise refusal from error
        self._warn_once("%s; calls run inline until it is back", error)

    # outbox

    def _catch_up(self) -> bool:
        """Send the calls that are in the outbox, unless an outage is known. Return whether it is empty now."""
        if not self.is_unreachable and self.sender.catch_up():
            return True
        self._warn_once("%s: earlier calls have not been sent yet; new calls line up behind them", self.outbox.folder)
        return False

    def _add_to_outbox(self, chunk: Chunk, error: errors.StoreUnavailable | None) -> Jobs:
        for call in chunk.calls:
            if len(call.payload) > MAX_PAYLOAD:
                raise errors.TooBig(f"payload of job {call.id} is {len(call.payload)} bytes (limit {MAX_PAYLOAD})")
        from holdfast.outbox.entry import Entry

        now = _now()
        try:
            self.outbox.add(Entry.of(chunk.command, now))
        except OSError as reason:
            why = error or f"the outbox holds earlier calls to {self._app.address.display}"
            refusal = errors.StoreUnavailable(f"{why}; writing to the outbox failed: {reason}")
            refusal.maybe_done = error is not None and error.maybe_done
            raise refusal from error
        if error is not None:
            self._warn_once("%s; calls are written to the outbox %s until it is back", error, self.outbox.folder)
        self.sender.start()
        return [msgspec.structs.replace(self._unstored_job(call, now), in_outbox=True) for call in chunk.calls]

    def _unstored_job(self, call: BoundCall[Any], now: int) -> Job[Any]:
        """Return the job that a call would have if it were stored now."""
        job = job_of(call, call.id, job_template(call.variant, now, self._app))
        return msgspec.structs.replace(job, state="blocked", due_at=None) if call.effective_options.after else job

    def _warn_once(self, message: str, *values: object) -> None:
        """Log a warning when an outage begins."""
        if not self.is_unreachable:
            self.is_unreachable = True
            _log().warning(message, *values)


def _log() -> Logger:
    import logging

    return logging.getLogger("holdfast.outbox")


def _check_choice(choice: str) -> WhenUnreachable:
    for known in get_args(WhenUnreachable):
        if choice == known:
            found: WhenUnreachable = known
            return found
    raise errors.Invalid(f"when_unreachable is {choice!r}; it must be one of 'raise', 'inline', 'outbox'")


def _find_folder(address: Address) -> Path:
    """Find the directory of the outbox now: the process may change its working directory before it is needed."""
    if chosen := os.environ.get("HOLDFAST_OUTBOX"):
        return Path(chosen).expanduser().absolute()
    try:
        return (address.home or find_home()) / "outbox"
    except OSError:  # the working directory was removed
        return Path("/nonexistent")


def _now() -> int:
    return time.time_ns() // 1_000_000
