"""What is to be reached: ratios within one run, or numbers that do not depend on the machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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
    "bare loop": (PEERS["bare"], PEERS["bare, a list"]),
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
    """A figure of Holdfast: so many times as good as the best of a group; without one, at most so much."""

    measure: str
    figure: str
    wanted: float
    group: str = ""

    def found(self, results: Results) -> tuple[float, str] | None:
        """What was reached, and against whom."""
        measure = MEASURES[self.measure]
        figure = next(each for each in measure.figures if each.key == self.figure)
        ours = results.cell(self.measure, OURS.name, self.figure)
        if ours is None:
            return None
        if not self.group:
            return ours.median, figure.unit
        other = best(results, measure, figure, GROUPS[self.group])
        return (ratio(ours, other[1], figure), other[0].name) if other else None

    def is_reached(self, value: float) -> bool:
        return value >= self.wanted if self.group else value <= self.wanted


# Where the goal was a number of one machine, its ratio to the peer that was measured there.
GOALS = (
    Goal("enqueue", "rate", 0.8, "bare loop"),
    Goal("bulk", "rate", 5, "best Python peer"),
    Goal("drain", "rate", 10, "best that recovers"),
    Goal("drain", "rate", 2, "BullMQ (Node)"),
    Goal("two", "rate", 6, "best Python peer"),
    Goal("two", "rate", 3, "BullMQ (Node)"),
    Goal("latency", "p50", 1.4, "best Python peer"),
    Goal("latency", "p99", 1.5, "best Python peer"),
    Goal("per-job", "rate", 5, "best Python peer"),
    Goal("sync", "rate", 4, "best that recovers"),
    Goal("bulk", "memory", 250),
    Goal("cost", "commands", 20),
    Goal("recovery", "sibling", 2),
    Goal("recovery", "elsewhere", 30),
)
MOST_GROWTH = 1.3  # of server time, from the fewest waiting jobs to the most


def growth(results: Results) -> dict[str, float]:
    """How many times the server time of each verb grows, from the fewest waiting jobs to the most."""
    grown = {}
    for verb in VERBS:
        ends = [results.cell("backlog", OURS.name, f"{verb}, {int(depth):,} waiting") for depth in DEPTHS]
        found = [cell.median for cell in ends if cell]
        if len(found) > 1:
            grown[verb] = found[-1] / found[0]
    return grown
