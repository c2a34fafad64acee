"""A time to live of a job's own: how long its record is kept after its end."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from holdfast import errors
from holdfast.job.outcome import Advanced, Error, Outcome, Succeed
from holdfast.store import commands
from holdfast.store.commands import Finish
from holdfast.store.store import Store
from tests.conftest import TestClock
from tests.store.lua.test_state_machine import DAY, ONE, TWO, end, fields, job, new, put, take

HOUR = 3600.0
FAILS = Error(b"{}", "E", final=True)


def run(store: Store, *ids: str, outcome: Outcome = Succeed(b"1"), queue: str = "q", **options: Any) -> None:  # noqa: B008
    """Store jobs, claim them and end them, at most a thousand."""
    put(store, *ids, queue=queue, **options)
    taken = take(store, ONE, queue, limit=len(ids))
    assert sorted(taken) == sorted(ids)
    store.run(commands.finish(ONE, [Finish(id, 1, outcome) for id in taken]))


def upkeep(store: Store, calls: int = 1) -> None:
    for _ in range(calls):
        store.run(commands.upkeep())


def exists(store: Store, *ids: str) -> list[str]:
    return [id for id, found in zip(ids, store.run(commands.get(list(ids))), strict=True) if found]


def key(namespace: str, name: str) -> str:
    return f"hf:{{{namespace}}}:{name}"


def expiring(client: redis.Redis, namespace: str) -> dict[str, float]:
    return {id.decode(): time for id, time in client.zrange(key(namespace, "expiring"), 0, -1, withscores=True)}


@pytest.mark.parametrize("keep", [1000, 3_600_000, 86_400_000 * 8, 86_400_000 * 400])
def test_a_job_is_removed_when_its_own_time_is_over_whatever_its_queue_keeps(
    store: Store, clock: TestClock, keep: int
) -> None:
    run(store, "own", keep=keep)
    run(store, "usual")
    assert fields(store, "own", "keep", "expires") == (keep, clock.now + keep)
    assert fields(store, "usual", "keep", "expires") == (1, clock.now + 7 * DAY * 1000)

    clock.advance(keep / 1000 - 0.001)
    upkeep(store, 2)
    assert exists(store, "own") == ["own"]
    clock.advance(1)
    upkeep(store)
    assert exists(store, "own", "usual") == (["usual"] if keep < 7 * DAY * 1000 else [])


def test_a_lower_setting_of_the_queue_does_not_shorten_it_and_a_higher_one_does_not_extend_it(
    store: Store, clock: TestClock
) -> None:
    run(store, "own", keep=3_600_000)
    store.run(commands.configure("q", set={"keep_succeeded": 0}))
    for _ in range(59):
        clock.advance(60)
        upkeep(store)
    assert exists(store, "own") == ["own"]

    store.run(commands.configure("q", set={"keep_succeeded": int(30 * DAY * 1000)}))
    clock.advance(60)
    upkeep(store)
    assert exists(store, "own") == []


def test_the_maximum_number_of_a_queue_applies_to_it_too(store: Store, clock: TestClock) -> None:
    store.run(commands.configure("q", set={"keep_succeeded_count": 2}))
    for id in "abcd":
        run(store, id, keep=int(DAY * 1000))
        clock.advance(1)
    assert exists(store, *"abcd") == ["c", "d"]


def test_the_oldest_of_those_kept_for_longer_leave_first_if_there_are_too_many(store: Store, clock: TestClock) -> None:
    run(store, *"abc", keep=int(90 * DAY * 1000))
    clock.advance(8 * DAY)
    run(store, "new")
    store.run(commands.configure("q", set={"keep_succeeded_count": 2}))
    clock.advance(1)
    upkeep(store)
    assert exists(store, *"abc", "new") == ["c", "new"]


@pytest.mark.parametrize(("keep", "days"), [(1000, 30), (int(60 * DAY * 1000), 60)])
def test_a_failed_job_is_kept_at_least_as_long_as_its_queue_keeps_failed_jobs(
    store: Store, clock: TestClock, keep: int, days: int
) -> None:
    run(store, "job", outcome=FAILS, keep=keep)
    assert fields(store, "job", "expires") == (clock.now + days * DAY * 1000,)
    clock.advance(days * DAY - 1)
    upkeep(store, 3)
    assert exists(store, "job") == ["job"]
    clock.advance(1)
    upkeep(store)
    assert exists(store, "job") == []


@pytest.mark.parametrize("before", [1, 60])
def test_a_failed_job_follows_its_queue_if_the_setting_changes(store: Store, clock: TestClock, before: int) -> None:
    store.run(commands.configure(None, set={"keep_failed": int(before * DAY * 1000)}))
    run(store, "job", outcome=FAILS, keep=1000)
    store.run(commands.configure(None, set={"keep_failed": int(10 * DAY * 1000)}))
    clock.advance(10 * DAY - 1)
    upkeep(store, 3)
    assert exists(store, "job") == ["job"]
    clock.advance(1)
    upkeep(store)
    assert exists(store, "job") == []


def test_a_cancelled_job_is_removed_after_its_own_time(store: Store, clock: TestClock) -> None:
    put(store, "job", keep=60_000)
    store.run(commands.cancel(["job"]))
    clock.advance(60)
    upkeep(store)
    assert exists(store, "job") == []


def test_three_thousand_long_lived_jobs_do_not_delay_the_removal_of_those_behind_them(
    store: Store, clock: TestClock, client: redis.Redis
) -> None:
    for part in range(3):
        run(store, *(f"long{part}-{n}" for n in range(1000)), keep=int(90 * DAY * 1000))
    clock.advance(1)
    run(store, *(f"short{n}" for n in range(200)))
    clock.advance(7 * DAY)
    for _ in range(8):  # 500 each
        upkeep(store)
    assert exists(store, *(f"short{n}" for n in range(200))) == []
    assert store.run(commands.count(states=["succeeded"])) == 3000

    clock.advance(DAY)
    before = calls_of(client, "zadd")
    upkeep(store, 3)
    assert calls_of(client, "zadd") - before == 0, "jobs that were set aside are met again"


def calls_of(client: redis.Redis, name: str) -> int:
    found: Any = client.info("commandstats")
    return int(found.get(f"cmdstat_{name}", {"calls": 0})["calls"])


def test_jobs_that_expire_together_are_removed_in_steps_and_delay_no_due_job(store: Store, clock: TestClock) -> None:
    for part in range(2):
        run(store, *(f"{part}-{n}" for n in range(1000)), keep=60_000)
    put(store, "due", delay=60_500)
    clock.advance(61)

    assert take(store) == ["due"]
    assert store.run(commands.count(states=["succeeded"])) == 1500
    upkeep(store, 3)  # at once, not a second apart
    assert store.run(commands.count(states=["succeeded"])) == 0


def test_jobs_that_expire_are_no_work_to_start_a_worker_for(store: Store, clock: TestClock) -> None:
    run(store, "job", keep=1000)
    clock.advance(10)
    assert store.run(commands.overdue()) == (0, {})


def test_a_retry_stops_the_clock_and_the_next_end_starts_it_again(
    store: Store, clock: TestClock, client: redis.Redis, namespace: str
) -> None:
    run(store, "job", keep=60_000)
    clock.advance(59)
    assert store.run(commands.retry(["job"])) == ["waiting"]
    assert expiring(client, namespace) == {}
    clock.advance(3600)
    upkeep(store)
    take(store)
    end(store, "job", Succeed(b"2"))
    assert expiring(client, namespace) == {"job": clock.now + 60_000}
    clock.advance(59)
    upkeep(store)
    assert exists(store, "job") == ["job"]
    clock.advance(1)
    upkeep(store)
    assert exists(store, "job") == []


@pytest.mark.parametrize("how", ["delete", "replace"])
def test_a_job_that_leaves_earlier_leaves_nothing_behind(
    store: Store, clock: TestClock, client: redis.Redis, namespace: str, how: str
) -> None:
    run(store, "job", keep=60_000)
    if how == "delete":
        store.run(commands.delete(["job"]))
    else:
        store.run(commands.enqueue([new("job")], on_exists="replace"))
    assert expiring(client, namespace) == {}
    clock.advance(60)
    upkeep(store)
    assert exists(store, "job") == ([] if how == "delete" else ["job"])


def test_a_job_that_is_moved_or_advances_keeps_its_own_time(store: Store, clock: TestClock) -> None:
    put(store, "job", keep=60_000)
    store.run(commands.move(["job"], queue="other"))
    take(store, ONE, "other")
    assert end(store, "job", Advanced("next", {"queue": "third"}, b"[]")) == "OK"
    take(store, TWO, "third")
    end(store, "job", Succeed(b""), TWO)
    assert fields(store, "job", "queue", "task", "keep", "expires") == ("third", "next", 60_000, clock.now + 60_000)
    clock.advance(60)
    upkeep(store)
    assert exists(store, "job") == []


def test_a_key_that_a_job_has_while_it_is_kept_is_free_after_its_own_time(store: Store, clock: TestClock) -> None:
    run(store, "first", keep=60_000, unique="k", unique_for="kept")
    again = [new("second", unique="k")]
    assert store.run(commands.enqueue(again)).ids == ["first"]
    clock.advance(60)
    upkeep(store)
    assert store.run(commands.enqueue(again)).ids == ["second"]


def test_a_job_that_others_waited_for_is_removed_after_its_own_time(
    store: Store, clock: TestClock, client: redis.Redis, namespace: str
) -> None:
    put(store, "first", keep=1000)
    put(store, "second", after=("first",))
    take(store)
    end(store, "first", FAILS)
    store.run(commands.configure(None, set={"keep_failed": 0}))
    clock.advance(2)
    upkeep(store)
    assert exists(store, "first", "second") == ["second"]
    assert not client.exists(key(namespace, "d:first"))


@pytest.mark.parametrize("outcome", [Succeed(b"1"), FAILS])
def test_a_lost_entry_is_found_again_while_others_expire(
    store: Store, clock: TestClock, client: redis.Redis, namespace: str, outcome: Outcome
) -> None:
    run(store, "job", "other", keep=int(2 * HOUR * 1000), outcome=outcome)
    client.zrem(key(namespace, "expiring"), "job")
    clock.advance(1)
    upkeep(store)
    assert "job" in expiring(client, namespace)


def test_an_entry_without_an_ended_job_is_removed(
    store: Store, clock: TestClock, client: redis.Redis, namespace: str
) -> None:
    put(store, "waiting", keep=1000)
    client.zadd(key(namespace, "expiring"), {"waiting": clock.now, "gone": clock.now})
    upkeep(store)
    assert expiring(client, namespace) == {}
    assert exists(store, "waiting") == ["waiting"]


@pytest.mark.parametrize("keep", [0, 999, -1, 1.5, "1h", 86_400_000 * 3651, {}])
def test_a_time_to_live_has_bounds(store: Store, keep: Any) -> None:
    with pytest.raises(errors.Invalid, match="`keep`"):
        put(store, "job", keep=keep)


@pytest.mark.parametrize("keep", [True, None])
def test_the_settings_of_the_queue_decide_otherwise(store: Store, keep: Any) -> None:
    run(store, "job", keep=keep)
    assert job(store, "job")["keep"] == 1


def test_an_unreadable_job_whose_time_is_over_stays_and_delays_no_other(
    store: Store, clock: TestClock, client: redis.Redis, namespace: str
) -> None:
    run(store, "newer", "job", keep=60_000)
    record = client.hget(key(namespace, "j:newer"), "h")
    assert isinstance(record, bytes)
    client.hset(key(namespace, "j:newer"), "h", b"\x63" + record[1:])
    clock.advance(60)
    upkeep(store)
    assert exists(store, "job") == []
    assert job(store, "newer")["unreadable"] == "NEWER"
    client.hset(key(namespace, "j:newer"), "h", record)
    clock.advance(1)
    upkeep(store)
    assert exists(store, "newer") == []
