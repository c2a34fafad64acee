"""Who holds an item: a variable, a list or a `with` block; and items that were dropped."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from typing import Any

import pytest

from holdfast import Holdfast, Invalid, LeaseLost, StoreUnavailable
from holdfast.items.item import NO_ITEM, Item
from holdfast.items.items import Items
from holdfast.store import commands
from tests.conftest import TestClock
from tests.items.test_items import FORKS, Lossy, _in_fork, agot, app, got, items, lossy, run, timed, timer
from tests.support.workers import ROOT, until

__all__ = ["app", "items", "lossy", "timed"]


@pytest.fixture(autouse=True)
def nobody_has_warned(monkeypatch: pytest.MonkeyPatch) -> None:
    """The warning is logged once per process; let each test start without it."""
    monkeypatch.setattr("holdfast.items.held_items._has_warned", False)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "holdfast.items"]


# Dropped


def test_a_dropped_item_is_not_renewed_and_is_requeued(
    app: Holdfast, items: Items, caplog: pytest.LogCaptureFixture
) -> None:
    with items:
        for id in ("a", "b", "c"):
            items.put(b"", id=id)
        held = got(items, lease="1s")
        for _ in range(2):
            got(items, lease="1s")  # dropped at once
        again = sorted(got(items, wait="30s", lease="1m").id for _ in range(2))
        assert again == ["b", "c"]
        assert (app.get("b").lost_used, held.is_lost, held.complete()) == (1, False, True)
    (message,) = warnings(caplog)
    assert "item b of mail was dropped" in message
    assert "with items.claim() as item" in message


def test_a_dropped_item_is_not_renewed_in_an_event_loop_either(
    app: Holdfast, items: Items, caplog: pytest.LogCaptureFixture
) -> None:
    async def use() -> None:
        async with items:
            for id in ("a", "b"):
                await items.aput(b"", id=id)
            held = [await agot(items, lease="1s")]
            await agot(items, lease="1s")
            assert (await agot(items, wait="30s", lease="1m")).id == "b"
            assert await held.pop().acomplete()

    run(app, use())
    assert len(warnings(caplog)) == 1


def test_items_in_a_list_are_held_until_the_list_is_dropped(app: Holdfast, items: Items) -> None:
    with items:
        for number in range(5):
            items.put(b"", id=f"n{number}")
        held = items.claim_many(5, lease="1s")
        for _ in range(2):
            before = timer(app, "n4")
            until(lambda: timer(app, "n4") > before, what="a renewal")  # noqa: B023
        assert not any(item.is_lost for item in held)
        assert held.pop().complete()
        held.clear()
        assert sorted(got(items, wait="30s", lease="1m").id for _ in range(4)) == ["n0", "n1", "n2", "n3"]


def test_dropping_items_outside_of_with_is_logged_once_at_the_next_claim(
    items: Items, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(3):
        items.put(b"")
        got(items, lease="1h")
    assert not items.claim()
    assert len(warnings(caplog)) == 1


def test_items_that_have_ended_may_be_dropped(items: Items, caplog: pytest.LogCaptureFixture) -> None:
    ends: list[Any] = [Item.complete, lambda item: item.fail("no"), Item.release]
    with items:
        for end in ends:
            items.put(b"", priority=-1)
            assert end(got(items))
        items.put(b"", id="lost")
        lost = got(items)
        items.store.run(commands.requeue_orphaned(executor=lost.held.executor, reason="a test"))
        with pytest.raises(LeaseLost):
            lost.renew()
        del lost
    assert warnings(caplog) == []


@FORKS
def test_an_item_dropped_by_a_forked_copy_still_belongs_to_the_parent(
    app: Holdfast, items: Items, caplog: pytest.LogCaptureFixture
) -> None:
    items.put(b"", id="a")
    with items:
        held = [got(items, lease="1s")]

        def drop_in_child() -> None:
            held.clear()
            assert not items.claim()
            assert warnings(caplog) == []

        assert _in_fork(drop_in_child) == 0
        for _ in range(2):
            before = timer(app, "a")
            until(lambda: timer(app, "a") > before, what="a renewal")  # noqa: B023
        assert held[0].complete()


@pytest.mark.parametrize(
    "held", ["item = items.claim()", "held = [items.claim()]", "item = items.claim(); item.itself = item"]
)
def test_a_program_that_exits_while_it_holds_items_logs_nothing(app: Holdfast, server_url: str, held: str) -> None:
    """A global is dropped at the very end of an interpreter, without a warning."""
    app.items("mail").put(b"", id="a")
    text = f"""
