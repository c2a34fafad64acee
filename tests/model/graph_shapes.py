"""Shapes of job graphs, and jobs of such a shape with all kinds of options."""

from __future__ import annotations

import random
from collections.abc import Callable

from tests.support.new_job import NewJob

SIZE = 200
QUEUES = ["mail", "video", "shared", "narrow"]
LIMITS = [("gpu",), ("gpu", "tenant:a"), ("tenant:a",), ("tenant:b",), ("api",), ("api", "gpu")]
Edges = list[list[int]]  # for each job, in order, the places of those that it waits for


def layers(chance: random.Random) -> Edges:
    """Map and reduce, five times: one splits, thirty-two work, six gather, one ends, and the next begins there."""
    edges: Edges = []
    while len(edges) + 40 <= SIZE:
        first = len(edges)
        edges.append([first - 1] if first else [])
        edges += [[first]] * 32
        maps = range(first + 1, first + 33)
        edges += [chance.sample(maps, 8) for _ in range(6)]
        edges.append(list(range(first + 33, first + 39)))
    return edges


def chains(_: random.Random) -> Edges:
    return [[place - 1] if place % 10 else [] for place in range(SIZE)]


def diamonds(_: random.Random) -> Edges:
    edges: Edges = []
    for first in range(0, SIZE, 4):
        above = [first - 1] if first % 20 else []
        edges += [above, [first], [first], [first + 2, first + 1]]
    return edges


def fans(_: random.Random) -> Edges:
    """One releases all, all release one."""
    wide = SIZE // 2 - 2
    half: Edges = [[], *([0] for _ in range(wide)), list(range(1, wide + 1))]
    return half + [[place + len(half) for place in places] for places in half]


def tangle(chance: random.Random) -> Edges:
    """Any may wait for any that comes before it."""
    return [chance.sample(range(place), min(place, chance.choice([0, 1, 1, 2, 5]))) for place in range(SIZE)]


SHAPES: dict[str, Callable[[random.Random], Edges]] = {
    "layers": layers,
    "chains": chains,
    "diamonds": diamonds,
    "fans": fans,
    "tangle": tangle,
}


def plan(shape: str, chance: random.Random) -> list[NewJob]:
    """Jobs of a graph, each with options of its own."""
    return [
        _new(f"j{place}", tuple(f"j{other}" for other in others), chance)
        for place, others in enumerate(SHAPES[shape](chance))
    ]


def _new(id: str, after: tuple[str, ...], chance: random.Random) -> NewJob:
    queue = chance.choice(QUEUES)
    return NewJob(
        id=id,
        payload=b"[]",
        queue=queue,
        task="task",
        priority=chance.choice([None, None, -1, 3]),
        delay=chance.choice([None, None, None, 2000]),
        retries=chance.choice([0, 1, 2]),
        crashes=chance.choice([0, 1, None]),
        lost=chance.choice([1, None]),
        backoff=chance.choice([0, 1000]),
        keep=False if chance.random() < 0.03 else None,
        at_most_once=chance.random() < 0.03 or None,
        deadline=60_000 if chance.random() < 0.05 else None,
        after=after or None,
        on_failed=chance.choice([None, "block", "cancel", "run"]) if after else None,
        limits=chance.choice(LIMITS) if chance.random() < 0.4 else None,
        share=chance.choice("xyz") if queue == "shared" and chance.random() < 0.8 else None,
    )
