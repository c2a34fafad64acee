"""Listing the newest jobs first, over all queues: a real server, the test's clock."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
import redis

from holdfast import Holdfast
from holdfast.errors import Invalid
from holdfast.job.outcome import Succeed
from holdfast.store import commands
from holdfast.store.commands import Command
from holdfast.store.store import Store
from tests.conftest import TestClock
from tests.store.lua.test_state_machine import ONE, end, new, put, take

QUEUES = ("a", "b", "c")


def pages(store: Store, *, limit: int, between: Callable[[], object] = lambda: None, **which: Any) -> list[str]:
    """List page by page; a page has no more jobs than were asked for."""
    ids: list[str] = []
    cursor: str | None = None
    while True:
        page = store.run(commands.list_jobs(newest=True, limit=limit, cursor=cursor, **which))
        assert len(page.jobs) <= limit
        ids += [job["id"] for job in page.jobs]
        cursor = page.cursor
        if cursor is None:
            return ids
        between()


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 1000])
def test_jobs_of_several_queues_are_listed_newest_first(store: Store, clock: TestClock, limit: int) -> None:
    """They came queue by queue: all of `a`, then all of `b`."""
    for number in range(12):
        put(store, f"job{number:02}", queue=QUEUES[number % 3])
        clock.advance(1)

    assert pages(store, limit=limit) == [f"job{number:02}" for number in reversed(range(12))]
    assert pages(store, limit=limit, queues=["c", "a"])[:3] == ["job11", "job09", "job08"]


@pytest.mark.parametrize("limit", [1, 4, 100])
def test_ended_jobs_of_several_queues_are_listed_by_the_time_of_their_end(
    store: Store, clock: TestClock, limit: int
) -> None:
    for number in range(9):
        put(store, f"job{number}", queue=QUEUES[number % 3])
    order = [4, 0, 8, 2, 1, 7, 3, 6, 5]
    take(store, ONE, *QUEUES, limit=9)
    for number in order:
        clock.advance(1)
        end(store, f"job{number}", Succeed(b"1"))

    assert pages(store, limit=limit, states=["succeeded"]) == [f"job{number}" for number in reversed(order)]


@pytest.mark.parametrize("limit", [1, 2, 5, 100])
def test_of_several_states_the_job_that_changed_last_comes_first(store: Store, clock: TestClock, limit: int) -> None:
    def later(*ids: str) -> None:
        clock.advance(1)
        changed.extend(ids)

    changed: list[str] = []
    for number in range(8):
        put(store, f"job{number}", queue=QUEUES[number % 2])
    for number in (6, 2):
        later(f"job{number}")
        store.run(commands.cancel([f"job{number}"]))
    clock.advance(1)
    later(*take(store, ONE, "b"))
    end(store, changed[-1], Succeed(b"1"))
    clock.advance(1)
    later(*take(store, ONE, "a"))
    clock.advance(1)
    put(store, "last", queue="c")
    later("last")

    expected = [*reversed(changed), *(f"job{number}" for number in range(7, -1, -1) if f"job{number}" not in changed)]
    assert pages(store, limit=limit) == expected


@pytest.mark.parametrize("limit", [1, 3, 50])
def test_jobs_of_one_moment_are_neither_skipped_nor_shown_twice(store: Store, limit: int) -> None:
    ids = [f"{number:02}" for number in range(30)]
    for place, id in enumerate(ids):
        put(store, id, queue=QUEUES[place * 7 % 3])
    store.run(commands.cancel(ids))

    assert pages(store, limit=limit, states=["cancelled"]) == ids[::-1]


def test_jobs_that_come_and_go_between_pages_of_several_queues_change_nothing_behind_them(
    store: Store, clock: TestClock
) -> None:
    for number in range(30):
        put(store, f"job{number:02}", queue=QUEUES[number % 3])
        store.run(commands.cancel([f"job{number:02}"]))
        clock.advance(1)
    gone = iter(range(29, 0, -4))

    def between() -> None:
        number = next(gone, 0)
        if number:
            store.run(commands.delete([f"job{number:02}"]))
        put(store, f"more{number}", queue="more")
        store.run(commands.cancel([f"more{number}"]))

    found = pages(store, limit=4, states=["cancelled"], between=between)
    assert found == [f"job{number:02}" for number in reversed(range(30))]


def test_a_page_of_a_thousand_queues_has_the_newest_of_all(store: Store, clock: TestClock) -> None:
    for part in range(2):
        for number in range(1000):
            put(store, f"{part}-{number:03}", queue=f"queue{number * 7 % 1000:03}")
        clock.advance(1)

    expected = [f"{part}-{number:03}" for part in (1, 0) for number in reversed(range(1000))]
    assert pages(store, limit=10, queues=[f"queue{number:03}" for number in range(5)]) == [
        id for id in expected if int(id[2:]) * 7 % 1000 < 5
    ]
    assert pages(store, limit=700) == expected


@pytest.mark.parametrize("limit", [1, 2, 100])
def test_jobs_that_cannot_be_read_are_listed_and_stop_no_page(
    store: Store, server_url: str, namespace: str, clock: TestClock, limit: int
) -> None:
    ids = [f"job{number}" for number in range(6)]
    for place, id in enumerate(ids):
        put(store, id, queue=QUEUES[place % 3])
        if place % 2:
            store.run(commands.cancel([id]))
        clock.advance(1)
    with redis.Redis.from_url(server_url) as client:
        client.delete(f"hf:{{{namespace}}}:j:job2")
        client.hset(f"hf:{{{namespace}}}:j:job3", "h", b"?")

    assert sorted(pages(store, limit=limit)) == ids
    assert pages(store, limit=limit, states=["waiting"]) == ["job4", "job2", "job0"]


@pytest.mark.parametrize("cursor", [["waiting"], ["waiting", "x", "id"], ["waiting", "1", 5], ["waiting", "1"]])
def test_a_foreign_cursor_is_refused(store: Store, cursor: list[Any]) -> None:
    put(store, "mine")
    with pytest.raises(Invalid, match="cursor of an earlier page"):
        store.run(Command("list", {"newest": True, "cursor": cursor}, list))


def test_both_faces_of_the_client_list_the_newest_first(server_url: str, namespace: str) -> None:
    app = Holdfast(server_url, namespace=namespace)
    ids = [f"job{number:04}" for number in range(2100)]  # more than two pages
    for part in (ids[:1000], ids[1000:2000], ids[2000:]):
        app.store.run(commands.enqueue([new(id, queue=QUEUES[int(id[3:]) % 3]) for id in part]))

    async def last(**which: Any) -> list[str]:
        try:
            return [job.id async for job in app.alist(newest=True, **which)]
        finally:
            await app.aclose()

    assert [job.id for job in app.list(newest=True)] == asyncio.run(last()) == ids[::-1]
    assert [job.id for job in app.list(newest=True, limit=5)] == ids[:-6:-1]
    assert asyncio.run(last(state="pending", limit=5)) == ids[:-6:-1]
