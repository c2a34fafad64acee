"""Sends what running jobs save to the store, and handles what they request from it: `once`, `attach`, `tag` and
`flush`."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, TypeVar

from holdfast import errors
from holdfast.store import AsyncStore, Command, commands
from holdfast.worker.attempt import Attempt
from holdfast.worker.pending_saves import PendingSaves, Update
from holdfast.worker.retrying_store import retry_until_answered

log = logging.getLogger("holdfast.worker")

T = TypeVar("T")

SAVE_INTERVAL = 0.1  # seconds, at least, between two updates of a job; those in between are combined
RETRY_DELAY = 0.5  # seconds
UNAVAILABLE = (errors.StoreUnavailable, OSError, RuntimeError)  # or this machine has no descriptors or threads left


async def send_saves(store: AsyncStore, attempt: Attempt, saves: PendingSaves) -> None:
    """Send the updates of an attempt until it has ended and the last one is stored, or its lease is lost."""
    while not attempt.is_lost and (update := await saves.take()) is not None:
        if await _send(store, attempt, saves, update):
            await saves.acknowledge()
        await saves.ended_within(SAVE_INTERVAL)
    await saves.wake_waiting()  # the supervisor may have reported the lease as lost


async def _send(store: AsyncStore, attempt: Attempt, saves: PendingSaves, update: Update) -> bool:
    """Send an update. Return whether it is done with: stored, or refused for good."""
    checkpoint, progress, notes = update
    try:
        command = commands.save(attempt.lease, checkpoint, progress=progress, notes=notes, created=attempt.job.created)
        if await store.run(command):
            attempt.interrupt("cancelled")
    except errors.LeaseLost:
        log.warning("%s: attempt %d has lost its lease, stopping it", *attempt.key)
        attempt.interrupt("lost")
        await saves.wake_waiting()
        return False
    except UNAVAILABLE:
        saves.put_back(update)
        await asyncio.sleep(RETRY_DELAY)
        return False
    except errors.HoldfastError as error:
        log.error("%s: %s", attempt.job.id, error)
    return True


async def handle_request(store: AsyncStore, attempt: Attempt, name: str, *arguments: Any) -> tuple[str, Any]:
    """Reply to a request of a running job: an error code ('' for none), and a value or the error message."""
    try:
        if name == "flush":
            await attempt.flush()
            return "", None
        if name == "attach":
            return "", await _attach(store, attempt, *arguments)
        if name == "tag":
            return "", await _tag(store, attempt, *arguments)
        step, result = arguments
        return "", await _run(store, attempt, commands.once(attempt.lease, step, result, created=attempt.job.created))
    except errors.HoldfastError as error:
        if isinstance(error, errors.LeaseLost) and attempt.outcome is None:  # or its end would not be reported
            attempt.interrupt("lost")
        return type(error).code, str(error)
    except Exception as error:  # without a reply the job would wait forever
        log.exception("%s: attempt %d requested %s, which failed", *attempt.key, name)
        return errors.HoldfastError.code, f"the worker failed: {error!r}"


async def _attach(store: AsyncStore, attempt: Attempt, fields: dict[str, str], remove: list[str]) -> dict[str, str]:
    command = commands.attach_held(attempt.lease, fields, remove=remove, created=attempt.job.created)
    found = await _run(store, attempt, command)
    if found.cancelling:
        attempt.interrupt("cancelled")
    return found.fields


async def _tag(store: AsyncStore, attempt: Attempt, tags: list[str], remove: list[str]) -> list[str]:
    command = commands.tag_held(attempt.lease, tags, remove=remove, created=attempt.job.created)
    found = await _run(store, attempt, command)
    if found.cancelling:
        attempt.interrupt("cancelled")
    return found.tags


async def _run(store: AsyncStore, attempt: Attempt, command: Command[T]) -> T:
    """Run a command, again while the store is unavailable, unless the attempt is interrupted."""
    return await retry_until_answered(
        lambda: store.run(command),
        retry_on=UNAVAILABLE,
        give_up=lambda _: bool(attempt.interrupt_reason),
        pause=RETRY_DELAY,
        max_pause=RETRY_DELAY,
    )
