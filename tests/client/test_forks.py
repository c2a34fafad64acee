"""Forks from Python: options, errors, the async twin, jobs inside of jobs, the testing kit."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast import Holdfast, Invalid, JobExists, JobNotFound, Retries, WrongState, current_job
from holdfast.store import commands
from holdfast.testing import Workbench, use

jobs = Holdfast("redis://127.0.0.1:1", namespace="production")
done: list[str] = []


@jobs.task(queue="mail", retries=Retries(5, waits="1s", not_on=(KeyError,)), memory="1G", soft_timeout="10s")
def send(to: str) -> str:
    job = current_job()
    job.once("render", render, to)
    if job.checkpoint(str, default="") != "sent":
        job.save("sent", flush=True)
        raise KeyError(to)
    return f"{to} in attempt {job.attempt}"


def render(to: str) -> str:
    done.append(to)
    return to


@jobs.task
def fork_it(id: str) -> str:
    return jobs.fork(id, batch="letters").id


@pytest.fixture
def bench(server_url: str) -> Iterator[Workbench]:
    done.clear()
    with use(jobs, server_url) as made:
        yield made


@pytest.fixture
def failed(bench: Workbench) -> str:
    job = send.options(id="first", tags=["a"], fields={"ticket": "1"}).enqueue("ann")
    [ended] = bench.run_until_empty()
    assert ended.state == "failed"
    return job.id


def run_of(id: str) -> str:
    [fields] = jobs.store.run(commands.get([id]))
    assert fields is not None
    return str(fields["run"])


def test_the_testing_kit_runs_forks_and_retries_from_the_start(bench: Workbench, failed: str) -> None:
    new = jobs.fork(failed)
    assert (new.state, new.forked_from, new.created, new.attempt) == ("waiting", "first", True, 0)
    [ended] = bench.run_until_empty()
    assert ended.result() == "ann in attempt 1"
    assert done == ["ann"]

    jobs.retry(failed, from_start=True)
    [ended] = bench.run_until_empty()
    assert (ended.state, done) == ("failed", ["ann", "ann"])
    assert jobs.retry_many([failed]) == ["waiting"]
    [ended] = bench.run_until_empty()
    assert ended.result() == "ann in attempt 3"


def test_all_that_match_are_retried_from_the_start(bench: Workbench, failed: str) -> None:
    assert jobs.retry_all(queue="mail", from_start=True).counts == {"waiting": 1}
    bench.run_until_empty()

    assert done == ["ann", "ann"]
    assert [note.text for note in jobs.get(failed).notes] == ["from the start"]


def test_without_options_a_fork_has_those_of_the_job(failed: str) -> None:
    new = jobs.get(jobs.fork(failed).id)
    assert run_of(new.id) == run_of(failed)
    for name in ("queue", "tags", "fields", "retries", "retry_policy", "payload", "checkpoint_bytes", "progress"):
        assert getattr(new, name) == getattr(jobs.get(failed), name), name


def test_options_for_the_worker_are_changed_one_by_one(failed: str) -> None:
    new = jobs.get(jobs.fork(failed, memory="2G", retries=9, priority=3, tags=["b"], fields={"owner": "bob"}).id)
    assert run_of(new.id) == '{"soft_timeout":10000,"memory":2147483648}'
    assert (new.retries, new.retry_policy, new.priority, new.tags) == (9, None, 3, ("b",))
    assert new.fields == {"ticket": "1", "owner": "bob"}

    with pytest.raises(Invalid, match="soft_timeout is 10s; it must be shorter than timeout, which is 5s"):
        jobs.fork(failed, timeout="5s")


def test_a_fork_starts_when_it_is_told_to(failed: str) -> None:
    later = datetime.now(UTC) + timedelta(hours=1)
    new = jobs.fork(failed, at=later, deadline=later + timedelta(hours=1))
    assert new.state == "scheduled"
    assert new.deadline is not None


def test_the_same_id_gives_the_same_fork(failed: str) -> None:
    assert jobs.fork(failed, id="second").created
    again = jobs.fork(failed, id="second", queue="other")
    assert (again.created, again.queue) == (False, "mail")
    jobs.delete(failed)
    assert not jobs.fork(failed, id="second", queue="other").created
    with pytest.raises(JobNotFound, match="job first does not exist"):
        jobs.fork(failed, queue="other")


def test_a_fork_of_a_fork_names_the_last_one(failed: str) -> None:
    second = jobs.fork(failed, id="second")
    third = second.fork(id="third")
    assert third.forked_from == "second"


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        *((name, "1s", "; give it an id") for name in ("unique", "unique_for", "debounce")),
        ("on_exists", "return", "; give it an id"),
        ("runner", "fork", ": it is an option of the task"),
        ("when_unreachable", "raise", ": it is stored in the server"),
    ],
)
def test_options_that_a_fork_cannot_have_are_refused(failed: str, name: str, value: Any, why: str) -> None:
    given: Any = {name: value}
    with pytest.raises(Invalid, match=f"{name} cannot be given to a fork{why}"):
        jobs.fork(failed, **given)


@pytest.mark.parametrize("id", ["", 5, False, "a b", "on:mailer@7-0"])
def test_the_id_of_a_fork_is_checked_like_that_of_any_new_job(failed: str, id: Any) -> None:
    with pytest.raises(Invalid, match="id is"):
        jobs.fork(failed, id=id)


def test_misspelt_options_and_taken_ids_are_refused(failed: str) -> None:
    unknown: Any = {"prioritty": 1}
    with pytest.raises(Invalid, match="unknown option 'prioritty'"):
        jobs.fork(failed, **unknown)
    send.options(id="taken").enqueue("bob")
    with pytest.raises(JobExists, match="job taken already exists, and is not a fork of job first"):
        jobs.fork(failed, id="taken")
    with pytest.raises(WrongState, match="has saved neither a checkpoint nor steps"):
        jobs.fork("taken")
    with pytest.raises(JobNotFound):
        jobs.fork("none")


def test_the_async_methods_do_the_same(failed: str) -> None:
    async def act() -> None:
        new = await jobs.afork(failed, priority=2)
        other = await (await jobs.aget(failed)).afork(from_start=True)
        await jobs.aretry(failed, from_start=True)
        assert (new.priority, new.forked_from, other.forked_from) == (2, "first", "first")

    asyncio.run(act())

    assert [job.state for job in jobs.list(queue="mail")] == ["waiting"] * 3


def test_a_member_of_a_closed_batch_can_add_a_fork_to_it(bench: Workbench, failed: str) -> None:
    with jobs.batch("letters"):
        fork_it.options(batch="letters").enqueue(failed)
    with pytest.raises(WrongState):
        jobs.fork(failed, batch="letters")

    first, _ = bench.run_until_empty()

    assert jobs.get(first.result()).batch == "letters"
    assert jobs.batch("letters").status().succeeded == 2
