"""Client methods in both forms: a test that uses `ask` runs with the sync methods and with their async twins."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from holdfast import Holdfast

Ask = Callable[..., Any]


def sync(app: Holdfast) -> Ask:
    return lambda verb, *args, **options: getattr(app, verb)(*args, **options)


def asynchronous(app: Holdfast) -> Ask:
    def ask(verb: str, *args: Any, **options: Any) -> Any:
        async def run() -> Any:
            try:
                return await getattr(app, f"a{verb}")(*args, **options)
            finally:
                await app.aclose()

        return asyncio.run(run())

    return ask


FACES = {"sync": sync, "async": asynchronous}
