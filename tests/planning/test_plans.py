"""Plans against what happens then: real jobs on a real server, under the test's clock."""

from __future__ import annotations

import asyncio
from itertools import count
from typing import Any
from unittest.mock import patch

import pytest
import redis

from holdfast import Invalid
from holdfast.planning.forecasts import Forecast
from holdfast.planning.plans import Plan
from tests.planning.conftest import NewShop
from tests.planning.drain import RunTime, Shop
from tests.store.lua.test_state_machine import put

SHORT, LONG = "app.short", "app.long"
RUN_TIMES: dict[str, RunTime] = {
    SHORT: lambda dice: dice.uniform(0.5, 1.5),
    LONG: lambda dice: dice.gammavariate(4, 5),
}
ACCURACY = 0.2


def check(predicted: Forecast | None, seconds: float) -> None:
    assert predicted is not None
    assert predicted.after == pytest.approx(seconds, rel=ACCURACY)
    assert (predicted.earliest or 0) <= (predicted.after or 0) <= (predicted.latest or 0)


# The time, with the workers of today and with others


def mixed(shop: Shop, workers: int, **options: Any) -> None:
    shop.open(workers, 4, RUN_TIMES)
    shop.make_history()
    shop.put_all({SHORT: 400, LONG: 150}, **options)


def test_a_backlog_of_two_tasks_is_drained_by_two_workers_and_by_five_as_predicted(new_shop: NewShop) -> None:
    today, larger = new_shop(), new_shop()
    mixed(today, 2)
    mixed(larger, 5)

    found = today.plan(workers="+3")

    assert (found.backlog, found.now.workers, found.runs, found.notes) == (550, 2, 600, [])
    assert found.then is not None
    assert (found.then.workers, found.now.held_up_by, found.then.held_up_by) == (5, "slots", "slots")
    check(found.now, today.drain())
    check(found.then, larger.drain())
    assert found.now.rate == pytest.approx(550 / (found.now.after or 0), rel=0.05)


def test_up_to_a_thousand_jobs_are_all_counted_so_nothing_is_left_to_chance(shop: Shop) -> None:
    mixed(shop, 2)

    first = shop.plan()
    assert first.run_time == pytest.approx((400 * 1 + 150 * 20) / 550, rel=0.06)  # as exact as 300 runs of each task
    assert [shop.plan() for _ in range(3)] == 3 * [first]


def test_fewer_workers_take_longer(new_shop: NewShop) -> None:
    today, smaller = new_shop(), new_shop()
    mixed(today, 3)
    mixed(smaller, 1)

    check(today.plan(workers="-2").then, smaller.drain())
    assert today.plan(workers="-3").then == today.plan(workers=0).then
    none = today.plan(workers=0).then
    assert none is not None
    assert (none.workers, none.after, none.held_up_by) == (0, None, "no_worker")


def test_a_limit_holds_up_its_jobs_whatever_the_number_of_workers(new_shop: NewShop) -> None:
    today, larger = new_shop(), new_shop()
    for shop, workers in ((today, 2), (larger, 6)):
        shop.jobs.set_limit("api", 2)
        shop.open(workers, 4, RUN_TIMES)
        shop.make_history()
        shop.put_all({SHORT: 300}, limits=("api:acme",))
        shop.put_all({LONG: 5}, "l")

    found = today.plan(workers="+4")

    for each in (found.now, found.then):
        assert each is not None
        assert (each.held_up_by, each.name, each.reason) == ("limit", "api:acme", "limit api:acme")
    check(found.now, today.drain())
    check(found.then, larger.drain())


def test_the_concurrency_of_a_queue_holds_up_its_jobs_whatever_the_number_of_workers(new_shop: NewShop) -> None:
    today, larger = new_shop(), new_shop()
    for shop, workers in ((today, 2), (larger, 6)):
        shop.open(workers, 4, RUN_TIMES)
        shop.make_history()
        shop.jobs.configure({"concurrency": 3}, queue="q")
        shop.put_all({SHORT: 200})

    found = today.plan(workers="+4")

    for each in (found.now, found.then):
        assert each is not None
        assert (each.held_up_by, each.reason) == ("concurrency", "the concurrency of the queue")
    check(found.now, today.drain())
    check(found.then, larger.drain())


