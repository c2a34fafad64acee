"""Settings that are changed while everything runs, and what follows from them: leases, budgets, and what is kept."""

from __future__ import annotations

import pytest

from holdfast import errors
from holdfast.job.outcome import Crash, Error, Outcome, Succeed
from holdfast.store import commands
from holdfast.store.commands import Lease
from holdfast.store.store import Store
from tests.conftest import TestClock
from tests.store.lua.test_state_machine import (
    ONE,
    THREE,
    TWO,
    ask,
    charges,
    end,
    fields,
    happened,
    job,
    keep,
    put,
    standing,
    take,
)


def configure(store: Store, queue: str | None = None, **values: int) -> None:
    store.run(commands.configure(queue, set=values))


def found(store: Store, name: str, queue: str | None = None) -> tuple[int, str]:
    [row] = [row for row in store.run(commands.config(queue)) if row.name == name]
    return row.value, row.source


def woken(store: Store) -> set[str]:
    """Whose wake-up calls came."""
    base = f"hf:{{{store.address.namespace}}}:wake:"
    return {key.decode().removeprefix(base) for key in store.execute("KEYS", base + "*")}


def test_a_queue_uses_its_own_setting_the_global_one_or_the_default(store: Store) -> None:
    assert found(store, "retries", "q") == (3, "default")
    configure(store, retries=5)
    assert found(store, "retries", "q") == (5, "global")
    configure(store, "q", retries=0)
    assert found(store, "retries", "q") == (0, "queue")
    assert found(store, "retries", "other") == found(store, "retries") == (5, "global")
    store.run(commands.configure("q", reset=["retries"]))
    assert found(store, "retries", "q") == (5, "global")
    store.run(commands.configure(reset=["retries"]))
    assert found(store, "retries", "q") == (3, "default")
    assert [kind for kind, _ in happened(store)] == ["configured"] * 4


@pytest.mark.parametrize(
    "command",
    [
        commands.configure(set={"retries": 1, "no_such": 1}),
        commands.configure(set={"lease": 999}),
        commands.configure(set={"history": 1, "grace": -1}),
        commands.configure("q", set={"worker_age": 3_600_000}),
        commands.configure("q", set={"retries": 1}, reset=["no_such"]),
    ],
)
def test_an_invalid_setting_changes_nothing(store: Store, command: commands.Command[None]) -> None:
    with pytest.raises(errors.Invalid):
        store.run(command)
    assert {row.source for queue in (None, "q") for row in store.run(commands.config(queue))} == {"default"}


def test_the_settings_of_a_queue_are_forgotten_with_it(store: Store) -> None:
    put(store, "a")
    store.run(commands.pause("q"))
    configure(store, "q", retries=0)
    with pytest.raises(errors.WrongState):
        store.run(commands.forget_queue("q"))
    store.run(commands.cancel(["a"]))
    store.run(commands.delete(["a"]))

    assert store.run(commands.forget_queue("q")) is True
    assert store.run(commands.forget_queue("q")) is False
    assert store.run(commands.queues()).queues == []
    assert found(store, "retries", "q") == (3, "default")
    put(store, "a")
    assert take(store) == ["a"]


def test_a_job_without_budgets_uses_the_current_ones_of_its_queue(store: Store) -> None:
    put(store, "a", "b")
    put(store, "own", retries=2, crashes=2)
    put(store, "other", queue="other")
    for _ in range(4):
        take(store, ONE, "q", "other")
    configure(store, "q", retries=0, crashes=0)

    end(store, "a", Error(b"{}", "bug"))
    end(store, "b", Crash(b"{}"))
    end(store, "own", Error(b"{}", "bug"))
    end(store, "other", Crash(b"{}"))
    assert charges(store, "a") == ("failed", 0, 0, 0, "bug")
    assert charges(store, "b") == ("failed", 0, 1, 0, "crashed")
    assert charges(store, "own")[0] == "scheduled"
    assert charges(store, "other")[0] == "waiting"


def test_a_lease_has_the_length_and_grace_of_its_queue_and_keeps_them(store: Store, clock: TestClock) -> None:
    configure(store, lease=10_000)
    configure(store, "q", lease=2000, grace=500)
    put(store, "a")
    put(store, "b", queue="other")
    claimed = store.run(commands.claim(ONE, ask("q", "other", limit=2))).jobs
    assert [(got.id, got.lease) for got in claimed] == [("a", 2000), ("b", 10_000)]
    assert [fields(store, id, "lease", "timer") for id in "ab"] == [
        (2500, clock.now + 2500),
        (10_000, clock.now + 10_000),
    ]

    configure(store, "q", lease=60_000, grace=0)
    clock.advance(0.5)
    keep(store, Lease(ONE, "a", 1), Lease(ONE, "b", 1))
    assert [job(store, id)["timer"] - clock.now for id in "ab"] == [2500, 10_000]
    clock.advance(0.5)
    store.run(commands.save(Lease(ONE, "a", 1), renew=True))
    store.run(commands.save(Lease(ONE, "b", 1)))
    assert [job(store, id)["timer"] - clock.now for id in "ab"] == [2500, 9500]


def test_a_renewal_is_as_long_as_the_lease_and_the_grace_were(store: Store, clock: TestClock) -> None:
    configure(store, grace=5000)
    put(store, "a")
    take(store)
    clock.advance(1)
    keep(store, Lease(ONE, "a", 1))

    assert job(store, "a")["timer"] == clock.now + 35_000


