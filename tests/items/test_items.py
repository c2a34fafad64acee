"""Items: put, claim, renew and complete raw bytes without a worker, and what can go wrong in between."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import pytest
import redis

from holdfast import Holdfast, Invalid, JobExists, JobFailed, JobNotFound, LeaseLost, Retries, StoreUnavailable, TooBig
from holdfast.items.claim_slot import ClaimSlots
from holdfast.items.item import Item
from holdfast.items.items import Items
from holdfast.store import commands
from holdfast.store.store import Store
from tests.conftest import TestClock
from tests.model import invariants
from tests.support.servers import running_server
from tests.support.workers import ROOT, until

T = TypeVar("T")

FORK = multiprocessing.get_context("fork")
FORKS = pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")  # it is what is tested


@pytest.fixture
def app(server_url: str, namespace: str) -> Iterator[Holdfast]:
    made = Holdfast(server_url, namespace=namespace)
    yield made
    made.close()
    with redis.Redis.from_url(server_url) as client:
        invariants.check(client, namespace)


@pytest.fixture
def timed(app: Holdfast, store: Store) -> Holdfast:
    """The app under the test's clock."""
    app.store.close()
    app.store = store
    return app


@pytest.fixture
def items(app: Holdfast) -> Items:
    return app.items("mail")


def run(app: Holdfast, work: Coroutine[Any, Any, T]) -> T:
    async def run_and_close() -> T:
        try:
            return await work
        finally:
            await app.aclose()

    return asyncio.run(run_and_close())


def got(items: Items, **options: Any) -> Item:
    item = items.claim(**options)
    assert item
    return item


async def agot(items: Items, **options: Any) -> Item:
    item = await items.aclaim(**options)
    assert item
    return item


def timer(app: Holdfast, id: str) -> float:
    """When the store would end the lease of an item."""
    return float(app.store.execute("ZSCORE", f"hf:{{{app.address.namespace}}}:timers", id) or 0)


