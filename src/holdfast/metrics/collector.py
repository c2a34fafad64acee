"""The collector: reads the store at most every few seconds, however many scrapers ask."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from holdfast import errors
from holdfast.metrics.families import UP, Sample
from holdfast.metrics.reading import Memory, Reading, read_store
from holdfast.metrics.text import PROMETHEUS, render, write
from holdfast.store import adrive, drive

if TYPE_CHECKING:
    from holdfast.store import Stores

MAX_AGE = 5.0  # seconds that a reading is used for
SHARE = 20  # a reading that took longer is used for so many times that long


class _Kept(NamedTuple):
    """The last reading, when it was read, and its text by media type."""

    reading: Reading
    read_at: float
    texts: dict[str, str]


class Collector:
    """Reads the metrics of a namespace. `text` and `atext` may be called by any number of scrapers."""

    def __init__(self, stores: Stores, *, max_age: float = MAX_AGE) -> None:
        self._stores = stores
        self._max_age = max_age  # 0: each scrape reads the store
        self._memory = Memory()
        self._kept: _Kept | None = None
        self._lock = threading.Lock()
        self._running: asyncio.Task[Reading] | None = None

    def read(self) -> Reading:
        """Return a reading that is recent.

        Raises:
            StoreUnavailable: the store does not answer.
        """
        with self._lock:
            if (recent := self._recent()) is None:
                recent = self._keep(drive(read_store(self._stores, self._memory), self._stores.store.run))
            return recent

    async def aread(self) -> Reading:
        """Return a reading that is recent, like `read`. Scrapers that ask at the same time share one reading."""
        if (recent := self._recent()) is not None:
            return recent
        if self._running is None or self._running.get_loop() is not asyncio.get_running_loop():
            self._running = asyncio.create_task(self._aread())
            self._running.add_done_callback(self._forget)
        return await asyncio.shield(self._running)

    async def _aread(self) -> Reading:
        return self._keep(await adrive(read_store(self._stores, self._memory), self._stores.async_store.run))

    def _forget(self, done: asyncio.Task[Reading]) -> None:
        self._running = None if self._running is done else self._running
        if not done.cancelled():
            done.exception()  # whoever waited for it has it

    def text(self, media_type: str = PROMETHEUS) -> str:
        """Return the metrics as text.

        Raises:
            StoreUnavailable: the store does not answer.
        """
        return self._render(self.read(), media_type)

    async def atext(self, media_type: str = PROMETHEUS, sees: Callable[[str], bool] | None = None) -> str:
        """Return the metrics as text; if the store does not answer, only `holdfast_store_up 0`.

        `sees` tells whether somebody may see a queue; None: all of them.
        """
        try:
            reading = await self.aread()
        except errors.StoreUnavailable:
            return write([(UP, [Sample((), 0)])], media_type)
        return self._render(reading, media_type) if sees is None else render(reading, media_type=media_type, sees=sees)

    def _render(self, reading: Reading, media_type: str) -> str:
        """Write a reading, or return its text, if it is known."""
        kept = self._kept
        if kept is None or kept.reading is not reading:
            return render(reading, media_type=media_type)
        if media_type not in kept.texts:
            kept.texts[media_type] = render(reading, media_type=media_type)
        return kept.texts[media_type]

    def _recent(self) -> Reading | None:
        kept = self._kept
        if kept is None or not self._max_age:
            return None
        is_recent = time.monotonic() - kept.read_at <= max(self._max_age, SHARE * kept.reading.seconds)
        return kept.reading if is_recent else None

    def _keep(self, reading: Reading) -> Reading:
        self._kept = _Kept(reading, time.monotonic(), {})
        return reading
