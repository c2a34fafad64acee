"""The reading: bounded calls, bounded labels, and counters that do not fall before midnight."""

from __future__ import annotations

import random
from collections import Counter
from typing import TypeVar

import pytest

from holdfast import Holdfast
from holdfast.metrics import Collector, reading
from holdfast.metrics.reading import MAX_QUEUES, OTHER
from holdfast.metrics.text import render
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


def test_attempts_in_queues_beyond_the_limit_count_together(
    jobs: Holdfast, bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "MAX_QUEUES", 2)
    collector = Collector(jobs, max_age=0)
    before: Values = {}
    for name in ("mail", "video", "sms", OTHER, "audio"):  # the last ones come first by name, and get no label
        work = jobs.task(name=f"{name}.work", queue=name)(_do_nothing)
        for _ in range(2):
            jobs.enqueue(work.bind())
            bench.run_until_empty()
            now = counters(collector)
            assert all(now[key] >= value for key, value in before.items())
            before = now
    found = read(collector.text())
    queues = {dict(labels)["queue"] for labels in found["holdfast_attempts_total"]}
    assert queues == {dict(labels)["queue"] for labels in found["holdfast_jobs"]} == {"mail", "video", OTHER}
    assert sum(found["holdfast_attempts_total"].values()) == jobs.stats().ended == 10
    assert found["holdfast_run_seconds_count"][("queue", OTHER), ("task", OTHER)] == 6


def _do_nothing() -> None: ...


def test_what_counts_together_is_hidden_from_users_with_rights_on_some_queues(
    jobs: Holdfast, bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "MAX_QUEUES", 1)
    run_some(jobs, bench)
    jobs.pause("video")
    text = render(Collector(jobs).read(), sees=lambda queue: queue in ("mail", OTHER))
    assert {dict(labels)["queue"] for labels in read(text)["holdfast_jobs"]} == {"mail"}


def test_tasks_of_the_last_days_begin_a_day_with_zero(jobs: Holdfast, bench: Workbench) -> None:
    """`increase` ignores the first value of a series, so without zeros it would miss what it counts."""
    run_some(jobs, bench)
    bench.run_until_empty()
    begin_a_day(bench)
    for collector in (Collector(jobs, max_age=0), Collector(jobs, max_age=0)):
        found = read(collector.text())
        assert set(found["holdfast_attempts_total"].values()) == {0}
        assert found["holdfast_failures_total"][("queue", "mail"), ("task", "mail.send")] == 0
        assert found["holdfast_run_seconds_count"][("queue", "mail"), ("task", "mail.send")] == 0
    jobs.enqueue(jobs.tasks["mail.send"].bind(2))
    bench.run_until_empty()
    assert sum(read(collector.text())["holdfast_attempts_total"].values()) == 1
    bench.advance("8d")
    assert "holdfast_attempts_total" not in read(collector.text())


def test_tasks_that_are_idle_take_no_labels_from_others(
    jobs: Holdfast, bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "MAX_TASKS", 2)
    for number in range(3):
        declare(jobs, number)
        jobs.enqueue(jobs.tasks[f"task{number:02d}"].bind(0.9))
    bench.run_until_empty()
    begin_a_day(bench)
    collector = Collector(jobs, max_age=0)
    assert _tasks(collector) == {"task00", "task02"}
    jobs.enqueue(jobs.tasks["task01"].bind(0.9))
    bench.run_until_empty()
    assert _tasks(collector) == {"task00", "task01"}


def _tasks(collector: Collector) -> set[str]:
    return {dict(labels)["task"] for labels in read(collector.text())["holdfast_failures_total"]}


def test_queues_where_nothing_has_happened_share_a_call(jobs: Holdfast, bench: Workbench) -> None:
    run_some(jobs, bench)
    jobs.pause("idle")
    collector = Collector(jobs, max_age=0)
    calls = [_calls_of(jobs, collector) for _ in range(2)]
    assert (calls[0]["stats"], calls[0]["stats_tasks"]) == (2, 3)  # totals and a task; recent tasks and those of today
    assert (calls[1]["stats"], calls[1]["stats_tasks"]) == (1, 0)
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
