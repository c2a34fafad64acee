"""Jobs: get them by id; cancel, retry, delete and change one or several of them.

`client.queries` finds jobs by filters, and `client.operations` changes all that match.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from holdfast import errors
from holdfast.client.queries import App, read
from holdfast.constants import MAX_BATCH, MAX_DURATION, MAX_TAGS_PER_JOB, MAX_TRACKED
from holdfast.job.fields import check_fields, check_removed
from holdfast.job.job import Job
from holdfast.job.marks import check_tags
from holdfast.job.option_kinds import ids_of
from holdfast.job.option_table import OnFailed
from holdfast.job.options import Awaited
from holdfast.names import check_id, check_name, check_text
from holdfast.store import Command, Steps, Stores, commands
from holdfast.units import Duration, milliseconds

Replies = list[str | errors.HoldfastError]
ReplyById = dict[str, str | errors.HoldfastError]


# Get


def get(self: App, id: str, /) -> Steps[Job[Any]]:
    """Return a job.

    Raises:
        JobNotFound: no job has this id.
    """
    found = yield commands.get([id])
    if found[0] is None:
        raise errors.JobNotFound(f"job {id} does not exist; it may have been deleted")
    return read(self, found[0])


def get_many(self: App, ids: Sequence[str]) -> Steps[list[Job[Any] | None]]:
    """Return up to 1,000 jobs in one call, None for each that does not exist."""
    found = yield commands.get(ids)
    return [read(self, fields) if fields else None for fields in found]


# Cancel, retry, delete


def cancel(_: Stores, id: str, /, *, reason: str = "", unless_awaited: bool = False) -> Steps[str]:
    """Cancel a job. Return `cancelled`, or `cancelling` while its worker stops it.

    With `unless_awaited`, a job with dependents is not cancelled.

    Raises:
        JobNotFound: no job has this id.
        WrongState: it has already ended.
        JobBlocked: it has dependents, and `unless_awaited` is given.
    """
    return _only_reply("cancel", id, (yield commands.cancel([id], reason=reason, unless_awaited=unless_awaited)))


def retry(
    _: Stores, id: str, /, *, force: bool = False, to: str | None = None, from_start: bool = False
) -> Steps[None]:
    """Run an ended job again, with its retries, crashes and lost leases reset; in the queue `to`, if given.

    It continues from its checkpoint, and does not repeat its kept steps; with `from_start`, these are deleted, and it
    starts over. A job that has advanced to a later stage starts that stage.

    A job that has done its work, but whose result or step could not be stored, would repeat the work; it is retried
    only with `force`.

    Raises:
        JobNotFound: no job has this id.
        WrongState: it has not ended.
        WorkDone: its work was done (groups result-not-stored, result-too-big, step-not-kept); `force` is not given.
        JobExists: another job has its unique key now.
    """
    _only_reply("retry", id, (yield commands.retry([id], force=force, queue=to, from_start=from_start)))


def delete(_: Stores, id: str, /) -> Steps[None]:
    """Delete an ended job, with its result and history.

    Raises:
        JobNotFound: no job has this id.
        WrongState: it has not ended; cancel it first.
        JobBlocked: it has dependents.
    """
    _only_reply("delete", id, (yield commands.delete([id])))


def cancel_many(_: Stores, ids: Sequence[str], /, *, reason: str = "", unless_awaited: bool = False) -> Steps[Replies]:
    """Cancel any number of jobs. Return for each its new state, or the error that `cancel` would raise.

    With `unless_awaited`, a job is cancelled only if all its dependents are among these.
    """

    def command(batch: Sequence[str]) -> Command[list[str]]:
        return commands.cancel(batch, reason=reason, unless_awaited=unless_awaited)

    replies = yield from _run_in_batches("cancel", ids, command)
    left = _blocked(replies)
    while left and len(ids) > MAX_BATCH:  # dependents may have been in a later batch
        again = yield from _run_in_batches("cancel", [ids[index] for index in left], command)
        for index, reply in zip(left, again, strict=True):
            replies[index] = reply
        if len(left) == len(left := _blocked(replies)):
            break
    return replies


def _blocked(replies: Replies) -> list[int]:
    """Return the indexes of jobs that were not cancelled because of their dependents."""
    return [index for index, reply in enumerate(replies) if isinstance(reply, errors.JobBlocked)]


def retry_many(
    _: Stores, ids: Sequence[str], /, *, force: bool = False, to: str | None = None, from_start: bool = False
) -> Steps[Replies]:
    """Retry any number of jobs. Return for each `waiting` or `blocked`, or the error that `retry` would raise."""

    def command(batch: Sequence[str]) -> Command[list[str]]:
        return commands.retry(batch, force=force, queue=to, from_start=from_start)

    return (yield from _run_in_batches("retry", ids, command))


def delete_many(_: Stores, ids: Sequence[str], /) -> Steps[Replies]:
    """Delete any number of jobs. Return for each `deleted`, or the error that `delete` would raise."""
    return (yield from _run_in_batches("delete", ids, commands.delete))


def cancel_with_dependents(_: Stores, *ids: str, reason: str = "") -> Steps[ReplyById]:
    """Cancel jobs with their direct and indirect dependents, up to 1,000 jobs, atomically.

    Return for each job its new state, or the error that `cancel` would raise.

    Raises:
        TooBig: there are more jobs; nothing was changed.
    """
    found = yield commands.cancel([check_id(id) for id in ids], reason=reason, dependents=True)
    given, others = zip(ids, found, strict=False), found[len(ids) :]
    replies = {**dict(given), **dict(zip(others[::2], others[1::2], strict=True))}
    return {id: read_reply("cancel", id, reply) for id, reply in replies.items()}


# Change one job


def depend(
    _: Stores,
    id: str,
    /,
    *,
    add: Awaited | str | Sequence[Awaited | str] = (),
    remove: Awaited | str | Sequence[Awaited | str] = (),
    on_failed: OnFailed | None = None,
) -> Steps[str]:
    """Add or remove dependencies of a job that has not started. Return its state.

    Raises:
        JobNotFound: one of them does not exist.
        WrongState: the job is running or has ended.
        DependencyCycle: it would wait for itself.
    """
    state, _ = yield commands.depend(check_id(id), add=ids_of(add), remove=ids_of(remove), on_failed=on_failed)
    return str(state)


def move(
    _: Stores, id: str, /, *, queue: str | None = None, priority: int | None = None, tags: Sequence[str] | None = None
) -> Steps[str]:
    """Move a job to the end of another queue, or change its priority. Return its state.

    It keeps its tags unless others are given.

    Raises:
        JobNotFound: no job has this id.
        WrongState: it has ended; or it is running, and a queue is given.
    """
    new = None if tags is None else check_tags("tags", tags)
    return _only_reply("move", id, (yield commands.move([check_id(id)], queue=queue, priority=priority, tags=new)))


def release(_: Stores, id: str, /, *, delay: Duration = 0, reason: str = "") -> Steps[str]:
    """Requeue a running job for another worker, without counting an attempt. Return its state.

    Raises:
        JobNotFound: no job has this id.
        WrongState: it is not running.
    """
    wait = milliseconds(delay, what="delay", maximum=MAX_DURATION)
    return _only_reply("release", id, (yield commands.release([check_id(id)], delay=wait, reason=reason)))


def fail(_: Stores, id: str, /, *, group: str | None = None, reason: str = "") -> Steps[str]:
    """Fail a job in any state before its end; a running job is stopped.

    Raises:
        JobNotFound: no job has this id.
        WrongState: it has already ended.
    """
    chosen = None if group is None else check_name(group, "group")
    return _only_reply("fail", id, (yield commands.fail([check_id(id)], group=chosen, reason=reason)))


def attach(_: Stores, id: str, /, fields: Mapping[str, str], *, remove: Sequence[str] = ()) -> Steps[dict[str, str]]:
    """Attach fields to a job, up to 64 texts of 4 KiB, and remove others. Return all its fields.

    Raises:
        JobNotFound: no job has this id.
        Invalid, TooBig: a name or a text is not allowed.
    """
    texts, removed = check_fields("fields", fields), check_removed(remove)
    found: dict[str, str] = yield commands.attach(check_id(id), texts, remove=removed)
    return found


def note(_: Stores, id: str, text: str, /) -> Steps[None]:
    """Add an entry to a job's history, up to 1,000 bytes.

    Raises:
        JobNotFound: no job has this id.
    """
    yield commands.note(check_id(id), check_text(text, "the note"))


# Replies

_REFUSALS = {
    ("cancel", "STATE"): "has already ended and cannot be cancelled",
    ("cancel", "BLOCKED"): "has dependents and was not cancelled; cancel them too, or remove the dependency (depend)",
    ("retry", "STATE"): "has not ended, so it cannot be retried; cancel it first to run it again from the start",
    ("retry", "DONE"): "has done its work but could not store the result, so a retry would repeat the work; to do so,"
    " use retry(force=True), or --force",
    ("retry", "EXISTS"): "cannot be retried: another job has its unique key now",
    ("retry", "CYCLE"): "cannot be retried: it would wait for itself",
    ("delete", "STATE"): "has not ended and cannot be deleted; cancel it first",
    ("delete", "BLOCKED"): "has dependents and cannot be deleted; retry it, or remove the dependency (depend)",
    ("move", "STATE"): "has ended and cannot be moved, or is running and cannot change its queue",
    ("release", "STATE"): "is not running, so it cannot be released",
    ("fail", "STATE"): "has already ended and cannot be failed",
    ("tag", "TOOBIG"): f"would have more than {MAX_TAGS_PER_JOB} tags; remove some first (untag)",
    ("track", "TOOBIG"): f"was not tracked: {MAX_TRACKED} jobs are tracked already; untrack some first",
}
_COMMON_REFUSALS = {
    "NOTFOUND": "does not exist; it may have been deleted",
    "NEWER": "was written by a newer release: upgrade this one; nothing was changed",
    "DAMAGED": "has a damaged record; nothing was changed, and other jobs are not affected",
}


def read_reply(verb: str, id: str, reply: str) -> str | errors.HoldfastError:
    """Return a reply about a job, or the error that it stands for."""
    error = errors.BY_CODE.get(reply)
    if error is not None:
        return error(f"job {id} {_REFUSALS.get((verb, reply)) or _COMMON_REFUSALS[reply]}")
    return "deleted" if verb == "delete" else reply


def _only_reply(verb: str, id: str, replies: Sequence[str]) -> str:
    """Return the reply about one job, or raise the error that it stands for."""
    reply = read_reply(verb, id, replies[0])
    if isinstance(reply, errors.HoldfastError):
        raise reply
    return reply


def _run_in_batches(
    verb: str, ids: Sequence[str], command: Callable[[Sequence[str]], Command[list[str]]]
) -> Steps[Replies]:
    replies: Replies = []
    for first in range(0, len(ids), MAX_BATCH):
        batch = ids[first : first + MAX_BATCH]
        found = yield command(batch)
        replies += [read_reply(verb, id, reply) for id, reply in zip(batch, found, strict=True)]
    return replies
