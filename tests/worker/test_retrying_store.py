"""Calls to the store are repeated until it answers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from holdfast.errors import Invalid, StoreUnavailable
from holdfast.worker.retrying_store import retry_until_answered


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
