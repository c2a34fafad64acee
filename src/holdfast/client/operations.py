"""Operations: act on all jobs that match a filter.

An operation lives in the store, not in the process that starts it: its filter, its position, its counts. Each step is
one short call that acts on some jobs and moves the position, so the counts are exact even if its process is killed;
then workers continue it. Each job is acted on once, and jobs that match only after the start are left out.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Protocol, TypedDict, Unpack

import msgspec

from holdfast.client import tags as marking
from holdfast.client.filters import NAMES, JobFilter, read_filter
from holdfast.constants import MAX_DURATION
from holdfast.errors import Invalid
from holdfast.job.job import FINAL, PENDING
from holdfast.job.marks import check_tags
from holdfast.store import Steps, Stores, commands, new_token
from holdfast.store.commands import OperationReply
from holdfast.store.driver import sleep
from holdfast.units import Duration, milliseconds, utc

Progress = Callable[[int], object]  # called with the number of jobs that were looked at since its last call

NOT_RUNNING = tuple(state for state in PENDING if state != "running")
DEFAULT_STATES: dict[str, Sequence[str]] = {  # of other actions: all
    "cancel": PENDING, "retry": ("failed",), "delete": FINAL, "move": NOT_RUNNING, "release": ("running",),
    "fail": PENDING,
}  # fmt: skip
WORK_WAS_DONE = "its work was done"  # such a job is retried only with `force`
_REASONS = {
    "NOTFOUND": "gone",
    "STATE": "in another state",
    "BLOCKED": "has dependents",
    "DONE": WORK_WAS_DONE,
    "EXISTS": "another job has its unique key",
    "CYCLE": "it would wait for itself",
    "DAMAGED": "damaged",
    "NEWER": "of a newer release",
    "TOOBIG": "has too many tags",
}
_DONE = {**marking.DONE, "delete": {"OK": "deleted"}}  # by action and answer; other answers are states
MAX_PAUSE = 0.05  # seconds


class App(Protocol):
    """The client methods that an operation calls."""

    def operation(self, id: str, /) -> Operation: ...
    async def aoperation(self, id: str, /) -> Operation: ...
    def stop_operation(self, id: str, /) -> Operation: ...
    async def astop_operation(self, id: str, /) -> Operation: ...
    def resume_operation(self, id: str, /) -> Operation: ...
    async def aresume_operation(self, id: str, /) -> Operation: ...
    def drive_operation(self, id: str, /, *, progress: Progress | None = None) -> Operation: ...
    async def adrive_operation(self, id: str, /, *, progress: Progress | None = None) -> Operation: ...


class Operation(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """An action on all jobs that match a filter: a snapshot.

    Anyone can stop and resume it. If nobody drives it, workers continue it.
    """

    id: str
    action: str  # cancel, retry, delete, move, release, fail, tag or untag
    state: str  # running, done or stopped
    who: str  # who started it
    filter: dict[str, Any]  # as the store has it
    arguments: dict[str, Any]  # of the action
    started_at: datetime
    updated_at: datetime  # of the last step
    looked_at: int  # number of jobs
    total: int | None  # number of jobs to look at, estimated at the start; None: unknown
    counts: dict[str, int]  # jobs by their new state, and jobs that could not be changed by the reason
    app: App

    def __repr__(self) -> str:
        return f"<Operation {self.id} {self.action} {self.state} {self.counts}>"

    @property
    def acted_on(self) -> int:
        """The number of jobs that matched."""
        return sum(self.counts.values())

    def refresh(self) -> Operation:
        """Return a new snapshot. This one does not change."""
        return self.app.operation(self.id)

    async def arefresh(self) -> Operation:
        return await self.app.aoperation(self.id)

    def stop(self) -> Operation:
        """Stop it before its next step, unless it is done. What was done stays done."""
        return self.app.stop_operation(self.id)

    async def astop(self) -> Operation:
        return await self.app.astop_operation(self.id)

    def resume(self) -> Operation:
        """Let it continue where it was stopped: by `wait`, or else by workers after a few seconds."""
        return self.app.resume_operation(self.id)

    async def aresume(self) -> Operation:
        return await self.app.aresume_operation(self.id)

    def wait(self, *, progress: Progress | None = None) -> Operation:
        """Drive it until it is done or stopped."""
        return self.app.drive_operation(self.id, progress=progress)

    async def wait_async(self, *, progress: Progress | None = None) -> Operation:
        """Drive it until it is done or stopped, as `wait` does."""
        return await self.app.adrive_operation(self.id, progress=progress)


class BulkOptions(JobFilter, TypedDict, total=False):
    """Filters, of which one is required; how to follow the operation; and whether to wait for its end."""

    progress: Progress | None
    wait: bool  # False: return at once; `Operation.wait` drives it, or else workers do


class Client(Stores, App, Protocol):
    """A client whose methods operations call."""


def cancel_all(self: Client, *, reason: str = "", **options: Unpack[BulkOptions]) -> Steps[Operation]:
    """Cancel all matching jobs.

    jobs.cancel_all(queue="mail", task="remind").counts
    """
    return (yield from _operate(self, "cancel", options, reason=reason))


def retry_all(
    self: Client,
    *,
    force: bool = False,
    to: str | None = None,
    from_start: bool = False,
    **options: Unpack[BulkOptions],
) -> Steps[Operation]:
    """Retry all matching jobs that failed; others only if a `state` is given. `to` moves them to another queue.

    jobs.retry_all(queue="mail", group="smtplib.SMTPServerDisconnected")

    They continue from their checkpoints, unless `from_start` is given. Jobs whose work was done are retried only with
    `force`; see `retry`.
    """
    return (yield from _operate(self, "retry", options, force=force or None, queue=to, from_start=from_start or None))


def delete_all(self: Client, **options: Unpack[BulkOptions]) -> Steps[Operation]:
    """Delete all matching jobs that have ended."""
    return (yield from _operate(self, "delete", options))


def move_all(
    self: Client,
    *,
    to: str | None = None,
    priority: int | None = None,
    tags: Sequence[str] | None = None,
    **options: Unpack[BulkOptions],
) -> Steps[Operation]:
    """Move all matching jobs that are not running to another queue, or change their priority.

    jobs.move_all(queue="mail", task="remind", to="slow")

    They keep their tags unless others are given.
    """
    if options and to is None and priority is None:
        raise Invalid("specify `to`, the queue to move jobs to, or `priority`; `queue` selects jobs")
    new = None if tags is None else check_tags("tags", tags)
    return (yield from _operate(self, "move", options, queue=to, priority=priority, tags=new))


def release_all(
    self: Client, *, delay: Duration = 0, reason: str = "", **options: Unpack[BulkOptions]
) -> Steps[Operation]:
    """Requeue all matching running jobs for other workers, without counting an attempt."""
    wait = milliseconds(delay, what="delay", maximum=MAX_DURATION)
    return (yield from _operate(self, "release", options, delay=wait, reason=reason))


def fail_all(
    self: Client, *, with_group: str | None = None, reason: str = "", **options: Unpack[BulkOptions]
) -> Steps[Operation]:
    """Fail all matching jobs, which get `with_group` as the group of their failure.

    jobs.fail_all(queue="mail", tag="old", with_group="given-up")
    """
    if options.get("group") is not None or options.get("fingerprint") is not None:
        raise Invalid("jobs that can fail have no failure yet, so group and fingerprint select none; use with_group")
    return (yield from _operate(self, "fail", options, group=with_group, reason=reason))


def tag_all(self: Client, tags: Sequence[str], /, **options: Unpack[BulkOptions]) -> Steps[Operation]:
    """Add tags to all matching jobs, in any state.

    jobs.tag_all(["incident-7"], state="failed", since="1h")
    """
    return (yield from _operate(self, "tag", options, tags=_some_tags(tags)))


def untag_all(self: Client, tags: Sequence[str], /, **options: Unpack[BulkOptions]) -> Steps[Operation]:
    """Remove tags from all matching jobs.

    jobs.untag_all(["incident-7"], tag="incident-7")
    """
    return (yield from _operate(self, "untag", options, tags=_some_tags(tags)))


def _some_tags(tags: Sequence[str]) -> list[str]:
    checked = list(check_tags("tags", tags))
    if not checked:
        raise Invalid("no tags are given; give at least one")
    return checked


def operations(self: Client) -> Steps[list[Operation]]:
    """Return the operations that run, and the last that have ended, the latest first; up to 100 of each."""
    found = yield commands.operations()
    return [_read(self, each) for each in found]


def operation(self: Client, id: str, /) -> Steps[Operation]:
    """Return an operation.

    Raises:
        OperationNotFound: no operation has this id; the last 100 are kept.
    """
    found = yield commands.operations([id])
    return _read(self, found[0])


def stop_operation(self: Client, id: str, /) -> Steps[Operation]:
    """Stop an operation before its next step, unless it is done. What was done stays done.

    Raises:
        OperationNotFound: no operation has this id.
    """
    return _read(self, (yield commands.stop_operation(id)))


def resume_operation(self: Client, id: str, /) -> Steps[Operation]:
    """Let a stopped operation continue: driven by `Operation.wait`, or else by workers after a few seconds.

    Raises:
        OperationNotFound: no operation has this id.
    """
    return _read(self, (yield commands.resume_operation(id)))


def drive_operation(self: Client, id: str, /, *, progress: Progress | None = None) -> Steps[Operation]:
    """Drive an operation until it is done or stopped, and return it.

    Between two steps it pauses as long as a step took, so that it leaves half of the server to others.

    Raises:
        OperationNotFound: no operation has this id.
    """
    found = yield commands.operations([id])
    return (yield from _drive(self, found[0], progress))


def _operate(self: Client, action: str, options: BulkOptions, **arguments: Any) -> Steps[Operation]:
    given: dict[str, Any] = dict(options)
    progress, waits = given.pop("progress", None), given.pop("wait", True)
    filter = read_filter(given, method=f"{action}_all")
    if not filter:
        raise Invalid(f"{action}_all needs a filter: give {', '.join(NAMES[:-1])} or {NAMES[-1]}")
    if action in DEFAULT_STATES:
        filter.setdefault("states", list(DEFAULT_STATES[action]))
    passed = {name: value for name, value in arguments.items() if value is not None}
    started = yield commands.start_operation(new_token(), action, arguments=passed, **filter)
    if not waits:
        return _read(self, started)
    return (yield from _drive(self, started, progress))


def _drive(self: Client, operation: OperationReply, progress: Progress | None) -> Steps[Operation]:
    while operation.state == "running":
        began = time.monotonic()
        step: OperationReply = yield commands.continue_operation(operation.id, operation.steps)
        if progress:
            progress(step.looked_at - operation.looked_at)
        if step.state == "running":
            yield sleep(min(time.monotonic() - began, MAX_PAUSE))
        operation = step
    return _read(self, operation)


def _read(self: Client, found: OperationReply) -> Operation:
    reasons = _REASONS | _DONE.get(found.action, {})
    return Operation(
        id=found.id,
        action=found.action,
        state=found.state,
        who=found.who,
        filter=json.loads(found.filter),
        arguments=json.loads(found.arguments),
        started_at=utc(found.started),
        updated_at=utc(found.updated),
        looked_at=found.looked_at,
        total=None if found.total < 0 else found.total,
        counts={reasons.get(answer, answer): count for answer, count in sorted(found.answers.items())},
        app=self,
    )
