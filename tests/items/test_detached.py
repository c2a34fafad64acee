"""Detached items: a token is the right to renew and end them, from any process."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from holdfast import Holdfast, Invalid, LeaseLost, StoreUnavailable, TooBig, WrongState
from holdfast.items.items import Items
from holdfast.job.outcome import Succeed
from holdfast.store import commands
from holdfast.store.store import Store
from tests.conftest import TestClock
from tests.items.test_items import FORKS, Lossy, _in_fork, agot, app, got, items, lossy, run, timed, timer
from tests.store.lua.test_state_machine import ONE, TWO, end, put, take
from tests.support.workers import until

__all__ = ["app", "items", "lossy", "timed"]


def detached(items: Items, id: str = "a", **options: Any) -> str:
    items.put(b"x", id=id, **options)
    return got(items, lease="1h").detach()


# Who may end it


def test_a_detached_item_is_completed_by_its_token_once(app: Holdfast, items: Items) -> None:
    token = detached(items)
    assert re.fullmatch(r"item_[A-Za-z0-9_-]+", token)
    assert app.get("a").executor.startswith("detached/")
    assert items.complete(token, b"done")
    assert (app.get("a").state, app.get("a").result_bytes) == ("succeeded", b"done")
    again: Callable[[], bool]
    for again in (
        lambda: items.complete(token, b"done"),
        lambda: items.fail(token, "no"),
        lambda: items.release(token),
        lambda: items.renew(token),
    ):
        with pytest.raises(LeaseLost, match="item a is no longer held by this token"):
            again()


def test_one_of_many_callers_with_a_token_completes_the_item(items: Items) -> None:
    for number in range(10):
        token = detached(items, f"n{number}", keep=number % 2 == 0)

        def complete(_: int, token: str = token) -> bool:
            try:
                return items.complete(token)
            except LeaseLost:
                return False

        with ThreadPoolExecutor(6) as pool:
            assert sum(pool.map(complete, range(6))) == 1


def test_another_process_completes_it(app: Holdfast, items: Items, server_url: str) -> None:
    token = detached(items)
    text = f"""
