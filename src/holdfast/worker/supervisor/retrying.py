"""The store as a supervisor uses it: not known before an executor has imported the app, and away at times."""

from __future__ import annotations

import asyncio
import logging
from typing import TypeVar

from holdfast import errors
from holdfast.store.commands import Command
from holdfast.store.store import Address, AsyncStore

log = logging.getLogger("holdfast.worker")

T = TypeVar("T")

TRY_AGAIN_AFTER = 0.2  # seconds
LAST_CALL = 2.0  # seconds that a call may take when patience is over


class PatientStore:
    """Runs commands until the store answers. Says once that it is away, and once that it is back."""

    def __init__(self) -> None:
        self._store: AsyncStore | None = None
        self._met = asyncio.Event()
        self._is_away = False
        self._patience_is_over = False
        self._is_given_up = False  # since then, it has not answered
        self._limits: set[asyncio.Timeout] = set()  # of the calls that are under way

    @property
    def is_known(self) -> bool:
        return self._store is not None

    @property
    def address(self) -> Address:
        """Where it is, once it is known."""
        if self._store is None:
            raise RuntimeError("the store is not known yet")
        return self._store.address

    def meet(self, address: Address) -> None:
        self._store = AsyncStore(address)
        self._met.set()

    async def known(self) -> AsyncStore:
        """Return the store itself, once it is known."""
        while self._store is None:
            await self._met.wait()
        return self._store

    def lose_patience(self) -> None:
        """From now on, raise StoreUnavailable rather than wait; and after the first call that fails, at once."""
        self._patience_is_over = True
        soon = asyncio.get_running_loop().time() + LAST_CALL
        for limit in self._limits:
            limit.reschedule(soon)

    async def run(self, command: Command[T]) -> T:
        store = await self.known()
        while not self._is_given_up:
            try:
                reply = await self._call(store, command)
            except errors.StoreUnavailable as error:
                self._note_away(error)
                if self._patience_is_over:
                    self._is_given_up = True
                    raise
                await asyncio.sleep(TRY_AGAIN_AFTER)
            else:
                self._note_back()
                return reply
        raise errors.StoreUnavailable(f"{store.address.display} is not waited for any more")

    async def _call(self, store: AsyncStore, command: Command[T]) -> T:
        """Run a command once. One that goes nowhere, as the network swallows it, ends with our patience."""
        try:
            async with asyncio.timeout(LAST_CALL if self._patience_is_over else None) as limit:
                self._limits.add(limit)
                try:
                    return await store.run(command)
                finally:
                    self._limits.discard(limit)
        except TimeoutError:
            raise errors.StoreUnavailable(f"{store.address.display} did not answer within {LAST_CALL:g} s") from None

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