def test_a_lease_keeps_its_length_whatever_happens_to_it(store: Store, clock: TestClock) -> None:
    put(store, "a")
    take(store, lease=2000)
    held = Lease(ONE, "a", 1)

    store.run(commands.cancel(["a"]))
    keep(store, held)
    assert job(store, "a")["timer"] == clock.now + 2000
    clock.advance(3)
    keep(store, executor=TWO)  # the store was away: the lease is spared
    assert job(store, "a")["timer"] == clock.now + 2000
    for _ in range(2):
        clock.advance(0.5)
        keep(store, held)
        assert job(store, "a")["timer"] == clock.now + 2000
    clock.advance(-60)
    keep(store, executor=TWO)
    assert job(store, "a")["timer"] == clock.now + 2000


def test_a_requested_lease_overrides_that_of_the_queue(store: Store) -> None:
    configure(store, lease=10_000, grace=1000)
    put(store, "a")
    [got] = store.run(commands.claim(ONE, ask("q", lease=5000))).jobs

    assert (got.lease, job(store, "a")["lease"]) == (5000, 6000)


def test_the_shares_of_a_claim_come_first_then_the_rest_in_order(store: Store) -> None:
    put(store, *"abcd")
    put(store, *"xyz", queue="other")

    assert take(store, ONE, "q", "other", limit=5, shares=[1, 2]) == ["a", "x", "y", "b", "c"]
    assert take(store, TWO, "q", "other", limit=5, shares=[1, 1]) == ["d", "z"]


def test_the_share_of_a_paused_queue_is_not_that_of_the_next(store: Store) -> None:
    put(store, "a", queue="paused")
    put(store, *"bcd")
    put(store, *"xyz", queue="other")
    store.run(commands.pause("paused"))

    assert take(store, ONE, "paused", "q", "other", limit=5, shares=[3, 1, 2]) == ["b", "x", "y", "c", "d"]


def test_jobs_left_over_by_the_shares_of_a_claim_wake_an_executor(store: Store, clock: TestClock) -> None:
    for executor in (ONE, TWO):
        clock.now += 1
        assert take(store, executor, "q", "other") == []
    put(store, *"abx", queue="q")
    assert woken(store) == {TWO}

    assert take(store, THREE, "q", "other", limit=2, shares=[1, 1]) == ["a", "b"]
    assert woken(store) == {ONE, TWO}


def test_an_executor_that_exits_when_idle_is_not_woken(store: Store, clock: TestClock) -> None:
    assert take(store, ONE) == []
    clock.now += 1
    assert take(store, TWO, leaves=True) == []
    put(store, "a")

    assert woken(store) == {ONE}


@pytest.mark.parametrize(
    ("outcome", "state"),
    [(Succeed(b"1"), "succeeded"), (Error(b"{}", "g", final=True), "failed"), (None, "cancelled")],
)
def test_ended_jobs_are_kept_as_configured_for_their_queue(
    store: Store, clock: TestClock, outcome: Outcome | None, state: str
) -> None:
    configure(store, "q", **{f"keep_{state}": 60_000, f"keep_{state}_count": 2})
    for queue in ("q", "other"):
        for number in range(4):
            put(store, f"{queue}{number}", queue=queue)
            if outcome:
                take(store, ONE, queue)
                end(store, f"{queue}{number}", outcome)
            else:
                store.run(commands.cancel([f"{queue}{number}"]))
            clock.advance(2)
    take(store, ONE, "none")
    assert standing(store) == {state: ["other0", "other1", "other2", "other3", "q2", "q3"]}
    clock.advance(60)
    take(store, ONE, "none")
    assert standing(store) == {state: ["other0", "other1", "other2", "other3"]}


def test_a_job_with_zero_retention_is_deleted_when_it_ends(store: Store) -> None:
    configure(store, keep_succeeded=0)
    put(store, "a")
    take(store)

    assert end(store, "a", Succeed(b"1")) == "OK"
    assert standing(store) == {}
    assert happened(store)[-2:] in (
        [("succeeded", ["a"]), ("deleted", ["a"])],
        [("deleted", ["a"]), ("succeeded", ["a"])],
    )


def test_attempts_and_notes_are_kept_as_configured_for_the_queue(store: Store) -> None:
    put(store, "a", crashes=100)
    for _ in range(5):
        take(store)
        store.run(commands.note("a", "seen"))
        end(store, "a", Crash(b"dead"))
    configure(store, "q", history=2)
    assert [row[0] for row in job(store, "a")["attempts"]] == [4, 5]
    assert len(job(store, "a")["notes"]) == 5

    take(store)
    store.run(commands.note("a", "last"))
    store.run(commands.configure("q", reset=["history"]))
    assert [row[0] for row in job(store, "a")["attempts"]] == [5, 6]
    assert [row[2] for row in job(store, "a")["notes"]] == [b"seen", b"last"]


def test_a_worker_can_be_deregistered_when_it_is_silent_and_holds_nothing(store: Store, clock: TestClock) -> None:
    put(store, "a")
    take(store, lease=60_000)
    with pytest.raises(errors.WorkerNotFound):
        store.run(commands.deregister("node/one"))
    keep(store, queues=["q"])
    assert store.run(commands.queues()).queues[0][:3] == ("q", False, 1)
    with pytest.raises(errors.WrongState):
        store.run(commands.deregister("node/one"))
    clock.advance(31)
    assert store.run(commands.queues()).queues[0][:3] == ("q", False, 0)
    with pytest.raises(errors.WrongState):
        store.run(commands.deregister("node/one"))

    store.run(commands.cancel(["a"]))
    end(store, "a", Succeed(b"1"))
    store.run(commands.deregister("node/one"))
    assert store.run(commands.workers()).workers == []
    assert store.execute("EXISTS", f"hf:{{{store.address.namespace}}}:inbox:node/one") == 0
