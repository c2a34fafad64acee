"""What becomes of calls when the store cannot be reached: the choice of the app, of a task, or of a call.

    raise    StoreUnavailable, within two seconds
    inline   the task runs here and now
    keep     the call is written to disk, and sent later: in order, and stored once

While anything is kept, later calls that are to be kept line up behind it: the store is not even asked.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, get_args

import msgspec

from holdfast import errors, job, server
from holdfast.budget import Budget
from holdfast.commands import Command
from holdfast.job import Job
from holdfast.limits import MOST_PAYLOAD
from holdfast.store import Address, Store
from holdfast.storing import AT_ONCE, store_part, stored_job
from holdfast.task import BoundCall, WhenUnreachable
from holdfast.verbs import Act, Steps

if TYPE_CHECKING:  # loaded when they are needed: most programs never do
    from logging import Logger

    from holdfast.spool import Kept, Spool

Calls = Sequence[BoundCall[Any]]
Jobs = list[Job[Any]]

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 2.0  # seconds between two attempts to send what is kept
LOOK_EVERY = 0.1  # seconds, at what is kept


class Place(Protocol):
    """Where an app's store is. Tests exchange it."""

    @property
    def address(self) -> Address: ...
    @property
    def store(self) -> Store: ...


class App(job.App, Place, Protocol):
    @property
    def unreachable(self) -> Unreachable: ...


def store_calls(calls: Calls, app: App, *, fresh: bool = False) -> Steps[Jobs]:
    """Store calls in order; up to 1,000 are stored together or not at all, more in parts of that size."""
    choice = app.unreachable.choice_of(calls)
    jobs: Jobs = []
    for first in range(0, len(calls), AT_ONCE):
        jobs += yield from _store_or_else(choice, calls[first : first + AT_ONCE], app, fresh)
    return jobs


def _store_or_else(choice: WhenUnreachable, calls: Calls, app: App, fresh: bool) -> Steps[Jobs]:
    steps = store_part(calls, app, fresh=fresh)
    command: Any = next(steps)
    jobs: Jobs
    if choice == "keep" and app.unreachable.spool.is_waiting:
        jobs = yield app.unreachable.keeping(command, calls, app, None)
        return jobs
    try:
        jobs = yield from _within(Budget(size=sum(map(len, command.blobs))), command, steps)
        app.unreachable.is_out = False
    except errors.StoreUnavailable as error:
        if choice == "raise":
            raise
        otherwise = app.unreachable
        jobs = yield (
            otherwise.keeping(command, calls, app, error) if choice == "keep" else otherwise.running(calls, app, error)
        )
    return jobs


def _within(budget: Budget, command: Any, steps: Steps[Jobs]) -> Steps[Jobs]:
    """Go through steps whose commands share a budget."""
    try:
        while True:
            try:
                reply = yield replace(command, budget=budget)
            except Exception as error:
                command = steps.throw(error)
            else:
                command = steps.send(reply)
    except StopIteration as end:
        jobs: Jobs = end.value
        return jobs
    finally:
        steps.close()


