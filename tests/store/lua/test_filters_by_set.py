"""Filters that have a sorted set of their own: tags, scopes, groups, fingerprints and tasks of failed jobs."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import errors
from holdfast.constants import OPERATION_TTL
from holdfast.job.outcome import Error
from holdfast.store import commands
from holdfast.store.store import Store
from tests.conftest import TestClock
from tests.store.lua.test_failures import small_library
from tests.store.lua.test_filters import found
from tests.store.lua.test_state_machine import end, put, take


@pytest.fixture
def world(store: Store, clock: TestClock) -> Store:
    """Jobs of two scopes and two tags, and three that failed, a second apart; many others."""
    for number in range(4):
        put(store, f"w{3 - number}", tags=["import"], scope=f"/a/{number % 2}", queue=f"q{number}")
        clock.advance(1)
    put(store, "near", tags=["imports", "x"], scope="/ab", queue="q0")
    for number in range(3):
        put(store, f"f{number}", task="send", queue="bad", tags=["x"])
        take(store, "node/one.0", "bad")
        end(store, f"f{number}", Error(b"", "Disk" if number else "SMTP", final=True))
        clock.advance(1)
    put(store, *(f"o{number}" for number in range(300)), task="send", queue="others")
    return store


@pytest.mark.parametrize(
    ("filter", "ids"),
    [
        ({"tag": "import"}, ["w3", "w2", "w1", "w0"]),
        ({"tag": "imports"}, ["near"]),
        ({"tag": "none"}, []),
        ({"tag": "x"}, ["f0", "near", "f1", "f2"]),
        ({"tag": "x", "states": ["failed"], "queues": ["bad", "q0"]}, ["f0", "f1", "f2"]),
        ({"scope": "/a"}, ["w3", "w2", "w1", "w0"]),
        ({"scope": "/a/1"}, ["w2", "w0"]),
        ({"scope": "/ab"}, ["near"]),
        ({"scope": "/a", "id_prefix": "w1"}, ["w1"]),
        ({"scope": "/a/1", "tag": "x"}, []),
        ({"group": "Disk"}, ["f1", "f2"]),
        ({"group": "Disk", "since": -2000}, ["f1", "f2"]),
        ({"group": "Disk", "since": -1000}, ["f2"]),
        ({"group": "Disk", "until": -2000}, ["f1"]),
        ({"group": "Disk", "states": ["waiting"]}, []),
        ({"group": "Disk", "tag": "import"}, []),
        ({"task": "send", "states": ["failed"]}, ["f0", "f1", "f2"]),
        ({"task": "send", "states": ["failed"], "until": -3000}, ["f0"]),
    ],
    ids=str,
)
@pytest.mark.parametrize("newest", [False, True])
@pytest.mark.parametrize("limit", [1, 3, 1000])
def test_jobs_come_in_the_order_of_the_set_page_by_page(
    world: Store, filter: dict[str, Any], ids: list[str], *, newest: bool, limit: int
) -> None:
    assert found(world, limit=limit, newest=newest, **filter) == (ids[::-1] if newest else ids)


def test_the_number_of_a_set_is_exact_without_looking_at_jobs(world: Store) -> None:
    fingerprint = world.run(commands.failures("fingerprint", limit=2)).groups[0].name
    for filter, number in (
        ({"tag": "import"}, 4), ({"scope": "/a"}, 4), ({"group": "Disk"}, 2), ({"group": "Disk", "since": -1000}, 1),
        ({"fingerprint": fingerprint}, 2), ({"task": "send", "states": ["failed"]}, 3),
        ({"group": "Disk", "states": ["failed", "waiting"]}, 2),
    ):  # fmt: skip
        step = world.run(commands.count_step(**filter))
        assert (step.found, step.looked_at, step.cursor) == (number, 0, None), filter
    assert world.run(commands.count_step(tag="x", states=["failed"])).looked_at > 0


def test_only_the_smallest_index_is_looked_at(world: Store) -> None:
    assert world.run(commands.list_jobs(tag="import", states=["waiting"])).looked_at == 4
    assert world.run(commands.list_jobs(group="Disk", states=["failed"])).looked_at == 2
    assert world.run(commands.list_jobs(tag="import", scope="/a/1")).looked_at == 2
    assert world.run(commands.list_jobs(tag="x", queues=["q0"], states=["waiting"])).looked_at == 2


@pytest.mark.parametrize("newest", [False, True])
def test_a_page_goes_on_although_its_last_job_is_gone(store: Store, *, newest: bool) -> None:
    put(store, *(f"j{number:02}" for number in range(20)), tags=["t"])
    seen: list[str] = []
    cursor = None
    while True:
        page = store.run(commands.list_jobs(tag="t", limit=3, newest=newest, cursor=cursor))
        seen += [job["id"] for job in page.jobs]
        if (cursor := page.cursor) is None:
            break
        store.run(commands.untag([seen[-1]], ["t"]))
        put(store, f"new{len(seen)}", tags=["t"])
    assert len(seen) == len(set(seen))
    assert {f"j{number:02}" for number in range(20)} <= set(seen)


def test_a_cursor_of_another_filter_is_refused(world: Store) -> None:
    cursor = world.run(commands.list_jobs(tag="import", limit=1)).cursor
    given: list[dict[str, Any]] = [{"scope": "/a"}, {"group": "Disk"}, {}]
    for filter in given:
        with pytest.raises(errors.Invalid, match="cursor of an earlier page"):
            world.run(commands.list_jobs(limit=1, cursor=cursor, **filter))
    for bad in ("m", "m,1", "m,x,y", "m,1,", "m,1,2,3", "z,1,a"):
        for newest in (False, True):
            with pytest.raises(errors.Invalid, match="cursor of an earlier page"):
                world.run(commands.list_jobs(tag="import", cursor=bad, newest=newest))


def test_jobs_listed_under_other_are_found_by_their_own_names(store: Store) -> None:
    with small_library():
        for number in range(4):
            put(store, f"f{number}", task=f"t{number}")
            take(store)
            end(store, f"f{number}", Error(b"", f"g{number}", final=True))
        for number in range(4):
            assert found(store, group=f"g{number}") == [f"f{number}"]
            assert found(store, task=f"t{number}", states=["failed"], newest=True) == [f"f{number}"]


def test_an_operation_on_a_group_meets_each_job_once_though_it_fails_again(store: Store, clock: TestClock) -> None:
    put(store, *(f"j{number}" for number in range(200)), retries=0)
    for id in take(store, limit=200):
        end(store, id, Error(b"", "SMTP"))
    clock.advance(1)
    operation = store.run(commands.start_operation("o", "retry", group="SMTP"))
    assert operation.total == 200
    while operation.state == "running":
        operation = store.run(commands.continue_operation("o", operation.steps, limit=20))
        clock.advance(1)
        for id in take(store, limit=20):
            end(store, id, Error(b"", "SMTP"))
    assert operation.answers == {"waiting": 200}


@pytest.mark.parametrize(("action", "arguments"), [("tag", {"tags": ["b"]}), ("untag", {"tags": ["a"]}), ("track", {})])
def test_marks_of_all_matching_jobs_are_changed(store: Store, action: str, arguments: dict[str, Any]) -> None:
    put(store, *(f"j{number}" for number in range(30)), tags=["a"])
    operation = store.run(commands.start_operation("o", action, arguments=arguments, tag="a"))
    while operation.state == "running":
        operation = store.run(commands.continue_operation("o", operation.steps, limit=7))
    assert operation.answers == {"OK": 30}
    counts = {"tag": [30, 30], "untag": [0, 0], "track": [30, 0]}
    assert store.run(commands.tag_counts(["a", "b"])) == counts[action]


def test_operations_that_do_not_run_are_forgotten_after_thirty_days(store: Store, clock: TestClock) -> None:
    for id in ("done", "stopped", "running"):
        store.run(commands.start_operation(id, "cancel", queues=["q"]))
    store.run(commands.continue_operation("done", 0))
    store.run(commands.stop_operation("stopped"))
    put(store, *(f"j{number}" for number in range(500)))
    clock.advance(OPERATION_TTL / 1000 - 1)
    assert len(store.run(commands.operations())) == 3
    clock.advance(1)
    store.run(commands.upkeep())
    assert [each.id for each in store.run(commands.operations())] == ["running"]


def test_no_more_than_a_hundred_operations_run_after_a_resume(store: Store) -> None:
    store.run(commands.start_operation("first", "cancel", queues=["q"]))
    store.run(commands.stop_operation("first"))
    for number in range(100):
        store.run(commands.start_operation(f"o{number}", "cancel", queues=["q"]))
    with pytest.raises(errors.WrongState, match="100 operations are running"):
        store.run(commands.resume_operation("first"))
    store.run(commands.stop_operation("o1"))
    assert store.run(commands.resume_operation("first")).state == "running"


def test_who_waits_for_a_job_is_found_by_its_dependents(store: Store) -> None:
    put(store, "a", "b", *(f"o{number}" for number in range(50)))
    for id in ("one", "two", "three"):
        put(store, id, after=("a", "b"), queue="later")
    put(store, "only-b", after=("b",))
    put(store, "any", after=("a",), on_failed="run")
    found = store.run(commands.list_jobs(waits_for="a"))
    assert [job["id"] for job in found.jobs] == ["one", "two", "three", "any"]
    assert found.looked_at == 4
    assert store.run(commands.count(waits_for="b")) == 4
    assert store.run(commands.count(waits_for="a", queues=["later"])) == 3
    store.run(commands.cancel(["two"]))
    store.run(commands.fail(["a"]))  # `any` runs anyway; the others wait until `a` succeeds
    assert [job["id"] for job in store.run(commands.list_jobs(waits_for="a")).jobs] == ["one", "three"]
    assert store.run(commands.count(waits_for="nobody")) == 0
    with pytest.raises(errors.Invalid):
        store.run(commands.count(waits_for="a b"))
