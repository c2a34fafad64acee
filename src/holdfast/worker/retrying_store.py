"""The store of a worker: its calls are repeated until the store answers, or the worker stops."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from holdfast import errors
from holdfast.store import Address, AsyncStore, Command

log = logging.getLogger("holdfast.worker")

T = TypeVar("T")

RETRY_DELAY = 0.2  # seconds
LAST_CALL_TIMEOUT = 2.0  # seconds that a call may take once retries have ended


async def retry_until_answered(
    call: Callable[[], Awaitable[T]],
    *,
    retry_on: tuple[type[Exception], ...] = (errors.StoreUnavailable,),
    give_up: Callable[[Exception], bool] = lambda _: False,
    on_error: Callable[[Exception], None] = lambda _: None,
    pause: float = RETRY_DELAY,
    max_pause: float = RETRY_DELAY,
) -> T:
    """Call until the call returns. An error for which `give_up` returns true is raised; `on_error` gets the others.

    The pause doubles up to `max_pause`. If it grows it is also randomized, to spread the load of many executors.
    """
    is_spread = max_pause > pause
    while True:
        try:
            return await call()
        except retry_on as error:
            if give_up(error):
                raise
            on_error(error)
        await asyncio.sleep(pause * random.uniform(0.5, 1) if is_spread else pause)  # noqa: S311, spreads load
        pause = min(2 * pause, max_pause)


class OutageLog:
    """Logs an outage of the store once when it begins and once when it ends."""

    def __init__(self, note: str) -> None:
        self._note = note
        self._is_logged = False

    def failed(self, error: Exception) -> None:
        self._log(error, self._note)

    def gave_up(self, error: Exception) -> None:
        self._log(error, "not retried, as the worker is stopping")

    def _log(self, error: Exception, consequence: str) -> None:
        if not self._is_logged:
            log.warning("%s; %s", error, consequence)
        self._is_logged = True

    def answered(self) -> None:
        if self._is_logged:
            log.warning("the store is back")
        self._is_logged = False


class RetryingStore:
    """The store of a supervisor. It is connected when an executor has imported the app, and retries every command."""

    def __init__(self) -> None:
        self._store: AsyncStore | None = None
        self._connected = asyncio.Event()
        self._outage = OutageLog("running jobs continue, retrying")
        self._retries_ended = False
        self._gave_up = False  # a call has failed since then
        self._timeouts: set[asyncio.Timeout] = set()  # of the calls in progress

    @property
    def is_connected(self) -> bool:
        return self._store is not None

    @property
    def address(self) -> Address:
        """The address of the store, once it is connected."""
        if self._store is None:
            raise RuntimeError("the store is not connected yet")
        return self._store.address

    def connect(self, address: Address) -> None:
        self._store = AsyncStore(address)
        self._connected.set()

    async def connected(self) -> AsyncStore:
        """Wait for the connection and return the store itself."""
        while self._store is None:
            await self._connected.wait()
        return self._store

    def stop_retrying(self) -> None:
        """Stop retrying: a call that fails raises StoreUnavailable; later calls raise it without being sent."""
        self._retries_ended = True
        soon = asyncio.get_running_loop().time() + LAST_CALL_TIMEOUT
        for timeout in self._timeouts:
            timeout.reschedule(soon)

    async def run(self, command: Command[T]) -> T:
        store = await self.connected()
        reply = await retry_until_answered(
            lambda: self._call(store, command), give_up=self._give_up, on_error=self._outage.failed
        )
        self._outage.answered()
        return reply

    async def _call(self, store: AsyncStore, command: Command[T]) -> T:
        """Run a command once, within `LAST_CALL_TIMEOUT` once retries have ended: the network may drop it silently."""
        if self._gave_up:
            raise errors.StoreUnavailable(
                f"{store.address.display} was not called: its last call failed, and the worker is stopping"
            )
        try:
            async with asyncio.timeout(LAST_CALL_TIMEOUT if self._retries_ended else None) as timeout:
                self._timeouts.add(timeout)
                try:
                    return await store.run(command)
                finally:
                    self._timeouts.discard(timeout)
        except TimeoutError:
            raise errors.StoreUnavailable(
                f"{store.address.display} did not answer within {LAST_CALL_TIMEOUT:g} s"
            ) from None

    def _give_up(self, error: Exception) -> bool:
        """Return whether retries have ended. Logs the error, unless it is part of an outage that is logged already."""
        if self._retries_ended:
            self._outage.gave_up(error)
            self._gave_up = True
        return self._gave_up

    async def close(self) -> None:
        if self._store is not None:
            await self._store.close()
