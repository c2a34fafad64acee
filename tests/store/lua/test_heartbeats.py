"""The last heartbeat of jobs, and stalled jobs: those whose lease has ended, and that no call has requeued."""

from __future__ import annotations

import pytest

from holdfast import errors
from holdfast.job.outcome import Succeed
from holdfast.store import commands
from holdfast.store.commands import HeldJob, Lease
from holdfast.store.store import Store
from holdfast.units import utc
from tests.conftest import TestClock
from tests.store.lua.test_state_machine import LEASE, ONE, TWO, end, job, keep, put, standing, take


def heartbeat(store: Store, id: str = "job") -> int:
    return int(job(store, id)["heartbeat"])


def held(store: Store) -> list[HeldJob]:
    return [each for worker in store.run(commands.workers()).workers for each in worker.held]


def stalled(store: Store, **more: object) -> list[str]:
    return [each["id"] for each in store.run(commands.list_jobs(stalled=True, **more)).jobs]  # type: ignore[arg-type]


@pytest.mark.parametrize("lease", [None, 5_000, 60_000])
def test_the_last_heartbeat_is_the_claim_then_each_renewal(store: Store, clock: TestClock, lease: int | None) -> None:
    put(store, "job")
    take(store, lease=lease)
    claimed = clock.now
    keep(store)  # a heartbeat of a worker that does not name the job
    assert heartbeat(store) == claimed

    clock.advance(2)
    assert heartbeat(store) == claimed
    keep(store, Lease(ONE, "job", 1))
    assert heartbeat(store) == clock.now == claimed + 2000
    clock.advance(1)
    store.run(commands.save(Lease(ONE, "job", 1), b"1", renew=True))
    assert heartbeat(store) == clock.now
    assert [each.heartbeat_at for each in held(store)] == [utc(clock.now)]


def test_a_job_that_does_not_run_has_no_heartbeat(store: Store) -> None:
    put(store, "job")
    assert "heartbeat" not in job(store, "job")
    take(store)
    end(store, "job", Succeed(b"1"))
    assert "heartbeat" not in job(store, "job")


def test_a_detached_job_has_the_heartbeat_of_its_transfer(store: Store, clock: TestClock) -> None:
    put(store, "job")
    take(store)
    clock.advance(5)
    store.run(commands.detach(Lease(ONE, "job", 1), "detached/x.0"))
    assert heartbeat(store) == clock.now


def test_a_spared_lease_has_no_known_heartbeat_until_it_is_renewed(store: Store, clock: TestClock) -> None:
    put(store, "job")
    take(store)
    clock.advance(3 * LEASE)  # the store was away
    keep(store, executor=TWO)
    assert heartbeat(store) == 0
    assert not job(store, "job")["stalled"]

    keep(store, Lease(ONE, "job", 1))
    assert heartbeat(store) == clock.now


def test_a_job_has_stalled_from_the_end_of_its_lease_until_a_call_requeues_it(store: Store, clock: TestClock) -> None:
    put(store, "job", "other")
    take(store)
    keep(store)
    clock.advance(10)
    take(store, TWO)
    clock.advance(LEASE - 10.001)
    assert stalled(store) == []

    clock.advance(0.001)
    assert stalled(store) == ["job"]
    assert [job(store, id)["stalled"] for id in ("job", "other")] == [1, 0]
    assert [(each.id, each.stalled) for each in held(store)] == [("job", True)]
    clock.advance(10)
    assert sorted(stalled(store)) == ["job", "other"]
    assert stalled(store, worker="node/two") == ["other"]
    assert stalled(store, queues=["nowhere"]) == []


def test_stalled_jobs_are_counted_and_walked_beside_other_timers_that_are_due(store: Store, clock: TestClock) -> None:
    ids = [f"j{number:03}" for number in range(250)]
    put(store, *ids)
    take(store, limit=250)
    put(store, *[f"late{number:03}" for number in range(300)], delay=1000)
    put(store, *[f"dead{number:03}" for number in range(100)], deadline=1000)
    clock.advance(LEASE)

    found: list[list[str | int]] = []
    cursor, calls = None, 0
    while True:
        page = store.run(commands.list_rows(["id", "worker"], limit=100, stalled=True, cursor=cursor))
        found, cursor, calls = found + page.rows, page.cursor, calls + 1
        if cursor is None:
            break
    assert found == [[id, "node/one"] for id in ids]
    assert calls >= 3
    assert store.run(commands.count_step(stalled=False, states=["running"])).found == 0


def test_only_stalled_jobs_are_released(store: Store, clock: TestClock) -> None:
    put(store, "job", "other")
    take(store)
    clock.advance(20)
    take(store, TWO)
    clock.advance(10)
    operation = store.run(commands.start_operation("op1", "release", arguments={"delay": 5000}, stalled=True))
    while operation.state == "running":
        operation = store.run(commands.continue_operation(operation.id, operation.steps))

    assert standing(store) == {"scheduled": ["job"], "running": ["other"]}


def test_what_is_not_true_or_false_is_refused(store: Store) -> None:
    with pytest.raises(errors.Invalid, match="`stalled` must be true or false"):
        store.run(commands.list_jobs(stalled=1))


def test_some_workers_are_listed_in_the_order_of_their_names(store: Store) -> None:
    names = [f"node/w{number:03}" for number in range(150)]
    for name in names:
        keep(store, executor=f"{name}.0")
    wanted, cursor, found = [*reversed(names), "node/none"], None, list[str]()
    while cursor != "":
        page = store.run(commands.workers(names=wanted, cursor=cursor))
        cursor = page.cursor
        found += [each.name for each in page.workers]
    assert found == wanted[:-1]
    with pytest.raises(errors.Invalid):
        store.run(commands.workers(names=["no-node"]))


def test_a_named_worker_with_many_jobs_is_on_several_pages(store: Store) -> None:
    for number in range(700):
        put(store, f"job-{number}")
    keep(store)
    take(store, limit=700)
    cursor, found = None, list[str]()
    while cursor != "":
        page = store.run(commands.workers(names=["node/none", ONE.rpartition(".")[0]], cursor=cursor))
        cursor = page.cursor
        found += [job.id for worker in page.workers for job in worker.held]
    assert sorted(found) == sorted(f"job-{number}" for number in range(700))


def test_a_brief_list_of_workers_has_the_number_of_their_jobs(store: Store) -> None:
    for number in range(3):
        put(store, f"job-{number}")
    keep(store)
    keep(store, executor=TWO)
    take(store, limit=2)
    take(store, executor=TWO)
    keep(store, executor="other/idle.0", about='{"revision": 7, "tasks": ["send"], "pools": 1}')
    keep(store, executor="other/odd.0", about="[1]")
    found = {each.name: each for each in store.run(commands.brief_workers()).workers}
    holds = {name: (each.holds, each.is_idle) for name, each in found.items()}
    workers = {each.name: each for each in store.run(commands.workers()).workers}
    assert holds == {name: (len(each.held), each.is_idle) for name, each in workers.items()}
    assert sum(count for count, _ in holds.values()) == 3
    assert (found["other/idle"].about, found["other/odd"].about) == ({"revision": 7, "pools": 1}, {})
