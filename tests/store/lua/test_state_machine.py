"""The state machine, one behaviour at a time: a real server, the test's clock; after each test all keys are checked."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest
import redis

from holdfast import errors
from holdfast.job.job import STATES
from holdfast.job.outcome import Blocked, Cancelled, Crash, Error, Outcome, Release, Snoozed, Succeed, Unknown
from holdfast.store import commands
from holdfast.store.caller import caller_name
from holdfast.store.commands import Command, Finish, Lease, Started
from holdfast.store.store import Address, Store
from tests.conftest import TestClock
from tests.model import invariants
from tests.support.new_job import NewJob

ONE, TWO, THREE = "node/one.0", "node/two.0", "node/three.0"
LEASE = 30.0
DAY = 86_400.0
MiB = 1_048_576

counters = count(1)


def new(id: str, *, payload: bytes = b"[]", queue: str = "q", task: str = "task", **options: Any) -> NewJob:
    return NewJob(id=id, payload=payload, queue=queue, task=task, **options)


def put(store: Store, *ids: str, **options: Any) -> None:
    store.run(commands.enqueue([new(id, **options) for id in ids]))


def ask(*queues: str, limit: int = 1, **options: Any) -> dict[str, Any]:
    """A request to claim, with a counter that no other has."""
    return commands.claim_args(queues or ("q",), counter=next(counters), limit=limit, **options)


def take(store: Store, executor: str = ONE, *queues: str, limit: int = 1, **options: Any) -> list[str]:
    return [job.id for job in store.run(commands.claim(executor, ask(*queues, limit=limit, **options))).jobs]


def end(store: Store, id: str, outcome: Outcome, executor: str = ONE, attempt: int | None = None) -> str:
    """Finish an attempt, the last if none is named: returns the answer."""
    attempt = attempt or job(store, id)["attempt"]
    return store.run(commands.finish(executor, [Finish(id, attempt, outcome)])).answers[0]


def job(store: Store, id: str) -> dict[str, Any]:
    [found] = store.run(commands.get([id]))
    assert found is not None
    return found


def fields(store: Store, id: str, *names: str) -> tuple[Any, ...]:
    found = job(store, id)
    return tuple(found[name] for name in names)


def charges(store: Store, id: str) -> tuple[Any, ...]:
    return fields(store, id, "state", "retries_used", "crashes_used", "lost_used", "group")


def standing(store: Store) -> dict[str, list[str]]:
    """All jobs by state, each state in its order."""
    states: dict[str, list[str]] = {}
    for found in store.run(commands.list_jobs(limit=1000)).jobs:
        states.setdefault(found["state"], []).append(found["id"])
    return states


def keep(store: Store, *held: Lease, executor: str = ONE, **options: Any) -> commands.RenewReply:
    worker = executor.rpartition(".")[0]
    return store.run(commands.renew(worker, held, executors=[executor], **options))


def happened(store: Store, after: str = "0-0") -> list[tuple[str, list[str]]]:
    return [(event.type, [*event.jobs]) for event in store.run(commands.events(after, limit=1000)).events]


def dump(client: redis.Redis, namespace: str) -> dict[bytes, Any]:
    return {key: client.dump(key) for key in client.scan_iter(f"hf:{{{namespace}}}:*", count=10_000)}


def woken(client: redis.Redis, namespace: str) -> list[str]:
    """Whose wake-up calls came, and remove them."""
    base = f"hf:{{{namespace}}}:wake:"
    keys = sorted(client.scan_iter(f"{base}*", count=10_000))
    for key in keys:
        client.delete(key)
    return [key.decode().removeprefix(base) for key in keys]


def inbox(client: redis.Redis, key: bytes) -> list[str]:
    return [text.decode() for text in client.lrange(key.decode(), 0, -1)]


# Order


def test_three_thousand_jobs_are_claimed_by_priority_then_first_in_first_out(store: Store) -> None:
    dice = random.Random(5)
    jobs = [new(f"{number}", priority=dice.choice([-256, -1, 0, 0, 1, 255])) for number in range(3000)]
    for first in range(0, 3000, 1000):
        store.run(commands.enqueue(jobs[first : first + 1000]))

    taken = [id for _ in range(30) for id in take(store, limit=100)]

    assert taken == [job.id for job in sorted(jobs, key=lambda job: job.priority or 0)]
    assert take(store) == []


def test_a_more_urgent_queue_is_emptied_first(store: Store) -> None:
    put(store, "slow1", "slow2", queue="slow")
    put(store, "fast1", "fast2", queue="fast", priority=100)

    assert take(store, ONE, "fast", "slow", limit=3) == ["fast1", "fast2", "slow1"]


def test_a_queue_that_is_named_twice_gives_each_job_once(store: Store) -> None:
    put(store, "a", "b")

    assert take(store, ONE, "q", "q", "q", limit=5) == ["a", "b"]
    assert standing(store) == {"running": ["a", "b"]}
    assert job(store, "a")["attempt"] == 1


@pytest.mark.parametrize("come_back", ["release", "crash", "lose", "lease"])
def test_a_requeued_job_stays_ahead_of_later_jobs(store: Store, clock: TestClock, come_back: str) -> None:
    put(store, "first", "second")
    take(store)
    put(store, "third")

    if come_back == "release":
        end(store, "first", Release())
    elif come_back == "crash":
        end(store, "first", Crash(b"{}"))
    elif come_back == "lose":
        store.run(commands.requeue_orphaned(executor=ONE))
    else:
        keep_the_store_awake(store, clock, LEASE)

    assert take(store, TWO, limit=3) == ["first", "second", "third"]


def test_a_job_that_becomes_due_is_queued_behind_waiting_jobs(store: Store, clock: TestClock) -> None:
    put(store, "later", delay=1000)
    put(store, "now")
    clock.advance(1)

    assert take(store, limit=2) == ["now", "later"]


def test_due_jobs_become_waiting_in_order_of_their_times_a_hundred_per_call(store: Store, clock: TestClock) -> None:
    names = [f"{number:03}" for number in range(250)]
    for name in names:
        put(store, name, delay=1000 - int(name))
    clock.advance(2)

    assert [len(take(store, limit=1000)) for _ in range(4)] == [100, 100, 50, 0]
    runs = [(job(store, name)["claimed"], job(store, name)["arrival"], name) for name in names]
    assert [name for _, _, name in sorted(runs)] == names[::-1]


# What attempts cost


def test_a_retry_waits_20_then_40_then_80_seconds_from_the_end_of_the_failed_attempt(
    store: Store, clock: TestClock
) -> None:
    put(store, "job")
    waits = []
    for attempt in (1, 2, 3):
        assert take(store) == ["job"]
        clock.advance(7)
        end(store, "job", Error(b"{}", "ValueError"))
        state, timer, retried = fields(store, "job", "state", "timer", "retries_used")
        assert (state, retried) == ("scheduled", attempt - 1)
        waits.append((timer - clock.now) / 1000)
        clock.now = timer - 1
        assert take(store) == []
        clock.now = timer

    assert waits == [20, 40, 80]
    assert take(store) == ["job"]
    end(store, "job", Error(b"{}", "ValueError"))
    assert charges(store, "job") == ("failed", 3, 0, 0, "ValueError")
    assert fields(store, "job", "final_reason") == ("exhausted",)


def test_retry_with_a_delay_waits_that_long_and_uses_up_a_retry(store: Store, clock: TestClock) -> None:
    put(store, "job", retries=1)
    take(store)
    end(store, "job", Error(b"{}", "Retry", delay=5))
    assert fields(store, "job", "state", "timer") == ("scheduled", clock.now + 5)

    clock.now += 5
    take(store)
    end(store, "job", Error(b"{}", "Retry", delay=5))
    assert charges(store, "job") == ("failed", 1, 0, 0, "Retry")
    assert fields(store, "job", "final_reason") == ("exhausted",)


def test_retry_without_a_delay_is_queued_behind_waiting_jobs(store: Store) -> None:
    put(store, "job", "other")
    take(store)
    end(store, "job", Error(b"{}", "Retry", delay=0))

    assert take(store, limit=2) == ["other", "job"]


def test_a_final_error_fails_the_job_in_its_own_group_and_so_does_the_first_without_retries(store: Store) -> None:
    put(store, "final")
    put(store, "single", retries=0)
    take(store, limit=2)
    end(store, "final", Error(b"{}", "card.refused", final=True))
    end(store, "single", Error(b"{}", "ValueError"))

    assert charges(store, "final") == ("failed", 0, 0, 0, "card.refused")
    assert charges(store, "single") == ("failed", 0, 0, 0, "ValueError")


def test_crashes_have_their_own_budget(store: Store) -> None:
    put(store, "job", crashes=2, retries=0, lost=0)
    for crashes in (1, 2):
        take(store)
        end(store, "job", Crash(b"{}"))
        assert charges(store, "job") == ("waiting", 0, crashes, 0, "")
    take(store)
    end(store, "job", Crash(b"{}"))
    assert charges(store, "job") == ("failed", 0, 3, 0, "crashed")


def test_lost_leases_have_their_own_budget(store: Store, clock: TestClock) -> None:
    put(store, "job", lost=2, retries=0, crashes=0)
    for lost in (1, 2):
        take(store)
        keep_the_store_awake(store, clock, LEASE)
        assert charges(store, "job") == ("waiting", 0, 0, lost, "")
    take(store)
    keep_the_store_awake(store, clock, LEASE)
    assert charges(store, "job") == ("failed", 0, 0, 3, "lost")


def test_release_snooze_unknown_task_and_unrequested_cancellation_use_up_no_budget(
    store: Store, clock: TestClock
) -> None:
    put(store, "job", retries=0, crashes=0, lost=0)
    free: list[Outcome] = [Release("drain"), Release("drain", 2000), Snoozed(3000), Snoozed(0), Unknown(), Cancelled()]
    for outcome in free:
        assert take(store) == ["job"]
        end(store, "job", outcome)
        clock.now = max(clock.now, job(store, "job")["timer"])

    assert take(store) == ["job"]
    assert charges(store, "job") == ("running", 0, 0, 0, "")
    ends = ["released", "released", "snoozed", "snoozed", "unknown", "cancelled", "running"]
    assert [row[5].decode() for row in job(store, "job")["attempts"]] == ends


def test_an_unknown_task_is_tried_again_after_5_seconds_doubling_to_60(store: Store, clock: TestClock) -> None:
    put(store, "job")
    waits = []
    for _ in range(7):
        take(store)
        end(store, "job", Unknown())
        waits.append((job(store, "job")["timer"] - clock.now) // 1000)
        clock.now = job(store, "job")["timer"]
    assert waits == [5, 10, 20, 40, 60, 60, 60]
    assert job(store, "job")["attempts"][0][8] == b"task task is not known here"

    take(store)
    end(store, "job", Release())
    take(store)
    end(store, "job", Unknown())
    assert job(store, "job")["timer"] == clock.now + 5000


def test_an_executor_that_died_with_one_job_is_charged_as_a_crash(store: Store) -> None:
    put(store, "job", crashes=0)
    take(store)

    assert store.run(commands.requeue_orphaned(executor=ONE, reason="signal 9")) == ["job"]
    assert charges(store, "job") == ("failed", 0, 1, 0, "crashed")
    assert job(store, "job")["attempts"][0][5:9] == [b"crash", 0, ONE.encode(), b"signal 9"]


def test_jobs_of_a_dead_executor_are_not_charged_but_run_alone_and_are_charged_if_they_kill_again(
    store: Store,
) -> None:
    put(store, "good", "killer", crashes=0)
    put(store, "other", priority=1)
    take(store, limit=2)
    assert sorted(store.run(commands.requeue_orphaned(executor=ONE))) == ["good", "killer"]
    assert charges(store, "good") == charges(store, "killer") == ("waiting", 0, 0, 0, "")

    jobs = store.run(commands.claim(TWO, ask(limit=3))).jobs
    assert [(job.id, job.alone) for job in jobs] == [("good", True), ("killer", True), ("other", False)]
    end(store, "good", Release(), TWO)
    end(store, "killer", Crash(b"{}"), TWO)
    assert charges(store, "killer") == ("failed", 0, 1, 0, "crashed")
    assert fields(store, "good", "alone", "state") == (0, "waiting")


@pytest.mark.parametrize("outcome", [Release("claimed ahead"), Unknown()])
def test_a_job_that_must_run_alone_still_must_after_a_release_before_its_start(store: Store, outcome: Outcome) -> None:
    put(store, "one", "other")
    take(store, limit=2)
    store.run(commands.requeue_orphaned(executor=ONE))
    take(store, TWO)

    store.run(commands.finish(TWO, [Finish("one", 2, outcome, unstarted=True)]))

    assert fields(store, "one", "alone", "state")[0] == 1


def test_a_dead_workers_jobs_are_charged_as_lost(store: Store) -> None:
    put(store, "a", "b", "c")
    take(store, "node/one.0", limit=2)
    take(store, "node/one.1")

    assert sorted(store.run(commands.requeue_orphaned(worker="node/one", reason="gone"))) == ["a", "b", "c"]
    assert charges(store, "a") == charges(store, "c") == ("waiting", 0, 0, 1, "")
    assert store.run(commands.requeue_orphaned(worker="node/one")) == []
    assert standing(store) == {"waiting": ["a", "b", "c"]}


def test_retry_by_a_user_resets_budgets_but_keeps_checkpoint_history_and_attempt_numbers(store: Store) -> None:
    put(store, "job", retries=0)
    take(store)
    store.run(commands.save(Lease(ONE, "job", 1), b"half"))
    end(store, "job", Error(b"oops", "ValueError"))

    assert store.run(commands.retry(["job", "gone"])) == ["waiting", "NOTFOUND"]
    assert charges(store, "job") == ("waiting", 0, 0, 0, "")
    [again] = store.run(commands.claim(ONE, ask())).jobs
    assert (again.attempt, again.checkpoint) == (2, b"half")
    assert job(store, "job")["attempts"][0][9] == b"oops"
    assert store.run(commands.retry(["job"])) == ["STATE"]


def test_the_last_hundred_attempts_and_notes_are_kept(store: Store) -> None:
    put(store, "job", crashes=1000, retries=0)
    for _ in range(103):
        take(store)
        end(store, "job", Crash(b"dead"))
    for _ in range(101):
        store.run(commands.cancel(["job"]))
        store.run(commands.retry(["job"]))

    found = job(store, "job")
    assert [row[0] for row in found["attempts"]] == list(range(4, 104))
    assert len(found["notes"]) == 100
    assert end(store, "job", Crash(b"dead"), attempt=3) == "LOST"
    assert end(store, "job", Crash(b"dead"), attempt=4) == "OK"


# The fence


@pytest.mark.parametrize(
    "held", [Lease(ONE, "job", 1), Lease(ONE, "job", 2), Lease(TWO, "job", 1), Lease(TWO, "none", 1)]
)
def test_an_executor_without_the_lease_can_neither_save_nor_finish(
    store: Store, client: redis.Redis, namespace: str, held: Lease
) -> None:
    put(store, "job")
    take(store, ONE)
    store.run(commands.save(Lease(ONE, "job", 1), b"mine"))
    end(store, "job", Release())
    take(store, TWO)
    before = dump(client, namespace)

    with pytest.raises(errors.LeaseLost):
        store.run(commands.save(held, b"stolen", progress="all"))
    assert end(store, held.id if held.id == "job" else "job", Succeed(b"1"), held.executor, held.attempt) == "LOST"
    assert dump(client, namespace) == before


def test_a_stale_item_of_a_finish_does_not_affect_the_others(store: Store) -> None:
    put(store, "a", "b")
    take(store, limit=2)
    items = [
        Finish("a", 1, Succeed(b"1")),
        Finish("a", 2, Succeed(b"1")),
        Finish("none", 1, Succeed(b"1")),
        Finish("a", 1, Succeed(b"1")),
        Finish("a", 1, Crash(b"")),
        Finish("b", 1, Succeed(b"x" * (MiB + 1))),
        Finish("b", 1, Error(b"", "Big", final=True)),
    ]

    assert store.run(commands.finish(ONE, items)).answers == ["OK", "LOST", "LOST", "OK", "LOST", "TOOBIG", "OK"]
    assert standing(store) == {"succeeded": ["a"], "failed": ["b"]}
    assert job(store, "a")["result"] == b"1"


def test_an_invalid_item_of_a_finish_is_refused_alone(store: Store) -> None:
    put(store, "a", "b")
    take(store, limit=2)
    nonsense: list[dict[str, Any]] = [
        {},
        {"outcome": "succeed", "attempt": 1},
        {"id": "a", "attempt": 1, "outcome": "explode"},
        {"id": "a", "attempt": "1", "outcome": "succeed"},
        {"id": "a", "attempt": 1, "outcome": "release", "delay": "soon"},
        {"id": "a", "attempt": 1, "outcome": "release", "delay": -1},
        {"id": "a", "attempt": 1, "outcome": "crash", "pid": "self"},
        {"id": "a", "attempt": 1, "outcome": "crash", "pid": -5},
        {"id": "a", "attempt": 1, "outcome": "crash", "started": 0.5},
        {"id": "a", "attempt": 1, "outcome": "release", "reason": {}},
        {"id": "a", "attempt": 1, "outcome": "error", "group": [1]},
        {"id": "a", "attempt": 1, "outcome": "succeed", "blob": True},
    ]
    first = {"id": "b", "attempt": 1, "outcome": "release"}
    last = {"id": "a", "attempt": 1, "outcome": "release"}
    command = Command("finish", {"executor": ONE, "items": [first, *nonsense, last]}, lambda reply: reply[0])

    assert store.run(command) == [b"OK", *[b"INVALID"] * len(nonsense), b"OK"]
    assert standing(store) == {"waiting": ["a", "b"]}


# Leases


def keep_the_store_awake(store: Store, clock: TestClock, seconds: float) -> None:
    """Let time pass while others use the store, so that silence is no excuse."""
    for _ in range(round(seconds / 0.5)):
        clock.advance(0.5)
        store.run(commands.renew("node/busy", []))


def test_the_job_of_a_silent_executor_is_claimed_by_another(store: Store, clock: TestClock) -> None:
    put(store, "job")
    take(store, ONE)

    keep_the_store_awake(store, clock, LEASE - 0.5)
    assert take(store, TWO) == []
    clock.advance(0.5)
    assert take(store, TWO) == ["job"]
    assert charges(store, "job") == ("running", 0, 0, 1, "")
    assert keep(store, Lease(ONE, "job", 1)).lost == [Lease(ONE, "job", 1)]


def test_an_expired_lease_is_valid_until_a_claim_or_heartbeat_ends_it(store: Store, clock: TestClock) -> None:
    put(store, "renewed", "saved", "finished")
    take(store, limit=3)
    clock.advance(10 * LEASE)

    assert store.run(commands.save(Lease(ONE, "saved", 1), b"1")) is False
    assert end(store, "finished", Succeed(b"1")) == "OK"
    assert keep(store, Lease(ONE, "renewed", 1), Lease(ONE, "saved", 1)).lost == []
    assert standing(store) == {"running": ["renewed", "saved"], "succeeded": ["finished"]}


def test_an_outage_of_the_store_ends_no_lease(store: Store, clock: TestClock) -> None:
    put(store, "job")
    take(store, ONE)

    clock.advance(3600)
    assert take(store, TWO) == []
    assert job(store, "job")["timer"] == clock.now + 30_000
    keep_the_store_awake(store, clock, LEASE - 0.5)
    assert keep(store, Lease(ONE, "job", 1)).lost == []
    keep_the_store_awake(store, clock, LEASE - 0.5)
    assert take(store, TWO) == []
    clock.advance(0.5)
    assert take(store, TWO) == ["job"]


def test_an_outage_of_half_a_lease_spares_no_lease(store: Store, clock: TestClock) -> None:
    put(store, "job")
    take(store, ONE)
    clock.advance(15)
    store.run(commands.renew("node/busy", []))
    clock.advance(15)

    assert take(store, TWO) == ["job"]


def test_a_lease_that_is_not_renewed_is_spared_at_most_three_times(store: Store, clock: TestClock) -> None:
    put(store, "job")
    take(store, ONE)
    taken = []
    for _ in range(5):
        clock.advance(100)
        taken.append(take(store, TWO))

    assert taken == [[], [], [], ["job"], []]


def test_one_long_outage_does_not_spare_leases_forever(store: Store, clock: TestClock) -> None:
    put(store, "job")
    take(store, ONE)
    clock.advance(8 * 3600)
    keep(store, Lease(ONE, "job", 1))
    for _ in range(10):  # a quiet night: a call every few seconds, each after a short silence
        clock.advance(7.5)
        keep(store, Lease(ONE, "job", 1))
    for _ in range(4):
        clock.advance(7.5)
        store.run(commands.renew("node/busy", []))

    assert standing(store) == {"waiting": ["job"]}


@pytest.mark.parametrize("noticed_by", ["claim", "renew"])
def test_when_the_clock_goes_back_no_lease_lasts_longer_than_a_whole_one(
    store: Store, clock: TestClock, noticed_by: str
) -> None:
    put(store, "a", queue="q")
    put(store, "b", queue="r")
    take(store, ONE, "q", "r", limit=2)
    clock.advance(-3600)

    if noticed_by == "claim":
        assert take(store, TWO, "elsewhere") == []
    else:
        keep(store, executor=TWO)
    assert job(store, "a")["timer"] == job(store, "b")["timer"] == clock.now + 30_000
    keep_the_store_awake(store, clock, LEASE)
    assert standing(store) == {"waiting": ["a", "b"]}


def test_an_outage_before_the_clock_went_back_spares_for_one_lease_only(store: Store, clock: TestClock) -> None:
    put(store, "job")
    take(store, ONE)
    clock.advance(3600)
    keep(store, Lease(ONE, "job", 1))
    clock.advance(-7200)
    keep_the_store_awake(store, clock, 0.5)
    assert job(store, "job")["timer"] == clock.now + 30_000
    keep_the_store_awake(store, clock, LEASE)

    assert standing(store) == {"waiting": ["job"]}


def test_renew_reports_held_jobs_that_the_worker_did_not_name(store: Store) -> None:
    put(store, "a", "b")
    take(store, limit=2)
    end(store, "a", Release())
    take(store, limit=1)

    renewed = keep(store, Lease(ONE, "a", 1), Lease(ONE, "b", 1), Lease(ONE, "b", 1))
    assert renewed.lost == [Lease(ONE, "a", 1)]
    assert renewed.unreported == [Lease(ONE, "a", 2)]


def test_renew_records_process_and_start_time_of_a_job(store: Store, clock: TestClock) -> None:
    put(store, "job")
    clock.advance(3)
    take(store)
    claimed = clock.now
    clock.advance(1)
    keep(store, Lease(ONE, "job", 1), started=[Started(ONE, "job", 1, 4711, 250), Started(TWO, "job", 1, 1, 1)])

    [run] = job(store, "job")["attempts"]
    assert run == [1, claimed - 3000, claimed, claimed + 250, 0, b"running", 4711, ONE.encode(), b"", b"", b""]


def test_arrival_numbers_that_a_server_lost_are_not_assigned_again(store: Store) -> None:
    put(store, "a")
    assert keep(store, arrivals=1000).arrivals == 1000
    put(store, "b")

    assert job(store, "b")["arrival"] == 1001
    assert ("rewound", ["node/one"]) in happened(store)


def test_a_repeated_claim_gets_the_same_jobs_and_a_new_claim_other_jobs(store: Store) -> None:
    put(store, "a", "b", "c")
    request = ask(limit=2)
    first = store.run(commands.claim(ONE, request))
    end(store, "a", Succeed(b"1"))

    assert [job.id for job in store.run(commands.claim(ONE, request)).jobs] == ["b"]
    assert take(store, ONE, limit=2) == ["c"]
    with pytest.raises(errors.Invalid, match="went back"):
        store.run(commands.claim(ONE, request))
    assert [job.id for job in first.jobs] == ["a", "b"]


def test_a_repeated_claim_that_found_nothing_gets_a_time_to_wait(store: Store) -> None:
    put(store, "later", delay=700)
    request = ask()

    assert [store.run(commands.claim(ONE, request)).wait for _ in range(2)] == [700, 700]


def test_a_reply_carries_no_more_than_32_MiB_of_payloads_and_checkpoints(store: Store) -> None:
    for number in range(34):
        put(store, f"{number}", payload=b"p" * (MiB * 3 // 4))
    for number in range(34):
        take(store)
        store.run(commands.save(Lease(ONE, f"{number}", 1), b"c" * (MiB // 4)))
    store.run(commands.requeue_orphaned(worker="node/one"))

    assert len(take(store, TWO, limit=100)) == 32
    assert len(take(store, TWO, limit=100)) == 2


# Waking


def test_enqueue_wakes_only_the_executor_that_became_idle_last(
    store: Store, clock: TestClock, client: redis.Redis, namespace: str
) -> None:
    for executor in (THREE, TWO, ONE):
        clock.now += 1
        assert take(store, executor) == []
    put(store, "a", "b", "c")

    assert woken(client, namespace) == [ONE]
    put(store, "far", delay=5000)
    assert woken(client, namespace) == []
    put(store, "near", delay=4999)
    assert woken(client, namespace) == [TWO]


def test_a_claim_wakes_the_next_while_work_is_left(
    store: Store, clock: TestClock, client: redis.Redis, namespace: str
) -> None:
    for executor in (ONE, TWO, THREE):
        clock.now += 1
        assert take(store, executor) == []
    put(store, "a", "b")
    assert woken(client, namespace) == [THREE]

    assert take(store, THREE, idle=True) == ["a"]
    assert woken(client, namespace) == [TWO]
    assert take(store, TWO, idle=True) == ["b"]
    assert woken(client, namespace) == []


def test_an_executor_that_takes_other_work_passes_on_the_wake_up_that_it_got(
    store: Store, clock: TestClock, client: redis.Redis, namespace: str
) -> None:
    for executor in (ONE, TWO):
        clock.now += 1
        assert take(store, executor, "q", "r") == []
    put(store, "a", queue="q")
    assert woken(client, namespace) == [TWO]
    put(store, "b", queue="r")
    assert woken(client, namespace) == [ONE]
    assert take(store, THREE, "q", "r") == ["a"]
    put(store, "c", queue="q")
    clock.now += 1
    assert take(store, THREE, "other") == []
    client.rename(f"hf:{{{namespace}}}:idle:other", f"hf:{{{namespace}}}:idle:r")

    assert take(store, TWO, "q", "r", idle=True) == ["c"]
    assert woken(client, namespace) == [THREE], "for what is left in r"


@pytest.mark.parametrize("come_back", ["release", "lose", "lease", "retry", "due"])
def test_a_requeued_job_wakes_an_executor(
    store: Store, clock: TestClock, client: redis.Redis, namespace: str, come_back: str
) -> None:
    put(store, "job", delay=1000 if come_back == "due" else 0)
    take(store, ONE)
    keep_the_store_awake(store, clock, 0.5 if come_back == "due" else LEASE - 0.5)
    assert take(store, TWO) == []
    if come_back == "release":
        end(store, "job", Release())
    elif come_back == "lose":
        store.run(commands.requeue_orphaned(executor=ONE))
    elif come_back == "retry":
        end(store, "job", Succeed(b""))
        assert woken(client, namespace) == []
        store.run(commands.retry(["job"]))
    else:
        keep_the_store_awake(store, clock, 0.5)

    assert standing(store) == {"waiting": ["job"]}
    assert woken(client, namespace) == [TWO]


def test_releasing_without_claiming_wakes_another_worker_rather_than_the_same(
    store: Store, clock: TestClock, client: redis.Redis, namespace: str
) -> None:
    put(store, "job")
    assert take(store, ONE) == ["job"]
    for executor in (TWO, ONE, "node/one.1"):
        clock.now += 1
        assert take(store, executor) == []

    end(store, "job", Release())
    assert woken(client, namespace) == [TWO]
    assert list(invariants.read(client, namespace).idle["q"]) == [ONE, "node/one.1"]

    assert take(store, "node/one.1", idle=True) == ["job"]
    end(store, "job", Release(), "node/one.1", 2)
    assert woken(client, namespace) == [ONE], "there is no other"


def test_finish_wakes_no_executor_for_jobs_that_it_claims_itself(
    store: Store, client: redis.Redis, namespace: str
) -> None:
    put(store, "job")
    take(store, ONE)
    take(store, TWO)
    finished = store.run(commands.finish(ONE, [Finish("job", 1, Release())], request=ask(limit=2)))

    assert [job.id for job in finished.claim.jobs] == ["job"]
    assert woken(client, namespace) == []


def test_a_paused_queue_wakes_no_executor_until_it_is_resumed(
    store: Store, clock: TestClock, client: redis.Redis, namespace: str
) -> None:
    store.run(commands.pause("q"))
    for executor in (ONE, TWO):
        clock.now += 1
        take(store, executor)
    put(store, "a", "b")
    assert woken(client, namespace) == []
    assert take(store, THREE) == []

    store.run(commands.resume("q"))
    assert len(woken(client, namespace)) == 1
    assert take(store, THREE) == ["a"]


def test_an_executor_idle_for_too_long_is_forgotten_and_not_woken(
    store: Store, clock: TestClock, client: redis.Redis, namespace: str
) -> None:
    take(store, ONE)
    clock.advance(15)
    put(store, "a")
    assert woken(client, namespace) == []

    take(store, TWO, "empty")
    clock.advance(60)
    take(store, THREE, "empty")
    assert list(invariants.read(client, namespace).idle["empty"]) == [THREE]


def test_an_idle_executor_waits_until_the_next_timer_or_five_seconds(store: Store, clock: TestClock) -> None:
    assert store.run(commands.claim(ONE, ask())).wait == 5000
    put(store, "far", delay=60_000)
    assert store.run(commands.claim(ONE, ask())).wait == 5000
    put(store, "near", delay=1234)
    assert store.run(commands.claim(ONE, ask())).wait == 1234
    clock.now += 1233
    assert store.run(commands.claim(ONE, ask())).wait == 1


# Cancelling and waiting


def test_cancelling_a_running_job_sends_a_message_and_flags_the_job_until_it_stops(
    store: Store, client: redis.Redis
) -> None:
    put(store, "job")
    take(store)
    held = Lease(ONE, "job", 1)

    assert store.run(commands.cancel(["job", "none"], reason="too slow")) == ["cancelling", "NOTFOUND"]
    assert store.run(commands.cancel(["job"])) == ["cancelling"]
    renewed = keep(store, held)
    assert inbox(client, renewed.inbox_key) == [f"cancel {ONE} job 1"]
    assert renewed.cancelled == [held]
    assert store.run(commands.save(held, b"1")) is True
    assert job(store, "job")["state"] == "running"
    assert end(store, "job", Cancelled()) == "OK"
    assert charges(store, "job") == ("cancelled", 0, 0, 0, "")
    assert [note[1:] for note in job(store, "job")["notes"]] == [[b"cancelling", b"too slow", caller_name().encode()]]


def test_a_success_that_arrives_before_the_cancellation_stands(store: Store) -> None:
    put(store, "job")
    take(store)
    store.run(commands.cancel(["job"]))
    end(store, "job", Succeed(b"42"))

    assert fields(store, "job", "state", "result", "cancelling") == ("succeeded", b"42", 0)
    assert store.run(commands.cancel(["job"])) == ["STATE"]


@pytest.mark.parametrize("outcome", [Error(b"", "E"), Crash(b""), Release(), Snoozed(1000), Unknown(), Cancelled()])
def test_a_job_flagged_as_cancelling_is_not_requeued(store: Store, outcome: Outcome) -> None:
    put(store, "job", crashes=0, retries=0)
    take(store)
    store.run(commands.cancel(["job"]))
    end(store, "job", outcome)

    assert standing(store) == {"cancelled": ["job"]}


def test_waiting_programs_are_notified_once_whatever_the_outcome(store: Store, client: redis.Redis) -> None:
    put(store, "good", "bad", "stopped", "replaced", "lost", lost=0)
    names = ["good", "bad", "stopped", "replaced", "lost", "none"]
    waiting = store.run(commands.add_waiter(names, "me"))
    assert waiting.states == ["waiting"] * 5 + [""]
    store.run(commands.add_waiter(names, "me"))
    store.run(commands.cancel(["stopped"]))
    store.run(commands.enqueue([new("replaced", queue="r")], on_exists="replace"))
    take(store, limit=5)
    end(store, "good", Succeed(b"1"))
    end(store, "bad", Error(b"", "E", final=True))
    store.run(commands.requeue_orphaned(worker="node/one"))

    assert inbox(client, waiting.inbox_key) == ["stopped", "replaced", "good", "bad", "lost"]
    assert store.run(commands.add_waiter(["good"], "me")).states == ["succeeded"]


# Saving


def test_a_shorter_checkpoint_replaces_a_longer_one(store: Store) -> None:
    put(store, "job")
    take(store)
    held = Lease(ONE, "job", 1)
    for checkpoint in (b"c" * 100, b"short", b">", b"", b"c" * 65, b"c" * 64):
        store.run(commands.save(held, checkpoint))
        assert job(store, "job")["checkpoint"] == checkpoint
    store.run(commands.save(held, progress="90 %"))
    assert fields(store, "job", "checkpoint", "progress") == (b"c" * 64, "90 %")


def test_texts_are_truncated_between_characters(store: Store) -> None:
    put(store, "job")
    take(store)
    end(store, "job", Release("x" + "é" * 60))
    store.run(commands.cancel(["job"], reason="xx" + "€" * 400))

    assert job(store, "job")["attempts"][0][8].decode() == "x" + "é" * 31
    assert job(store, "job")["notes"][0][2].decode() == "xx" + "€" * 332


# What is kept


def ended(store: Store, number: int, outcome: Outcome, prefix: str = "") -> None:
    """Store, claim and end jobs, up to a thousand."""
    put(store, *(f"{prefix}{n}" for n in range(number)))
    taken = take(store, limit=number)
    store.run(commands.finish(ONE, [Finish(id, 1, outcome) for id in taken]))


def test_ended_jobs_are_kept_a_week_and_failed_ones_a_month(store: Store, clock: TestClock) -> None:
    ended(store, 250, Succeed(b"r" * 100))
    ended(store, 3, Error(b"{}", "E", final=True), "failed")
    put(store, "cancelled")
    store.run(commands.cancel(["cancelled"]))
    clock.advance(7 * DAY - 0.001)
    take(store)
    assert store.run(commands.count()) == 254

    clock.advance(1)
    take(store)
    assert store.run(commands.count()) == 3

    clock.advance(23 * DAY)
    take(store)
    assert store.run(commands.count()) == 0


def test_a_surplus_is_pruned_five_hundred_jobs_a_call_and_the_next_call_comes_at_once(
    store: Store, clock: TestClock
) -> None:
    ended(store, 1000, Succeed(b"r" * 100), "long")
    ended(store, 1000, Succeed(b""), "short")
    store.run(commands.configure(None, set={"keep_succeeded_count": 300}))

    clock.advance(1)
    left, waits = [], []
    for _ in range(6):
        waits.append(store.run(commands.claim(ONE, ask())).wait)
        left.append(store.run(commands.count()))

    assert left == [1500, 1000, 500, 300, 300, 300]
    assert waits == [1, 1, 1, 5000, 5000, 5000]


def test_finishing_removes_as_many_old_jobs_as_it_adds_and_one_more(store: Store, clock: TestClock) -> None:
    ended(store, 10, Succeed(b""))
    clock.advance(8 * DAY)
    put(store, "new1", "new2")
    store.run(commands.pause("q"))  # so that claiming removes nothing before
    store.run(commands.resume("q"))
    clock.advance(-8 * DAY)
    taken = take(store, limit=2)
    clock.advance(8 * DAY)
    store.run(commands.finish(ONE, [Finish(id, 1, Succeed(b"")) for id in taken]))

    assert store.run(commands.count(states=["succeeded"])) == 10 + 2 - 3


def test_no_more_than_fifty_thousand_succeeded_jobs_are_kept(store: Store) -> None:
    for thousand in range(51):
        ended(store, 1000, Succeed(b""), f"{thousand}.")

    assert store.run(commands.count()) == 50_000
    assert store.run(commands.get(["0.999", "1.0"], brief=True))[0] is None
    assert store.run(commands.get(["50.999"], brief=True))[0] is not None


def test_each_call_writes_one_event_of_each_type_naming_its_jobs(store: Store) -> None:
    put(store, "a", "b", "c", retries=0)
    take(store, limit=3)
    items = [Finish("a", 1, Succeed(b"")), Finish("b", 1, Error(b"", "E")), Finish("c", 1, Succeed(b""))]
    store.run(commands.finish(ONE, items))
    store.run(commands.delete(["a", "b", "c"]))
    store.run(commands.pause("q"))
    store.run(commands.pause("q"))

    assert sorted(happened(store)) == [
        ("claimed", ["a", "b", "c"]),
        ("deleted", ["a", "b", "c"]),
        ("enqueued", ["a", "b", "c"]),
        ("failed", ["b"]),
        ("paused", ["q"]),
        ("succeeded", ["a", "c"]),
    ]
    [claimed] = [event for event in store.run(commands.events()).events if event.type == "claimed"]
    assert claimed.who == ONE
    assert [event.type for event in store.run(commands.events(claimed.id)).events][-1] == "paused"


# Pages


@pytest.mark.parametrize("newest", [False, True])
@pytest.mark.parametrize("is_last_gone", [False, True])
def test_jobs_that_come_and_go_between_pages_are_neither_skipped_nor_shown_twice(
    store: Store, newest: bool, is_last_gone: bool
) -> None:
    put(store, *(f"{n:02}" for n in range(20)), "zz")
    store.run(commands.cancel([f"{n:02}" for n in range(20)]))  # at one time: they stand by id

    first = store.run(commands.list_jobs(states=["cancelled"], newest=newest, limit=5))
    seen = [job["id"] for job in first.jobs]
    assert first.cursor is not None
    store.run(commands.delete(seen[::4] if is_last_gone else seen[:2]))
    store.run(commands.cancel(["zz"]))
    rest = store.run(commands.list_jobs(states=["cancelled"], newest=newest, cursor=first.cursor))
    everything = [f"{n:02}" for n in range(20)]

    assert seen + [job["id"] for job in rest.jobs] == (everything[::-1] if newest else [*everything, "zz"])
    assert rest.cursor is None


def test_a_job_that_moves_to_a_place_behind_the_cursor_is_shown_there(store: Store) -> None:
    put(store, "a", "b")
    first = store.run(commands.list_jobs(limit=1))
    store.run(commands.enqueue([new("b", queue="r"), new("a")], on_exists="replace"))
    second = store.run(commands.list_jobs(queues=["q"], cursor=first.cursor))

    assert [job["id"] for job in first.jobs + second.jobs] == ["a", "a"]


# Refusals


@pytest.fixture
def full(store: Store, client: redis.Redis) -> Iterator[None]:
    """A server whose memory is full: four jobs wait, of which one runs."""
    put(store, "a", "b", "c", "d")
    take(store, TWO)
    client.config_set("maxmemory", "1mb")
    yield
    client.config_set("maxmemory", "0")


@pytest.mark.usefixtures("full")
def test_a_full_store_is_reported_as_full(store: Store) -> None:
    with pytest.raises(errors.StoreFull):
        put(store, "new")


@pytest.mark.usefixtures("full")
def test_a_full_store_refuses_new_jobs_and_lets_existing_ones_finish(store: Store) -> None:
    with pytest.raises(errors.StoreFull):
        put(store, "new")
    assert take(store, limit=2) == ["b", "c"]
    assert keep(store, Lease(ONE, "b", 1)).lost == []
    assert store.run(commands.save(Lease(ONE, "b", 1), b"c" * 100)) is False
    assert end(store, "b", Succeed(b"r" * 100)) == "OK"
    assert store.run(commands.cancel(["c", "d"])) == ["cancelling", "cancelled"]
    assert store.run(commands.requeue_orphaned(executor=TWO)) == ["a"]
    assert store.run(commands.retry(["d"])) == ["waiting"]
    assert store.run(commands.delete(["b"])) == ["OK"]
    assert store.run(commands.add_waiter(["c"], "me")).states == ["running"]
    assert store.run(commands.pause("q")) is True
    assert store.run(commands.resume("q")) is True
    assert standing(store) == {"waiting": ["a", "d"], "running": ["c"]}


def every_verb() -> list[Command[Any]]:
    return [
        commands.enqueue([new("new")]),
        commands.claim(ONE, ask()),
        commands.renew("node/one", [Lease(ONE, "a", 1)]),
        commands.save(Lease(ONE, "a", 1), b"c"),
        commands.finish(ONE, [Finish("a", 1, Succeed(b""))], request=ask()),
        commands.requeue_orphaned(executor=ONE),
        commands.requeue_orphaned(worker="node/one"),
        commands.cancel(["a"]),
        commands.retry(["a"]),
        commands.delete(["a"]),
        commands.get(["a"]),
        commands.list_jobs(),
        commands.count(),
        commands.queues(),
        commands.pause("q"),
        commands.resume("q"),
        commands.add_waiter(["a"], "me"),
        commands.workers(),
        commands.events(),
    ]


@pytest.mark.parametrize("command", every_verb(), ids=lambda command: command.function)
def test_data_of_another_schema_is_refused_and_left_alone(
    store: Store, client: redis.Redis, namespace: str, command: Command[Any]
) -> None:
    put(store, "a", "b")
    take(store)
    client.hset(store.address.key, "schema", "3")
    before = dump(client, namespace)

    with pytest.raises(
        errors.WrongSchema, match=r"schema 3, .* use the release that wrote the data, or another namespace"
    ):
        store.run(command)
    assert dump(client, namespace) == before
    client.hset(store.address.key, "schema", "2")


def raw(verb: str, *blobs: bytes, **args: Any) -> Command[Any]:
    return Command(verb, args, lambda reply: reply, blobs)


TOO_BIG = [
    commands.enqueue([new("x"), new("y", payload=b"p" * (MiB + 1))]),
    commands.save(Lease(ONE, "a", 1), b"c" * (MiB // 4 + 1)),
    commands.save(Lease(ONE, "a", 1), progress="p" * 1025),
    commands.renew("node/one", [], about="a" * 16385),
]
INVALID = [
    commands.enqueue([]),
    commands.enqueue([new("x"), new("x")]),
    commands.enqueue([new("x"), new("no spaces")]),
    commands.enqueue([new("x" * 129)]),
    commands.enqueue([new("x~y")]),
    commands.enqueue([new("x"), new("y", queue="no:colons")]),
    commands.enqueue([new("x"), new("y", queue="q" * 101)]),
    commands.enqueue([new("x"), new("y", task="")]),
    commands.enqueue([new("x"), new("y", priority=256)]),
    commands.enqueue([new("x"), new("y", priority=-257)]),
    commands.enqueue([new("x"), new("y", retries=-1)]),
    commands.enqueue([new("x"), new("y", crashes=1001)]),
    commands.enqueue([new("x"), new("y", backoff=2**40)]),
    commands.enqueue([new("x"), new("y", delay=-1)]),
    commands.enqueue([new("x"), new("y", delay=2**50)]),
    commands.enqueue([new("x"), new("y", codec="pickle")]),
    commands.enqueue([new("x")], on_exists="ignore"),
    commands.enqueue([new(f"{n}") for n in range(1001)]),
    commands.enqueue([new(f"{n}", queue="qr"[n % 2]) for n in range(1001)]),
    raw("enqueue", b"x y", batches=[{"count": 2, "queue": "q", "task": "t"}], on_exists="return"),
    raw("enqueue", b"x", b"p", batches=[{"queue": "q", "task": "t", "priority": 0.5}], on_exists="return"),
    raw("enqueue", b"x y", b"p", batches=[{"queue": "q", "task": "t"}]),
    raw("enqueue", b"x", b"p", b"p", batches=[{"count": 2, "queue": "q", "task": "t"}]),
    raw("enqueue", b"x", b"p", batches=[{"count": 0, "queue": "q", "task": "t"}]),
    commands.claim("nobody", ask()),
    commands.claim("node/" + "w" * 33 + ".0", ask()),
    commands.claim(ONE, ask(limit=0)),
    commands.claim(ONE, ask(limit=1001)),
    commands.claim(ONE, ask(lease=999)),
    commands.claim(ONE, ask(lease=3_600_001)),
    commands.claim(ONE, ask(pid=-1)),
    commands.claim(ONE, ask("q", "no spaces")),
    commands.claim(ONE, commands.claim_args([], counter=1, limit=1)),
    commands.claim(ONE, commands.claim_args(["q"], counter=0, limit=1)),
    commands.finish(ONE, [Finish("a", 1, Succeed(b""))], request=ask(limit=0)),
    commands.finish("nobody", [Finish("a", 1, Succeed(b""))]),
    commands.finish(ONE, [Finish("a", 1, Succeed(b"")) for _ in range(1001)]),
    raw("finish", executor=ONE, items=[{"id": "a", "attempt": 1, "outcome": "release"}, 5]),
    raw("finish", executor=ONE),
    commands.renew("node/one", [Lease(ONE, "a", 1), Lease(TWO, "b", 1)]),
    commands.claim(ONE, {"queues": ["q"], "counter": 1, "limit": 1, "lease": 5}),
    commands.renew("node/one", [Lease(ONE, f"{n}", 1) for n in range(1001)]),
    commands.renew("node/one", [Lease(ONE, "a", 1)], started=[Started(ONE, "a", 1, -1, 0)]),
    commands.save(Lease(ONE, "a", 0), b""),
    raw("save", executor=ONE, id="a", attempt=1, progress=5),
    commands.requeue_orphaned(executor="nobody"),
    commands.requeue_orphaned(worker="nobody"),
    commands.cancel([]),
    commands.cancel(["b", "no spaces"]),
    commands.cancel(["b"] * 1001),
    commands.retry(["done", "no spaces"]),
    commands.delete(["done", "no spaces"]),
    commands.add_waiter(["b", "no spaces"], "me"),
    commands.add_waiter(["b"], "not me"),
    commands.get(["a", "no spaces"]),
    commands.list_jobs(limit=1001),
    commands.list_jobs(states=["waitng"]),
    commands.list_jobs(queues=["no spaces"]),
    commands.list_jobs(cursor="s,q,waiting,x,a"),
    commands.list_jobs(cursor="q"),
    commands.count(states=["done"]),
    commands.events("yesterday"),
    commands.pause("no spaces"),
    commands.resume("no spaces"),
]


@pytest.mark.parametrize(
    ("command", "error"),
    [(command, errors.TooBig) for command in TOO_BIG] + [(command, errors.Invalid) for command in INVALID],
    ids=lambda value: value.function if isinstance(value, Command) else "",
)
def test_a_refused_command_changes_nothing(
    store: Store, client: redis.Redis, namespace: str, command: Command[Any], error: type[errors.HoldfastError]
) -> None:
    put(store, "done", "a", "b")
    take(store, limit=2)
    end(store, "done", Succeed(b""))
    before = dump(client, namespace)

    with pytest.raises(error):
        store.run(command)
    assert dump(client, namespace) == before


def test_a_thousand_of_anything_is_allowed(store: Store) -> None:
    names = [f"{n}" for n in range(1000)]
    put(store, *names)
    assert take(store, limit=1000) == names
    held = [Lease(ONE, name, 1) for name in names]
    assert keep(store, *held).lost == []
    assert store.run(commands.add_waiter(names, "me")).states == ["running"] * 1000
    answers = store.run(commands.finish(ONE, [Finish(name, 1, Succeed(b"1")) for name in names])).answers
    assert answers == ["OK"] * 1000
    assert len(store.run(commands.list_rows(["id"], limit=1000)).rows) > 300
    assert store.run(commands.retry(names)) == ["waiting"] * 1000
    assert store.run(commands.cancel(names)) == ["cancelled"] * 1000
    assert [row for row in store.run(commands.get(names, brief=True)) if row is None] == []
    assert store.run(commands.delete(names)) == ["OK"] * 1000
    assert store.run(commands.queues()).queues == [("q", False, 0, dict.fromkeys(STATES, 0))]


def test_an_id_has_up_to_128_characters_and_a_partition(store: Store) -> None:
    put(store, "x" * 128, "y" * 128 + "~12345")

    assert standing(store) == {"waiting": ["x" * 128, "y" * 128 + "~12345"]}


# Size


@pytest.mark.parametrize("executor", [ONE, "n" * 28 + "/12345678.0"])
def test_a_job_with_a_short_payload_is_stored_compactly_all_its_life(
    store: Store, client: redis.Redis, namespace: str, executor: str
) -> None:
    put(store, "0123456789abcdef", payload=b"p" * 51)
    base = f"hf:{{{namespace}}}:"
    record = f"{base}j:0123456789abcdef"
    assert client.object("encoding", record) == b"listpack"
    usage: Callable[[str], int | None] = client.memory_usage
    print(f"record {usage(record)} bytes, index of one {usage(f'{base}q:q:waiting')} bytes")

    take(store, executor)
    store.run(commands.save(Lease(executor, "0123456789abcdef", 1), b"c" * 64, progress="50 %"))
    end(store, "0123456789abcdef", Succeed(b"r" * 64), executor)
    assert client.object("encoding", record) == b"listpack"
    print(f"ended: record {usage(record)} bytes")


def test_a_call_that_failed_halfway_does_not_affect_the_next(store: Store, client: redis.Redis, namespace: str) -> None:
    put(store, "first")
    waiting, events = f"hf:{{{namespace}}}:q:q:waiting", f"hf:{{{namespace}}}:events"
    for broken, id in ((waiting, "a"), (events, "b")):
        client.rename(broken, f"{broken}:kept")
        client.set(broken, "not what it must be")
        with pytest.raises(errors.HoldfastError, match="WRONGTYPE"):
            put(store, id)
        client.rename(f"{broken}:kept", broken)
        put(store, f"after-{id}")
    assert client.zrange(waiting, 0, -1) == [b"first", b"after-a", b"b", b"after-b"]
    # Job a was written, so it is announced, though its index could not be.
    assert [entry[b"jobs"] for _, entry in client.xrange(events)] == [b"first", b"a", b"after-a", b"after-b"]
    client.delete(f"hf:{{{namespace}}}:j:a")


def test_alternating_calls_of_two_namespaces_do_not_affect_each_other(
    store: Store, client: redis.Redis, server_url: str, namespace: str, clock: TestClock
) -> None:
    other = Store(Address(server_url, None, f"{namespace}-other"), clock=clock)
    for each in (store, other):
        put(each, "a", "b")
    store.run(commands.pause("q"))
    assert [take(each) for each in (store, other)] == [[], ["a"]]
    store.run(commands.resume("q"))
    assert [take(each) for each in (store, other, store)] == [["a"], ["b"], ["b"]]
    assert [end(each, id, Succeed(b"1")) for each in (store, other) for id in "ab"] == ["OK"] * 4
    for name in (namespace, f"{namespace}-other"):
        assert client.zcard(f"hf:{{{name}}}:q:q:succeeded") == 2
    invariants.check(client, f"{namespace}-other")
    client.delete(*client.scan_iter(f"hf:{{{namespace}-other}}:*"))
    other.close()


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (Succeed(b"1"), Succeed(b"2")),
        (Succeed(b"1" * 100), Succeed(b"2" * 100)),
        (Error(b'{"a":1}', "E"), Error(b'{"a":2}', "E")),
        (Error(b"{}", "E"), Succeed(b"1")),
        (Crash(b"{}"), Crash(b'{"other":1}')),
        (Release("one"), Release("two")),
        (Snoozed(5), Blocked(("other",))),
    ],
    ids=lambda outcome: type(outcome).__name__,
)
def test_only_the_same_outcome_of_an_attempt_may_be_repeated(store: Store, first: Outcome, second: Outcome) -> None:
    put(store, "a", "other")
    assert take(store) == ["a"]

    assert end(store, "a", first) == "OK"
    assert end(store, "a", first, attempt=1) == "OK"
    before = job(store, "a")
    assert end(store, "a", second, attempt=1) == "LOST"
    assert job(store, "a") == before
