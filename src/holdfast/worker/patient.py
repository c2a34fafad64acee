"""The store as a supervisor uses it: not known before an executor has imported the app, and away at times."""

from __future__ import annotations

import asyncio
import logging
from typing import TypeVar

from holdfast import errors
from holdfast.commands import Command
from holdfast.store import Address, AsyncStore

log = logging.getLogger("holdfast.worker")

T = TypeVar("T")

TRY_AGAIN_AFTER = 0.2  # seconds


class PatientStore:
    """Runs commands until the store answers. Says once that it is away, and once that it is back."""

    def __init__(self) -> None:
        self._store: AsyncStore | None = None
        self._met = asyncio.Event()
        self._is_away = False
        self._patience_is_over = False

    @property
    def is_known(self) -> bool:
        return self._store is not None

    def meet(self, address: Address) -> None:
        self._store = AsyncStore(address)
        self._met.set()

    async def known(self) -> AsyncStore:
        """Return the store itself, once it is known."""
        while self._store is None:
            await self._met.wait()
        return self._store

    def lose_patience(self) -> None:
        """From now on, raise StoreUnavailable rather than wait."""
        self._patience_is_over = True

    async def run(self, command: Command[T]) -> T:
        store = await self.known()
        while True:
            try:
                reply = await store.run(command)
            except errors.StoreUnavailable as error:
                self._note_away(error)
                if self._patience_is_over:
                    raise
                await asyncio.sleep(TRY_AGAIN_AFTER)
            else:
                self._note_back()
                return reply

    def _note_away(self, error: errors.StoreUnavailable) -> None:
        if not self._is_away:
            log.warning("%s; jobs go on, waiting for it", error)
        self._is_away = True

    def _note_back(self) -> None:
        if self._is_away:
            log.warning("the store is back")
        self._is_away = False

    async def close(self) -> None:
        if self._store is not None:
            await self._store.close()
