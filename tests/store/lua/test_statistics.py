"""Statistics: what counts as a wait, a run, a failure and a retry; folding, damage, restarts, ages and bounds."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
import redis

from holdfast import errors
from holdfast.job.outcome import Advanced, Cancelled, Crash, Error, Outcome, Release, Snoozed, Succeed, Unknown
from holdfast.store import commands
from holdfast.store.commands import Finish, Period, StatsReply
from holdfast.store.store import Address, Store
from tests.conftest import TestClock
from tests.store.lua.test_settings import configure
from tests.store.lua.test_state_machine import ONE, ask, end, keep_the_store_awake, new, put, take
from tests.support.statistics_ledger import BOUNDS, DAY, HOUR, MINUTE, Ledger, check_stats, histogram

TODAY = Period()


def stats(store: Store, queue: str = "q", task: str | None = None, period: Period = TODAY) -> StatsReply:
    return store.run(commands.stats(queue, period, task))


def key(store: Store, name: str) -> str:
    return f"hf:{{{store.address.namespace}}}:{name}"


def run_many(store: Store, clock: TestClock, count: int, *, first: int = 0, ledger: Ledger | None = None) -> Ledger:
    """Run jobs one by one, each waiting and running for a while; enough of them fill more than one string of lines."""
    ledger, dice = ledger or Ledger(), random.Random(count)
    for number in range(first, first + count):
        put(store, f"j{number}", task=f"t{number % 3}", keep=False)
        waited, ran = dice.randint(0, 3000), dice.choice([1, 70, 900, 4000])
        clock.now += waited
        [id] = take(store)
        ledger.claimed("q", f"t{number % 3}", waited, clock.now)
        clock.now += ran
        end(store, id, Succeed(b""))
        ledger.ended("q", f"t{number % 3}", ran, clock.now, is_run=True)
    return ledger


def test_a_queue_that_never_had_jobs_has_empty_statistics(store: Store, clock: TestClock) -> None:
    found = stats(store, "unknown")
    assert found[2:6] == (0, 0, 0, 0)
    assert found.wait == found.run == (0, 0, 0.0, [])
    assert (found.since, found.until) == (clock.now // DAY * DAY, clock.now // DAY * DAY + DAY)


def test_a_wait_counts_at_the_claim_and_a_run_at_its_end(store: Store, clock: TestClock) -> None:
    put(store, "a")
    clock.advance(3)
    take(store)
    assert (stats(store).wait[:2], stats(store).run.number) == ((1, 3000), 0)
    clock.advance(0.3)
    end(store, "a", Succeed(b""))

    found = stats(store)

    assert found.wait == (1, 3000, 0.0, [(3000, 4000, 1)])
    assert found.run == (1, 300, 0.0, [(256, 512, 1)])
    assert stats(store, task="task")[3:] == found[3:]
    assert stats(store, task="another")[3:6] == (0, 0, 0)


def test_a_delay_is_no_wait(store: Store, clock: TestClock) -> None:
    put(store, "a", delay=5000)
    clock.advance(5)
    store.run(commands.upkeep())
    clock.advance(2)
    take(store)
    assert stats(store).wait[:2] == (1, 2000)


@pytest.mark.parametrize(
    ("outcome", "counted"),  # runs, ended, failures, retries
    [
        (Succeed(b""), (1, 1, 0, 0)),
        (Advanced("task", {"queue": "next"}, b"[]"), (1, 1, 0, 0)),
        (Error(b"", "g", delay=0), (0, 1, 0, 1)),
        (Error(b"", "g", delay=9000), (0, 1, 0, 1)),
        (Error(b"", "g", final=True), (0, 1, 1, 0)),
        (Crash(b""), (0, 1, 0, 1)),
        (Release(), (0, 1, 0, 0)),
        (Snoozed(100), (0, 1, 0, 0)),
        (Unknown(), (0, 1, 0, 0)),
        (Cancelled(), (0, 1, 0, 0)),
    ],
)
def test_what_an_outcome_counts_as(store: Store, outcome: Outcome, counted: tuple[int, ...]) -> None:
    put(store, "a")
    take(store)
    end(store, "a", outcome)
    found = stats(store)
    assert (found.run.number, found.ended, found.failures, found.retries) == counted


def test_a_lost_lease_is_a_retry_until_there_have_been_too_many(store: Store, clock: TestClock) -> None:
    put(store, "a", lost=1)
    for _ in range(2):
        assert take(store) == ["a"]
        keep_the_store_awake(store, clock, 31)
    found = stats(store)
    assert (found.run.number, found.ended, found.failures, found.retries) == (0, 2, 1, 1)


def test_an_attempt_that_crashes_while_it_is_cancelled_is_no_retry(store: Store) -> None:
    put(store, "a")
    take(store)
    store.run(commands.cancel(["a"]))
    end(store, "a", Crash(b""))
    assert (stats(store).failures, stats(store).retries) == (0, 0)


def test_a_job_that_an_operator_fails_or_whose_deadline_passes_is_a_failure(store: Store, clock: TestClock) -> None:
    put(store, "a")
    put(store, "b", deadline=1000)
    store.run(commands.fail(["a"]))
    clock.advance(2)
    store.run(commands.upkeep())
    found = stats(store)
    assert (found.failures, found.failed, found.ended) == (2, 2, 0)


def test_a_repeated_claim_and_a_repeated_finish_count_once(store: Store, clock: TestClock) -> None:
    put(store, "a")
    request = ask(limit=1)
    for _ in range(2):
        store.run(commands.claim(ONE, request))
    clock.advance(1)
    for _ in range(2):
        assert store.run(commands.finish(ONE, [Finish("a", 1, Succeed(b""))])).answers == ["OK"]
    assert (stats(store).wait.number, stats(store).run[:2], stats(store).ended) == (1, (1, 1000), 1)


def test_what_was_finished_counts_although_the_claim_in_the_same_call_is_refused(
    store: Store, clock: TestClock, namespace: str
) -> None:
    put(store, "a")
    take(store)
    old = commands.claim_args(["q"], counter=1, limit=1)
    with pytest.raises(errors.Invalid, match="went back"):
        store.run(commands.finish(ONE, [Finish("a", 1, Succeed(b""))], request=old))
    other = Store(Address.find(store.address.url, namespace=f"{namespace}x"), clock=clock)
    take(other)

    assert stats(store).run.number == 1
    assert stats(other).ended == 0
    other.execute("DEL", *other.execute("KEYS", f"hf:{{{namespace}x}}:*"))
    other.close()


def test_still_failed_goes_down_when_a_job_is_retried_moved_or_deleted(store: Store, clock: TestClock) -> None:
    for name in ("a", "b", "c", "d"):
        put(store, name)
        take(store)
        end(store, name, Error(b"", "g", final=True))
    yesterday = Period(clock.now // DAY * DAY, clock.now // DAY * DAY + DAY)
    clock.advance(DAY / 1000)
    assert stats(store, period=yesterday).failed == 4
    assert stats(store).failed == 0
    store.run(commands.retry(["a"]))
    assert stats(store, period=yesterday).failed == 3
    store.run(commands.delete(["b"]))
    assert stats(store, period=yesterday).failed == 2
    assert stats(store, period=yesterday).failures == 4


def test_failed_jobs_that_outlive_the_setting_of_their_queue_are_still_counted(
    store: Store, clock: TestClock, client: redis.Redis
) -> None:
    put(store, "a", keep=40 * DAY)
    take(store)
    end(store, "a", Error(b"", "g", final=True))
    configure(store, keep_failed=0)
    clock.advance(2)
    store.run(commands.upkeep())
    assert client.zscore(key(store, "q:q:failed"), "a") < 0
    assert stats(store).failed == 1


def test_a_wait_counts_on_the_day_of_the_claim_and_a_run_on_the_day_of_its_end(store: Store, clock: TestClock) -> None:
    day = clock.now // DAY + 1
    clock.now = day * DAY - 4000
    put(store, "a", timeout=HOUR)
    clock.now = day * DAY - 1
    take(store)
    clock.now = day * DAY
    end(store, "a", Succeed(b""))

    before, after = (stats(store, period=Period(first * DAY, (first + 1) * DAY)) for first in (day - 1, day))

    assert (before.wait.number, before.run.number) == (1, 0)
    assert (after.wait.number, after.run[:2]) == (0, (1, 1))


def test_bucket_bounds_are_milliseconds_seconds_minutes_hours_and_days(store: Store, clock: TestClock) -> None:
    """A wait of each bound, and one a millisecond shorter, up to the last bucket, which has no end."""
    assert BOUNDS[:13] == [0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1000, 2000]
    configure(store, stats_age=365 * DAY, histogram_age=365 * DAY)
    times = sorted({time for bound in BOUNDS for time in (bound, bound - 1) if time >= 0} | {200 * DAY})
    start, end_of_time = clock.now, clock.now + 201 * DAY
    ids = {}
    for number, time in enumerate(reversed(times)):
        clock.now = end_of_time - time
        put(store, f"j{number}")
        ids[f"j{number}"] = time
    clock.now = end_of_time
    while jobs := take(store, limit=1000):
        assert {*jobs} <= {*ids}
    found = stats(store, period=Period(start))
    assert found.wait.number == len(times)
    assert found.wait.buckets == histogram(times)
    assert found.wait.buckets[-1][:2] == (103 * DAY, None)


# Folding


def test_lines_are_folded_at_4_kb_and_a_reader_sees_the_same_before_and_after(
    store: Store, clock: TestClock, client: redis.Redis
) -> None:
    ledger, lengths = Ledger(), []
    for number in range(150):
        run_many(store, clock, 1, first=number, ledger=ledger)
        check_stats(stats(store), ledger.total())
        check_stats(stats(store, task="t1"), ledger.total(task="t1"))
        lengths.append(client.strlen(key(store, "sl:q")))
    assert max(lengths) < 4096
    assert sum(after < before for before, after in pairwise(lengths)) >= 1
    assert store.run(commands.stats_tasks("q", TODAY)).tasks


def test_a_string_whose_first_line_is_a_day_old_is_folded(store: Store, clock: TestClock, client: redis.Redis) -> None:
    ledger = run_many(store, clock, 2)
    clock.advance(DAY / 1000)
    run_many(store, clock, 1, first=2, ledger=ledger)
    days = {name.split(b":")[3] for name in client.keys(key(store, "sd:*"))}
    assert len(days) == 2
    assert 0 < client.strlen(key(store, "sl:q")) < 100
    check_stats(stats(store, period=Period(clock.now - 2 * DAY)), ledger.total())


def test_statistics_survive_that_the_server_forgets_its_functions(store: Store, clock: TestClock) -> None:
    """As after a restart: what only Lua knew is lost."""
    ledger = run_many(store, clock, 60)
    store.execute("FUNCTION", "FLUSH")
    clock.advance(DAY / 1000)
    run_many(store, clock, 60, first=60, ledger=ledger)
    check_stats(stats(store, period=Period(clock.now - 2 * DAY)), ledger.total())


def test_namespaces_with_the_same_queues_are_counted_apart(store: Store, clock: TestClock, namespace: str) -> None:
    other = Store(Address.find(store.address.url, namespace=f"{namespace}y"), clock=clock)
    mine, theirs = Ledger(), Ledger()
    for number in range(60):
        run_many(store, clock, 1, first=number, ledger=mine)
        run_many(other, clock, 2, first=2 * number, ledger=theirs)
    check_stats(stats(store), mine.total())
    check_stats(stats(other), theirs.total())
    other.execute("DEL", *other.execute("KEYS", f"hf:{{{namespace}y}}:*"))
    other.close()


def test_further_tasks_of_a_day_count_as_other_and_the_total_is_right(store: Store, client: redis.Redis) -> None:
    for first in range(0, 300, 100):
        jobs = [new(f"j{number}", task=f"t{number:03}", keep=False) for number in range(first, first + 100)]
        store.run(commands.enqueue(jobs))
        ids = take(store, limit=100)
        store.run(commands.finish(ONE, [Finish(id, 1, Succeed(b"")) for id in ids]))
    store.run(commands.enqueue([new(f"z{number}", task=f"z{number:03}", keep=False) for number in range(600)]))
    ids = take(store, limit=600)
    store.run(commands.finish(ONE, [Finish(id, 1, Succeed(b"")) for id in ids]))
    store.run(commands.enqueue([new("last", task="one.more")]))
    take(store)

    assert stats(store).run.number == 900
    tasks = store.run(commands.stats_tasks("q", TODAY)).tasks
    assert len([task for task in tasks if task.startswith("t")]) == 200
    others = [stats(store, task=task).run.number for task in tasks if not task.startswith("t")]
    assert (max(others), sum(others)) == (stats(store, task="other").run.number, 700)
    assert client.hlen(next(client.scan_iter(key(store, "sd:*"), count=1000))) == 202  # the total, 200 tasks, `other`


def test_a_call_with_a_thousand_tasks_counts_200_and_other(store: Store, client: redis.Redis) -> None:
    store.run(commands.enqueue([new(f"j{number}", task=f"{number:04}" * 25) for number in range(1000)]))
    take(store, limit=1000)
    assert client.strlen(key(store, "sl:q")) == 0
    assert client.hlen(client.keys(key(store, "sd:*"))[0]) == 202
    assert (stats(store).wait.number, stats(store, task="other").wait.number) == (1000, 800)


@pytest.mark.parametrize("family", ["sl:q", "sd:*", "sg:*", "sh:*", "sm:*"])
@pytest.mark.parametrize("damage", ["type", "garbage", "cut"])
def test_damaged_statistics_start_over_and_stop_nothing(
    store: Store, clock: TestClock, client: redis.Redis, family: str, damage: str
) -> None:
    run_many(store, clock, 100)
    [name] = client.keys(key(store, family))
    if damage == "type":
        client.delete(name)
        client.rpush(name, "x")
        client.pexpire(name, DAY)
    elif family == "sl:q":
        text = client.get(name)
        client.set(name, random.Random(1).randbytes(500) if damage == "garbage" else text[:-3], px=DAY)
    else:
        for field, value in client.hgetall(name).items():
            client.hset(name, field, random.Random(2).randbytes(55) if damage == "garbage" else value[:-1])
    stats(store)
    store.run(commands.load())
    store.run(commands.stats_tasks("q", TODAY))
    for unit in ("minute", "hour"):
        store.run(commands.stats_series("q", unit, TODAY))

    run_many(store, clock, 200, first=100)

    assert 200 <= stats(store).run.number <= 300 or family == "sd:*"
    assert sum(count for _, _, count in stats(store).run.buckets) >= 100
    hours = store.run(commands.stats_series("q", "hour", TODAY))
    assert sum(row.runs for row in hours.rows) >= 100
    client.delete(name)  # parts of it are still damaged


# Series


def test_minutes_and_hours_have_arrivals_ends_failures_and_means(store: Store, clock: TestClock) -> None:
    clock.now = clock.now // HOUR * HOUR + HOUR - 2 * MINUTE
    start = clock.now
    put(store, "a", "b", "c", retries=0)
    clock.advance(1)
    take(store, limit=3)
    clock.now = start + MINUTE + 2000
    end(store, "a", Succeed(b""))
    end(store, "b", Error(b"", "g"))
    clock.now = start + 3 * MINUTE
    put(store, "d")

    minutes = store.run(commands.stats_series("q", "minute", Period(start)))
    hours = store.run(commands.stats_series("q", "hour", Period(start)))
    by_task = store.run(commands.stats_series("q", "hour", Period(start), "task"))

    first = start // MINUTE
    assert minutes[:4] == (MINUTE, first, first + 3, None)
    assert minutes.rows == [
        (first, 3, 0, 0, 0, 3, 3000, 0, 0),
        (first + 1, 0, 2, 1, 0, 0, 0, 1, MINUTE + 1000),
        (first + 3, 1, 0, 0, 0, 0, 0, 0, 0),
    ]
    assert hours.rows == [
        (start // HOUR, 3, 2, 1, 0, 3, 3000, 1, MINUTE + 1000),
        (start // HOUR + 1, 1, 0, 0, 0, 0, 0, 0, 0),
    ]
    assert by_task.rows == [(start // HOUR, None, 2, 1, 0, 3, 3000, 1, MINUTE + 1000)]
    end(store, "c", Succeed(b""))


def test_minutes_reach_back_three_hours_and_arrivals_stay_in_the_hours(store: Store, clock: TestClock) -> None:
    start = clock.now
    for number in range(30):
        put(store, f"j{number}", keep=False)
        take(store)
        end(store, f"j{number}", Succeed(b""))
        clock.advance(600)
    put(store, "last")

    minutes = store.run(commands.stats_series("q", "minute", Period(0)))
    hours = store.run(commands.stats_series("q", "hour", Period(0)))

    assert (minutes.last - minutes.first, minutes.last) == (180, clock.now // MINUTE)
    assert sum(row.arrivals or 0 for row in minutes.rows) == 19
    assert sum(row.arrivals or 0 for row in hours.rows) == 31
    assert [row.number for row in hours.rows] == list(range(start // HOUR, clock.now // HOUR + 1))
    assert hours.first == (clock.now - 30 * DAY) // HOUR


def test_a_long_series_is_read_in_parts(store: Store) -> None:
    configure(store, stats_age=100 * DAY)
    part = store.run(commands.stats_series("q", "hour", Period(0)))
    assert part.last - part.first == 999
    assert part.next == (part.last + 1) * HOUR
    rest = store.run(commands.stats_series("q", "hour", Period(part.next)))
    assert rest.first == part.last + 1


def test_load_counts_what_is_folded_and_what_is_not(store: Store, clock: TestClock) -> None:
    for number in range(170):
        put(store, f"j{number}", keep=False)
        take(store)
        clock.advance(0.25)
        end(store, f"j{number}", Succeed(b""))
        [row] = store.run(commands.load(["q"])).samples
        assert (row.arrived, row.ended, row.run_time) == (number + 1, number + 1, 250 * (number + 1))


# Ages


def test_ages_are_settings_of_all_queues_or_of_one(store: Store, clock: TestClock, client: redis.Redis) -> None:
    configure(store, "q", stats_age=2 * DAY, histogram_age=DAY)
    run_many(store, clock, 130)
    for family, age in (("sd", 2), ("sh", 2), ("sg", 1)):
        [name] = client.keys(key(store, f"{family}:*"))
        assert age * DAY < client.pttl(name) <= (age + 1) * DAY
    today = Period(clock.now // DAY * DAY, clock.now // DAY * DAY + DAY)
    clock.now = clock.now // DAY * DAY + 2 * DAY
    assert (stats(store, period=today).run.number, stats(store, period=today).run.buckets) == (130, [])
    clock.advance(2 * DAY / 1000)
    assert stats(store, period=today).run.number == 0


def test_a_queue_that_is_forgotten_has_no_statistics_any_more(
    store: Store, clock: TestClock, client: redis.Redis
) -> None:
    run_many(store, clock, 130)
    assert client.keys(key(store, "s[a-z]:*"))
    store.run(commands.forget_queue("q"))
    assert client.keys(key(store, "s[a-z]:*")) == []
    assert stats(store).run.number == 0


@pytest.mark.parametrize(
    "command",
    [
        commands.stats("no spaces", TODAY),
        commands.stats("q", Period(since=-1)),
        commands.stats("q", Period(until=2**50)),
        commands.stats("q", Period(ago=-5)),
        commands.stats("q", TODAY, ""),
        commands.stats("q", TODAY, "x" * 101),
        commands.stats_series("q", "second", TODAY),
        commands.stats_tasks("", TODAY),
    ],
)
def test_arguments_are_checked(store: Store, command: commands.Command[object]) -> None:
    with pytest.raises(errors.Invalid):
        store.run(command)


def test_a_period_without_days_is_empty(store: Store, clock: TestClock) -> None:
    run_many(store, clock, 1)
    assert stats(store, period=Period(clock.now + 5 * DAY)).run.number == 0
    assert stats(store, period=Period(0, 5)).run.number == 0
    assert store.run(commands.stats_series("q", "hour", Period(clock.now + 5 * DAY))).rows == []


def test_statistics_of_ever_new_tasks_do_not_fill_the_memory_of_the_server(store: Store, client: redis.Redis) -> None:
    def run(first: int) -> None:
        tasks = [f"task.{number}" for number in range(first, first + 200)]
        store.run(commands.enqueue([new(task, task=task, keep=False) for task in tasks]))
        for id in take(store, limit=len(tasks)):
            store.run(commands.finish(ONE, [Finish(id, 1, Succeed(b""))]))

    for first in range(0, 4000, 200):
        run(first)
    before = client.info("memory")["used_memory_vm_functions"]
    for first in range(4000, 20_000, 200):
        run(first)
    assert client.info("memory")["used_memory_vm_functions"] < before + 4_000_000
    assert stats(store).run.number == 20_000
