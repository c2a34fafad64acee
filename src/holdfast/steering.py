"""Steering jobs: one, or those of some ids; what they wait for, and what is kept with them. Verbs of the client.

`acting` does the same to all jobs of a kind.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from holdfast import commands, errors
from holdfast.commands import Command
from holdfast.durations import Duration, milliseconds
from holdfast.limits import LONGEST_WAIT
from holdfast.names import check_id, check_name, check_text
from holdfast.options import Awaited, OnFailed, ids_of
from holdfast.storing import AT_ONCE
from holdfast.verbs import Steps, Stores

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
    while left and len(ids) > AT_ONCE:  # those that wait for a job may have been in another part
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
    wait = milliseconds(delay, what="delay", most=LONGEST_WAIT)
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
    for first in range(0, len(ids), AT_ONCE):
        part = ids[first : first + AT_ONCE]
        replies = yield make(part)
        answers += [read_answer(verb, id, reply) for id, reply in zip(part, replies, strict=True)]
    return answers