class Lossy:
    """A store that carries out the next command of a verb, and loses its reply."""

    def __init__(self, app: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
        self._verb: str | None = None
        send = app.store.run

        def run(command: commands.Command[T]) -> T:
            reply = send(command)
            if command.function == self._verb:
                self._verb = None
                raise StoreUnavailable("the reply was lost")
            return reply

        monkeypatch.setattr(app.store, "run", run)

    def lose_next(self, verb: str) -> None:
        self._verb = verb


@pytest.fixture
def lossy(app: Holdfast, monkeypatch: pytest.MonkeyPatch) -> Lossy:
    return Lossy(app, monkeypatch)


# The four calls


def test_any_bytes_come_out_as_they_went_in_and_the_result_too(app: Holdfast, items: Items) -> None:
    every = bytes(range(256)) * 100
    job = items.put(every, id="a")
    assert (job.created, job.state, job.codec, items.value("a")) == (True, "waiting", "raw", every)

    item = got(items)
    assert (item.id, item.payload, item.attempt, item.queue, item.data) == ("a", every, 1, "mail", b"")
    assert item.complete(every[::-1])
    assert app.get("a").result(timeout="5s") == every[::-1]
    assert app.get("a").result_bytes == every[::-1]
    assert items.value("a") == every


def test_the_async_calls_do_what_the_sync_ones_do(app: Holdfast, items: Items) -> None:
    async def use() -> None:
        job = await items.aput(b"x", id="a", retries=0)
        assert job.created
        assert await items.avalue("a") == b"x"
        item = await agot(items)
        await item.arenew(b"half")
        assert await item.arelease()
        again = await agot(items)
        assert (again.data, again.attempt) == (b"half", 2)
        assert await again.afail("no")
        assert (await app.aget("a")).state == "failed"
        await items.aput(b"y", id="b")
        (other,) = await items.aclaim_many(5)
        assert await other.acomplete(b"done")
        assert await (await app.aget("b")).aresult() == b"done"
        assert not await items.aclaim()

    run(app, use())


def test_items_come_by_priority_and_then_in_order_and_several_at_once(items: Items) -> None:
    for number in range(4):
        items.put(b"", id=f"n{number}")
    items.put(bytearray(b"soon"), id="soon", priority=-1)
    items.put(memoryview(b"later"), id="later", delay="1h")

    assert [item.id for item in items.claim_many(3)] == ["soon", "n0", "n1"]
    assert [item.id for item in items.claim_many(10)] == ["n2", "n3"]
    assert items.claim_many(10) == []


@pytest.mark.parametrize(
    ("payload", "options", "words"),
    [
        ("text", {}, "encode it first"),
        (None, {}, "encode it first"),
        (b"", {"queue": "other"}, "it goes to the queue mail"),
        (b"", {"timeout": "1m"}, "no worker runs it"),
        (b"", {"runner": "thread"}, "no worker runs it"),
        (b"", {"retries": Retries(5, waits="1s")}, "an item can have a number of retries, but not a policy"),
        (b"", {"debounce": "1s"}, "unique"),
        (b"", {"id": "a b"}, "id is"),
        (b"", {"colour": "red"}, "unknown option"),
    ],
)
def test_an_invalid_item_is_refused(app: Holdfast, items: Items, payload: Any, options: Any, words: str) -> None:
    with pytest.raises(Invalid, match=words):
        items.put(payload, **options)
    assert app.count() == 0


def test_an_invalid_claim_is_refused_and_the_next_one_works(app: Holdfast, items: Items) -> None:
    items.put(b"x")
    for call in (
        lambda: items.claim(wait=-1),
        lambda: items.claim(lease="1ms"),
        lambda: items.claim(lease="2h"),
        lambda: items.claim_many(0),
        lambda: items.claim_many(10_000),
        lambda: app.items("a/b"),
    ):
        with pytest.raises(Invalid):
            call()
    item = got(items)
    for end in (lambda: item.complete("text"), lambda: item.renew("text"), lambda: item.release(delay=-1)):  # type: ignore[arg-type]
        with pytest.raises(Invalid):
            end()
    with pytest.raises(TooBig):
        item.complete(b"x" * 2_000_000)
    with pytest.raises(TooBig):
        item.renew(b"x" * 300_000)
    assert item.complete()
    with pytest.raises(TooBig):
        items.put(b"x" * 2_000_000)
    with pytest.raises(JobNotFound, match="item nobody does not exist"):
        items.value("nobody")


def test_an_existing_item_is_returned_refused_or_replaced(items: Items) -> None:
    items.put(b"1", id="a")
    assert not items.put(b"2", id="a").created
    assert items.value("a") == b"1"
    with pytest.raises(JobExists, match="job a already exists"):
        items.put(b"3", id="a", on_exists="error")
    assert items.put(b"4", id="a", on_exists="replace").created
    assert items.value("a") == b"4"


def test_an_item_that_is_not_kept_may_be_done_before_put_returns(
    app: Holdfast, items: Items, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = app.items("mail")
    send = app.store.run

    def run_and_have_it_done(command: commands.Command[Any]) -> Any:
        reply = send(command)
        if command.function == "enqueue":
            monkeypatch.undo()
            assert got(other).complete()
        return reply

    monkeypatch.setattr(app.store, "run", run_and_have_it_done)
    job = items.put(b"x", id="a", keep=False)
    assert (job.created, job.keep, app.count()) == (True, False, 0)
    assert items.put(b"again", id="a", keep=False).created


def test_debounced_items_become_one_with_the_last_bytes(app: Holdfast, items: Items) -> None:
    first = items.put(b"1", unique="k", debounce="1h")
    second = items.put(b"2", unique="k", debounce="1h")
    assert (first.id, second.state) == (second.id, "scheduled")
    assert (app.count(), items.value(first.id)) == (1, b"2")


# How items end


def test_a_failed_item_is_tried_again_as_its_retries_allow(timed: Holdfast, clock: TestClock) -> None:
    items = timed.items("mail")
    items.put(b"x", id="a", retries=1, backoff="20s")
    assert got(items).fail("no route")
    assert not items.claim()
    clock.advance(20)
    assert got(items).fail("no route, again")

    job = timed.get("a")
    assert (job.state, job.group, job.final_reason) == ("failed", "failed", "exhausted")
    assert [attempt.text for attempt in job.attempts] == ["Failed: no route", "Failed: no route, again"]
    with pytest.raises(JobFailed, match="no route, again"):
        timed.result(job)


def test_a_failure_can_be_final_or_have_a_delay_of_its_own(timed: Holdfast, clock: TestClock) -> None:
    items = timed.items("mail")
    items.put(b"x", id="a")
    assert got(items).fail("later", delay="5s")
    clock.advance(5)
    assert got(items).fail("never", final=True)
    assert timed.get("a").group == "failed"


@pytest.mark.parametrize("words", ["cannot open \udcff.png", "x" * 2**20], ids=["not UTF-8", "long"])
def test_why_an_item_failed_or_was_released_may_be_any_words(app: Holdfast, items: Items, words: str) -> None:
    items.put(b"", id="a", backoff=0)
    assert got(items).release(reason=words)
    assert items.release(got(items).detach(), reason=words)
    assert items.fail(got(items).detach(), words, delay=0)
    assert got(items).fail(words, final=True)
    for attempt in app.get("a").attempts:
        assert "cannot open \\udcff.png" in attempt.text or "xxx" in attempt.text
        assert len(attempt.text) < 10_000


def test_a_released_item_is_requeued_in_its_old_position_or_after_a_delay(timed: Holdfast, clock: TestClock) -> None:
    items = timed.items("mail")
    for id in ("a", "b"):
        items.put(b"", id=id)
    assert got(items).release()
    item = got(items)
    assert (item.id, item.attempt) == ("a", 2)
    assert item.release(delay="1m", reason="the shop is closed")
    assert got(items).id == "b"
    assert not items.claim()
    clock.advance(60)
    assert got(items).id == "a"
    job = timed.get("a")
    assert (job.retries_used, job.lost_used, job.attempts[1].reason) == (0, 0, "the shop is closed")


def test_a_cancelled_item_ends_when_it_is_released(app: Holdfast, items: Items) -> None:
    items.put(b"", id="a")
    item = got(items)
    assert app.cancel("a") == "cancelling"
    item.renew()
    assert item.is_cancelled
    assert item.release()
    assert app.get("a").state == "cancelled"


def test_an_at_most_once_item_is_requeued_only_if_it_is_unstarted(app: Holdfast, items: Items) -> None:
    items.put(b"", id="a", at_most_once=True)
    assert got(items).release(unstarted=True)
    assert got(items).release()
    job = app.get("a")
    assert (job.state, job.group) == ("failed", "interrupted")
    assert not items.claim()


# Who may end it


def test_complete_is_true_for_one_of_many_threads(items: Items) -> None:
    for number in range(20):
        items.put(b"", id=f"n{number}")
        item = got(items)
        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(Item.complete, [item] * 8))
        assert answers.count(True) == 1


def _complete_in_child(item: Item, answers: Any) -> None:
    answers.put(item.complete(b"%d" % os.getpid()))


@FORKS
@pytest.mark.parametrize("kept", [True, False])
def test_complete_is_true_for_one_of_many_forked_copies(items: Items, kept: bool) -> None:
    items.put(b"", id="a", keep=kept)
    item = got(items)
    answers = FORK.Queue()
    children = [FORK.Process(target=_complete_in_child, args=(item, answers)) for _ in range(6)]
    for child in children:
        child.start()
    told = [answers.get(timeout=30) for _ in children] + [item.complete()]
    for child in children:
        child.join()
    assert told.count(True) == 1


@FORKS
def test_a_repeated_complete_is_true_for_the_same_process_and_not_for_its_fork(items: Items, lossy: Lossy) -> None:
    items.put(b"", id="a")
    item = got(items)
    lossy.lose_next("finish")
    with pytest.raises(StoreUnavailable):
        item.complete()

    def complete_in_child() -> None:
        assert not item.complete()

    assert _in_fork(complete_in_child) == 0
    assert item.complete()


def test_complete_is_false_once_the_lease_was_lost(timed: Holdfast, clock: TestClock) -> None:
    items, others = timed.items("mail"), timed.items("mail")
    items.put(b"", id="a")
    item = got(items)
    clock.advance(15)
    others.claim()
    clock.advance(15)
    taken = got(others)

    with pytest.raises(LeaseLost, match="lost its lease"):
        item.renew(b"late")
    assert item.is_lost
    assert (item.complete(b"late"), item.fail("late"), item.release()) == (False, False, False)
    assert taken.complete(b"in time")
    assert timed.get("a").result_bytes == b"in time"


@pytest.mark.parametrize("kept", [True, False])
def test_complete_whose_reply_was_lost_is_true_when_it_is_called_again(
    app: Holdfast, items: Items, lossy: Lossy, kept: bool
) -> None:
    items.put(b"", id="a", keep=kept)
    item = got(items)
    lossy.lose_next("finish")
    with pytest.raises(StoreUnavailable):
        item.complete(b"done")
    assert item.complete(b"done")
    assert not item.complete(b"done")
    assert app.count(state="succeeded") == int(kept)


def test_a_different_outcome_after_a_lost_reply_is_not_reported_as_done(
    app: Holdfast, items: Items, lossy: Lossy
) -> None:
    items.put(b"", id="a")
    item = got(items)
    lossy.lose_next("finish")
    with pytest.raises(StoreUnavailable):
        item.complete(b"done")
    assert not item.fail("could not say so")
    assert app.get("a").state == "succeeded"


def test_an_item_of_an_id_that_is_used_again_is_another(app: Holdfast, items: Items) -> None:
    items.put(b"1", id="a", keep=False)
    old = got(items)
    assert old.complete()
    until(lambda: items.put(b"2", id="a", keep=False).created_at)
    new = got(items)
    assert not old.complete()
    assert (new.payload, new.complete()) == (b"2", True)
    assert app.count() == 0


# Leases


def test_renew_prolongs_by_the_length_of_the_lease_and_keeps_data(timed: Holdfast, clock: TestClock) -> None:
    items = timed.items("mail")
    items.put(b"", id="a")
    item = got(items, lease="10s")
    assert (item.lease, timer(timed, "a")) == (10.0, clock() + 10_000)
    for _ in range(4):
        clock.advance(1)
        assert not items.claim()
    item.renew(b"4 done")
    assert (item.data, timer(timed, "a")) == (b"4 done", clock() + 10_000)
    item.renew()
    assert item.data == b"4 done"
    clock.advance(5)
    assert not items.claim()
    clock.advance(5)
    again = got(items)
    assert (again.id, again.attempt, again.data) == ("a", 2, b"4 done")


def test_inside_of_with_short_and_long_leases_are_renewed(app: Holdfast, items: Items) -> None:
    with items:
        for id in ("long", "short", "shorter"):
            items.put(b"", id=id)
        long = got(items, lease="1h")
        short = got(items, lease="4s")
        before = timer(app, "short")
        until(lambda: timer(app, "short") > before, what="the first renewal")
        shorter = got(items, lease="1s")
        for _ in range(2):
            before = timer(app, "shorter")
            until(lambda: timer(app, "shorter") > before, what="a renewal")  # noqa: B023
        assert [item.is_lost for item in (long, short, shorter)] == [False] * 3
        assert [item.complete() for item in (long, short, shorter)] == [True] * 3


def test_inside_of_async_with_leases_are_renewed_and_the_loop_goes_on(app: Holdfast) -> None:
    async def use() -> None:
        ticks = 0
        async with app.items("mail") as items:
            await items.aput(b"", id="a")
            item = await agot(items, lease="1s")
            for _ in range(3):
                before = timer(app, "a")
                while timer(app, "a") == before:
                    await asyncio.sleep(0.01)  # between looks at a condition
                    ticks += 1
            assert ticks > 3
            assert not item.is_lost
            assert await item.acomplete()
        assert [task.get_name() for task in asyncio.all_tasks() if "heartbeat" in task.get_name()] == []

    run(app, use())


def test_an_item_that_is_claimed_just_before_heartbeat_rests_is_renewed_in_time(
    app: Holdfast, items: Items, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.items.heartbeat.MAX_INTERVAL", 600.0)
    next_due, claimed = items._heartbeat._next_due, list[Item]()

    def claim_at_the_last_moment() -> float:
        due = next_due()
        if app.count(state="succeeded") and not claimed:
            claimed.append(got(items, lease="1s"))
        return due

    for id in ("first", "a"):
        items.put(b"", id=id)
    monkeypatch.setattr(items._heartbeat, "_next_due", claim_at_the_last_moment)
    with items:
        first = got(items, lease="2s")
        before = timer(app, "first")
        until(lambda: timer(app, "first") > before, what="a renewal")
        assert first.complete()  # it was to be looked at again soon, and from now on not for long
        until(lambda: claimed, what="the claim")
        before = timer(app, "a")
        until(lambda: timer(app, "a") > before, what="a renewal")
        assert claimed[0].complete()


def test_the_heartbeat_marks_cancelled_and_lost_items(app: Holdfast, items: Items) -> None:
    with items:
        for id in ("a", "b"):
            items.put(b"", id=id)
        a, b = items.claim_many(2, lease="1s")
        app.cancel("a")
        app.store.run(commands.requeue_orphaned(executor=b.held.executor, reason="a test"))
        until(lambda: b.is_lost, what="the news")
        assert (a.complete(), b.complete()) == (False, False)
    items = app.items("calls")
    items.put(b"", id="c")
    with items:
        c = got(items, lease="1s")
        app.cancel("c")
        until(lambda: c.is_cancelled, what="the news")
        c.release()
    assert app.get("c").state == "cancelled"


def test_leaving_the_block_requeues_unfinished_items_and_deregisters(app: Holdfast) -> None:
    with app.items("mail") as items:
        items.put(b"", id="a")
        item = got(items)
        until(app.workers, what="a sign of life")
        (worker,) = app.workers()
        assert (worker.queues, worker.pid, worker.about["kind"]) == (["mail"], os.getpid(), "program")
        assert [(job.id, job.pid) for job in worker.held] == [("a", os.getpid())]
        assert app.queues()[0].workers == 1
    assert app.workers() == []
    assert app.queues()[0].workers == 0
    assert not item.complete()
    job = app.get("a")
    assert (job.state, job.lost_used, job.attempts[0].outcome) == ("waiting", 0, "released")
    assert [thread.name for thread in threading.enumerate() if thread.name == "holdfast-heartbeat"] == []


def test_leaving_by_an_error_raises_that_error_also_if_the_store_is_unreachable(namespace: str) -> None:
    with running_server() as url:
        app = Holdfast(url, namespace=namespace, timeout="1s")
        app.items("mail").put(b"")

        def fail_while_it_is_unreachable() -> None:
            with app.items("mail") as items:
                assert items.claim()
                with suppress(redis.RedisError), redis.Redis.from_url(url) as client:
                    client.execute_command("SHUTDOWN", "NOSAVE")
                raise KeyError("mine")

        with pytest.raises(KeyError, match="mine"):
            fail_while_it_is_unreachable()
        app.close()


def test_heartbeat_survives_a_store_that_is_unreachable(
    app: Holdfast, items: Items, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls, away = [], threading.Event()
    send = app.store.run

    def run(command: commands.Command[T]) -> T:
        if command.function == "renew" and away.is_set():
            calls.append(command)
            raise StoreUnavailable("away")
        return send(command)

    items.put(b"", id="a")
    monkeypatch.setattr(app.store, "run", run)
    with items:
        item = got(items, lease="1m")
        away.set()
        items._heartbeat._wake()
        until(lambda: len(calls) >= 2, what="two tries")
        before = timer(app, "a")
        away.clear()
        until(lambda: timer(app, "a") > before, what="a renewal")
        assert item.complete()


def test_async_heartbeat_survives_a_store_that_is_unreachable_and_so_does_leaving(
    app: Holdfast, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    calls, away = [], set[str]()
    send = app.async_store.run

    async def run_if_there(command: commands.Command[T]) -> T:
        if command.function in away:
            calls.append(command)
            raise StoreUnavailable("away")
        return await send(command)

    async def use() -> None:
        async with app.items("mail") as items:
            await items.aput(b"", id="a")
            item = await agot(items, lease="1m")
            away.add("renew")
            items._heartbeat._wake()
            while len(calls) < 3:
                await asyncio.sleep(0.01)  # between looks at a condition
            before = timer(app, "a")
            away.clear()
            while timer(app, "a") == before or items._heartbeat._is_unreachable:  # until the reply was heard, too
                await asyncio.sleep(0.01)
            away.update(("finish", "requeue_orphaned"))
        assert not item.is_lost

    monkeypatch.setattr(app.async_store, "run", run_if_there)
    run(app, use())
    assert app.get("a").state == "running"  # until its lease ends
    assert [record.message for record in caplog.records] == ["leases of items of mail cannot be renewed: away"] * 2


def test_a_program_that_ends_in_the_middle_is_not_held_up_by_its_heartbeat(app: Holdfast, server_url: str) -> None:
    app.items("mail").put(b"", id="a")
    text = f"""
from holdfast import Holdfast
items = Holdfast({server_url!r}, namespace={app.address.namespace!r}).items("mail")
items.__enter__()
print(items.claim().id, flush=True)
"""
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "a\n"
    assert app.get("a").state == "running"


# Waiting


def test_a_claim_without_wait_returns_at_once_and_takes_no_wake_up(app: Holdfast, items: Items) -> None:
    waiting = app.items("mail")
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(waiting.claim, wait="60s")
        idle = f"hf:{{{app.address.namespace}}}:idle:mail"
        until(lambda: app.store.execute("ZCARD", idle) == 1, what="somebody who waits")
        assert not items.claim()
        assert not items.claim(wait="10ms")
        assert app.store.execute("ZCARD", idle) == 1
        items.put(b"", id="a")
        item = future.result(30)
    assert item
    assert item.id == "a"


def test_a_claim_that_waits_is_woken_by_a_put_of_another_process(
    app: Holdfast, items: Items, server_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = f"""
from holdfast import Holdfast
Holdfast({server_url!r}, namespace={app.address.namespace!r}).items("mail").put(b"from afar", id="a")
"""
    pops = []
    execute = app.store.execute

    def watch(*parts: Any, **options: Any) -> Any:
        reply = execute(*parts, **options)
        if parts[0] == "BLPOP":
            pops.append(reply)
        return reply

    monkeypatch.setattr(app.store, "execute", watch)
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(items.claim, wait=None)
        until(lambda: execute("ZCARD", f"hf:{{{app.address.namespace}}}:idle:mail"), what="somebody who waits")
        subprocess.run([sys.executable, "-c", text], cwd=ROOT, timeout=60, check=True)
        item = future.result(30)
    assert item
    assert item.payload == b"from afar"
    assert pops[-1] is not None  # it was told, and did not just look again


def test_a_claim_that_waits_in_an_event_loop_is_woken_and_ends_in_time(app: Holdfast, items: Items) -> None:
    async def use() -> None:
        waiting = asyncio.create_task(items.aclaim(wait="60s"))
        while not await app.async_store.execute("ZCARD", f"hf:{{{app.address.namespace}}}:idle:mail"):
            await asyncio.sleep(0.01)  # between looks at a condition
        await items.aput(b"", id="a")
        item = await waiting
        assert item
        assert await item.acomplete()
        assert not await items.aclaim(wait="20ms")

    run(app, use())


def test_a_waiting_claim_claims_as_often_as_leases_are_renewed(items: Items, server_url: str) -> None:
    def calls() -> int:
        with redis.Redis.from_url(server_url) as client:
            return int(client.info("commandstats").get("cmdstat_fcall", {"calls": 0})["calls"])

    before = calls()
    assert not items.claim(wait="2s", lease="1s")
    assert calls() - before >= 6


def test_an_item_that_becomes_due_ends_the_wait(items: Items) -> None:
    items.put(b"", id="a", delay="50ms")
    assert got(items, wait="30s").id == "a"


# Replies that never came


def test_a_claim_whose_reply_was_lost_is_repeated(items: Items, lossy: Lossy) -> None:
    items.put(b"", id="a")
    lossy.lose_next("claim")
    with pytest.raises(StoreUnavailable):
        items.claim()
    item = got(items)
    assert (item.id, item.attempt) == ("a", 1)
    assert item.complete()


def test_the_heartbeat_releases_items_of_a_claim_whose_reply_was_lost(app: Holdfast, lossy: Lossy) -> None:
    with app.items("mail") as items:
        items.put(b"", id="a", at_most_once=True)
        lossy.lose_next("claim")
        with pytest.raises(StoreUnavailable):
            items.claim()
        items._heartbeat._wake()
        until(lambda: app.get("a").state == "waiting", what="its return")
        lossy.lose_next("claim")
        with pytest.raises(StoreUnavailable):
            items.claim()
    job = app.get("a")
    assert (job.state, job.lost_used) == ("waiting", 0)
    assert {attempt.reason for attempt in job.attempts} == {"the reply to its claim was lost"}


def test_the_claim_slot_with_an_unanswered_claim_is_used_first() -> None:
    holder = ClaimSlots[Item]()
    with holder.slot() as one, holder.slot() as two, holder.slot() as three:
        one.unanswered = {"counter": 1}
    with holder.unanswered_slot() as slot:
        assert slot is one
        with holder.unanswered_slot() as other:
            assert other is None
        with holder.slot() as other:
            assert other in (two, three)
    with holder.slot() as slot:
        assert slot is one


def test_a_claim_that_is_cancelled_at_any_moment_loses_nothing(app: Holdfast) -> None:
    total = 60

    async def use() -> list[str]:
        items = app.items("mail")
        for number in range(total):
            await items.aput(b"", id=f"n{number}", at_most_once=True)
        found: list[str] = []
        for tries in range(2000):
            task = asyncio.create_task(items.aclaim(lease="1h"))
            for _ in range(tries % 40):  # so many steps of the loop, then it is cancelled
                await asyncio.sleep(0)
            task.cancel()
            with suppress(asyncio.CancelledError):
                if item := await task:
                    found.append(item.id)
                    assert await item.acomplete()
                elif tries > 40:
                    break
        while item := await items.aclaim():
            found.append(item.id)
            assert await item.acomplete()
        return found

    found = run(app, use())
    assert sorted(found) == sorted(f"n{number}" for number in range(total))
    assert app.count(state="succeeded") == total


# Processes and threads


def test_threads_that_begin_at_once_have_one_name_and_each_item_goes_to_one(app: Holdfast) -> None:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(5):
            items = app.items("mail")
            for _ in range(32):
                items.put(b"")
            ready = threading.Barrier(16)

            def take(items: Items, ready: threading.Barrier) -> list[Item]:
                ready.wait()
                return [item for _ in range(2) if (item := items.claim())]

            with ThreadPoolExecutor(16) as pool:
                taken = [item for part in pool.map(take, [items] * 16, [ready] * 16) for item in part]
            assert len({item.id for item in taken}) == 32
            assert len({item.held.executor.rpartition(".")[0] for item in taken}) == 1
            assert all(item.complete() for item in taken)
    finally:
        sys.setswitchinterval(interval)


def _in_fork(work: Callable[[], None]) -> int:
    """Run something in a forked process that leaves by unwinding its stack. Returns its exit code."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@FORKS
def test_a_forked_process_that_leaves_does_not_give_back_what_its_parent_holds(app: Holdfast, items: Items) -> None:
    items.put(b"", id="a")
    items.put(b"", id="b")
    with items:
        item = got(items)
        parent = items._slots.current.worker

        def leave_in_child() -> None:
            assert items._slots.current.worker != parent
            other = got(items, lease="1s")
            assert other.id == "b"
            before = timer(app, "b")
            until(lambda: timer(app, "b") > before, what="a renewal by the child's own heartbeat")
            items.__exit__()

        assert _in_fork(leave_in_child) == 0
        assert (app.get("a").state, app.get("b").state) == ("running", "waiting")
        assert not item.is_lost
        assert item.complete()
    assert [thread.name for thread in threading.enumerate() if thread.name == "holdfast-heartbeat"] == []


def test_processes_of_a_pool_share_a_queue_and_nothing_is_done_twice(
    app: Holdfast, server_url: str, tmp_path: Path
) -> None:
    items = app.items("mail")
    for number in range(60):
        items.put(b"%d" % number)
    text = f"""
from holdfast import Holdfast
with Holdfast({server_url!r}, namespace={app.address.namespace!r}).items("mail") as items:
    while item := items.claim(wait="200ms"):
        print(item.payload.decode(), item.complete(), flush=True)
"""
    logs = [tmp_path / f"log{number}" for number in range(3)]
    processes = []
    for log in logs:
        with log.open("wb") as file:
            processes.append(subprocess.Popen([sys.executable, "-c", text], stdout=file, stderr=file))
    assert [process.wait(60) for process in processes] == [0, 0, 0]
    lines = [line.split() for log in logs for line in log.read_text().splitlines()]
    assert sorted(int(number) for number, _ in lines) == list(range(60))
    assert {told for _, told in lines} == {"True"}
    assert app.count(state="succeeded") == 60
    assert app.workers() == []


def test_programs_that_are_killed_lose_no_item_and_complete_none_twice(
    app: Holdfast, server_url: str, tmp_path: Path
) -> None:
    text = f"""
import time
from holdfast import Holdfast
with Holdfast({server_url!r}, namespace={app.address.namespace!r}).items("mail") as items:
    while True:
        for item in items.claim_many(5, wait=None, lease="1s"):
            time.sleep(0.01)
            print(item.id, item.complete(), flush=True)
"""
    items, total = app.items("mail"), 200
    for number in range(total):
        items.put(b"", id=f"n{number}", keep=number % 2 == 0, lost=1000)
    logs: list[Path] = []
    running: list[subprocess.Popen[bytes]] = []

    def kill_one() -> None:
        running[0].kill()
        running.pop(0).wait()

    def start() -> None:
        logs.append(tmp_path / f"log{len(logs)}")
        with logs[-1].open("wb") as file:
            running.append(subprocess.Popen([sys.executable, "-c", text], stdout=file, stderr=subprocess.STDOUT))

    def told() -> list[list[str]]:
        return [line.split() for log in logs for line in log.read_text().splitlines()]

    for _ in range(3):
        start()
    try:
        for kills in range(1, 5):
            until(lambda: len(told()) >= 30 * kills, what="progress")  # noqa: B023
            kill_one()
            start()
        until(lambda: app.count(state="pending") == 0, what="the last item")
    finally:
        while running:
            kill_one()
    done = [id for id, answer in told() if answer == "True"]
    assert len(done) == len(set(done)) >= total - 4  # one that was killed may have had no time to say so
    assert app.count(state="succeeded") == total / 2
    assert app.count() == total / 2


def test_the_items_of_a_killed_program_are_requeued(timed: Holdfast, clock: TestClock) -> None:
    items, others = timed.items("mail"), timed.items("mail")
    items.put(b"", id="a")
    got(items)
    for _ in range(2):
        clock.advance(15)
        others.claim_many(1)
    assert timed.get("a").attempt == 2
    assert timed.get("a").lost_used == 1


def test_the_same_items_cannot_be_entered_twice(app: Holdfast, items: Items) -> None:
    async def use() -> None:
        async with items:
            with pytest.raises(Invalid, match="already"):
                await items.__aenter__()
        async with items:  # once more, after that
            pass

    for _ in range(2):
        with items, pytest.raises(Invalid, match="already used in `with`"):
            items.__enter__()
    run(app, use())


def test_heartbeat_of_items_that_were_claimed_before_it_began(app: Holdfast, items: Items) -> None:
    items.put(b"", id="a")
    item = got(items, lease="1m")
    before = timer(app, "a")
    time.sleep(0.002)  # so that the renewal can be told from the claim
    with items:
        until(lambda: timer(app, "a") > before, what="a renewal")
        assert item.complete()
