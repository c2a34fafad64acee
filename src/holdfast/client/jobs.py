"""Looking at jobs: one, some, all of a queue, and what happened last. Verbs of the client; see `verbs`.

Looking into jobs: what one does just now, and what it uses of its machine.

Steering jobs: one, or those of some ids; what they wait for, and what is kept with them. Verbs of the client.

`acting` does the same to all jobs of a kind.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from holdfast import errors
from holdfast.constants import DEFAULT_PAGE, MAX_BATCH, MAX_DURATION
from holdfast.job.job import PENDING, Job, read_job
from holdfast.job.option_kinds import ids_of
from holdfast.job.option_table import OnFailed
from holdfast.job.options import Awaited
from holdfast.job.usage import JobUsage, read_usage
from holdfast.names import check_id, check_name, check_text, new_id
from holdfast.store import Command, Steps, Stores, commands, pop, sleep
from holdfast.task.program import PROGRAM, RESULT
from holdfast.task.task import Task
from holdfast.units import Duration, humanize, milliseconds


class App(Stores, Protocol):
    """A client, and the tasks whose results it can read."""

    @property
    def tasks(self) -> Mapping[str, Task[..., Any]]: ...


def read(app: App, fields: dict[str, Any]) -> Job[Any]:
    """Make a snapshot of what the store says of a job; its result will be what its task is annotated to return."""
    name, owner = fields.get("task", ""), app
    task = app.tasks.get(name)
    returns = task.signature.result if task else RESULT if name == PROGRAM else None
    return read_job(fields, owner, returns)  # type: ignore[arg-type] # what a job asks of it is verbs too


def get(self: App, id: str, /) -> Steps[Job[Any]]:
    """Return a job.

    Raises:
        JobNotFound: there is none of this id.
    """
    found = yield commands.get([id])
    if found[0] is None:
        raise errors.JobNotFound(f"there is no job {id}; it may have been deleted")
    return read(self, found[0])


def get_many(self: App, ids: Sequence[str]) -> Steps[list[Job[Any] | None]]:
    """Return up to 1,000 jobs in one call, None for each that does not exist."""
    found = yield commands.get(ids)
    return [read(self, fields) if fields else None for fields in found]


def list_jobs(
    self: App, *, queue: str | None = None, state: str | None = None, newest: bool = False, limit: int | None = None
) -> Iterator[Job[Any]]:
    """Iterate over jobs, of a queue or all, in a state or any (`pending` is five of them), a page at a time.

    They come queue by queue, and state by state. With `newest` those of all queues come together, the last that changed
    first; of waiting and scheduled jobs, the last to run.

    What it yields has no payload, result or attempts: `refresh` a job to see them.
    """
    cursor, left = None, limit
    while left is None or left > 0:
        page = self.store.run(_page(queue, state, newest, left, cursor))
        yield from (read(self, fields) for fields in page.jobs)
        cursor, left = page.cursor, None if left is None else left - len(page.jobs)
        if cursor is None:
            return


async def alist_jobs(
    self: App, *, queue: str | None = None, state: str | None = None, newest: bool = False, limit: int | None = None
) -> AsyncIterator[Job[Any]]:
    """Iterate over jobs, as `list` does."""
    cursor, left = None, limit
    while left is None or left > 0:
        page = await self.async_store.run(_page(queue, state, newest, left, cursor))
        for fields in page.jobs:
            yield read(self, fields)
        cursor, left = page.cursor, None if left is None else left - len(page.jobs)
        if cursor is None:
            return


for _made, _name in ((list_jobs, "list"), (alist_jobs, "alist")):  # by which Python says that an argument is wrong
    _made.__name__, _made.__qualname__ = _name, f"Holdfast.{_name}"


def count(_: Stores, *, queue: str | None = None, state: str | None = None) -> Steps[int]:
    """Count jobs, of a queue or all, in a state or any."""
    number: int = yield commands.count(queues=_only(queue), states=_states_of(state))
    return number


def events(_: Stores, after: str | None = None, *, limit: int = DEFAULT_PAGE) -> Steps[list[commands.Event]]:
    """Return what happened after an event, or last."""
    found: list[commands.Event] = yield commands.events(after, limit=limit)
    return found


def _page(
    queue: str | None, state: str | None, newest: bool, left: int | None, cursor: Sequence[str] | None
) -> Command[commands.ListReply]:
    limit = MAX_BATCH if left is None else min(left, MAX_BATCH)
    return commands.list_jobs(queues=_only(queue), states=_states_of(state), limit=limit, newest=newest, cursor=cursor)


def _only(queue: str | None) -> list[str] | None:
    return None if queue is None else [queue]


def _states_of(state: str | None) -> list[str] | None:
    """Return the states that a word stands for: `pending` is the first five."""
    if state is None:
        return None
    return list(PENDING) if state == "pending" else [state]


PATIENCE = "10s"  # a worker answers within some milliseconds, or three seconds if a job lets nobody else speak
NO_LOG = 2**40  # the number of a block that no log has


LOOK_EVERY = 0.05  # seconds, at a job that is about to start


class StackAnswer(msgspec.Struct, omit_defaults=True):
    """What a worker answers: the stack, or why there is none; and whether there may be one soon."""

    stack: str = ""
    why: str = ""
    soon: bool = False


def stack(self: Stores, id: str, /, *, timeout: Duration = PATIENCE) -> Steps[str]:
    """Return what a running job does just now: the stack of each thread of its process. It is not stopped for that.

    Of a job that runs as a thread or coroutine among others, only its own.

    Raises:
        JobNotFound: there is none of this id.
        WrongState: it does not run.
        ResultTimeout: its worker does not answer.
    """
    patience = milliseconds(timeout, what="timeout", least=1)
    deadline = time.monotonic() + patience / 1000
    while True:
        worker, key = yield commands.request("stack", id=check_id(id), inbox=new_id())
        if worker.startswith("detached/"):
            raise errors.WrongState(f"job {id} is an item that was detached: no process is known that works on it")
        popped = yield pop(self, key, max(deadline - time.monotonic(), 0.001))
        if popped is None:
            raise errors.ResultTimeout(
                f"worker {worker}, which runs job {id}, has not answered within {humanize(patience)}: it is dead, "
                "stopped or cannot reach the store; `holdfast workers` says when it was last heard of"
            )
        answer = msgspec.json.decode(popped[1], type=StackAnswer)
        if not answer.why:
            return answer.stack
        if not answer.soon or time.monotonic() > deadline:
            raise errors.WrongState(f"job {id} {answer.why}")
        yield sleep(LOOK_EVERY)


def usage(_: Any, id: str, /, *, attempt: int | None = None) -> Steps[JobUsage | None]:
    """Return memory and CPU of a job over time; of its last attempt, if none is named.

    None if nothing is known: it ran for less than some seconds, or has no process of its own.

    Raises:
        JobNotFound: there is none of this id.
    """
    found = yield commands.logs(check_id(id), attempt, block=NO_LOG)
    return read_usage(found.attempt, found.blocks[-1]) if -1 in found.blocks else None


Answers = list[str | errors.HoldfastError]
AnswerById = dict[str, str | errors.HoldfastError]

_REFUSALS = {
    ("cancel", "STATE"): "has ended already and cannot be cancelled",
    (
        "cancel",
        "BLOCKED",
    ): "is waited for by others and was not cancelled; cancel these too, or have them not wait: depend",
    ("retry", "STATE"): "has not ended, so there is nothing to retry; cancel it first to start it anew",
    (
        "retry",
        "DONE",
    ): "has done its work, and only could not record it, so a retry would do the work again; if that is "
    "meant, force it: retry(force=True), or --force",
    ("retry", "EXISTS"): "cannot be retried: another job has its unique key now",
    ("retry", "CYCLE"): "cannot be retried: it would wait for itself",
    ("delete", "STATE"): "has not ended and cannot be deleted; cancel it first",
    ("delete", "BLOCKED"): "is waited for by others and cannot be deleted; retry it, or have them not wait: depend",
    ("move", "STATE"): "has ended and cannot be moved, or runs and cannot change its queue",
    ("release", "STATE"): "does not run, so it cannot be released",
    ("fail", "STATE"): "has ended already and cannot be failed",
}
_OF_ANY_VERB = {
    "NOTFOUND": "does not exist; it may have been deleted",
    "NEWER": "was written by a newer release: upgrade this one; nothing was changed",
    "DAMAGED": "has a damaged record, so nothing was changed; no other job is concerned",
}
_DONE = {"delete": "deleted"}


def cancel(_: Stores, id: str, /, *, reason: str = "", unless_awaited: bool = False) -> Steps[str]:
    """Stop a job. Returns `cancelled`, or `cancelling` while its worker stops it.

    With `unless_awaited` a job that others wait for is not cancelled.

    Raises:
        JobNotFound: there is none of this id.
        WrongState: it has ended already.
        JobBlocked: other jobs wait for it, and `unless_awaited` is given.
    """
    return _answer("cancel", id, (yield commands.cancel([id], reason=reason, unless_awaited=unless_awaited)))


def retry(_: Stores, id: str, /, *, force: bool = False) -> Steps[None]:
    """Run a job that has ended once more, with all its budgets as new.

    A job that has done its work, and whose result or step could not be stored, would do the work again; `force` says
    that this is meant.

    Raises:
        JobNotFound: there is none of this id.
        WrongState: it has not ended.
        WorkDone: its work was done (groups result-not-stored, result-too-big and step-not-kept), and `force` is false.
        JobExists: another job has its unique key now.
    """
    _answer("retry", id, (yield commands.retry([id], force=force)))


def delete(_: Stores, id: str, /) -> Steps[None]:
    """Remove a job that has ended, with its result and history.

    Raises:
        JobNotFound: there is none of this id.
        WrongState: it has not ended: cancel it first.
        JobBlocked: other jobs wait for it.
    """
    _answer("delete", id, (yield commands.delete([id])))


def cancel_many(_: Stores, ids: Sequence[str], /, *, reason: str = "", unless_awaited: bool = False) -> Steps[Answers]:
    """Stop jobs, however many. Returns for each its new state, or the error that `cancel` would raise.

    With `unless_awaited` a job is cancelled if all that wait for it are among these.
    """

    def make(part: Sequence[str]) -> Command[list[str]]:
        return commands.cancel(part, reason=reason, unless_awaited=unless_awaited)

    answers = yield from _each("cancel", ids, make)
    left = _blocked(answers)
    while left and len(ids) > MAX_BATCH:  # those that wait for a job may have been in another part
        again = yield from _each("cancel", [ids[place] for place in left], make)
        for place, answer in zip(left, again, strict=True):
            answers[place] = answer
        if len(left) == len(left := _blocked(answers)):
            break
    return answers


def _blocked(answers: Answers) -> list[int]:
    """Return the places of those that were not cancelled because others wait for them."""
    return [place for place, answer in enumerate(answers) if isinstance(answer, errors.JobBlocked)]


def retry_many(_: Stores, ids: Sequence[str], /, *, force: bool = False) -> Steps[Answers]:
    """Run jobs once more, however many. Returns for each `waiting` or `blocked`, or the error of `retry`."""
    return (yield from _each("retry", ids, lambda part: commands.retry(part, force=force)))


def delete_many(_: Stores, ids: Sequence[str], /) -> Steps[Answers]:
    """Remove jobs, however many. Returns for each `deleted`, or the error that `delete` would raise."""
    return (yield from _each("delete", ids, commands.delete))


def cancel_with_dependents(_: Stores, *ids: str, reason: str = "") -> Steps[AnswerById]:
    """Stop jobs, and all that wait for them, and for those: up to 1,000, in one step.

    Returns for each of them its new state, or the error that `cancel` would raise.

    Raises:
        TooBig: there are more. Nothing was changed.
    """
    replies = yield commands.cancel([check_id(id) for id in ids], reason=reason, dependents=True)
    named, found = zip(ids, replies, strict=False), replies[len(ids) :]
    answers = {**dict(named), **dict(zip(found[::2], found[1::2], strict=True))}
    return {id: read_answer("cancel", id, answer) for id, answer in answers.items()}


def depend(
    _: Stores,
    id: str,
    /,
    *,
    add: Awaited | str | Sequence[Awaited | str] = (),
    remove: Awaited | str | Sequence[Awaited | str] = (),
    on_failed: OnFailed | None = None,
) -> Steps[str]:
    """Have a job that has not started wait for more jobs, or for fewer. Returns its state.

    Raises:
        JobNotFound: one of them does not exist.
        WrongState: the job runs, or has ended.
        DependencyCycle: it would wait for itself.
    """
    state, _ = yield commands.depend(check_id(id), add=ids_of(add), remove=ids_of(remove), on_failed=on_failed)
    return str(state)


def move(_: Stores, id: str, /, *, queue: str | None = None, priority: int | None = None) -> Steps[str]:
    """Move a job to another queue, where it comes as a new one, or change its priority. Returns its state.

    Raises:
        JobNotFound: there is none of this id.
        WrongState: it has ended; or it runs, and a queue was given.
    """
    return _answer("move", id, (yield commands.move([check_id(id)], queue=queue, priority=priority)))


def release(_: Stores, id: str, /, *, delay: Duration = 0, reason: str = "") -> Steps[str]:
    """Take a running job from its worker, uncharged, and give it to another. Returns its state.

    Raises:
        JobNotFound: there is none of this id.
        WrongState: it does not run.
    """
    wait = milliseconds(delay, what="delay", most=MAX_DURATION)
    return _answer("release", id, (yield commands.release([check_id(id)], delay=wait, reason=reason)))


def fail(_: Stores, id: str, /, *, group: str | None = None, reason: str = "") -> Steps[str]:
    """End a job as failed, wherever it is; what runs is stopped.

    Raises:
        JobNotFound: there is none of this id.
        WrongState: it has ended already.
    """
    chosen = None if group is None else check_name(group, "group")
    return _answer("fail", id, (yield commands.fail([check_id(id)], group=chosen, reason=reason)))


def attach(_: Stores, id: str, /, fields: Mapping[str, str], *, remove: Sequence[str] = ()) -> Steps[dict[str, str]]:
    """Keep fields of your own with a job, up to 64 texts of 4 KiB. Returns all that it has then.

    Raises:
        JobNotFound: there is none of this id.
        Invalid, TooBig: a name or a text is not acceptable.
    """
    if not isinstance(fields, Mapping) or isinstance(remove, str):
        raise errors.Invalid('fields are a table of names and texts, as {"ticket": "17"}, and remove is a list')
    texts = {check_text(name, "a name"): check_text(text, f"field {name}") for name, text in fields.items()}
    found: dict[str, str] = yield commands.attach(check_id(id), texts, remove=remove)
    return found


def note(_: Stores, id: str, words: str, /) -> Steps[None]:
    """Add an entry to a job's history, up to 1,000 bytes.

    Raises:
        JobNotFound: there is none of this id.
    """
    yield commands.note(check_id(id), check_text(words, "the note"))


def read_answer(verb: str, id: str, answer: str) -> str | errors.HoldfastError:
    """Return an answer about a job, or the error that it stands for."""
    kind = errors.BY_CODE.get(answer)
    if kind is None:
        return _DONE.get(verb, answer)
    return kind(f"job {id} {_REFUSALS.get((verb, answer)) or _OF_ANY_VERB[answer]}")


def _answer(verb: str, id: str, answers: Sequence[str]) -> str:
    """Return the answer about one job, or raise what it stands for."""
    answer = read_answer(verb, id, answers[0])
    if isinstance(answer, errors.HoldfastError):
        raise answer
    return answer


def _each(verb: str, ids: Sequence[str], make: Callable[[Sequence[str]], Command[list[str]]]) -> Steps[Answers]:
    """Do something with jobs, in parts of what fits into one call."""
    answers: Answers = []
    for first in range(0, len(ids), MAX_BATCH):
        part = ids[first : first + MAX_BATCH]
        replies = yield make(part)
        answers += [read_answer(verb, id, reply) for id, reply in zip(part, replies, strict=True)]
    return answers
