"""How often pages and resources call the store: a bounded number of times, however much there is in it.

Times are measured by `python -m bench.web`, and not promised here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, NamedTuple

import httpx
import pytest
from bench.server import Server, between, serving
from bench.web.requests import PAGES, RESOURCES, Request, check_routes
from bench.web.store import Size, fill

from holdfast import Holdfast
from holdfast.web import app as make_application

FEW = Size(jobs=1500, workers=5, queues=6, limits=5, batches=10, schedules=10, subscriptions=5, tracked=50)
MANY = Size(jobs=5000, workers=150, queues=60, limits=60, batches=120, schedules=120, subscriptions=60, tracked=200)
MOST = 50  # calls of a page, or of a resource
GROWTH = 12  # more calls for many workers, queues and so on, of which a call reads a hundred, or twenty series
# Those that take more calls, for a reason.
MORE = {
    "/": 100,  # it shows a part of most other pages
    "/jobs": 90,  # the tasks of up to 50 queues, once in ten seconds
    "/find": 90,
    "/api/v1/stats/tasks": 60,
    "/jobs/{id}/graph": 310,  # a call for each job
    "/api/v1/jobs/{id}/graph": 310,
    "/api/v1/jobs:count": 1000,  # of a filter without an index, all jobs are looked at
    "/api/v1/memory": 5000,  # for as long as the request says
    "/metrics": 500,  # for each queue, of up to a hundred
    "/api/v1/plan": 500,
}


class Cost(NamedTuple):
    """What a request took."""

    status: int
    calls: int


class Store(NamedTuple):
    """A server with a filled store."""

    server: Server
    app: Holdfast

    def cost(self, request: Request) -> Cost:
        """Make a request to a new application, which remembers nothing."""
        accept = "text/html" if request.is_page else "application/json"
        url, before = request.url(self.app), self.server.look()
        status = asyncio.run(_get(self.app, url, accept))
        calls = between(before, self.server.look()).calls
        return Cost(status, sum(number for name, (number, _) in calls.items() if name.startswith("fcall")))


async def _get(app: Holdfast, url: str, accept: str) -> int:
    transport = httpx.ASGITransport(app=make_application(app, auth="open"))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        found: int = (await client.get(url, headers={"Accept": accept})).status_code
    await app.aclose()
    return found


def _filled(size: Size) -> Iterator[Any]:
    with serving() as server:
        app = Holdfast(server.url)
        fill(app, size)
        yield Store(server, app)
        app.close()


few = pytest.fixture(scope="module", name="few")(lambda: (yield from _filled(FEW)))
many = pytest.fixture(scope="module", name="many")(lambda: (yield from _filled(MANY)))


def test_every_route_that_reads_is_measured() -> None:
    check_routes()


@pytest.mark.parametrize("request_", PAGES + RESOURCES, ids=lambda request: request.title)
def test_calls_do_not_grow_with_what_is_stored(few: Store, many: Store, request_: Request) -> None:
    less, more = few.cost(request_), many.cost(request_)
    assert less.status == more.status == (404 if request_.path.endswith("/server") else 200)
    assert more.calls <= MORE.get(request_.path, MOST)
    if request_.path not in MORE:
        assert more.calls <= less.calls + GROWTH


def test_slices_of_an_export_are_not_counted(few: Store) -> None:
    few.server.client.config_set("slowlog-max-len", 100_000)
    few.server.client.config_set("slowlog-log-slower-than", 0)
    for accept, counts in (("application/x-ndjson", False), ("application/json", True)):
        few.server.client.slowlog_reset()
        assert asyncio.run(_get(few.app, "/api/v1/jobs", accept)) == 200
        commands = [each["command"].split() for each in few.server.client.slowlog_get(100_000)]
        calls = [words[1] for words in commands if words[0].startswith(b"FCALL")]
        assert any(each.endswith(b"_list") for each in calls)
        assert any(each.endswith(b"_count") for each in calls) == counts
    few.server.client.config_set("slowlog-log-slower-than", 10_000)
