"""Apps whose store may be unreachable, for the tests of the outbox."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine
from typing import Any, TypeVar

from holdfast import BoundCall, Holdfast
from holdfast.client.enqueue import Chunk
from holdfast.outbox.entry import Entry
from holdfast.task.task import Task

T = TypeVar("T")
LONG = 10  # seconds: each of these cases took longer when only the operations of a socket had a time-out


def app_at(url: str, choice: Any = None, namespace: str = "default") -> tuple[Holdfast, Task[[int, int], int]]:
    app = Holdfast(url, namespace=namespace, when_unreachable=choice)

    @app.task(name="add")
    def add(x: int, y: int) -> int:
        return x + y

    return app, add


def run_async(app: Holdfast, work: Coroutine[Any, Any, T]) -> T:
    async def run() -> T:
        try:
            return await work
        finally:
            await app.aclose()

    return asyncio.run(run())


def enqueued(app: Holdfast) -> Counter[str]:
    """How often each id was stored."""
    found: Counter[str] = Counter()
    after = "start"
    while events := app.events(after, limit=1000):
        found.update(id for event in events if event.type == "enqueued" for id in event.jobs)
        after = events[-1].id
    return found


def add_to_outbox(app: Holdfast, *calls: BoundCall[Any]) -> None:
    """Add calls to the outbox as if the server were unreachable."""
    app.outage_policy.outbox.add(Entry.of(Chunk.of(app, calls).command, 1_700_000_000_000))
