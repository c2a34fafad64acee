"""Runs steps of the client that `Holdfast` has no method for, such as one page of a list."""

from __future__ import annotations

from typing import TypeVar

from holdfast.store import Steps, adrive
from holdfast.web.call import Call

T = TypeVar("T")


async def run(call: Call, steps: Steps[T]) -> T:
    """Run steps in the store of a call."""
    return await adrive(steps, call.app.async_store.run)
