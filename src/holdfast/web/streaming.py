"""Answers that last: server-sent events, with a comment now and then so that nobody takes the connection for dead."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any, TypeVar

import msgspec
from starlette.requests import Request

from holdfast.web.background import background_of
from holdfast.web.call import Call

T = TypeVar("T")

EVENT_STREAM = "text/event-stream"
COMMENT_INTERVAL = 15.0  # seconds without anything else to send
RETRY = 2000  # milliseconds after which a browser connects again
HEADERS = {"X-Accel-Buffering": "no"}  # for proxies that would wait for more
PREFER = {"Prefer": "wait=30: wait up to that number of seconds for the end, and 60"}
LAST_EVENT_ID = {"Last-Event-ID": "id of the last event that was received; the stream resumes after it"}
MAX_WAIT = 60.0  # seconds that a request may wait for something to end

_WEIGHT = re.compile(r"[01](\.\d{0,3})?", re.ASCII)
_WAIT = re.compile(r"\s*wait\s*=\s*\"?(\d{1,9})\"?\s*")


def preferred(request: Request, *offered: str) -> str:
    """Return the media type that a request prefers: of several, the first that is offered; without any, the first.

    Wildcards do not count: a client that names a type besides `*/*` wants that one.
    """
    accepted = [each.split(";") for each in request.headers.get("accept", "").lower().split(",")]
    weights = {name.strip(): _weight(parameters) for name, *parameters in accepted}
    return max(offered, key=lambda each: weights.get(each.partition(";")[0], 0.0))


def _weight(parameters: list[str]) -> float:
    """Return how much a media type is preferred, by its parameter `q`."""
    given = [text.strip() for name, _, text in (each.partition("=") for each in parameters) if name.strip() == "q"]
    if not given:
        return 1.0
    return float(given[0]) if _WEIGHT.fullmatch(given[0]) else 0.0


def wait_of(request: Request) -> float | None:
    """Return how many seconds a request prefers to wait, at most; None if it does not say: `Prefer: wait=30`."""
    for each in request.headers.get("prefer", "").split(","):
        if found := _WAIT.fullmatch(each.lower()):
            return min(float(found[1]), MAX_WAIT)
    return None


def sse(data: Any, *, id: str = "", event: str = "") -> bytes:
    """Return a server-sent event. JSON has no line breaks, so it is one line."""
    head = f"id: {id}\n" * bool(id) + f"event: {event}\n" * bool(event)
    return head.encode() + b"data: " + msgspec.json.encode(data) + b"\n\n"


async def with_comments(call: Call, messages: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield server-sent events, and a comment whenever there is none for a while."""
    yield f"retry: {RETRY}\n\n".encode()
    async with aclosing(background_of(call.app).parts(messages, COMMENT_INTERVAL)) as parts:
        async for part in parts:
            yield b": nothing new\n\n" if part is None else part


async def until_end(call: Call, source: AsyncIterator[T]) -> AsyncIterator[T]:
    """Yield the parts of a stream that may have no end, until the server shuts down."""
    async with aclosing(background_of(call.app).parts(source)) as parts:
        async for part in parts:
            if part is not None:
                yield part
