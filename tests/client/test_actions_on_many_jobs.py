"""Actions on many ids in one call of the client: one answer each, and one refusal does not stop the others."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from holdfast import Holdfast
from holdfast.errors import JobNotFound, WrongState
from holdfast.store import commands
from tests.support.new_job import NewJob


@pytest.fixture
def jobs(server_url: str, namespace: str) -> Iterator[Holdfast]:
    made = Holdfast(server_url, namespace=namespace)
    yield made
    made.close()


def put(jobs: Holdfast, *ids: str) -> None:
    for first in range(0, len(ids), 1000):
        part = [NewJob(id=id, payload=b"{}", queue="q", task="t") for id in ids[first : first + 1000]]
        jobs.store.run(commands.enqueue(part))


def test_many_jobs_get_one_answer_each_in_order(jobs: Holdfast) -> None:
    ids = [f"job-{number}" for number in range(2300)]
    put(jobs, *ids)

    assert jobs.cancel_many(ids, reason="no use") == ["cancelled"] * 2300
    assert jobs.retry_many(ids[:1100]) == ["waiting"] * 1100
    assert jobs.delete_many(ids[1100:]) == ["deleted"] * 1200
    assert (jobs.count(), jobs.count(state="waiting")) == (1100, 1100)
    assert jobs.get("job-0").notes[0].text == "no use"


def test_one_refusal_does_not_stop_the_others(jobs: Holdfast) -> None:
    put(jobs, "one", "two")
    jobs.cancel("one")

    ended, done, missing = jobs.cancel_many(["one", "two", "nobody"])
    assert done == "cancelled"
    assert isinstance(ended, WrongState)
    assert isinstance(missing, JobNotFound)
    assert "nobody" in str(missing)
    assert jobs.cancel_many([]) == []


def test_the_async_methods_do_the_same(jobs: Holdfast) -> None:
    put(jobs, "mine")

    async def steer() -> list[object]:
        answers = [await jobs.acancel_many(["mine"]), await jobs.aretry_many(["mine"])]
        await jobs.acancel("mine")
        answers.append(await jobs.adelete_many(["mine"]))
        await jobs.aclose()
        return [answer for each in answers for answer in each]

    assert asyncio.run(steer()) == ["cancelled", "waiting", "deleted"]
