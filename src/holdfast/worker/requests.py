"""What a running job asks its executor for, and waits for the answer: a step that is kept, or that all is saved.

An answer is the code of an error, '' if there is none, and a value, or the words of the error.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, TypeVar

from holdfast import commands, errors
from holdfast.commands import Command
from holdfast.store import AsyncStore
from holdfast.worker.attempt import Attempt

log = logging.getLogger("holdfast.worker")

T = TypeVar("T")

TRY_AGAIN_AFTER = 0.5  # seconds


async def answer(store: AsyncStore, attempt: Attempt, word: str, *parts: Any) -> tuple[str, Any]:
    try:
        if word == "flush":
            await attempt.all_sent()
            return "", None
        step, result = parts
        command = commands.once(attempt.held, step, result, created=attempt.job.created)
        return "", await _insist(store, attempt, command)
    except errors.HoldfastError as error:
        if isinstance(error, errors.LeaseLost) and attempt.outcome is None:  # or that would not be reported
            attempt.interrupt("lost")
        return type(error).code, str(error)
    except Exception as error:  # of ours: without an answer the job would wait for ever
        log.exception("%s: attempt %d asked for %s, which failed", *attempt.key, word)
        return errors.HoldfastError.code, f"the worker failed: {error!r}"


async def _insist(store: AsyncStore, attempt: Attempt, command: Command[T]) -> T:
    """Run a command until the store answers, or the attempt is to end."""
    while True:
        try:
            return await store.run(command)
        except (errors.StoreUnavailable, OSError, RuntimeError):  # or this machine has no descriptors or threads left
            if attempt.why:
                raise
            await asyncio.sleep(TRY_AGAIN_AFTER)
