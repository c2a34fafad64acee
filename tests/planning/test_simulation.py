"""Simulations of backlogs whose end can be computed: large and small ones, many slots, kinds and queues."""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Callable, Sequence
from random import Random
from statistics import mean, median, stdev

import pytest

from holdfast.planning import forecasts, simulation
from holdfast.planning.draws import Draws
from holdfast.planning.forecasts import forecast, simulate
from holdfast.planning.model import Kind, LimitState, PoolGroup, Running, RunTimes, Snapshot
from holdfast.planning.simulation import Simulation

SECOND = RunTimes(10_000, 1.0, 0.5, ((0.512, 1.0, 500), (1.0, 2.0, 500)))


def slots(processes: int, *queues: str, order: str = "strict", concurrency: int = 0) -> PoolGroup:
    return PoolGroup(tuple((queue, 1) for queue in queues or ("q",)), order, processes, concurrency)


def seconds(snapshot: Snapshot, queue: str = "q") -> float:
    found = forecast(simulate(snapshot)[queue], [kind for kind in snapshot.kinds if kind.queue == queue], 1)
    assert found.after is not None
    return found.after


@pytest.mark.parametrize(("jobs", "number"), [(1_000_000, 10), (1_000_000, 10_000), (20_000, 300), (1000, 7)])
def test_chunks_make_no_difference(jobs: int, number: int) -> None:
    snapshot = Snapshot((Kind("q", "t", run=SECOND, waiting=jobs),), (slots(number),))

    assert seconds(snapshot) == pytest.approx(jobs / number, rel=0.05)
    simulated = Simulation(snapshot, Random(1))
    simulated.run()
    assert simulated.events < 10_000


def buckets(times: Sequence[float]) -> tuple[tuple[float, float, int], ...]:
    """Return a histogram as the statistics have it: powers of two in milliseconds, then seconds, then minutes."""
    found: Counter[tuple[float, float]] = Counter()
    for time in times:
        power = 2 ** math.floor(math.log2(max(0.001, time) * 1000)) / 1000
        width = power if time < 1 else 1 if time < 60 else 60
        low = power if time < 1 else time // width * width
        found[low, low + width] += 1
    return tuple((low, high, number) for (low, high), number in sorted(found.items()))


def take_exactly(times: Sequence[float], slots: int) -> float:
    """Return when the last of these runs ends, if each begins as soon as a slot is free."""
    busy = [0.0] * slots
    for time in times:
        heapq.heapreplace(busy, busy[0] + time)
    return max(busy)


def uneven(dice: Random, jobs: int) -> list[float]:
    return [dice.gammavariate(4, (5 if dice.random() < 0.05 else 0.25) / 4) for _ in range(jobs)]


def exponential(dice: Random, jobs: int) -> list[float]:
    return [dice.expovariate(1) for _ in range(jobs)]


@pytest.mark.parametrize("times", [uneven, exponential])
@pytest.mark.parametrize(("jobs", "number"), [(300, 10), (600, 100), (2000, 10), (2000, 400), (5000, 100)])
def test_the_last_and_longest_jobs_are_not_averaged_away(
    times: Callable[[Random, int], list[float]], jobs: int, number: int
) -> None:
    dice = Random(5)
    known = times(dice, 20_000)
    snapshot = Snapshot(
        (Kind("q", "t", run=RunTimes(20_000, mean(known), stdev(known), buckets(known)), waiting=jobs),),
        (slots(number),),
    )
    taken = median(take_exactly(times(dice, jobs), number) for _ in range(200))

    assert seconds(snapshot) == pytest.approx(taken, rel=0.1)


def test_many_kinds_share_the_slots() -> None:
    kinds = tuple(Kind("q", f"t{number}", run=SECOND, waiting=5000) for number in range(40))

    assert seconds(Snapshot(kinds, (slots(200),))) == pytest.approx(1000, rel=0.05)


@pytest.mark.parametrize("order", ["round-robin", "weighted", "fair"])
def test_queues_in_turn_are_gone_together(order: str) -> None:
    kinds = tuple(Kind(f"q{number}", "t", run=SECOND, waiting=500) for number in range(5))
    runs = simulate(Snapshot(kinds, (slots(20, *(kind.queue for kind in kinds), order=order),)))

    for found in runs.values():
        assert found[0].after == pytest.approx(125, rel=0.1)


def test_queues_in_strict_order_are_gone_one_after_the_other() -> None:
    kinds = tuple(Kind(queue, "t", run=SECOND, waiting=500) for queue in ("a", "b", "c"))
    snapshot = Snapshot(kinds, (slots(10, "a", "b", "c"),))

    assert [round(seconds(snapshot, queue), -1) for queue in ("a", "b", "c")] == [50, 100, 150]


