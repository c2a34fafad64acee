"""Limits, schedules and subscriptions that a worker declares: once, and again when the store has lost its data."""

from __future__ import annotations

import pytest
import redis

from holdfast import Event, Holdfast, Limit, every
from tests.support.workers import until


def lose_everything(server_url: str, namespace: str) -> None:
    """Remove the data of a namespace at once, like FLUSHALL."""
    with redis.Redis.from_url(server_url) as client:
        client.eval("redis.call('DEL', unpack(redis.call('KEYS', ARGV[1])))", 0, f"hf:{{{namespace}}}:*")


def test_a_worker_declares_again_what_the_store_has_lost_and_nothing_that_was_removed(
    server_url: str, namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    jobs, got = Holdfast(server_url, namespace=namespace, limits=[Limit("api", 3)]), list[str]()

    @jobs.on("succeeded", queue="default")
    @jobs.task(name="seen", queue="handlers")
    async def seen(event: Event) -> None:
        got.append(event.type)

    @jobs.on("failed")
    @jobs.task(name="unwanted", queue="handlers")
    async def unwanted(event: Event) -> None: ...

    @jobs.task(name="work", schedule=every("1h"))
    async def work() -> None: ...

    def names() -> list[list[str]]:
        return [[each.name for each in found()] for found in (jobs.limits, jobs.schedules, jobs.subscriptions)]

    with jobs.worker(queues=["default", "handlers"], lease="1s"):
        until(lambda: names() == [["api"], ["work"], ["seen", "unwanted"]] and jobs.workers())
        jobs.unsubscribe("unwanted")
        jobs.enqueue(work.bind())
        until(lambda: got == ["succeeded"])
        seen_at = jobs.workers()[0].seen_at
        until(lambda: jobs.workers()[0].seen_at > seen_at)
        assert names() == [["api"], ["work"], ["seen"]]

        lose_everything(server_url, namespace)
        until(lambda: names() == [["api"], ["work"], ["seen", "unwanted"]])
        jobs.enqueue(work.bind())
        until(lambda: got == ["succeeded", "gap", "succeeded"])
    assert caplog.text.count("the store has lost data") == 1
    jobs.close()
