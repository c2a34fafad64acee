"""Limits, and the weights of shares in a queue."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any, NamedTuple

from holdfast.client.queries import App, Page, list_pages, page_size, read
from holdfast.constants import MAX_DURATION
from holdfast.job.job import Job
from holdfast.job.limit import Limit
from holdfast.names import check_id, check_limit, check_limit_name
from holdfast.store import Command, Pages, Steps, Stores, commands
from holdfast.store.commands import LimitKey, LimitStatus, ListReply
from holdfast.units import Duration, milliseconds


def declarations(limits: Iterable[Limit], revision: int) -> list[dict[str, Any]]:
    """Return the arguments of `commands.declare_limit` for each limit."""
    return [{"name": each.name, "slots": each.slots, "per": each.per, "revision": revision} for each in limits]


def set_limit(
    _: Stores, name: str, slots: int, *, per: Duration | None = None, ttl: Duration | None = None
) -> Steps[bool]:
    """Define or change a limit: at most `slots` of its jobs run at once or, with `per`, start in each period.

    jobs.set_limit("gpu", 2)
    jobs.set_limit("api", 5, per="1s")
    jobs.set_limit("api", 1, per="1s", ttl="1h")

    It applies from the next claim on, until it is set again, reset or removed, or until `ttl` has passed. It overrides
    what the code declares (`Limit`). Return whether it changed anything.
    """
    limit = Limit(name, slots, per=per)
    life = None if ttl is None else milliseconds(ttl, what="ttl", minimum=1, maximum=MAX_DURATION)
    changed: bool = yield commands.set_limit(limit.name, limit.slots, per=limit.per, ttl=life)
    return changed


def reset_limit(_: Stores, name: str) -> Steps[bool]:
    """Return to the limit that the code declares. Return whether it was overridden.

    Raises:
        WrongState: no app declares it; `remove_limit` removes it.
    """
    changed: bool = yield commands.reset_limit(check_limit_name(name))
    return changed


def remove_limit(_: Stores, name: str) -> Steps[bool]:
    """Remove a limit; its parked jobs can start. Return whether it existed.

    A limit that the code declares is defined again when a worker of the app starts. A limit that jobs use, but that
    was never defined, is no longer listed until another of its jobs starts.
    """
    changed: bool = yield commands.remove_limit(name)
    return changed


def release_slot(_: Stores, limit: str, id: str) -> Steps[None]:
    """Take a slot of a limit from a running job, which continues without it. The next parked job gets the slot.

    jobs.release_slot("gpu:0", job.id)

    Raises:
        WrongState: the job does not hold a slot of this limit, or the limit counts starts per period.
    """
    yield commands.release_slot(check_limit(limit), check_id(id))


def limits(_: Stores) -> Steps[list[LimitStatus]]:
    """Return all defined limits, and undefined ones that jobs have used, sorted by name."""
    found: dict[str, LimitStatus] = {}
    after: str | None = None
    while True:
        page: commands.LimitsPage = yield commands.limits(after)
        for each in page.limits:
            before = found[each.name].parked if each.name in found else 0
            found[each.name] = each._replace(parked=before + each.parked)
        after = page.after
        if after is None:
            return list(found.values())


def limit_keys(_: Stores, name: str, *, limit: int | None = None) -> Pages[LimitKey]:
    """Iterate over the keys of a limit that are in use: how many jobs hold a slot, and how many wait for one.

    for use in jobs.limit_keys("api"):
        print(use.key, use.held, use.parked)

    Jobs without a key are counted under the key None, which comes first.
    """
    check_limit_name(name)
    after, left = None, limit
    while left is None or left > 0:
        page: list[LimitKey] = yield commands.limit_keys(name, after=after, limit=page_size(left))
        if not page:
            return
        yield page
        after, left = page[-1].limit, None if left is None else left - len(page)


def limit_holders(self: App, limit: str) -> Pages[Job[Any]]:
    """Iterate over the jobs that hold a slot of a limit, such as `gpu` or `api:acme`, by id.

    `job.executor` runs it, since `job.since`. The jobs have no payload, result or attempts.
    """
    return list_pages(self, partial(commands.limit_holders, check_limit(limit)))


def limit_parked(self: App, limit: str) -> Pages[Job[Any]]:
    """Iterate over the jobs that wait for a slot of a limit, such as `gpu` or `api:acme`.

    They are ordered by queue, then as they will start; each waits since `job.since`. A released slot is offered to the
    first job of each queue. The jobs have no payload, result or attempts.
    """
    return list_pages(self, partial(commands.limit_parked, check_limit(limit)))


def set_share_weight(_: Stores, queue: str, share: str, weight: int) -> Steps[bool]:
    """Give the jobs of a share (`share=`) `weight` times as many turns in a queue as others: 1 to 100.

    A queue that does not exist yet is created, as by `pause`. Return whether it changed anything.
    """
    changed: bool = yield commands.set_share_weight(queue, share, weight)
    return changed


# Pages


class KeysPage(NamedTuple):
    keys: list[LimitKey]
    cursor: str | None  # of the next page


def keys_page(name: str, *, cursor: str | None = None, limit: int) -> Steps[KeysPage]:
    """Return a page of the keys of a limit that are in use."""
    check_limit_name(name)
    found: list[LimitKey] = []
    while len(found) < limit:
        page: list[LimitKey] = yield commands.limit_keys(name, after=cursor, limit=limit - len(found))
        if not page:
            return KeysPage(found, None)
        found, cursor = found + page, page[-1].limit
    return KeysPage(found, cursor)


def holders_page(self: App, limit: str, *, cursor: str | None = None, size: int) -> Steps[Page]:
    """Return a page of the jobs that hold a slot of a limit."""
    return (yield from _jobs_page(self, commands.limit_holders(check_limit(limit), limit=size, cursor=cursor)))


def parked_page(self: App, limit: str, *, cursor: str | None = None, size: int) -> Steps[Page]:
    """Return a page of the jobs that wait for a slot of a limit."""
    return (yield from _jobs_page(self, commands.limit_parked(check_limit(limit), limit=size, cursor=cursor)))


def _jobs_page(self: App, command: Command[ListReply]) -> Steps[Page]:
    reply: ListReply = yield command
    return Page([read(self, each) for each in reply.jobs], reply.cursor)