import sys
from holdfast import Holdfast
items = Holdfast({server_url!r}, namespace={app.address.namespace!r}).items("mail")
items.renew(sys.argv[1], b"half")
items.complete(sys.argv[1], b"from afar")
"""
    subprocess.run([sys.executable, "-c", text, token], timeout=60, check=True)
    assert app.get("a").result_bytes == b"from afar"
    assert app.get("a").checkpoint_bytes == b"half"


def test_the_program_that_detached_an_item_can_no_longer_end_it(app: Holdfast, items: Items) -> None:
    items.put(b"", id="a")
    with items:
        item = got(items, lease="1s")
        token = item.detach()
        assert not item.complete(b"mine")
        with pytest.raises(LeaseLost):
            item.renew()
        with pytest.raises(LeaseLost, match="was already detached"):
            item.detach()
    assert app.get("a").state == "running"  # leaving gives back what is held
    assert items.complete(token, b"theirs")
    assert app.get("a").result_bytes == b"theirs"


def test_the_end_of_a_block_does_not_end_an_item_detached_in_it(app: Holdfast, items: Items) -> None:
    items.put(b"", id="a")
    with items.claim() as item:
        assert item
        token = item.detach()
    assert app.get("a").state == "running"
    assert items.release(token)


def test_a_detached_item_is_renewed_by_its_token_only_and_comes_back(timed: Holdfast, clock: TestClock) -> None:
    items = timed.items("mail")
    items.put(b"", id="a")
    item = got(items, lease="10s")
    clock.advance(4)
    token = item.detach()
    assert timer(timed, "a") == clock() + 10_000  # the lease starts again
    for _ in range(4):
        clock.advance(4)
        assert not items.renew(token)
        assert not items.claim()
    for _ in range(3):
        clock.advance(4)
        again = items.claim()
    assert again
    assert (again.attempt, timed.get("a").lost_used) == (2, 1)
    with pytest.raises(LeaseLost):
        items.complete(token)
    assert again.complete()


def test_a_token_of_an_item_whose_id_is_used_again_is_stale(items: Items) -> None:
    token = detached(items, keep=False)
    assert items.complete(token)
    other = detached(items, keep=False)
    with pytest.raises(LeaseLost):
        items.complete(token)
    assert items.complete(other)


def test_the_holder_of_a_token_can_fail_release_and_learn_of_a_cancellation(app: Holdfast, items: Items) -> None:
    assert items.fail(detached(items, "a"), "never", final=True)
    assert app.get("a").state == "failed"
    assert items.release(detached(items, "b"), delay="1h", reason="the shop is closed")
    assert (app.get("b").state, app.get("b").attempts[0].reason) == ("scheduled", "the shop is closed")
    token = detached(items, "c")
    assert items.renew(token) is False
    app.cancel("c")
    assert items.renew(token) is True
    assert items.release(token)
    assert app.get("c").state == "cancelled"


def test_a_detached_item_has_no_stack(app: Holdfast, items: Items) -> None:
    detached(items)
    with pytest.raises(WrongState, match="no process is known to work on it"):
        app.stack("a")


def test_an_item_that_is_to_be_cancelled_stays_so_when_it_is_detached(app: Holdfast, items: Items) -> None:
    items.put(b"", id="a")
    item = got(items)
    app.cancel("a")
    assert items.renew(item.detach()) is True


def test_the_async_calls_do_what_the_sync_ones_do(app: Holdfast, items: Items) -> None:
    async def use() -> None:
        ends: list[Callable[[str], Any]] = [
            lambda token: items.acomplete(token, b"1"),
            lambda token: items.afail(token, "no", final=True),
            lambda token: items.arelease(token, delay="1h"),
        ]
        for end_it in ends:
            await items.aput(b"")
            token = await (await agot(items)).adetach()
            assert await items.arenew(token, b"half") is False
            assert await end_it(token)
            with pytest.raises(LeaseLost):
                await end_it(token)

    run(app, use())
    assert {state: app.count(state=state) for state in ("succeeded", "failed", "scheduled")} == {
        "succeeded": 1,
        "failed": 1,
        "scheduled": 1,
    }


@FORKS
def test_a_forked_process_may_end_what_its_parent_detached(app: Holdfast, items: Items) -> None:
    token = detached(items)
    assert _in_fork(lambda: None if items.complete(token) else sys.exit(1)) == 0
    assert app.get("a").state == "succeeded"


def test_leaving_the_block_does_not_release_detached_items(app: Holdfast, caplog: pytest.LogCaptureFixture) -> None:
    items = app.items("mail")
    with items:
        token = detached(items)
        until(app.workers, what="a heartbeat")
    assert app.workers() == []
    assert [record for record in caplog.records if "dropped" in record.getMessage()] == []
    assert items.complete(token)


# Replies that never came


def test_a_detach_whose_reply_was_lost_is_called_again(app: Holdfast, items: Items, lossy: Lossy) -> None:
    items.put(b"", id="a")
    item = got(items)
    lossy.lose_next("detach")
    with pytest.raises(StoreUnavailable):
        item.detach()
    executor = app.get("a").executor
    token = item.detach()
    assert app.get("a").executor == executor
    assert items.complete(token)


def test_a_lost_item_cannot_be_detached(items: Items) -> None:
    items.put(b"", id="a")
    item = got(items)
    items.store.run(commands.requeue_orphaned(executor=item.held.executor, reason="a test"))
    with pytest.raises(LeaseLost, match="it was not detached"):
        item.detach()
    assert item.is_lost


# Malformed tokens


def test_malformed_and_truncated_tokens_are_refused(app: Holdfast, items: Items) -> None:
    token = detached(items)
    cut = [token[:-1], token[:30], token[:20] + ("A" if token[20] != "A" else "B") + token[21:]]
    for bad, words in [
        *((text, "is damaged") for text in cut),
        ("", "expected the token of an item"),
        ("a", "expected the token of an item"),
        (token + "\n", "expected the token of an item"),
        (f" {token}", "expected the token of an item"),
        ("item_" + "A" * 100_000, "expected the token of an item"),
        (None, "expected the token of an item"),
        (token.encode(), "expected the token of an item"),
    ]:
        for call in (items.renew, items.complete, items.release, lambda text: items.fail(text, "no")):
            with pytest.raises(Invalid, match=words):
                call(bad)  # type: ignore[arg-type]
    with pytest.raises(Invalid, match="an item of queue mail, not other"):
        app.items("other").complete(token)
    with pytest.raises(Invalid, match="encode it first"):
        items.complete(token, "text")  # type: ignore[arg-type]
    with pytest.raises(TooBig):
        items.complete(token, b"x" * 2_000_000)
    assert items.complete(token)


def test_every_flipped_character_of_a_token_is_noticed(items: Items) -> None:
    token = detached(items)
    for place in range(5, len(token) - 1):  # of the last one some bits may be unused
        other = "A" if token[place] != "A" else "B"
        with pytest.raises(Invalid):
            items.renew(token[:place] + other + token[place + 1 :])
    assert not items.renew(token)


# In the store


def test_a_lease_goes_to_no_executor_that_is_a_process(store: Store) -> None:
    put(store, "a")
    take(store)
    with pytest.raises(Invalid, match="expected `to` as detached/"):
        store.run(commands.detach(commands.Lease(ONE, "a", 1), TWO))
    for to in ("detached/", "detached/a", "detached/a.b", "detached/" + "a" * 40 + ".0"):
        with pytest.raises(Invalid):
            store.run(commands.detach(commands.Lease(ONE, "a", 1), to))
    assert end(store, "a", Succeed(b"")) == "OK"


def test_a_claim_that_is_repeated_does_not_get_what_was_detached_since(store: Store) -> None:
    put(store, "a", "b")
    request = commands.claim_args(["q"], counter=1, limit=2)
    assert len(store.run(commands.claim(ONE, request)).jobs) == 2
    store.run(commands.detach(commands.Lease(ONE, "a", 1), "detached/t.0"))
    assert [job.id for job in store.run(commands.claim(ONE, request)).jobs] == ["b"]
