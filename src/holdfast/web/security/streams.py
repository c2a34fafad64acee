"""Answers that last: they end soon after the user loses the rights with which they began; and nobody has too many."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable
from time import monotonic
from typing import TypeVar

from holdfast.web.problems import RETRY_AFTER, Problem

INTERVAL = 15.0  # seconds between two looks
MAX_STREAMS = 100  # that one user has at once; a server has 1,000 connections for all

T = TypeVar("T")


async def while_allowed(
    parts: AsyncIterable[T], is_allowed: Callable[[], Awaitable[bool]], now: Callable[[], float] = monotonic
) -> AsyncIterator[T]:
    """Yield the parts of an answer as long as its user may see them."""
    checked_at = now()
    try:
        async for part in parts:
            if now() - checked_at >= INTERVAL:
                if not await is_allowed():
                    return
                checked_at = now()
            yield part
    finally:
        if close := getattr(parts, "aclose", None):
            await close()


class Streams:
    """Counts the streams of each user, so that one cannot take all connections."""

    def __init__(self) -> None:
        self._open: Counter[str] = Counter()

    def check(self, user: str) -> None:
        """Raise a problem if a user has as many streams as one may have."""
        if self._open[user] >= MAX_STREAMS:
            detail = f"{user} has {MAX_STREAMS} streams open already; close some"
            raise Problem(503, "BUSY", detail, {"Retry-After": str(RETRY_AFTER)})

    async def counted(self, user: str, parts: AsyncIterator[T]) -> AsyncIterator[T]:
        """Yield the parts of a stream, which counts from the first to the end."""
        self._open[user] += 1
        try:
            async for part in parts:
                yield part
        finally:
            self._open[user] -= 1
            self._open += Counter()  # forget those who have none
            if close := getattr(parts, "aclose", None):
                await close()