def test_a_limit_of_starts_per_period(shop: Shop) -> None:
    shop.jobs.set_limit("api", 5, per="10s")
    shop.open(2, 4, RUN_TIMES)
    shop.make_history()
    shop.put_all({SHORT: 200}, limits=("api",))

    found = shop.plan().now
    assert (found.held_up_by, found.name) == ("limit", "api")
    check(found, shop.drain())


def test_a_period_whose_starts_are_used_up_has_to_end_first(shop: Shop) -> None:
    shop.open(2, 4, {SHORT: RUN_TIMES[SHORT]})
    shop.make_history()
    shop.jobs.set_limit("api", 5, per="2m")
    shop.put_all({SHORT: 5}, "before", limits=("api:acme",))
    shop.run_for(10)
    shop.put_all({SHORT: 6}, limits=("api:acme",))
    shop.run_for(1)

    found = shop.plan().now
    assert (found.held_up_by, found.name) == ("limit", "api:acme")
    seconds = shop.drain()
    assert 220 < seconds < 235
    assert found.after == pytest.approx(seconds, abs=5)


def test_failures_add_attempts_and_their_waits(shop: Shop) -> None:
    shop.failing = {SHORT: 0.3, LONG: 0.1}
    shop.open(2, 4, RUN_TIMES)
    shop.make_history(retries=5, backoff=5000)
    shop.put_all({SHORT: 400, LONG: 100}, retries=5, backoff=5000)

    check(shop.plan().now, shop.drain())


def test_a_short_backlog_waits_for_its_retries(shop: Shop) -> None:
    shop.failing = {SHORT: 0.5}
    shop.open(2, 20, {SHORT: RUN_TIMES[SHORT]})
    shop.make_history(retries=20, backoff=1000)
    shop.failing = {SHORT: 1.0}
    shop.put_all({SHORT: 30}, retries=20, backoff=60_000)
    shop.run_once()
    shop.failing = {SHORT: 0.0}

    found = shop.plan()
    assert (found.backlog, found.running, found.delayed) == (30, 0, 0)
    assert (found.now.held_up_by, found.now.reason) == ("retries", "waits before retries")
    assert found.now.earliest is not None
    assert found.now.earliest >= 59
    assert 60 <= shop.drain() <= 63


def test_an_urgent_queue_goes_first_and_the_other_waits_for_it(shop: Shop) -> None:
    shop.open(1, 4, RUN_TIMES, ("urgent", "q"))
    shop.make_history(queue="urgent")
    shop.put_all({SHORT: 60}, "h2-", queue="q")
    shop.drain()
    shop.put_all({SHORT: 200, LONG: 50}, "u", queue="urgent")
    shop.put_all({SHORT: 30}, "q", queue="q")

    plan = shop.jobs.plan()
    found = {each.queue: each.now for each in plan.queues}
    assert plan.workers == 1
    assert [each.queue for each in shop.jobs.plan("q").queues] == ["q"]
    assert shop.plan("q").now.after == pytest.approx(found["q"].after, rel=0.1)
    seconds = shop.drain()
    check(found["q"], seconds)
    check(found["urgent"], seconds)


def test_urgent_jobs_of_a_queue_are_counted_first(shop: Shop) -> None:
    shop.open(1, 4, RUN_TIMES)
    shop.make_history()
    shop.put_all({LONG: 40}, "urgent", priority=-10)
    shop.put_all({SHORT: 100})

    check(shop.plan().now, shop.drain())