def test_weights_divide_the_slots() -> None:
    kinds = tuple(Kind(queue, "t", run=SECOND, waiting=900) for queue in ("a", "b"))
    snapshot = Snapshot(kinds, (PoolGroup((("a", 3), ("b", 1)), "weighted", 12, 0),))

    assert seconds(snapshot, "a") == pytest.approx(100, rel=0.1)
    assert seconds(snapshot, "b") == pytest.approx(150, rel=0.1)


def test_jobs_in_the_executor_take_no_process() -> None:
    kinds = (
        Kind("q", "sync", run=SECOND, waiting=100),
        Kind("q", "async", run=SECOND, waiting=400, in_process=True),
    )

    assert seconds(Snapshot(kinds, (slots(1, concurrency=100),))) == pytest.approx(100, rel=0.05)


def test_limits_of_all_kinds() -> None:
    def limited(per: float, number: int) -> float:
        kind = Kind("q", "t", run=SECOND, waiting=1000, limits=("api",))
        return seconds(Snapshot((kind,), (slots(100),), (LimitState("api", number, per),)))

    assert limited(0.0, 5) == pytest.approx(200, rel=0.05)
    assert limited(60.0, 10) == pytest.approx(6000, rel=0.05)


@pytest.mark.parametrize(("starts", "last"), [(1, 540.0), (3, 180.0), (5, 60.0), (9, 60.0), (10, 0.0)])
def test_a_limit_with_a_period_starts_no_more_than_its_slots_in_each(starts: int, last: float) -> None:
    kind = Kind("q", "t", run=RunTimes(1000, 1.0, 0.0), waiting=10, limits=("api",))

    found = seconds(Snapshot((kind,), (slots(20),), (LimitState("api", starts, 60.0),)))
    assert found == pytest.approx(last + 1)


def test_jobs_that_run_keep_their_slots_and_those_of_limits() -> None:
    kind = Kind("q", "t", run=RunTimes(1000, 100.0, 0.0), waiting=1, limits=("api",))
    running = (Running(0, 40.0), Running(0, 90.0))
    snapshot = Snapshot((kind,), (slots(3),), (LimitState("api", 2),), running)

    assert seconds(snapshot) == pytest.approx(110)
    drained = Simulation(snapshot, Random(1)).run()["q"]
    assert max(drained.held_up, key=drained.held_up.__getitem__) in ("running", "limit:api")


def test_arrivals_near_the_capacity_take_long_and_no_more_time_to_simulate() -> None:
    kind = Kind("q", "t", run=RunTimes(10**8, 1.0, 0.5), waiting=10_000, arriving=90)

    assert seconds(Snapshot((kind,), (slots(100),))) == pytest.approx(1000, rel=0.15)


ENDLESS = Kind("q", "t", run=RunTimes(10, 0.001, 0.001), waiting=10, arriving=1_000_000, retried=1.0, retries=10**9)


def test_a_simulation_ends_whatever_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = Snapshot((ENDLESS,), (slots(1),))

    simulated = Simulation(snapshot, Random(1))
    assert simulated.run()["q"].after is None
    assert simulated.events <= simulation.MAX_EVENTS + 1000
    monkeypatch.setattr(simulation, "MAX_EVENTS", 10)
    assert Simulation(snapshot, Random(1)).run()["q"].after is None


@pytest.mark.parametrize(("module", "name", "value"), [(simulation, "MAX_EVENTS", 10), (forecasts, "MAX_SECONDS", 0.0)])
def test_what_was_not_simulated_to_its_end_is_not_predicted(
    monkeypatch: pytest.MonkeyPatch, module: object, name: str, value: float
) -> None:
    kind = Kind("q", "t", run=SECOND, waiting=1000)
    monkeypatch.setattr(module, name, value)

    found = forecast(simulate(Snapshot((kind,), (slots(10),)))["q"], [kind], 1)
    assert (found.after, found.latest, found.held_up_by) == (None, None, "complexity")


def test_run_times_are_drawn_with_their_mean_and_deviation() -> None:
    times = RunTimes(1000, 90.0, 2.0, ((60.0, 120.0, 1000),))
    dice = Random(1)
    drawn = [Draws(times).one(dice) for _ in range(5000)]

    assert sum(drawn) / 5000 == pytest.approx(90, rel=0.01)
    assert 85 < min(drawn) < max(drawn) < 95
    together, longest = Draws(times).several(dice, 1000)
    assert together == pytest.approx(90_000, rel=0.01)
    assert max(drawn) - 1 < longest < max(drawn) + 1
    assert Draws(None).one(dice) == 0


def test_what_is_left_of_a_run_depends_on_how_long_it_has_been_running() -> None:
    times = RunTimes(1000, 100.0, 30.0, ((40.0, 60.0, 300), (100.0, 140.0, 700)))
    dice = Random(1)
    rest = [Draws(times).rest(dice, 80.0) for _ in range(500)]

    assert 10 < sum(rest) / 500 < 60
    assert Draws(times).rest(dice, 1000.0) == 50  # longer than any before
