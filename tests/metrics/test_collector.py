"""The collector: many scrapers cost one reading, and an unreachable store is a value."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest

from holdfast import Holdfast, StoreUnavailable
from holdfast.metrics import OPENMETRICS, Collector
from holdfast.testing import Workbench
from tests.metrics.test_text import read, run_some


def test_many_scrapers_cost_one_reading(jobs: Holdfast, bench: Workbench) -> None:
    run_some(jobs, bench)
    collector = Collector(jobs, max_age=600)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: collector.read(), range(40)))
    assert all(each is found[0] for each in found)


def test_a_reading_is_written_once_for_all_scrapers(jobs: Holdfast, bench: Workbench) -> None:
    run_some(jobs, bench)
    collector = Collector(jobs, max_age=600)
    first = collector.text()
    assert collector.text() is first
    assert asyncio.run(collector.atext()) is first
    assert collector.text(OPENMETRICS).endswith("# EOF\n")
    assert "holdfast_workers" not in asyncio.run(collector.atext(sees=lambda _: True))
    assert collector.text() is first


def test_many_scrapers_of_an_event_loop_cost_one_reading(server_url: str, namespace: str) -> None:
    async def scrape() -> None:
        app = Holdfast(server_url, namespace=namespace)
        collector = Collector(app, max_age=0)
        found = await asyncio.gather(*(collector.aread() for _ in range(40)))
        assert all(each is found[0] for each in found)
        assert await collector.aread() is not found[0]
        await app.aclose()

    asyncio.run(scrape())


def test_a_scraper_that_leaves_does_not_end_the_reading_of_others(server_url: str, namespace: str) -> None:
    async def scrape() -> None:
        app = Holdfast(server_url, namespace=namespace)
        collector = Collector(app)
        leaving, staying = (asyncio.create_task(collector.aread()) for _ in range(2))
        await asyncio.sleep(0)
        leaving.cancel()
        assert (await staying).seconds > 0
        await app.aclose()

    asyncio.run(scrape())


def test_sync_and_async_read_the_same(server_url: str, namespace: str) -> None:
    async def scrape(app: Holdfast) -> str:
        text = await Collector(app).atext()
        await app.aclose()
        return text

    app = Holdfast(server_url, namespace=namespace)
    app.pause("mail")
    ours, theirs = read(Collector(app).text()), read(asyncio.run(scrape(app)))
    app.close()
    assert ours.keys() == theirs.keys()
    assert ours["holdfast_jobs"] == theirs["holdfast_jobs"]


def test_an_unreachable_store_is_down() -> None:
    app = Holdfast("redis://127.0.0.1:1", timeout="50ms")
    with pytest.raises(StoreUnavailable):
        Collector(app).text()
    assert read(asyncio.run(Collector(app).atext())) == {"holdfast_store_up": {(): 0}}


def test_users_with_rights_on_some_queues_get_nothing_of_others(server_url: str, namespace: str) -> None:
    async def scrape(app: Holdfast) -> str:
        text = await Collector(app).atext(sees=lambda queue: queue == "mail")
        await app.aclose()
        return text

    app = Holdfast(server_url, namespace=namespace)
    app.pause("mail")
    app.pause("video")
    text = asyncio.run(scrape(app))
    app.close()
    assert 'queue="mail"' in text
    assert "video" not in text
    assert "holdfast_workers" not in text