def test_very_uneven_run_times(shop: Shop) -> None:
    numbers = count()
    shop.open(2, 4, {SHORT: lambda _: 0.2 if next(numbers) % 20 else 60.0})
    shop.make_history(1000)
    shop.put_all({SHORT: 1500})

    found = shop.plan()
    assert found.run_time == pytest.approx(0.05 * 60 + 0.95 * 0.2)
    check(found.now, shop.drain())


def test_jobs_with_the_same_run_time_end_together(shop: Shop) -> None:
    shop.open(1, 5, {SHORT: lambda _: 90.0})
    shop.make_history(50)
    shop.put_all({SHORT: 11})

    check(shop.plan().now, shop.drain())


def test_the_order_of_a_backlog_does_not_matter(shop: Shop) -> None:
    shop.open(2, 4, RUN_TIMES)
    shop.make_history()
    shop.put_all({SHORT: 1500}, "first")
    shop.put_all({LONG: 300}, "last")

    check(shop.plan().now, shop.drain())


# Jobs that come, and jobs that run


def test_arrivals_of_the_last_hour_continue(shop: Shop) -> None:
    shop.open(2, 4, {LONG: RUN_TIMES[LONG]})
    shop.make_history()
    for number in range(240):  # four a minute
        put(shop.store, f"steady{number}", task=LONG)
        shop.run_for(15)
    put(shop.store, *(f"burst{number}" for number in range(200)), task=LONG)
    shop.run_for(60)

    found = shop.plan(workers="+2")
    assert found.arriving == pytest.approx(4 / 60, rel=ACCURACY)
    work = found.backlog * 20
    assert found.now.after == pytest.approx(work / (8 - 80 / 60), rel=ACCURACY)
    assert found.then is not None
    assert found.then.after == pytest.approx(work / (16 - 80 / 60), rel=ACCURACY)
    assert shop.plan(arriving=0).now.after == pytest.approx(work / 8, rel=ACCURACY)


def test_a_backlog_never_goes_if_more_jobs_arrive_than_are_done(shop: Shop) -> None:
    shop.open(1, 4, RUN_TIMES)
    shop.make_history()
    shop.put_all({LONG: 100})

    found = shop.plan(arriving=0.5, workers="+9")
    assert found.arriving == pytest.approx(0.5)
    assert (found.now.after, found.now.latest, found.now.held_up_by) == (None, None, "arrivals")
    assert found.now.reason == "more jobs arrive than are done"
    assert found.then is not None
    assert found.then.after is not None


def test_a_backlog_that_was_enqueued_at_once_is_not_a_rate(shop: Shop) -> None:
    shop.open(1, 4, RUN_TIMES)
    shop.make_history()
    shop.put_all({SHORT: 500})

    assert shop.plan().arriving == 0
    shop.run_for(70)
    assert shop.plan().arriving == 0


def test_of_a_job_that_has_been_running_for_hours_only_the_rest_counts(shop: Shop) -> None:
    shop.open(1, 2, {LONG: lambda dice: dice.uniform(21_500, 21_700)})
    shop.make_history(10)
    put(shop.store, "long", task=LONG)
    shop.run_for(5 * 3600)

    found = shop.plan()
    assert (found.backlog, found.running, found.now.held_up_by) == (0, 1, "running")
    assert found.notes == [f"only 10 completed attempts of {LONG} are known"]
    check(found.now, shop.drain())


def test_delayed_jobs_are_no_backlog_but_take_slots_when_they_are_due(shop: Shop) -> None:
    shop.open(1, 4, {SHORT: lambda _: 10.0})
    shop.make_history()
    put(shop.store, *(f"later{number}" for number in range(40)), task=SHORT, delay=20_000, priority=-5)
    put(shop.store, *(f"now{number}" for number in range(20)), task=SHORT)

    found = shop.plan()
    assert (found.backlog, found.delayed) == (20, 40)
    assert found.now.after == pytest.approx(shop.drain(), rel=ACCURACY)


