"""The reading: bounded calls, bounded labels, and counters that do not fall before midnight."""

from __future__ import annotations

import random
from collections import Counter
from typing import TypeVar

import pytest

from holdfast import Holdfast
from holdfast.metrics import Collector, reading
from holdfast.metrics.reading import MAX_QUEUES, OTHER
from holdfast.store import Address, Clock, Command, Store
from holdfast.testing import Workbench
from tests.metrics.conftest import begin_a_day
from tests.metrics.test_text import read, run_some

T = TypeVar("T")
Values = dict[tuple[str, tuple[tuple[str, str], ...]], float]


class CountingStore(Store):
    """A store that counts its calls."""

    def __init__(self, address: Address, clock: Clock | None) -> None:
        super().__init__(address, clock=clock)
        self.calls = Counter[str]()

    def run(self, command: Command[T]) -> T:
        self.calls[command.function] += 1
        return super().run(command)


def counters(collector: Collector) -> Values:
    """Return all values that must not fall."""
    ends = ("_total", "_bucket", "_sum", "_count")
    found = read(collector.text())
    return {(name, labels): value for name in found if name.endswith(ends) for labels, value in found[name].items()}


def declare(jobs: Holdfast, number: int) -> None:
    """Declare a task that fails now and then."""

    def work(draw: float) -> None:
        if draw < 0.3:
            raise ValueError("bad luck")

    jobs.task(name=f"task{number:02d}", queue=f"queue{number % 2}", retries=1, backoff="2s")(work)


def enqueue_some(jobs: Holdfast, draw: random.Random) -> None:
    tasks = list(jobs.tasks.values())
    jobs.enqueue_many([draw.choice(tasks).bind(draw.random()) for _ in range(draw.randrange(6))])


@pytest.mark.parametrize("cap", [500, 2])
def test_counters_do_not_fall_within_a_day(
    jobs: Holdfast, bench: Workbench, monkeypatch: pytest.MonkeyPatch, cap: int
) -> None:
    monkeypatch.setattr(reading, "MAX_TASKS", cap)
    draw, collector = random.Random(cap), Collector(jobs, max_age=0)
    before: Values = {}
    for number in range(8):
        declare(jobs, number)
        for _ in range(3):
            enqueue_some(jobs, draw)
            bench.advance(f"{draw.randrange(1, 40)}s")
            bench.run_until_empty()
        now = counters(collector)
        fallen = {key: (value, now.get(key)) for key, value in before.items() if now.get(key, -1) < value}
        assert not fallen
        before = now
    labels = {labels for name, labels in before if name == "holdfast_failures_total"}
    assert len(labels) == min(8, cap + 2)
    total = sum(value for (name, _), value in before.items() if name == "holdfast_attempts_total")
    assert total == jobs.stats().ended


def test_counters_start_again_at_midnight(jobs: Holdfast, bench: Workbench) -> None:
    collector = Collector(jobs, max_age=0)
    run_some(jobs, bench)
    assert counters(collector)
    begin_a_day(bench)
    bench.run_until_empty()
    found = read(collector.text())
    assert sum(found["holdfast_attempts_total"].values()) == 1


def test_queues_beyond_the_limit_count_together(jobs: Holdfast, bench: Workbench) -> None:
    assert bench
    for number in range(MAX_QUEUES + 2):
        jobs.pause(f"queue{number:04d}")
    found = read(Collector(jobs).text())["holdfast_queue_paused"]
    assert len(found) == MAX_QUEUES + 1
    assert found[("queue", OTHER),] == 1
    assert found[("queue", "queue0000"),] == 1


def test_a_queue_where_nothing_has_happened_takes_one_call(jobs: Holdfast, bench: Workbench) -> None:
    run_some(jobs, bench)
    jobs.pause("idle")
    collector = Collector(jobs, max_age=0)
    calls = [_calls_of(jobs, collector) for _ in range(2)]
    assert (calls[0]["stats"], calls[0]["stats_tasks"]) == (3, 1)  # two totals, and one task
    assert (calls[1]["stats"], calls[1]["stats_tasks"]) == (2, 0)
    assert max(calls[1].values()) == 2


def _calls_of(jobs: Holdfast, collector: Collector) -> Counter[str]:
    store = CountingStore(jobs.address, jobs.store._clock)
    before, jobs.store = jobs.store, store
    try:
        collector.read()
    finally:
        jobs.store = before
        store.close()
    return store.calls


def test_a_user_who_may_not_ask_for_info_gets_all_other_metrics(jobs: Holdfast, bench: Workbench) -> None:
    run_some(jobs, bench)
    name = jobs.address.namespace
    jobs.store.execute("ACL", "SETUSER", name, "on", ">secret", "~*", "&*", "+@all", "-info")
    address = (jobs.address.url or "").replace("unix://", f"unix://{name}:secret@")
    with_less = Holdfast(address, namespace=name)
    found = read(Collector(with_less).text())
    with_less.close()
    assert "holdfast_store_memory_bytes" not in found
    assert found["holdfast_jobs"]
