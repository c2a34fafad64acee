"""The workers: how many of which shape there are, the slots they have together, and how their number is changed."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from holdfast.client.queue_patterns import Patterns
from holdfast.errors import Invalid
from holdfast.planning.model import PoolGroup
from holdfast.store.commands import Worker

MAX_WORKERS = 100_000
MAX_SLOTS = 100_000  # of a worker: the maximum of the setting
_CHANGE = re.compile(r"[+-]?[0-9]{1,6}", re.ASCII)


class PoolShape(NamedTuple):
    """The settings of a pool that matter. `queues` are names, patterns and exclusions, with weights."""

    queues: tuple[tuple[str, int], ...]
    order: str
    processes: int
    concurrency: int


class WorkerShape(NamedTuple):
    """What a worker with these pools can run at once."""

    pools: tuple[PoolShape, ...]

    def serves(self, queues: Iterable[str]) -> bool:
        return any(Patterns(dict(pool.queues)).serves(queue) for pool in self.pools for queue in queues)


Fleet = Counter[WorkerShape]


class Change(NamedTuple):
    """Another number of workers: so many more, fewer (negative), or in total; and the slots of those that are added."""

    number: int
    is_relative: bool
    processes: int | None = None  # None: as the workers of today
    concurrency: int | None = None

    @classmethod
    def read(cls, workers: int | str, processes: int | None = None, concurrency: int | None = None) -> Change:
        """Read "+10", "-2", or a total.

        Raises:
            Invalid: it is something else.
        """
        for name, slots in (("processes", processes), ("concurrency", concurrency)):
            if slots is not None and (type(slots) is not int or not 1 <= slots <= MAX_SLOTS):
                raise Invalid(f"{name} is {slots!r}; it must be a whole number from 1 to {MAX_SLOTS}")
        if type(workers) is int and 0 <= workers <= MAX_WORKERS:
            return cls(workers, False, processes, concurrency)
        if isinstance(workers, str) and _CHANGE.fullmatch(workers) and abs(int(workers)) <= MAX_WORKERS:
            return cls(int(workers), workers[0] in "+-", processes, concurrency)
        raise Invalid(
            f'workers is {workers!r}; it must be "+10" for ten more workers, "-2" for two fewer, or a total such as 8;'
            f" up to {MAX_WORKERS:,}"
        )


def shape_of(worker: Worker) -> WorkerShape:
    """Return the shape that a worker reports. One that reports none is assumed to have a slot for each job it holds."""
    pools = worker.about.get("pools")
    shapes = [shape for pool in pools if (shape := _pool_shape(pool))] if isinstance(pools, list) else []
    if not shapes:
        slots = max(1, len(worker.held))
        shapes = [PoolShape(tuple((queue, 1) for queue in worker.queues), "strict", slots, slots)]
    return WorkerShape(tuple(shapes))


def _pool_shape(pool: Any) -> PoolShape | None:
    """Read the report of a pool; None if it is in another form, as workers in other languages may have it."""
    if not isinstance(pool, dict) or not isinstance(queues := pool.get("queues"), dict):
        return None
    slots = [pool.get("processes"), pool.get("concurrency")]
    numbers = [each for each in (*slots, *queues.values()) if type(each) is not int or each < 0]
    if numbers or not all(isinstance(name, str) for name in queues):
        return None
    return PoolShape(tuple(queues.items()), str(pool.get("order")), slots[0] or 0, slots[1] or 0)


def changed(fleet: Fleet, change: Change, queues: Sequence[str]) -> Fleet:
    """Return the fleet with more or fewer workers that serve one of the queues.

    Those that are added, or removed first, are like the most common ones of today.

    Raises:
        Invalid: no worker is live that they could be like, and no slots are given.
    """
    serving = Counter({shape: number for shape, number in fleet.items() if shape.serves(queues)})
    more = change.number if change.is_relative else change.number - serving.total()
    if more > 0:
        return fleet + Counter({_added_shape(serving, change, queues): more})
    after = Counter(fleet)
    for shape, number in serving.most_common():
        gone = min(number, -more)
        after[shape] -= gone
        more += gone
    return +after


def _added_shape(serving: Fleet, change: Change, queues: Sequence[str]) -> WorkerShape:
    alike = serving.most_common(1)[0][0] if serving else None
    if change.processes is None and change.concurrency is None:
        if alike is None:
            raise Invalid(
                f"no worker serves {', '.join(queues[:3]) or 'any queue'}: say how many jobs each worker runs at once,"
                " as processes=8 or --processes 8 (for coroutines and threads, concurrency)"
            )
        return alike
    if alike is None:
        alike = WorkerShape((PoolShape(tuple((queue, 1) for queue in queues), "strict", 0, 0),))
    number = next((number for number, pool in enumerate(alike.pools) if WorkerShape((pool,)).serves(queues)), 0)
    pools = list(alike.pools)
    pools[number] = pools[number]._replace(
        processes=pools[number].processes if change.processes is None else change.processes,
        concurrency=pools[number].concurrency if change.concurrency is None else change.concurrency,
    )
    return WorkerShape(tuple(pools))


def groups(fleet: Fleet, queues: Sequence[str]) -> tuple[PoolGroup, ...]:
    """Add up the slots of all pools that serve the same of these queues, in the same order."""
    slots: dict[tuple[tuple[tuple[str, int], ...], str], list[int]] = {}
    for shape, number in fleet.items():
        for pool in shape.pools:
            served = Patterns(dict(pool.queues)).expand(queues)
            key = tuple((queue, weight) for queue, weight in served.items() if queue in queues), pool.order
            found = slots.setdefault(key, [0, 0])
            found[0] += number * pool.processes
            found[1] += number * pool.concurrency
    return tuple(PoolGroup(*key, *found) for key, found in slots.items() if key[0])
