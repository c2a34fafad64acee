"""The autoscaling signal: what the store counts, and the concurrency that a queue needs."""

from __future__ import annotations

import heapq
import random

import pytest

from holdfast import Holdfast
from holdfast.client.queues import needed
from holdfast.job.outcome import Error, Succeed
from holdfast.store import commands
from holdfast.store.store import Store
from tests.conftest import TestClock
from tests.store.lua.test_state_machine import ONE, end, put, take


def row(store: Store, queue: str = "q") -> commands.LoadSample:
    [found] = store.run(commands.load([queue])).samples
    return found


def test_an_idle_queue_needs_no_worker(store: Store) -> None:
    assert row(store, "unknown")[1:8] == (False, 0, 0, 0, 0, 0, 0)
    assert row(store, "unknown").oldest == -1


def test_arrivals_ends_and_durations_are_counted(store: Store, clock: TestClock) -> None:
    put(store, "a", "b", "c", "d")
    put(store, "later", delay=600_000)
    put(store, "blocked", after=("d",))
    assert take(store, limit=3) == ["a", "b", "c"]
    clock.advance(4)
    end(store, "a", Succeed(b""))
    clock.advance(6)
    end(store, "b", Error(b"", "g", final=True))

    found = row(store)

    assert (found.waiting, found.running, found.scheduled, found.blocked) == (1, 1, 1, 1)
    assert (found.arrived, found.ended, found.run_time) == (4, 2, 4000 + 10_000)
    assert found.oldest == 10_000


def test_a_retry_comes_again_and_a_parked_job_does_not(store: Store) -> None:
    store.run(commands.set_limit("one", 1))
    put(store, "a", "b", limits=("one",))
    assert take(store, limit=2) == ["a"]
    end(store, "a", Error(b"", "g", delay=0))

    assert row(store).arrived == 3
    assert take(store, limit=2) == ["b"]
    end(store, "b", Succeed(b""))
    assert row(store).arrived == 3


def test_the_oldest_is_found_whatever_its_priority(store: Store, clock: TestClock) -> None:
    chance = random.Random(2)
    waited = {}
    for number in range(50):
        clock.advance(1)
        put(store, f"j{number}", priority=chance.randint(-256, 255))
        waited[f"j{number}"] = clock.now
    while waited:
        assert row(store).oldest == clock.now - min(waited.values())
        [id] = take(store)
        del waited[id]


def test_counts_older_than_five_minutes_are_dropped(store: Store, clock: TestClock) -> None:
    for _ in range(100):
        put(store, str(clock.now), keep=False)
        [id] = take(store)
        end(store, id, Succeed(b""))
        clock.advance(10)

    found = row(store)
    assert 29 <= found.arrived <= 32
    assert 290_000 <= found.period <= 315_000
    clock.advance(600)
    assert row(store)[-3:] == (0, 0, 0)


def test_jobs_that_are_claimed_in_bulk_are_counted_as_others_are(store: Store, clock: TestClock) -> None:
    put(store, *(f"j{number}" for number in range(1000)))
    ids = take(store, limit=1000)
    clock.advance(1)
    store.run(commands.finish(ONE, [commands.Finish(id, 1, Succeed(b"")) for id in ids]))

    assert row(store)[-3:] == (1000, 1000, 1_000_000)


@pytest.mark.parametrize(
    ("queue", "slots"),
    [
        ((0, 0, 0.0, None, 60), 0),
        ((5, 0, 0.0, None, 60), 1),  # nothing is known yet: one has to run first
        ((5, 3, 0.0, None, 60), 8),  # nothing has ended: each needs a slot of its own
        ((0, 0, 10.0, 1.0, 60), 11),  # ten are busy on average
        ((6000, 0, 0.0, 1.0, 60), 99),  # a hundred seconds of work for each of 60
        ((1, 0, 0.0, 0.001, 60), 1),
        ((10, 2, 0.0, 86_400.0, 60), 12),  # of a day each: they start only if they have a slot
        ((0, 0, 0.0, 1.0, 60), 0),
        ((0, 4, 0.0, 0.0, 60), 1),
    ],
)
def test_how_many_have_to_run_at_once(queue: tuple[int, int, float, float | None, float], slots: int) -> None:
    """A queue: jobs waiting, jobs running, jobs arriving a second, run time, and the target."""
    assert needed(*queue) == slots


def test_with_that_many_jobs_start_in_time() -> None:
    """Simulated: a queue with the slots that are said to be needed, and one with a tenth fewer."""
    chance = random.Random(7)
    for _ in range(20):
        run_time, target = chance.uniform(0.1, 100), chance.uniform(1, 100)
        waiting, arriving = chance.randint(0, 2000), chance.uniform(0, 20)
        slots = needed(waiting, 0, arriving, run_time, target)
        assert (
            _mean_wait_of_new(slots, waiting, arriving, run_time=run_time, target=target, chance=chance)
            <= 1.3 * target + run_time
        )


def _mean_wait_of_new(
    slots: int, waiting: int, arriving: float, *, run_time: float, target: float, chance: random.Random
) -> float:
    """The mean time until a job starts, of those that are there or come within the target."""
    free = [0.0] * slots
    time, waits = 0.0, []
    arrivals = [0.0] * waiting
    while arriving and time < target:
        time += chance.expovariate(arriving)
        arrivals.append(time)
    for arrival in arrivals:
        start = max(arrival, heapq.heappop(free)) if slots else arrival
        heapq.heappush(free, start + chance.expovariate(1 / run_time))
        waits.append(start - arrival)
    return sum(waits) / len(waits) if waits else 0.0


def test_users_see_it_in_seconds(server_url: str, namespace: str) -> None:
    jobs = Holdfast(server_url, namespace=namespace)
    jobs.task(name="work", queue="video")(lambda: None)
    jobs.tasks["work"].enqueue()

    [load] = jobs.load("video", target="5m")

    assert (load.queue, load.waiting, load.needed, load.run_time) == ("video", 1, 1, None)
    assert load.oldest is not None
    assert load.arriving > 0