def test_the_next_job_of_a_rare_schedule_counts(shop: Shop) -> None:
    shop.open(1, 1, {SHORT: lambda _: 10.0}, ("urgent", "q"))
    shop.make_history(30, queue="urgent")
    shop.put_all({SHORT: 30}, "h2-")
    shop.drain()
    shop.put_all({SHORT: 30})
    before = shop.plan().now.after

    task = shop.jobs.task(name=SHORT, queue="urgent")(print)
    shop.jobs.schedule("nightly", task.bind(), every="1d", offset=shop.clock.now % 86_400_000 / 1000 + 100)
    after = shop.plan().now.after

    assert before == pytest.approx(300)
    assert after == pytest.approx(310)
    shop.jobs.schedule("often", task.bind(), every="60s")
    assert shop.plan().now.after == after


# Little is known


def test_without_any_statistics_nothing_is_predicted(shop: Shop) -> None:
    shop.open(1, 4, RUN_TIMES)
    shop.put_all({SHORT: 20})

    found = shop.plan(workers="+1")

    assert (found.backlog, found.run_time, found.runs) == (20, None, 0)
    assert (found.now.after, found.now.held_up_by) == (None, "unknown")
    assert found.then is not None
    assert found.then.reason == "too little is known"
    assert found.notes == [f"no attempt of {SHORT} has completed yet, so nothing is known about its run times"]


def test_of_a_running_job_whose_task_never_completed_the_rest_is_unknown(shop: Shop) -> None:
    shop.open(1, 4, RUN_TIMES)
    put(shop.store, "first", task=LONG)
    shop.claim()
    shop.clock.advance(5)

    found = shop.plan()
    assert (found.running, found.now.after, found.now.held_up_by) == (1, None, "unknown")
    assert found.notes == [f"no attempt of {LONG} has completed yet, so nothing is known about its run times"]


def test_of_a_backlog_that_cannot_be_read_nothing_is_predicted(shop: Shop, server_url: str) -> None:
    client, key = redis.Redis.from_url(server_url), f"hf:{{{shop.store.address.namespace}}}:j:a"
    shop.open(1, 4, RUN_TIMES)
    put(shop.store, "a", task=SHORT)
    client.hset(key, "s", "damaged")

    found = shop.plan()
    assert (found.backlog, found.now.after, found.now.held_up_by) == (1, None, "unknown")
    assert found.notes == [
        "jobs of the backlog cannot be read, as they are damaged or of a newer release: see `holdfast fsck`"
    ]
    client.close()


def test_few_runs_make_a_wide_range(shop: Shop) -> None:
    shop.open(1, 4, RUN_TIMES)
    shop.make_history(2)
    shop.put_all({LONG: 100})

    found = shop.plan()
    assert found.notes == [f"only 2 completed attempts of {LONG} are known"]
    assert found.now.earliest is not None
    assert found.now.latest is not None
    assert found.now.latest > 1.2 * found.now.earliest


def test_a_task_that_never_completed_is_assumed_to_run_as_long_as_others(shop: Shop) -> None:
    shop.open(1, 4, RUN_TIMES)
    shop.put_all({SHORT: 100}, "h")
    shop.run_for(10)
    put(shop.store, "new", task="app.new")
    shop.run_times = {**shop.run_times, "app.new": RUN_TIMES[SHORT]}
    shop.beat()

    found = shop.plan()
    assert found.now.after is not None
    assert "no attempt of app.new has completed yet; its run times are assumed to be those of its queue" in found.notes


def test_without_workers_the_slots_of_the_first_ones_have_to_be_given(shop: Shop) -> None:
    shop.open(1, 4, RUN_TIMES)
    shop.make_history()
    shop.put_all({SHORT: 80})
    shop.clock.advance(120)

    found = shop.plan()
    assert (found.now.workers, found.now.after, found.now.held_up_by) == (0, None, "no_worker")
    with pytest.raises(Invalid, match="no worker serves q: say how many jobs each worker runs at once, as processes=8"):
        shop.plan(workers="+2")
    then = shop.plan(workers="+2", processes=2).then
    assert then is not None
    assert (then.workers, then.held_up_by) == (2, "slots")
    assert then.after == pytest.approx(20, rel=ACCURACY)


