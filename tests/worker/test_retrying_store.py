"""Calls to the store are repeated until it answers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from holdfast.errors import Invalid, StoreUnavailable
from holdfast.store import Address, commands
from holdfast.worker.retrying_store import RetryingStore, retry_until_answered


def failing(*errors: Exception) -> Callable[[], Awaitable[str]]:
    """Return a call that raises these errors, then answers."""
    left = list(errors)

    async def call() -> str:
        if left:
            raise left.pop(0)
        return "answer"

    return call


def test_a_call_is_repeated_until_it_returns() -> None:
    seen: list[Exception] = []
    away = [StoreUnavailable("one"), StoreUnavailable("two")]

    reply = asyncio.run(retry_until_answered(failing(*away), on_error=seen.append, pause=0.001))

    assert (reply, seen) == ("answer", away)


def test_other_errors_and_those_to_give_up_on_are_raised_at_once() -> None:
    with pytest.raises(Invalid):
        asyncio.run(retry_until_answered(failing(Invalid("no"))))
    with pytest.raises(StoreUnavailable, match="two"):
        asyncio.run(
            retry_until_answered(
                failing(StoreUnavailable("one"), StoreUnavailable("two")),
                give_up=lambda error: str(error) == "two",
                pause=0.001,
            )
        )


def test_the_pause_doubles_up_to_its_maximum(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr("random.uniform", lambda _, high: high)
    monkeypatch.setattr(asyncio, "sleep", sleep)
    away = [StoreUnavailable("away")] * 4

    asyncio.run(retry_until_answered(failing(*away), pause=0.1, max_pause=0.5))

    assert pauses == [0.1, 0.2, 0.4, 0.5]


def test_a_failure_after_the_end_of_retries_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def call_twice() -> None:
        store = RetryingStore()
        store.connect(Address(f"unix://{tmp_path}/none.sock", None, "test", 0.1))
        store.stop_retrying()
        for _ in range(2):
            with pytest.raises(StoreUnavailable):
                await store.run(commands.limits())
        await store.close()

    asyncio.run(call_twice())

    assert [record.getMessage().rpartition("; ")[2] for record in caplog.records if record.levelname == "WARNING"] == [
        "not retried, as the worker is stopping"
    ]


def test_an_outage_that_is_logged_is_not_logged_again_when_retries_end(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def stop_in_an_outage() -> None:
        store = RetryingStore()
        store.connect(Address(f"unix://{tmp_path}/none.sock", None, "test", 0.1))
        calling = asyncio.create_task(store.run(commands.limits()))
        while "retrying" not in caplog.text:
            await asyncio.sleep(0.01)
        store.stop_retrying()
        with pytest.raises(StoreUnavailable):
            await calling
        await store.close()

    asyncio.run(stop_in_an_outage())

    assert len([record for record in caplog.records if record.levelname == "WARNING"]) == 1
