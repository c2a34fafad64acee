"""Steering jobs that belong together: dependencies, moves, limits, shares. Verbs of the client; see `verbs`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from holdfast import commands, errors
from holdfast.durations import Duration, milliseconds
from holdfast.limits import LONGEST_WAIT
from holdfast.names import check_id, check_limit, check_name
from holdfast.task import Awaited, OnFailed, ids_of
from holdfast.verbs import Steps, Stores


class Limit(NamedTuple):
    """So many at once, or so many per period (milliseconds, 0: at once). `keys` have parked jobs."""

    name: str
    slots: int
    per: int
    keys: int
    held: int  # by running jobs, of the limit without a key
    parked: int  # jobs that wait for a slot, of the limit without a key


def answer(id: str, given: str, words: str) -> str:
    """Return the answer about one job, or raise what it stands for."""
    kind = errors.BY_CODE.get(given)
    if kind is None:
        return given
    raise kind(f"job {id} {words if given != 'NOTFOUND' else 'does not exist; it may have been deleted'}")


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
    answers = yield commands.move([check_id(id)], queue=queue, priority=priority)
    return answer(id, answers[0], "runs or has ended, and cannot be moved")


def release(_: Stores, id: str, /, *, delay: Duration = 0, reason: str = "") -> Steps[str]:
    """Take a running job from its worker, uncharged, and give it to another. Returns its state.

    Raises:
        JobNotFound: there is none of this id.
        WrongState: it does not run.
    """
    wait = milliseconds(delay, what="delay", most=LONGEST_WAIT)
    answers = yield commands.release([check_id(id)], delay=wait, reason=reason)
    return answer(id, answers[0], "does not run, so it cannot be released")


def fail(_: Stores, id: str, /, *, group: str | None = None, reason: str = "") -> Steps[str]:
    """End a job as failed, wherever it is; what runs is stopped.

    Raises:
        JobNotFound: there is none of this id.
        WrongState: it has ended already.
    """
    chosen = None if group is None else check_name(group, "group")
    answers = yield commands.fail([check_id(id)], group=chosen, reason=reason)
    return answer(id, answers[0], "has ended already and cannot be failed")


def limit(_: Stores, name: str, slots: int, *, per: Duration | None = None) -> Steps[bool]:
    """Let so many jobs that take part in a limit run at once; or, with `per`, so many start in each such period.

    jobs.limit("gpu", 2)
    jobs.limit("api", 5, per="1s")

    It holds from the next claim on. Returns whether that changed anything.
    """
    if ":" in check_limit(name):
        raise errors.Invalid(
            f"{name} has a key; a limit is the same for all of its keys: limit({name.partition(':')[0]!r}, ...)"
        )
    period = None if per is None else milliseconds(per, what="per", least=1, most=LONGEST_WAIT)
    changed: bool = yield commands.limit(name, slots, per=period)
    return changed


def unlimit(_: Stores, name: str) -> Steps[bool]:
    """Remove a limit; jobs that it held back start as others do. Returns whether there was one."""
    changed: bool = yield commands.unlimit(name)
    return changed


def limits(_: Stores) -> Steps[list[Limit]]:
    """Return all limits that are defined."""
    return [Limit(*row) for row in (yield commands.limits())]


def weigh(_: Stores, queue: str, share: str, weight: int) -> Steps[bool]:
    """Give the jobs of a share (`share=`) so many times as much of a queue as others get: 1 to 100.

    Returns whether that changed anything.
    """
    changed: bool = yield commands.weigh(queue, share, weight)
    return changed