def test_a_paused_queue_and_an_unknown_task_are_never_done(shop: Shop) -> None:
    shop.open(1, 4, {SHORT: RUN_TIMES[SHORT]})
    shop.make_history()
    shop.put_all({SHORT: 80})
    put(shop.store, "other", task="app.other")
    shop.clock.advance(1)

    other = shop.plan()
    assert (other.now.after, other.now.held_up_by, other.now.name) == (None, "task", "app.other")
    assert other.now.reason == "no worker has the task app.other"
    assert "no worker that serves the queue has the task app.other" in other.notes
    shop.jobs.cancel("other")
    shop.jobs.pause("q")
    paused = shop.plan().now
    assert (paused.after, paused.held_up_by) == (None, "paused")
    shop.jobs.resume("q")
    check(shop.plan().now, shop.drain())
    assert (shop.plan().backlog, shop.plan().now.after, shop.plan().now.held_up_by) == (0, 0, "")


def test_the_jobs_of_a_worker_that_died_run_again(shop: Shop) -> None:
    shop.lease = 120_000
    shop.open(2, 2, {SHORT: lambda _: 10.0})
    shop.make_history(40)
    put(shop.store, *(f"now{number}" for number in range(4)), task=SHORT)
    shop.claim()
    assert shop.held.popitem()[0] == "node/w1.1"
    for _ in range(7):
        shop.clock.advance(5)
        shop.beat()

    found = shop.plan()
    assert (found.now.workers, found.running) == (1, 4)
    assert found.now.after is not None
    assert found.now.after >= 10


@pytest.mark.parametrize(
    "given",
    [
        {"workers": "ten"}, {"workers": -1}, {"workers": True}, {"workers": 1.5}, {"workers": "+1000000"},
        {"workers": "+1", "processes": 0}, {"workers": "+1", "concurrency": "8"}, {"processes": 8},
        {"arriving": -1}, {"arriving": float("nan")}, {"arriving": "1"}, {"arriving": True},
    ],
)  # fmt: skip
def test_arguments_that_make_no_sense_are_refused(shop: Shop, given: dict[str, Any]) -> None:
    with pytest.raises(Invalid, match=r"workers|processes|concurrency|arriving"):
        shop.plan(**given)


def test_names_of_queues_are_checked_and_bounded(shop: Shop) -> None:
    with pytest.raises(Invalid):
        shop.jobs.plan("a b")
    with pytest.raises(Invalid, match="51 queues are too many for one plan"):
        shop.jobs.plan(*(f"q{number}" for number in range(51)))
    assert shop.jobs.plan().queues == []
    empty = shop.plan("unknown")
    assert (empty.backlog, empty.now.after, empty.now.held_up_by) == (0, 0, "")


def test_the_number_of_calls_does_not_grow_with_the_backlog(shop: Shop) -> None:
    def calls() -> int:
        with patch.object(shop.store, "run", wraps=shop.store.run) as run:
            shop.plan()
        return run.call_count

    shop.open(1, 4, RUN_TIMES)
    shop.make_history()
    put(shop.store, *(f"few{number}" for number in range(850)), task=SHORT)
    few = calls()
    for first in range(0, 5000, 500):
        put(shop.store, *(f"many{number}" for number in range(first, first + 500)), task=SHORT)
    assert calls() == few <= 25


def test_the_async_method_returns_the_same(shop: Shop) -> None:
    shop.open(1, 4, RUN_TIMES)
    shop.make_history()
    shop.put_all({SHORT: 100})

    async def plan() -> Plan:
        shop.jobs.async_store._clock = shop.clock
        found = await shop.jobs.aplan("q", workers="+1")
        await shop.jobs.aclose()
        return found

    assert asyncio.run(plan()) == shop.jobs.plan("q", workers="+1")
