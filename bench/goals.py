"""Goals: ratios within one run, or numbers that do not depend on the machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from bench.figures import Figure
from bench.measures import BY_NAME as MEASURES
from bench.measures import DEPTHS, VERBS, Measure
from bench.results import Cell, Results
from bench.roster import BY_NAME as PEERS
from bench.roster import OURS, Peer

PYTHON = tuple(peer for peer in PEERS.values() if peer.runtime == "python")
GROUPS: dict[str, tuple[Peer, ...]] = {
    "best Python peer": PYTHON,
    "best that recovers": tuple(peer for peer in PYTHON if peer.keeps == "recovers"),
    "BullMQ (Node)": tuple(peer for peer in PEERS.values() if peer.runtime == "node"),
    "bare loop": (PEERS["bare"], PEERS["bare, a list"], PEERS["bare, forks"]),
}


def ratio(ours: Cell, theirs: Cell, figure: Figure) -> float:
    """How many times better ours is."""
    worse, better = (theirs.median, ours.median) if figure.is_higher_better else (ours.median, theirs.median)
    return better / worse if worse else float("inf")


def best(results: Results, measure: Measure, figure: Figure, among: Sequence[Peer]) -> tuple[Peer, Cell] | None:
    """Whoever has the best figure."""
    found = [(peer, cell) for peer in among if (cell := results.cell(measure.name, peer.name, figure.key))]
    sign = 1 if figure.is_higher_better else -1
    return max(found, key=lambda pair: sign * pair[1].median, default=None)


@dataclass(frozen=True)
class Goal:
    """A figure of Holdfast: a minimum ratio to the best of a group, or without a group an upper bound."""

    measure: str
    figure: str
    wanted: float
    group: str = ""
    because: str = ""  # the figures that it was derived from, if it was a number of another machine

    @property
    def row(self) -> tuple[Measure, Figure]:
        measure = MEASURES[self.measure]
        return measure, next(each for each in measure.figures if each.key == self.figure)

    def found(self, results: Results) -> Found | None:
        measure, figure = self.row
        ours = results.cell(self.measure, OURS.name, self.figure)
        if ours is None:
            return None
        if not self.group:
            return Found(ours.median, ours, None, None)
        other = best(results, measure, figure, GROUPS[self.group])
        return Found(ratio(ours, other[1], figure), ours, *other) if other else None

    def is_reached(self, value: float) -> bool:
        return value >= self.wanted if self.group else value <= self.wanted


class Found(NamedTuple):
    """What was reached: a ratio or a number, our figure, and whose it is compared with."""

    value: float
    ours: Cell
    peer: Peer | None
    theirs: Cell | None


# The figures that were asked for, of a machine with two cores: as ratios to what was measured there, for those can be
# compared with ours. Memory, commands and seconds until a job runs again do not depend on the machine.
GOALS = (
    Goal("enqueue", "rate", 0.8, "bare loop"),
    Goal("bulk", "rate", 5, "best Python peer"),
    Goal("bulk", "rate", 70 / 159, "bare loop", "70,000 where the bare loop does 159,000"),
    Goal("drain", "rate", 10, "best that recovers"),
    Goal("drain", "rate", 2, "BullMQ (Node)"),
    Goal("drain", "rate", 25 / 102, "bare loop", "25,000 where the bare loop does 102,000"),
    Goal("two", "rate", 30 / 5, "best Python peer", "30,000 where huey does 5,000"),
    Goal("two", "rate", 30 / 3.9, "best that recovers", "30,000 where dramatiq does 3,900"),
    Goal("two", "rate", 30 / 9.7, "BullMQ (Node)", "30,000 where it does 9,700"),
    Goal("latency", "p50", 0.86 / 0.6, "best Python peer", "0.6 ms where huey has 0.86"),
    Goal("latency", "p99", 4.7 / 3, "best Python peer", "3 ms where bullmq has 4.7"),
    Goal("per-job", "rate", 400 / 79, "best Python peer", "400 where RQ does 79"),
    Goal("per-job", "rate", 400 / 600, "bare loop", "400 where a loop forks 600 times"),
    Goal("sync", "rate", 8 / 2, "best that recovers", "8,000 where dramatiq does 2,000"),
    Goal("memory", "memory", 250),
    Goal("cost", "commands", 20),
    Goal("recovery", "sibling", 2),
    Goal("recovery", "elsewhere", 30),
)
MAX_GROWTH = 1.3  # of server time, from the fewest waiting jobs to the most


def growth(results: Results) -> dict[str, float]:
    """How many times the server time of each verb grows, from the fewest waiting jobs to the most."""
    grown = {}
    for verb in VERBS:
        ends = [results.cell("backlog", OURS.name, f"{verb}, {int(depth):,} waiting") for depth in DEPTHS]
        found = [cell.median for cell in ends if cell]
        if len(found) > 1:
            grown[verb] = found[-1] / found[0]
    return grown
