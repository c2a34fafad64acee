"""Sends what a running job saves to the store, from its first save to its end.

What a running job asks its executor for, and waits for the answer: a step that is kept, or that all is saved.

An answer is the code of an error, '' if there is none, and a value, or the words of the error.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, TypeVar

from holdfast import errors
from holdfast.store import AsyncStore, Command, commands
from holdfast.worker.attempt import Attempt, Said

log = logging.getLogger("holdfast.worker")

SAVE_EVERY = 0.1  # seconds, at most; of what a job saves in between, only the last is sent
TRY_AGAIN_AFTER = 0.5


async def keep_saving(store: AsyncStore, attempt: Attempt) -> None:
    """Send what the attempt says until it has ended and the last of it is sent, or its lease is lost."""
    while attempt.why != "lost" and (said := await attempt.unsaved()) is not None:
        if await _send(store, attempt, said):
            await attempt.sent()
        await attempt.has_ended_within(SAVE_EVERY)
    await attempt.sent(lost=True)  # the supervisor may have said so


async def _send(store: AsyncStore, attempt: Attempt, said: Said) -> bool:
    """Returns whether that is done with: sent, or refused."""
    created = attempt.job.created
    try:
        command = commands.save(
            attempt.held, said.checkpoint, progress=said.progress, notes=said.notes, created=created
        )
        if await store.run(command):
            attempt.interrupt("cancelled")
    except errors.LeaseLost:
        log.warning("%s: attempt %d has lost its lease, stopping it", *attempt.key)
        attempt.interrupt("lost")
        await attempt.sent(lost=True)
        return False
    except (errors.StoreUnavailable, OSError, RuntimeError):  # or this machine has no descriptors or threads left
        attempt.save_again(said)
        await asyncio.sleep(TRY_AGAIN_AFTER)
        return False
    except errors.HoldfastError as error:
        log.error("%s: %s", attempt.job.id, error)
    return True


T = TypeVar("T")


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