from holdfast import Holdfast
items = Holdfast({server_url!r}, namespace={app.address.namespace!r}).items("mail")
items.__enter__()
{held}
"""
    ran = subprocess.run(
        [sys.executable, "-X", "dev", "-c", text], check=False, capture_output=True, timeout=60, cwd=ROOT
    )
    assert (ran.returncode, ran.stderr) == (0, b"")
    assert app.get("a").state == "running"


# With


def test_an_item_is_completed_when_its_block_ends(app: Holdfast, items: Items) -> None:
    items.put(b"x", id="a")
    with items.claim() as item:
        assert item is not None
        assert item.payload == b"x"
    assert (app.get("a").state, app.get("a").result_bytes) == ("succeeded", b"")


def test_a_block_without_an_item_gets_none(app: Holdfast, items: Items) -> None:
    with items.claim() as item:
        assert item is None
    with items.claim(wait="10ms") as item:
        assert item is None

    async def use() -> None:
        async with await items.aclaim() as nothing:
            assert nothing is None

    run(app, use())


def test_no_item_is_false_and_its_attributes_raise_a_clear_error() -> None:
    assert not NO_ITEM
    assert repr(NO_ITEM) == "<no item>"
    with pytest.raises(AttributeError, match="no item was claimed"):
        NO_ITEM.payload  # type: ignore[attr-defined]  # noqa: B018


@pytest.mark.parametrize(
    ("end", "state"),
    [
        (lambda item: item.complete(b"mine"), "succeeded"),
        (lambda item: item.fail("no", final=True), "failed"),
        (lambda item: item.release(delay="1h"), "scheduled"),
    ],
)
def test_an_outcome_given_inside_the_block_stands(app: Holdfast, items: Items, end: Any, state: str) -> None:
    items.put(b"", id="a")
    with items.claim() as item:
        assert end(item)
    job = app.get("a")
    assert job.state == state
    assert job.result_bytes == (b"mine" if state == "succeeded" else None)


def test_an_exception_fails_the_item_and_uses_up_a_retry(timed: Holdfast, clock: TestClock) -> None:
    items = timed.items("mail")
    items.put(b"", id="a", retries=1, backoff="20s")

    def send() -> None:
        with items.claim() as item:
            assert item
            raise KeyError("no such address")

    with pytest.raises(KeyError, match="no such address"):
        send()
    assert timed.get("a").state == "scheduled"
    clock.advance(20)
    with pytest.raises(KeyError):
        send()
    job = timed.get("a")
    assert (job.state, job.retries_used) == ("failed", 1)
    failure = job.attempts[-1].failure
    assert failure
    assert (failure.type, failure.group) == ("KeyError", "KeyError")
    assert "in send" in failure.traceback


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_an_interrupted_program_releases_its_item_without_using_up_a_retry(
    app: Holdfast, items: Items, error: type[BaseException]
) -> None:
    items.put(b"", id="a")

    def be_interrupted() -> None:
        with items.claim() as item:
            assert item
            raise error

    with pytest.raises(error):
        be_interrupted()
    job = app.get("a")
    assert (job.state, job.retries_used, job.attempts[0].outcome) == ("waiting", 0, "released")
    assert job.attempts[0].reason == f"interrupted by {error.__name__}"


def test_an_async_block_does_the_same(app: Holdfast, items: Items) -> None:
    async def fail() -> None:
        async with await items.aclaim() as item:
            assert item
            raise KeyError("mine")

    async def sleep(started: asyncio.Event) -> None:
        async with await items.aclaim():
            started.set()
            await asyncio.sleep(3600)

    async def use() -> None:
        for id in ("a", "b", "c"):
            await items.aput(b"", id=id, retries=0)
        async with await items.aclaim() as item:
            assert item
            assert item.id == "a"
        with pytest.raises(KeyError):
            await fail()
        started = asyncio.Event()
        task = asyncio.create_task(sleep(started))
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(app, use())
    assert [app.get(id).state for id in ("a", "b", "c")] == ["succeeded", "failed", "waiting"]


def test_a_block_whose_item_was_lost_raises_lease_lost(items: Items) -> None:
    def work() -> None:
        with items.claim() as item:
            assert item
            items.store.run(commands.requeue_orphaned(executor=item.held.executor, reason="a test"))

    items.put(b"", id="a")
    with pytest.raises(LeaseLost, match="item a was not completed: its lease was lost"):
        work()


def test_a_block_that_outlives_its_items_block_raises_lease_lost(app: Holdfast, items: Items) -> None:
    """As that of a thread which nobody has waited for: its item was given back."""
    items.put(b"", id="a")
    with items:
        item = got(items)
    assert (app.get("a").state, item.is_lost) == ("waiting", True)
    with (
        pytest.raises(
            LeaseLost, match="item a was not completed: `with items` ended before its block, and released it"
        ),
        item,
    ):
        pass
    again = got(items)
    with pytest.raises(KeyError), item:
        raise KeyError  # the error of the block comes first
    assert again.complete()


def test_an_error_of_the_block_is_raised_even_if_the_store_is_unreachable(
    items: Items, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def be_away(_: Any) -> None:
        raise StoreUnavailable("away")

    def work() -> None:
        with items.claim() as item:
            assert item
            monkeypatch.setattr(items.store, "run", be_away)
            raise KeyError("mine")

    items.put(b"", id="a")
    with pytest.raises(KeyError, match="mine"):
        work()
    assert "the failure of item a could not be stored" in warnings(caplog)[0]


def test_a_block_whose_end_gets_no_reply_raises_store_unavailable(items: Items, lossy: Lossy) -> None:
    def work() -> None:
        with items.claim():
            lossy.lose_next("finish")

    items.put(b"", id="a")
    with pytest.raises(StoreUnavailable):
        work()


# Many


def test_many_items_are_put_at_once(app: Holdfast, items: Items) -> None:
    put = items.put_many([b"1", ("two", b"2"), bytearray(b"3")], priority=3)
    assert [job.created for job in put] == [True] * 3
    assert (put[1].id, app.count(), app.get("two").priority) == ("two", 3, 3)
    assert [item.payload for item in items.claim_many(5)] == [b"1", b"2", b"3"]
    assert [job.created for job in items.put_many([("two", b"other")])] == [False]
    assert items.put_many([]) == []


def test_many_more_than_one_call_holds_are_put_the_fast_way(app: Holdfast, items: Items) -> None:
    put = items.put_many((b"%d" % number for number in range(2500)), fresh=True)
    assert len({job.id for job in put}) == app.count() == 2500

    async def use() -> None:
        assert len(await items.aput_many([b"x"], fresh=True)) == 1

    run(app, use())


@pytest.mark.parametrize(
    ("many", "options", "words"),
    [
        ([b"1", "text"], {}, "expected an item as bytes"),
        ([b"1", ("a b", b"")], {}, "id is"),
        ([b"1", ("a", "text")], {}, "expected an item as bytes"),
        ([b"1", ("a", b"", b"")], {}, "expected an item as bytes"),
        ({"a": b""}, {}, "expected an item as bytes"),
        ([b"1"], {"id": "a"}, r"put_many\(\[\(id, payload\)"),
        ([b"1"], {"timeout": "1m"}, "no worker runs it"),
    ],
)
def test_what_cannot_be_among_many_is_refused_and_nothing_is_stored(
    app: Holdfast, items: Items, many: Any, options: Any, words: str
) -> None:
    with pytest.raises(Invalid, match=words):
        items.put_many(many, **options)
    assert app.count() == 0


def test_many_items_are_never_kept_on_disk(namespace: str, server_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The outage choice of the app is for tasks: a caller that puts items must know that they are stored."""
    app = Holdfast(server_url, namespace=namespace, when_unreachable="outbox")

    def be_away(_: Any) -> None:
        raise StoreUnavailable("away")

    monkeypatch.setattr(app.store, "run", be_away)
    with pytest.raises(StoreUnavailable):
        app.items("mail").put_many([b"x"])
    assert not os.path.exists(app.outage_policy.outbox.folder / "records")
    app.close()
