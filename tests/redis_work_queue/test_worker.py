"""A worker serves a shared queue: it runs items as jobs, in as many as it has slots, and completes them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
import redis

from holdfast import Holdfast, Invalid
from holdfast.constants import MAX_PAYLOAD
from holdfast.redis_work_queue.shared_items import SharedItems
from tests.redis_work_queue.test_shared_items import is_of_ended
from tests.support.workers import Crew, Worker, until

APP = "tests.apps.shared_app"


class Shop:
    """A crew with a shared queue."""

    def __init__(self, crew: Crew, client: redis.Redis) -> None:
        self.crew = crew
        self.prefix = crew.namespace
        self.db: Any = client
        self.items: SharedItems = crew.app.items("thumbs", protocol="redis-work-queue", prefix=self.prefix)

    def start(self, *options: str, queues: str = "thumbs", **env: str) -> Worker:
        return self.crew.start("--queues", queues, *options, app=APP, PREFIX=self.prefix, **env)

    @property
    def is_empty(self) -> bool:
        keys = [key for key in self.db.scan_iter(count=1000) if key.startswith(self.prefix.encode() + b":")]
        return all(is_of_ended(self.db, key) for key in keys)

    def runs(self, data: str) -> int:
        return len(self.crew.said("completing", data))

    def states(self) -> list[str]:
        return sorted(job.state for job in self.crew.app.list(queue="thumbs"))


@pytest.fixture
def shop(crew: Crew) -> Iterator[Shop]:
    with redis.Redis.from_url(crew.url) as client:
        yield Shop(crew, client)


def test_a_worker_runs_each_item_and_completes_it_however_its_job_ends(shop: Shop) -> None:
    shop.items.put_many([("a", b"1"), ("b", b"bad"), ("c", b"22")])
    worker = shop.start("--processes", "2")
    until(lambda: shop.is_empty, what="all items to be completed")
    assert shop.states() == ["failed", "succeeded", "succeeded"]
    assert shop.runs("bad") == 2
    (failed,) = shop.crew.app.list(queue="thumbs", state="failed")
    assert failed.refresh().payload == b"bad"
    shop.crew.app.retry(failed.id)
    until(lambda: shop.runs("bad") == 4, what="the failed job to be retried without its item")
    shop.items.put(b"333", id="a")
    until(lambda: shop.runs("333") == 1 and shop.is_empty, what="another item with the same id")
    done = [job.refresh() for job in shop.crew.app.list(queue="thumbs", state="succeeded")]
    assert {job.payload: job.result() for job in done} == {b"1": 1, b"22": 2, b"333": 3}
    assert worker.stop() == 0


def test_items_beyond_the_free_slots_stay_in_the_shared_queue(shop: Shop) -> None:
    shop.items.put_many([b"wait"] * 10)
    shop.start("--processes", "2")
    until(lambda: shop.runs("wait") == 2, what="two jobs to run")
    until(lambda: shop.items.in_progress() == 2)
    assert shop.items.length() == 8
    assert shop.states() == ["running", "running"]
    shop.crew.open("go")
    until(lambda: shop.is_empty, what="all items to be completed")
    assert shop.runs("wait") == 10


@pytest.mark.timeout(300)
def test_another_worker_completes_the_items_of_one_that_was_killed(shop: Shop) -> None:
    shop.items.put_many([b"wait"] * 2)
    first = shop.start("--processes", "2", "--lease", "1s")
    until(lambda: shop.runs("wait") == 2, what="two jobs to run")
    first.kill()
    shop.start("--processes", "2", "--lease", "1s")
    until(lambda: shop.runs("wait") == 4, what="both jobs to run again")
    shop.crew.open("go")
    until(lambda: shop.is_empty, what="all items to be completed")
    assert shop.states() == ["succeeded", "succeeded"]


def test_a_cancelled_job_ends_its_item(shop: Shop) -> None:
    shop.items.put(b"wait")
    shop.start()
    (id,) = until(lambda: [job.id for job in shop.crew.app.list(queue="thumbs", state="running")])
    shop.crew.app.cancel(id)
    until(lambda: shop.is_empty, what="the item to be completed")
    assert shop.states() == ["cancelled"]


def test_an_item_that_is_too_big_is_named_and_left_to_others(shop: Shop) -> None:
    shop.items.put_many([("big", b"x" * (MAX_PAYLOAD + 1)), ("small", b"1")])
    worker = shop.start()
    until(lambda: shop.runs("1") == 1, what="the other item to run")
    until(lambda: f"item big of queue thumbs has {MAX_PAYLOAD + 1} bytes" in worker.log, what="a message")
    until(lambda: shop.items.in_progress() == 0)
    assert shop.items.length() == 1


def test_a_damaged_key_is_named_once_and_the_worker_goes_on(shop: Shop) -> None:
    shop.db.set(f"{shop.prefix}:processing", "text")
    worker = shop.start()
    message = f"the key {shop.prefix}:processing is not part of a redis-work-queue"
    until(lambda: message in worker.log, what="a message")
    shop.db.delete(f"{shop.prefix}:processing")
    shop.items.put(b"1")
    until(lambda: shop.runs("1") == 1, what="the item to run once the key is repaired")
    assert worker.log.count(message) == 1


def test_a_worker_claims_only_from_queues_that_it_serves_and_never_in_burst_mode(shop: Shop) -> None:
    shop.items.put(b"1")
    assert shop.start("--burst").wait() == 0
    assert shop.start("--burst", queues="other").wait() == 0
    assert (shop.items.length(), shop.items.in_progress()) == (1, 0)


def test_an_embedded_worker_serves_a_shared_queue(crew: Crew, shop: Shop) -> None:
    done = []

    @shop.items.task(name="note")
    async def note(data: bytes) -> None:
        done.append(data)

    async def serve() -> None:
        async with crew.app.worker(queues=["thumbs"], accept_data_loss=True):
            await shop.items.aput_many([b"1", b"2", b"3"])
            while not await asyncio.to_thread(lambda: shop.is_empty):
                await asyncio.sleep(0.01)  # between looks at a condition
        await crew.app.aclose()

    asyncio.run(asyncio.wait_for(serve(), 40))
    assert sorted(done) == [b"1", b"2", b"3"]


def test_a_task_of_a_shared_queue_can_be_called_and_enqueued_as_any_other(server_url: str, namespace: str) -> None:
    app = Holdfast(server_url, namespace=namespace)
    items = app.items("thumbs", protocol="redis-work-queue")

    @items.task(name="size", retries=2)
    def size(data: bytes) -> int:
        return len(data)

    assert size(b"123") == 3
    job = size.enqueue(b"\xff\x00")
    assert (job.refresh().payload, job.queue, job.retries) == (b"\xff\x00", "thumbs", 2)
    with pytest.raises(Invalid, match="as bytes, got str"):
        size.enqueue("text")  # type: ignore[arg-type]
    with pytest.raises(Invalid, match="already have a task, size"):
        items.task(name="other")(lambda _: None)
    app.close()


def test_what_cannot_be_the_task_of_a_shared_queue_is_refused(server_url: str, namespace: str) -> None:
    app = Holdfast(server_url, namespace=namespace)
    items = app.items("thumbs", protocol="redis-work-queue")

    def fits(data: bytes) -> None: ...
    def two(data: bytes, more: bytes) -> None: ...
    def text(data: str) -> None: ...

    options: list[Any] = [{"queue": "other"}, {"keep": False}, {"id": "x"}, {"unique": "x"}, {"delay": "1s"}]
    for given in options:
        with pytest.raises(Invalid, match=next(iter(given))):
            items.task(name="t", **given)(fits)
    for function in (two, text):
        with pytest.raises(TypeError, match="task t"):
            items.task(name="t")(function)  # type: ignore[arg-type]
    assert app.tasks == {}
