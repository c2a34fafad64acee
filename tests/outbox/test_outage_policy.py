"""The outage policy: who chooses it, and calls that run inline."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from holdfast import BoundCall, Fail, Holdfast, Invalid, JobFailed, Retries, Snooze, StoreUnavailable, current_job
from tests.outbox.apps import app_at, run_async
from tests.support import outages
from tests.support.outages import Switch


def test_the_call_overrides_the_task_and_the_task_the_app(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_WHEN_UNREACHABLE", "inline")
    with outages.refused() as url:
        app, add = app_at(url)
        assert add.enqueue(1, 2).ran_inline
        with pytest.raises(StoreUnavailable):
            add.options(when_unreachable="raise").enqueue(1, 2)
        with pytest.raises(StoreUnavailable):
            app.enqueue(add.bind(1, 2).options(when_unreachable="raise"))
        with pytest.raises(StoreUnavailable):
            app_at(url, "raise")[1].enqueue(1, 2)
        with pytest.raises(Invalid, match="the same when_unreachable"):
            app.enqueue_many([add.bind(1, 2), add.bind(1, 2).options(when_unreachable="outbox")])
    assert app.enqueue_many([]) == []


def test_an_unknown_choice_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Invalid, match="'raise', 'inline', 'outbox'"):
        Holdfast(when_unreachable="ignore")  # type: ignore[arg-type]
    monkeypatch.setenv("HOLDFAST_WHEN_UNREACHABLE", "hope")
    with pytest.raises(Invalid, match="'raise', 'inline', 'outbox'"):
        Holdfast()


def test_the_choice_applies_only_to_enqueue() -> None:
    with outages.refused() as url:
        app, _ = app_at(url, "outbox")
        with pytest.raises(StoreUnavailable):
            app.count()


@pytest.fixture
def inline() -> Iterator[Holdfast]:
    with outages.refused() as url:
        yield Holdfast(url, when_unreachable="inline")


def test_a_call_that_runs_inline_returns_an_ended_job(inline: Holdfast, caplog: pytest.LogCaptureFixture) -> None:
    seen: list[Any] = []

    @inline.task(name="double")
    def double(x: int) -> dict[str, int]:
        job = current_job()
        job.save(x, progress=0.5)
        job.report(1.0)
        seen.append((job.id, job.task, job.queue, job.attempt, job.checkpoint(int, 0), job.directory.is_dir()))
        return {"twice": 2 * x}

    job = double.options(queue="sums").enqueue(4)
    assert (job.state, job.created, job.ran_inline, job.in_outbox) == ("succeeded", True, True, False)
    assert job.result() == run_async(inline, job.aresult()) == {"twice": 8}
    assert seen == [(job.id, "double", "sums", 1, 4, True)]
    assert current_job().id == "detached"
    assert [attempt.outcome for attempt in job.attempts] == ["succeeded"]
    double.enqueue(5)
    assert [record.levelname for record in caplog.records if "inline" in record.message] == ["WARNING"]


def test_a_call_that_fails_inline_has_its_failure(inline: Holdfast) -> None:
    @inline.task(name="fail")
    def fail(how: str) -> object:
        if how == "result":
            return object()
        if how == "exit":
            sys.exit(3)
        if how == "later":
            raise Snooze("1h")
        raise Fail("no", group="none") if how == "fail" else ValueError(how)

    groups = {"value": "ValueError", "fail": "none", "exit": "crashed", "later": "cannot-continue"}
    for how, group in groups.items():
        job = fail.enqueue(how)
        assert (job.state, job.group) == ("failed", group)
        assert job.failure
        with pytest.raises(JobFailed, match=group):
            job.result()
    assert fail.enqueue("result").state == "failed"


def test_a_retry_policy_explains_why_an_inline_call_is_not_retried(inline: Holdfast) -> None:
    @inline.task(name="fail", retries=Retries(5, not_on=ValueError))
    def fail(kind: str) -> None:
        raise ValueError("bad") if kind == "value" else KeyError(kind)

    excluded, other = fail.enqueue("value"), fail.enqueue("key")
    assert (excluded.final_reason, other.final_reason) == ("not_retryable", "inline")
    assert excluded.why == "ValueError: bad (not retried: ValueError is in not_on)"
    assert excluded.retry_policy == Retries(5, not_on=ValueError)


def test_keyboard_interrupt_and_the_like_leave_a_call_that_runs_inline(inline: Holdfast) -> None:
    @inline.task(name="stop")
    def stop() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stop.enqueue()


def test_async_and_plain_tasks_run_inline_by_enqueue_and_aenqueue(inline: Holdfast) -> None:
    @inline.task(name="later")
    async def later(x: int) -> tuple[int, int]:
        await asyncio.sleep(0)
        return x, threading.get_ident()

    @inline.task(name="plain")
    def plain(x: int) -> tuple[int, int]:
        return x, threading.get_ident()

    here = threading.get_ident()
    assert later.enqueue(1).result() == plain.enqueue(1).result() == (1, here)

    async def use() -> None:
        assert (await later.aenqueue(2)).decoded_result() == (2, here)
        x, thread = (await plain.aenqueue(2)).decoded_result()
        assert (x, thread == here) == (2, False)
        assert plain.enqueue(3).decoded_result() == (3, here)
        with pytest.raises(StoreUnavailable, match="use aenqueue"):
            later.enqueue(3)

    run_async(inline, use())


def test_an_inline_call_that_is_cancelled_ends(inline: Holdfast) -> None:
    began = asyncio.Event()

    @inline.task(name="forever")
    async def forever() -> None:
        began.set()
        await asyncio.Event().wait()

    async def use() -> None:
        task = asyncio.create_task(forever.aenqueue())
        await began.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run_async(inline, use())


def test_a_batch_runs_inline_in_order_or_not_at_all(inline: Holdfast) -> None:
    ran: list[int] = []

    @inline.task(name="note")
    def note(x: int) -> None:
        ran.append(x)

    assert [job.state for job in inline.enqueue_many([note.bind(x) for x in range(3)])] == ["succeeded"] * 3
    assert ran == [0, 1, 2]
    with pytest.raises(StoreUnavailable, match="cannot run inline either: it is due later"):
        inline.enqueue_many([note.bind(7), note.bind(8).options(delay="1h")])
    with pytest.raises(StoreUnavailable, match="cannot run inline either: it depends on other jobs"):
        inline.enqueue_many([note.bind(7), note.bind(8).options(after="another")])
    with pytest.raises(StoreUnavailable, match="only the store can tell whether the limit api:acme allows it"):
        note.options(limits="api:acme").enqueue(9)
    assert ran == [0, 1, 2]


def test_maybe_done_is_true_if_some_of_the_calls_were_stored(switch: Switch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.client.enqueue.MAX_BATCH", 2)
    switch.on()
    with outages.restarting_before(switch.url, b"enqueue", after=1) as url:
        app, add = app_at(url)
        with pytest.raises(StoreUnavailable) as caught:
            app.enqueue_many([add.bind(number, 0) for number in range(3)])
        assert app.count() == 2
        assert caught.value.maybe_done
        app.close()


@pytest.mark.parametrize("stored", [0, 2])
def test_maybe_done_is_true_if_the_generator_of_calls_could_not_reach_a_store(
    switch: Switch, monkeypatch: pytest.MonkeyPatch, stored: int
) -> None:
    monkeypatch.setattr("holdfast.client.enqueue.MAX_BATCH", 2)
    switch.on()
    app, add = app_at(switch.url)

    def calls() -> Iterator[BoundCall[int]]:
        yield from (add.bind(number, 0) for number in range(stored))
        error = StoreUnavailable("another store cannot be reached")
        error.maybe_done = False
        raise error

    with pytest.raises(StoreUnavailable, match="another store") as caught:
        app.enqueue_many(calls())
    assert caught.value.maybe_done is (stored > 0)
    assert app.count() == stored
    app.close()


def test_a_call_that_may_be_stored_runs_inline_unless_it_is_at_most_once() -> None:
    with outages.hanging_up() as url:
        app, add = app_at(url, "inline")
        assert add.enqueue(1, 2).result() == 3
        with pytest.raises(StoreUnavailable, match="must not run twice") as caught:
            add.options(at_most_once=True).enqueue(1, 2)
        assert caught.value.maybe_done
        app.close()
    with outages.refused() as url:
        app, add = app_at(url, "inline")
        assert add.options(at_most_once=True).enqueue(1, 2).result() == 3


@pytest.mark.parametrize("how", ["sync", "async"])
def test_maybe_done_is_true_if_the_store_disappears_after_it_stored_a_batch(switch: Switch, how: str) -> None:
    switch.on()
    direct, add = app_at(switch.url)
    there = add.options(id="there").enqueue(0, 0)
    with outages.restarting_before(switch.url, b"get") as url:
        app, add = app_at(url)
        calls = [add.options(id=there.id).bind(0, 0), add.bind(1, 2)]
        with pytest.raises(StoreUnavailable) as caught:
            app.enqueue_many(calls) if how == "sync" else run_async(app, app.aenqueue_many(calls))
        assert direct.get(calls[1].id).state == "waiting"
        assert caught.value.maybe_done

        inline, add = app_at(url, "inline")
        with pytest.raises(StoreUnavailable, match="must not run twice"):
            add.options(id=there.id, at_most_once=True).enqueue(0, 0)
        app.close()
        inline.close()
    direct.close()
