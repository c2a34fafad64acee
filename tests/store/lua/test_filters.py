"""Filters: what each one matches, which index finds it, and how much one call looks at."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import errors
from holdfast.constants import MAX_BATCH
from holdfast.job.outcome import Error, Outcome, Succeed
from holdfast.store import commands
from holdfast.store.store import Store
from tests.conftest import TestClock
from tests.store.lua.test_state_machine import end, put, take

ONE, TWO = "node/one.0", "node/two.1"


def found(store: Store, *, limit: int = 100, newest: bool = False, **filter: Any) -> list[str]:
    """The ids of all pages; `count` must know their number."""
    ids: list[str] = []
    total, cursor, count_cursor = 0, None, None
    while True:
        page = store.run(commands.list_jobs(limit=limit, newest=newest, cursor=cursor, **filter))
        ids += [job["id"] for job in page.jobs]
        cursor = page.cursor
        if cursor is None:
            break
    while True:
        step = store.run(commands.count_step(cursor=count_cursor, **filter))
        total, count_cursor = total + step.found, step.cursor
        if count_cursor is None:
            break
    assert total == len(ids)
    return ids


@pytest.fixture
def world(store: Store, clock: TestClock) -> Store:
    """Two that failed, one that succeeded, one that runs on each of two workers, three that wait; a second apart."""
    put(store, "f1", "f2", "s1", task="send", retries=0)
    ends: list[Outcome] = [Error(b"", "Disk"), Error(b"", "SMTP"), Succeed(b"")]
    for id, outcome in zip(take(store, ONE, limit=3), ends, strict=True):
        clock.advance(1)
        end(store, id, outcome)
    put(store, "r1", queue="b", task="render")
    take(store, ONE, "b")
    clock.advance(1)
    put(store, "r2", queue="b", task="send")
    take(store, TWO, "b")
    clock.advance(1)
    put(store, "w1", "w2", task="render")
    put(store, "x3", queue="b", task="send")
    return store


@pytest.mark.parametrize("limit", [1, 100])
@pytest.mark.parametrize(
    ("filter", "expected"),
    [
        ({}, "b:x3 r1 r2 q:w1 w2 s1 f1 f2"),
        ({"states": ["failed", "running"]}, "r1 r2 f1 f2"),
        ({"states": ["running", "running"]}, "r1 r2"),
        ({"states": []}, ""),
        ({"queues": ["b"]}, "x3 r1 r2"),
        ({"queues": ["nowhere"]}, ""),
        ({"task": "send"}, "x3 r2 s1 f1 f2"),
        ({"task": "sen"}, ""),
        ({"group": "Disk"}, "f1"),
        ({"group": "Disk", "states": ["waiting"]}, ""),
        ({"worker": "node/one"}, "r1"),
        ({"worker": "node/two", "task": "send"}, "r2"),
        ({"worker": "node/two", "task": "render"}, ""),
        ({"worker": "node/nobody"}, ""),
        ({"id_prefix": "f"}, "f1 f2"),
        ({"id_prefix": "f", "task": "render"}, ""),
        ({"since": -2000}, "x3 r1 r2 w1 w2 s1"),
        ({"since": -2000, "states": ["running", "failed"]}, "r1 r2"),
        ({"until": -2000}, "r1 s1 f1 f2"),
        ({"since": -4000, "until": -3000}, "f1 f2"),
        ({"since": -3000, "until": -2000, "group": "Disk"}, ""),
    ],
)
def test_a_filter_finds_what_matches(world: Store, filter: dict[str, Any], expected: str, limit: int) -> None:
    ids = expected.replace("b:", "").replace("q:", "").split()
    assert sorted(found(world, limit=limit, **filter)) == sorted(ids)
    assert sorted(found(world, limit=limit, newest=True, **filter)) == sorted(ids)


def test_jobs_set_aside_are_found_by_time_and_once(store: Store, clock: TestClock) -> None:
    """A time to live longer than the setting moves a job to the old end of its index."""
    start = clock.now
    put(store, *(f"a{n}" for n in range(3)), keep=40 * 86_400_000)
    for id in take(store, limit=3):
        end(store, id, Succeed(b""))
    clock.advance(8 * 86_400)
    take(store)  # prunes
    put(store, "b")
    for id in take(store):
        end(store, id, Succeed(b""))

    for newest in (False, True):
        assert sorted(found(store, until=start, limit=1, newest=newest)) == ["a0", "a1", "a2"]
        assert found(store, since=start + 1, limit=1, newest=newest) == ["b"]
        assert sorted(found(store, since=start, limit=2, newest=newest)) == ["a0", "a1", "a2", "b"]


def test_a_long_group_is_found_as_it_was_given(store: Store) -> None:
    put(store, "a", retries=0)
    take(store)
    end(store, "a", Error(b"", "x" * 100))
    assert found(store, group="x" * 100) == found(store, group="x" * 64) == ["a"]
    assert found(store, group="x" * 63) == []


def test_a_worker_is_compared_if_another_index_is_smaller(store: Store) -> None:
    put(store, "a", "b", "c")
    put(store, "d", queue="other")
    take(store, ONE, limit=3)
    take(store, TWO, "other")
    assert found(store, worker="node/one", queues=["other"]) == []
    assert found(store, worker="node/two", queues=["other"]) == ["d"]


def test_one_call_looks_at_a_bounded_number_of_jobs(store: Store) -> None:
    for first in range(0, 2000, 1000):
        put(store, *(f"j{first + n:04}" for n in range(1000)))

    full = store.run(commands.list_jobs(limit=MAX_BATCH))
    narrow = store.run(commands.list_rows(["id"], limit=MAX_BATCH))
    nothing = store.run(commands.list_jobs(limit=MAX_BATCH, task="nobody"))
    assert len(full.jobs) <= 250 < len(narrow.rows) <= 500
    assert (nothing.jobs, nothing.cursor is not None) == ([], True)
    assert 400 < nothing.looked_at <= 500
    assert found(store, limit=MAX_BATCH, task="nobody") == []
    assert len(found(store, limit=MAX_BATCH)) == 2000


def test_ten_thousand_empty_indexes_are_not_read_in_one_call(store: Store) -> None:
    for first in range(0, 1200, 600):
        store.run(commands.enqueue([new_job(first + n) for n in range(600)]))
    page = store.run(commands.list_jobs(states=["failed"]))
    assert (page.jobs, page.cursor is not None) == ([], True)
    assert found(store, states=["failed"]) == []
    assert len(found(store, states=["waiting"])) == 1200


def new_job(number: int) -> Any:
    from tests.support.new_job import NewJob

    return NewJob(id=f"j{number}", payload=b"{}", queue=f"q{number:04}", task="t")


def test_a_queue_that_is_forgotten_between_two_pages_ends_no_list(store: Store) -> None:
    put(store, "a", queue="a")
    put(store, "c", queue="c")
    page = store.run(commands.list_jobs(limit=1))
    store.run(commands.cancel(["a"]))
    store.run(commands.delete(["a"]))
    store.run(commands.forget_queue("a"))
    assert [job["id"] for job in store.run(commands.list_jobs(limit=1, cursor=page.cursor)).jobs] == ["c"]


def test_rows_have_the_fields_that_were_named(world: Store, clock: TestClock) -> None:
    rows = world.run(commands.list_rows(["state", "id", "group", "since"], group="SMTP")).rows
    assert rows == [["failed", "f2", "SMTP", clock.now - 3000]]


def test_an_unreadable_job_is_listed_by_its_index_alone(store: Store) -> None:
    put(store, "a", "b", task="send")
    record = f"hf:{{{store.address.namespace}}}:j:a"
    head = store.execute("HGET", record, "h")
    store.execute("HSET", record, "h", "x")
    assert found(store, states=["waiting"]) == ["a", "b"]
    assert found(store, task="send") == ["b"]
    assert store.run(commands.list_rows(["id", "state"])).rows == [["a", ""], ["b", "waiting"]]
    store.execute("HSET", record, "h", head)


@pytest.mark.parametrize(
    "filter",
    [
        {"states": ["waitng"]},
        {"states": "waiting"},
        {"queues": ["no spaces"]},
        {"queues": [f"q{n}" for n in range(1001)]},
        {"task": 1},
        {"group": ["x"]},
        {"worker": "nobody"},
        {"since": "yesterday"},
        {"until": 0.5},
        {"id_prefix": "x" * 129},
        {"taks": "send"},
        {"states": ["waiting"], "taks": "send"},
    ],
)
def test_a_filter_that_makes_no_sense_is_refused(store: Store, filter: dict[str, Any]) -> None:
    for command in (
        commands.list_jobs(**filter),
        commands.count_step(**filter),
        commands.start_operation("o", "cancel", **filter),
    ):
        with pytest.raises(errors.Invalid):
            store.run(command)
    assert store.run(commands.operations()) == []


@pytest.mark.parametrize(
    "cursor",
    ["", "x", "s", "s,q", "s,q,waiting,1", "s,q,waiting,nan,a", "s,q,waiting,0x1,a", "s,q,waiting,1,a,b",
     "s,q,asleep,1,a", "s,other,waiting,1,a", "w,node/one.0,0,a", "s,q,waiting, 1,a", "s,q,waiting,1,"],
)  # fmt: skip
@pytest.mark.parametrize("newest", [False, True])
def test_a_cursor_that_makes_no_sense_is_refused(store: Store, cursor: str, newest: bool) -> None:
    put(store, "a")
    with pytest.raises(errors.Invalid, match="expected the cursor of an earlier page"):
        store.run(commands.list_jobs(queues=["q"], newest=newest, cursor=cursor))


@pytest.mark.parametrize("fields", [[], ["nothing"], "id", [1]])
def test_a_field_that_is_not_there_is_refused(store: Store, fields: Any) -> None:
    with pytest.raises(errors.Invalid, match="field"):
        store.run(commands.Command("list", {"fields": fields}, lambda reply: reply))
