"""Batches from Python, by the sync methods and by their async counterparts."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextvars import ContextVar
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from holdfast import Batch, BatchStatus, Holdfast, errors
from holdfast.job.outcome import Error, Succeed
from holdfast.store import commands
from holdfast.store.store import Store
from holdfast.task.task import Task
from tests.store.lua.test_state_machine import end, take


@pytest.fixture
def jobs(server_url: str, namespace: str) -> Iterator[Holdfast]:
    app = Holdfast(server_url, namespace=namespace)
    yield app
    app.close()


@pytest.fixture
def load(jobs: Holdfast) -> Task[[int], int]:
    @jobs.task(name="load", queue="q")
    def load(number: int) -> int:
        return number

    return load


@pytest.fixture
def report(jobs: Holdfast) -> Task[[], None]:
    @jobs.task(name="report", queue="reports")
    def report() -> None: ...

    return report


def finish(store: Store, failed: int = 0) -> None:
    """End all jobs that wait in queue q, the first ones by a failure."""
    for place, id in enumerate(take(store, limit=1000)):
        end(store, id, Error(b"", "E", final=True) if place < failed else Succeed(b"1"))


def test_a_block_opens_fills_and_closes_a_batch(
    jobs: Holdfast, store: Store, load: Task[[int], int], report: Task[[], None]
) -> None:
    then = report.bind()
    with jobs.batch("import-7", then=then) as batch:
        assert batch.status().state == "open"
        first = batch.enqueue(load.bind(1))
        second = load.options(batch=batch).enqueue(2)
        third = load.options(batch="import-7").enqueue(3)
        more = batch.enqueue_many(load.bind(number) for number in range(4, 10))
        outside = load.enqueue(0)
    assert isinstance(batch, Batch)
    assert first.batch == second.batch == third.batch == jobs.get(second.id).batch == "import-7"
    assert outside.batch == jobs.get(outside.id).batch == ""
    status = batch.status()
    assert (status.state, status.total, status.pending, status.ended, status.fraction) == ("closed", 9, 9, 0, 0)
    assert status.since == status.closed_at
    assert {job.id for job in batch.jobs()} == {first.id, second.id, third.id, *(job.id for job in more)}

    finish(store, failed=2)
    status = jobs.batch("import-7").status()
    assert (status.state, status.succeeded, status.failed, status.fraction) == ("done", 7, 2, 1)
    assert status.is_done
    assert status.expires_at is not None
    assert status.expires_at - status.since == timedelta(days=7)
    assert status.callbacks == (("done", then.id, "report"),)
    assert jobs.get(then.id).batch == "import-7"
    assert {job.id for job in batch.jobs(state="failed")} == {first.id, second.id}
    assert batch.wait() == status
    batch.delete()
    with pytest.raises(errors.BatchNotFound):
        batch.status()


def test_async_methods_do_the_same(
    jobs: Holdfast, store: Store, load: Task[[int], int], report: Task[[], None]
) -> None:
    async def main() -> BatchStatus:
        async with jobs.batch("import-7", then=report.bind(), keep="1h") as batch:
            first = await batch.aenqueue(load.bind(1))
            await batch.aenqueue_many([load.bind(2), load.bind(3)])
            assert await load.options(batch=batch).aenqueue(4)
            with pytest.raises(errors.ResultTimeout, match="still open"):
                await batch.await_(timeout="1ms")
        assert (await batch.astatus()).total == 4
        assert first.id in [job.id async for job in batch.ajobs()]
        assert len([job async for job in batch.ajobs(limit=1)]) == 1
        assert [each.name async for each in jobs.abatches(state="closed")] == ["import-7"]
        waiting = asyncio.create_task(batch.await_(timeout="30s"))
        await asyncio.to_thread(finish, store)
        ended = await waiting
        await batch.adelete()
        assert [each async for each in jobs.abatches()] == []
        other = jobs.batch("other")
        assert await other.aopen()
        assert not await other.aopen()
        await other.aenqueue(load.bind(1))
        assert await other.acancel() == {"cancelled": 1}
        assert not await other.aclose()
        await jobs.aclose()
        return ended

    ended = asyncio.run(main())
    assert (ended.state, ended.succeeded) == ("done", 4)
    assert ended.expires_at is not None
    assert ended.expires_at - ended.since == timedelta(hours=1)


def test_an_exception_in_the_block_leaves_the_batch_open(
    jobs: Holdfast, store: Store, load: Task[[int], int], report: Task[[], None]
) -> None:
    then = report.bind()
    batch = jobs.batch("half", then=then)

    def produce() -> None:
        with batch:
            batch.enqueue(load.bind(1))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        produce()
    finish(store)
    assert batch.status().state == "open"
    with jobs.batch("half") as again:
        again.enqueue(load.bind(2))
    finish(store)
    assert again.status().succeeded == 2
    assert jobs.get(then.id).state == "waiting"


def test_calls_in_the_block_that_do_not_name_the_batch_do_not_join_it(jobs: Holdfast, load: Task[[int], int]) -> None:
    """A context variable would: and libraries, threads and tasks that outlive the block would too, or would not."""
    with jobs.batch("b") as batch:
        load.enqueue(1)
        jobs.enqueue_many([load.bind(2)])
        thread = threading.Thread(target=batch.enqueue, args=[load.bind(3)])
        thread.start()
        thread.join()
    assert batch.status().total == 1


def test_waiting_is_woken_by_the_end(jobs: Holdfast, store: Store, load: Task[[int], int]) -> None:
    with jobs.batch("b") as batch:
        batch.enqueue(load.bind(1))
    found: list[BatchStatus] = []
    threads = [threading.Thread(target=lambda: found.append(batch.wait(timeout="30s"))) for _ in range(3)]
    for thread in threads:
        thread.start()
    with pytest.raises(errors.ResultTimeout, match=r"1 of 1 job have|1 of 1 job has"):
        batch.wait(timeout="1ms")
    finish(store)
    for thread in threads:
        thread.join()
    assert [each.state for each in found] == ["done"] * 3
    with pytest.raises(errors.BatchNotFound):
        jobs.batch("nowhere").wait()


def test_callbacks_by_outcome(jobs: Holdfast, store: Store, load: Task[[int], int], report: Task[[], None]) -> None:
    for name, failed in (("good", 0), ("bad", 1)):
        then, good, bad = (report.options(id=f"{name}-{on}").bind() for on in ("then", "on_success", "on_failure"))
        with jobs.batch(name, then=then, on_success=good, on_failure=bad) as batch:
            batch.enqueue_many([load.bind(1), load.bind(2)])
        finish(store, failed=failed)
    ran = {job.id for job in jobs.list(queue="reports")}
    assert ran == {"good-then", "good-on_success", "bad-then", "bad-on_failure"}


def test_a_callback_carries_the_context_of_the_moment_when_the_batch_was_opened(
    jobs: Holdfast, report: Task[[], None]
) -> None:
    tenant: ContextVar[str] = ContextVar("tenant", default="none")
    jobs.carry("tenant", tenant)
    token = tenant.set("acme")
    call = report.bind()
    with jobs.batch("b", then=call):
        tenant.reset(token)
    [found] = jobs.store.run(commands.get([call.id]))
    assert found is not None
    assert '"tenant":"acme"' in found["run"]


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"then": "report"}, "bound call"),
        ({"keep": "1ms"}, "keep"),
    ],
)
def test_mistakes_are_found_where_they_are_made(jobs: Holdfast, options: dict[str, Any], match: str) -> None:
    with pytest.raises(errors.Invalid, match=match):
        jobs.batch("b", **options)


def test_wrong_names_and_options(jobs: Holdfast, load: Task[[int], int], report: Task[[], None]) -> None:
    for wrong in ("", "a b", "x" * 101, 7, None, load):
        with pytest.raises(errors.Invalid, match="batch is"):
            jobs.batch(wrong)  # type: ignore[arg-type]
        if wrong is not None:
            with pytest.raises(errors.Invalid, match="batch is"):
                load.options(batch=wrong)  # type: ignore[arg-type]
    for option in ({"unique": "x"}, {"after": ["x"]}, {"debounce": "1s"}, {"batch": "b"}):
        with pytest.raises(errors.Invalid, match="end of a batch cannot have the option"):
            jobs.batch("b", then=report.options(**option).bind())
    with pytest.raises(errors.Invalid, match="defaults"):
        Holdfast(defaults={"batch": "b"})
    with pytest.raises(errors.Invalid, match="state is 'running'"):
        list(jobs.batches(state="running"))  # type: ignore[arg-type]
    with pytest.raises(errors.Invalid, match=r"load.bind|bind"), jobs.batch("b") as batch:
        batch.enqueue(load)  # type: ignore[arg-type]
    with pytest.raises(errors.BatchNotFound, match="open it first"):
        load.options(batch="missing").enqueue(1)


def test_batches_are_listed_newest_first(jobs: Holdfast) -> None:
    for number in range(205):
        jobs.batch(f"b{number}").open()
    jobs.batch("b7").close()
    names = [each.name for each in jobs.batches()]
    assert sorted(names) == sorted(f"b{number}" for number in range(205))
    assert [each.name for each in jobs.batches(limit=3)] == names[:3]
    assert [each.name for each in jobs.batches(state="done")] == ["b7"]


@pytest.mark.parametrize("policy", ["inline", "outbox"])
def test_jobs_of_a_batch_are_stored_or_raise(policy: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The batch may be closed, and its end come, before an outbox is sent."""
    monkeypatch.setenv("HOLDFAST_OUTBOX", str(tmp_path / "outbox"))
    app = Holdfast(f"unix://{tmp_path}/nobody", timeout="100ms", when_unreachable=policy)
    ran = []

    @app.task(name="load")
    def load(number: int) -> None:
        ran.append(number)

    with pytest.raises(errors.StoreUnavailable):
        load.options(batch="b").enqueue(1)
    assert ran == []
    assert not (tmp_path / "outbox").exists() or not any((tmp_path / "outbox").iterdir())
    app.close()


def test_a_closed_batch_takes_no_more(jobs: Holdfast, load: Task[[int], int]) -> None:
    with jobs.batch("b") as batch:
        batch.enqueue(load.bind(1))
    with pytest.raises(errors.WrongState, match="closed"):
        batch.enqueue(load.bind(2))
    with pytest.raises(errors.WrongState, match="closed"):
        batch.open()
    finish(jobs.store)
    with pytest.raises(errors.WrongState, match="done"), batch:
        pass
    assert not batch.close()
    assert batch.cancel() == {}
