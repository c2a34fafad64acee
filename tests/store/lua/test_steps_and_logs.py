"""What the store holds of a job besides its record: steps of `once`, logs, usage, requests to its worker."""

from __future__ import annotations

import pytest

from holdfast import errors
from holdfast.constants import MAX_RUN_OPTIONS
from holdfast.job.outcome import Advanced, Error, Succeed
from holdfast.store import commands
from holdfast.store.commands import Lease, LogBlock
from holdfast.store.store import Store
from tests.conftest import TestClock
from tests.store.lua.test_state_machine import LEASE, ONE, TWO, end, job, keep, put, take


def started(store: Store, id: str = "job", **options: object) -> Lease:
    put(store, id, **options)
    take(store)
    return Lease(ONE, id, 1)


def block(store: Store, number: int, data: bytes, attempt: int = 1, id: str = "job") -> str:
    return store.run(commands.log([LogBlock(id, job(store, id)["created"], attempt, number, data)]))[0]


def popped(store: Store, key: bytes) -> bytes:
    _, message = store.execute("BLPOP", key, 1)
    return bytes(message)


def test_a_step_is_stored_once_and_found_by_the_next_attempt(store: Store) -> None:
    held = started(store)
    assert store.run(commands.once(held, "charge")) is None
    assert store.run(commands.once(held, "charge", b"42")) == b"42"
    assert store.run(commands.once(held, "charge", b"43")) == b"42"
    end(store, "job", Error(b"", "g", delay=0))
    take(store)

    assert store.run(commands.once(Lease(ONE, "job", 2), "charge")) == b"42"


def test_a_step_of_an_attempt_that_lost_its_lease_is_refused(store: Store, clock: TestClock) -> None:
    held = started(store)
    for _ in range(4):
        clock.advance(LEASE / 4)
        got = take(store, TWO)
    assert got == ["job"]

    with pytest.raises(errors.LeaseLost, match="lost its lease"):
        store.run(commands.once(held, "charge", b"1"))
    assert store.run(commands.once(Lease(TWO, "job", 2), "charge")) is None


def test_steps_are_bounded(store: Store) -> None:
    held = started(store)
    with pytest.raises(errors.TooBig, match=r"65537 bytes \(limit 65536\)"):
        store.run(commands.once(held, "big", b"x" * 65537))
    for number in range(1000):
        store.run(commands.once(held, f"step-{number}", b"1"))
    with pytest.raises(errors.TooBig, match="1000 steps"):
        store.run(commands.once(held, "one-more", b"1"))
    with pytest.raises(errors.TooBig, match="already has 1000 steps"):
        store.run(commands.once(held, "one-more"))  # before it is done


def test_a_new_stage_begins_without_steps_and_a_deleted_job_leaves_nothing(store: Store) -> None:
    held = started(store)
    store.run(commands.once(held, "charge", b"1"))
    block(store, 0, b"words")
    end(store, "job", Advanced("work", {"queue": "q"}, b""))
    take(store)
    assert store.run(commands.once(Lease(ONE, "job", 2), "charge")) is None
    assert store.run(commands.logs("job", 1)).blocks == {0: b"words"}
    end(store, "job", Succeed(b""))

    store.run(commands.delete(["job"]))  # invariants, at the end of the test, know of no key that is left


def test_a_growing_block_is_sent_again(store: Store) -> None:
    started(store)
    assert block(store, 0, b"one\n") == "OK"
    assert block(store, 0, b"one\ntwo\n") == "OK"
    assert block(store, 0, b"one\n") == "OK"  # late, by somebody else

    found = store.run(commands.logs("job"))

    assert (found.attempt, found.has_ended, found.attempts, found.blocks) == (1, False, [1], {0: b"one\ntwo\n"})


def test_of_a_long_log_the_beginning_and_the_end_are_kept(store: Store) -> None:
    started(store)
    for number in range(100):
        block(store, number, b"%08d" % number * 1024)

    kept = sorted(store.run(commands.logs("job")).blocks)

    assert kept == [*range(8), *range(76, 100)]
    assert sorted(store.run(commands.logs("job", block=90)).blocks) == [*range(90, 100)]


def test_a_log_that_skips_its_middle_is_trimmed_too(store: Store) -> None:
    started(store)
    for number in (*range(20), 1000, 1001):
        block(store, number, b"x")

    assert sorted(store.run(commands.logs("job")).blocks) == [*range(8), 1000, 1001]


def test_a_call_with_one_wrong_block_keeps_none(store: Store) -> None:
    started(store)
    good = LogBlock("job", job(store, "job")["created"], 1, 0, b"a line")
    with pytest.raises(errors.Invalid, match="the block"):
        store.run(commands.log([good, good._replace(number=-2)]))
    assert store.run(commands.logs("job")).blocks == {}


def test_a_log_may_grow_after_its_attempt_but_not_in_a_later_job_with_the_same_id(store: Store) -> None:
    started(store)
    created = job(store, "job")["created"]
    end(store, "job", Succeed(b""))
    assert block(store, 0, b"late") == "OK"
    assert store.run(commands.logs("job")).has_ended
    assert block(store, 0, b"no such attempt", attempt=2) == "NOTFOUND"

    answers = store.run(
        commands.log([LogBlock("job", created - 1, 1, 0, b"x"), LogBlock("nobody", created, 1, 0, b"x")])
    )
    assert answers == ["NOTFOUND", "NOTFOUND"]


def test_logs_of_the_last_ten_attempts_are_kept(store: Store) -> None:
    put(store, "job", retries=1000)
    for number in range(1, 14):
        take(store)
        block(store, 0, b"%d" % number, attempt=number)
        end(store, "job", Error(b"", "g", delay=0))

    assert store.run(commands.logs("job")).attempts == [*range(4, 14)]


def test_resource_usage_is_stored_with_the_log(store: Store) -> None:
    started(store)
    block(store, -1, b"long series")
    block(store, -1, b"shorter")
    assert store.run(commands.logs("job", block=5)).blocks == {-1: b"shorter"}


def test_a_request_reaches_the_worker_and_its_response_the_client(store: Store) -> None:
    started(store)
    worker, key = store.run(commands.request("stack", id="job", inbox="me"))
    assert worker == ONE.rpartition(".")[0]
    assert popped(store, keep(store).inbox_key) == f"stack {ONE} job 1 me".encode()
    store.run(commands.respond("me", b"File x, line 1"))
    assert popped(store, key) == b"File x, line 1"

    end(store, "job", Succeed(b""))
    with pytest.raises(errors.WrongState, match="only a running job"):
        store.run(commands.request("stack", id="job", inbox="me"))
    with pytest.raises(errors.WorkerNotFound, match=r"worker .* does not exist"):
        store.run(commands.request("drain", worker="node/nobody", inbox="me"))


def test_a_claim_returns_the_run_options(store: Store) -> None:
    put(store, "job", run='{"memory":1}')
    [claimed] = store.run(commands.claim(ONE, commands.claim_args(["q"], counter=10**9, limit=1))).jobs
    assert claimed.run == b'{"memory":1}'
    with pytest.raises(errors.Invalid, match=f"{MAX_RUN_OPTIONS} bytes"):
        put(store, "other", run="x" * (MAX_RUN_OPTIONS + 1))
