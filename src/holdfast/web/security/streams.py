"""Answers that last: they end soon after the user loses the rights with which they began."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable
from time import monotonic
from typing import TypeVar

INTERVAL = 15.0  # seconds between two looks

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