class Unreachable:
    """An app's choice, and what it needs for that: the calls on disk, and a thread that sends them."""

    def __init__(self, app: Place, choice: WhenUnreachable | None) -> None:
        self.is_out = False
        self._app = app
        self.choice = _checked(choice or os.environ.get("HOLDFAST_WHEN_UNREACHABLE") or "raise")
        self._spools: dict[Address, Spool] = {}
        self._folder = _find_folder(app.address)
        self._renew()

    def _renew(self) -> None:
        """A forked process has no thread of its parent's, and a lock may be held by one."""
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._sender: threading.Thread | None = None

    @property
    def spool(self) -> Spool:
        """The calls that are kept for this app's store."""
        address = self._app.address
        if address not in self._spools:
            from holdfast.spool import Spool

            folder = address.home / "spool" if address.home and not os.environ.get("HOLDFAST_SPOOL") else self._folder
            self._spools[address] = Spool(folder, address)
        return self._spools[address]

    def choice_of(self, calls: Calls) -> WhenUnreachable:
        choices = {call.chosen.when_unreachable or self.choice for call in calls}
        if len(choices) > 1:
            words = ", ".join(sorted(choices))
            raise errors.Invalid(f"calls that are enqueued together must agree on when_unreachable, not {words}")
        return choices.pop() if choices else self.choice

    # Inline

    def running(self, calls: Calls, app: App, error: errors.StoreUnavailable) -> Act[Jobs]:
        """Make calls here and now, one after the other."""

        from holdfast.inline import arun_inline, run_inline

        def run() -> Jobs:
            self._check_inline(calls, error)
            return [run_inline(call, _unstored(call, app)) for call in calls]

        async def arun() -> Jobs:
            self._check_inline(calls, error, awaited=True)
            return [await arun_inline(call, _unstored(call, app)) for call in calls]

        return Act(run, arun)

    def _check_inline(self, calls: Calls, error: errors.StoreUnavailable, *, awaited: bool = False) -> None:
        """Refuse before the first of them has run.

        Raises:
            StoreUnavailable: one of them cannot be run here and now.
        """
        from holdfast.inline import cannot_be_run

        for call in calls:
            why = cannot_be_run(call, _now(), awaited=awaited)
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
        from holdfast.spool import Kept

        try:
            self.spool.keep(Kept.of(command, _now()))
        except OSError as reason:
            why = error or f"earlier calls to {self._app.address.words} wait on disk"
            refusal = errors.StoreUnavailable(f"{why}; and it cannot be kept on disk: {reason}")
            refusal.maybe_done = isinstance(error, errors.StoreUnavailable) and error.maybe_done
            raise refusal from error
        if error is not None:
            self._say_once("%s; calls are kept in %s until it is back", error, self.spool.folder)
        self.start_sending()
        return [msgspec.structs.replace(_unstored(call, app), kept_on_disk=True) for call in calls]

    def sending(self) -> Act[int]:
        """Send what is kept."""

        async def arun() -> int:
            import asyncio

            return await asyncio.to_thread(self._send)

        return Act(self._send, arun)

    def _send(self) -> int:
        store = self._app.store

        def deliver(kept: Kept) -> None:
            store.run(replace(kept.command, budget=Budget(size=sum(map(len, kept.blobs)))))

        try:
            number = self.spool.send(deliver)
        except OSError as error:
            if isinstance(error, errors.HoldfastError):
                raise
            raise errors.StoreUnavailable(f"calls that are kept on disk cannot be sent: {error}") from error
        if number:
            self.is_out = False
            _log().info("%d calls were sent that had been kept on disk", number)
        return number

    def start_sending(self) -> None:
        """Send what is kept in the background, as soon as the store is back. The thread ends when that is done."""
        if self._pid != os.getpid():
            self._renew()
        with self._lock:
            if self._sender is not None or not self.spool.is_waiting:
                return
            self._sender = threading.Thread(target=self._send_until_done, name="holdfast-send", daemon=True)
            try:
                self._sender.start()
            except RuntimeError:  # the process is about to end; another will send
                self._sender = None

    def _send_until_done(self) -> None:
        pause = FIRST_PAUSE
        while True:
            try:
                self._send()
            except errors.HoldfastError as error:
                _log().debug("not sent yet: %s", error)
            except Exception:
                _log().exception("calls that are kept on disk cannot be sent")
            with self._lock:
                if not self.spool.is_waiting:
                    self._sender = None
                    return
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    def wait_until_sent(self, id: str, deadline: float | None) -> None:
        """Return when a job is in the store.

        Raises:
            ResultTimeout: it is still on disk.
            HoldfastError: the store refused it.
        """
        while self._is_kept(id):
            time.sleep(_patience(id, deadline))

    async def await_until_sent(self, id: str, deadline: float | None) -> None:
        """Return when a job is in the store, as `wait_until_sent` does."""
        import asyncio

        while await asyncio.to_thread(self._is_kept, id):
            await asyncio.sleep(_patience(id, deadline))

    def _is_kept(self, id: str) -> bool:
        is_kept = self.spool.is_kept(id)
        if is_kept:
            self.start_sending()
        return is_kept

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


def _unstored(call: BoundCall[Any], app: App) -> Job[Any]:
    """The snapshot of a job that would be stored now."""
    return stored_job(call, call.id, _now(), app)


def _patience(id: str, deadline: float | None) -> float:
    if deadline is None:
        return LOOK_EVERY
    left = deadline - time.monotonic()
    if left <= 0:
        raise errors.ResultTimeout(f"job {id} is still kept on disk: the store could not be reached in the time given")
    return min(LOOK_EVERY, left)


def _now() -> int:
    return time.time_ns() // 1_000_000
