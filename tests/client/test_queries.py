"""Queries of the client: lists, rows, pages, export, peek and count take the same filters, in constant memory."""

from __future__ import annotations

import asyncio
import re
import tracemalloc
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from holdfast import Holdfast, errors
from holdfast.client.filters import FILTERS, NAMES, JobFilter
from holdfast.client.queries import ROW_FIELDS
from holdfast.store import commands
from tests.support.new_job import NewJob

LUA = (Path(commands.__file__).parents[1] / "lua" / "filters.lua").read_text()
DOCUMENT = (Path(__file__).parents[2] / "docs" / "queries.md").read_text()


@pytest.fixture
def jobs(server_url: str, namespace: str) -> Iterator[Holdfast]:
    app = Holdfast(server_url, namespace=namespace)
    yield app
    app.close()


def put(jobs: Holdfast, *ids: str, queue: str = "q", task: str = "send", **options: Any) -> None:
    for first in range(0, len(ids), 1000):
        part = [
            NewJob(id=id, payload=b'{"x":1}', queue=queue, task=task, **options) for id in ids[first : first + 1000]
        ]
        jobs.store.run(commands.enqueue(part))


def test_all_methods_take_the_same_filters(jobs: Holdfast) -> None:
    put(jobs, "a1", "a2", "b1")
    put(jobs, "a3", queue="r", task="render")
    jobs.cancel("a2")

    filters: list[tuple[JobFilter, list[str]]] = [
        ({}, ["a1", "a2", "a3", "b1"]),
        ({"queue": ["q", "r"], "state": "pending"}, ["a1", "a3", "b1"]),
        ({"id_prefix": "a", "task": "send"}, ["a1", "a2"]),
        ({"state": ("cancelled",), "since": "1h"}, ["a2"]),
        ({"until": datetime.now(UTC) - timedelta(hours=1)}, []),
        ({"group": "nothing"}, []),
        ({"worker": "node/nobody"}, []),
    ]
    for filter, ids in filters:
        assert sorted(job.id for job in jobs.list(**filter)) == ids
        assert sorted(job.id for job in jobs.list(newest=True, **filter)) == ids
        assert sorted(row["id"] for row in jobs.rows("id", **filter)) == ids
        assert sorted(job.id for job in jobs.export(**filter)) == ids
        assert sorted(job.id for job in jobs.page(**filter).rows) == ids
        assert jobs.count(**filter) == len(ids)


def test_rows_have_the_values_of_jobs(jobs: Holdfast) -> None:
    put(jobs, "a", priority=3)
    (row,) = jobs.rows(*ROW_FIELDS)
    job = jobs.get("a")
    assert row == {name: getattr(job, name) for name in ROW_FIELDS}


def test_a_page_has_as_many_rows_as_were_asked_for(jobs: Holdfast) -> None:
    ids = [f"j{n:04}" for n in range(1500)]
    put(jobs, *ids)

    options: list[dict[str, Any]] = [{}, {"fields": ("id",)}]
    for more in options:
        found: list[str] = []
        cursor, sizes = None, []
        while True:
            page = jobs.page(cursor, limit=600, **more)
            found += [row["id"] if more else row.id for row in page.rows]
            sizes.append(len(page.rows))
            cursor = page.cursor
            if cursor is None:
                break
            assert isinstance(cursor, str)
        assert (found, sizes) == (ids, [600, 600, 300])


def test_an_export_has_everything(jobs: Holdfast) -> None:
    put(jobs, *(f"j{n:03}" for n in range(120)))
    jobs.note("j007", "seen")
    found = {job.id: job for job in jobs.export(queue="q")}
    assert len(found) == 120
    assert (found["j007"].payload, found["j007"].notes[0].text) == (b'{"x":1}', "seen")
    assert len(list(jobs.export(queue="q", limit=7))) == 7
    assert jobs.page(limit=1, whole=True).rows[0].payload == b'{"x":1}'


def test_a_page_has_the_number_of_matches_if_an_index_has_it(jobs: Holdfast) -> None:
    put(jobs, *(f"j-{n}" for n in range(5)), tags=("new",))
    jobs.cancel("j-0")
    found = jobs.page(limit=2, count=True, state="waiting", queue="q")
    assert (len(found.rows), found.looked_at, found.matched) == (2, 2, 4)
    assert jobs.page(limit=2, count=True, tag="new").matched == 5
    assert jobs.page(limit=2, count=True, state="cancelled", since="1h").matched == 1
    assert jobs.page(limit=2, count=True, task="send").matched is None
    assert jobs.page(limit=2, count=True, id_prefix="j").matched is None
    assert jobs.page(limit=2, tag="new").matched is None


def test_peek_shows_the_next_jobs_in_the_order_of_claims(jobs: Holdfast) -> None:
    put(jobs, "later", priority=1)
    put(jobs, "first", "second")
    put(jobs, "elsewhere", queue="r", priority=-1)
    assert [job.id for job in jobs.peek("q")] == ["first"]
    assert [job.id for job in jobs.peek("q", limit=5)] == ["first", "second", "later"]
    assert jobs.count(state="waiting") == 4


def test_the_async_methods_do_the_same(jobs: Holdfast) -> None:
    put(jobs, "a", "b")

    async def ask() -> list[Any]:
        found = [
            [job.id async for job in jobs.alist(task="send")],
            [row["id"] async for row in jobs.arows("id")],
            [job.id async for job in jobs.aexport()],
            [job.id for job in (await jobs.apage(limit=1)).rows],
            [job.id for job in await jobs.apeek("q")],
            await jobs.acount(id_prefix="b"),
        ]
        await jobs.aclose()
        return found

    assert asyncio.run(ask()) == [["a", "b"], ["a", "b"], ["a", "b"], ["a"], ["a"], 1]


@pytest.mark.parametrize(
    ("filter", "message"),
    [
        ({"taks": "send"}, "has no filter 'taks'; did you mean task?"),
        ({"state": "waitng"}, "unknown state 'waitng'; did you mean waiting?"),
        ({"queue": "no spaces"}, "queue"),
        ({"queue": 7}, "expected a name"),
        ({"worker": "nobody"}, "expected a worker as <node>/<name>"),
        ({"since": "soon"}, "since is 'soon'"),
        ({"since": datetime(2026, 1, 1)}, "has no time zone"),
        ({"id_prefix": "x" * 200}, "ids have up to 128"),
        ({"group": 5}, "group"),
    ],
)
def test_a_filter_that_makes_no_sense_is_refused_and_says_why(
    jobs: Holdfast, filter: dict[str, Any], message: str
) -> None:
    for call in (jobs.count, jobs.page, jobs.cancel_all, lambda **given: list(jobs.list(**given))):
        with pytest.raises(errors.Invalid, match=re.escape(message)):
            call(**filter)


def test_fields_and_limits_of_a_page_are_checked(jobs: Holdfast) -> None:
    with pytest.raises(errors.Invalid, match="unknown field 'stat'; did you mean state"):
        list(jobs.rows("stat"))
    with pytest.raises(errors.Invalid, match="expected one or more fields"):
        list(jobs.rows())
    with pytest.raises(errors.Invalid, match="fields and whole"):
        jobs.page(fields=["id"], whole=True)
    with pytest.raises(errors.Invalid, match="limit must be at least 1"):
        jobs.page(limit=0)


def test_filters_are_the_same_in_python_in_the_store_and_in_the_document() -> None:
    assert set(NAMES) == set(JobFilter.__annotations__)
    assert {each.stored for each in FILTERS} == set(re.findall(r"\bname = '(\w+)'", LUA))
    rows = re.findall(
        r"^\| `(\w+)` \| (.+) \| (.*) \|$", DOCUMENT.partition("## Filters")[2].partition("\n## ")[0], re.M
    )
    assert [(name, by) for name, _, by in rows] == [(each.name, each.indexed_by or "each job") for each in FILTERS]


def test_memory_does_not_grow_with_the_number_of_jobs(jobs: Holdfast) -> None:
    """6,000 jobs take as much as 600; `bench/operations.py` does the same with 1,000,000."""

    def peak() -> int:
        tracemalloc.start()
        seen = sum(1 for _ in jobs.list(queue="q")) + sum(1 for _ in jobs.rows("id", "task", queue="q"))
        jobs.move_all(queue="q", priority=5, id_prefix="j")
        assert seen == 2 * jobs.count(queue="q")
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return most

    put(jobs, *(f"j{n}" for n in range(600)))
    peak()
    before = peak()
    put(jobs, *(f"j{n}" for n in range(600, 6000)))
    assert peak() < 2 * before
