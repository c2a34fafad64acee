"""Fills the store of an app with a week, and keeps it alive."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event
from types import TracebackType
from typing import Any, Self, TypeVar
from unittest.mock import patch

from bench.week import shop
from bench.week.shop.world import world
from bench.week.simulation import Clock, SimulatedLoop
from bench.week.story import DAY, Story
from holdfast import Holdfast
from holdfast.running import loops
from holdfast.store import Address, Command, Store

T = TypeVar("T")


def fill_week(app: Holdfast, *, days: float = 7, scale: float = 1.0, seed: int = 7) -> Week:
    """Run the jobs of a week, up to now, in the namespace of an app, which gets the tasks of the shop.

    `scale` multiplies the number of jobs. The same seed tells almost the same story.
    """
    shop.declare(app)
    week = Week(app, days, scale, seed)
    week.fill()
    return week


class Week:
    """A week of jobs that ends now. Leave it open as long as its workers shall live."""

    def __init__(self, app: Holdfast, days: float, scale: float, seed: int) -> None:
        world.reset(seed)
        now = time.time()
        self.app = app
        self._clock = Clock(now - days * DAY)
        self._loop = SimulatedLoop(self._clock)
        self._story = Story(app, self._clock, now, scale)
        self._store = _Store(app.address, clock=self._clock, on_enqueue=self._story.note_enqueued)

    @property
    def jobs(self) -> dict[str, str]:
        """Ids of jobs with a part in the story: `training`, `second training`."""
        return self._story.jobs

    def fill(self) -> None:
        """Run until the simulation has caught up with the clock of the machine."""

        async def run() -> None:
            caught_up = asyncio.Event()
            self._clock.on_live = caught_up.set
            self._playing = asyncio.create_task(self._story.play())
            waiting = asyncio.create_task(caught_up.wait())
            await asyncio.wait({self._playing, waiting}, return_when=asyncio.FIRST_COMPLETED)
            if self._playing.done():
                await self._playing

        with _unchecked(self.app):
            self._run(run())
        self.beat()

    def beat(self) -> None:
        """Send a heartbeat of each worker, so that they are live for another half minute."""
        with self._simulated():
            for worker in self._story.workers:
                worker.beat()

    def live(self, until: Event) -> None:
        """Go on, in real time, until the event is set. Other threads need an app of their own meanwhile."""

        async def run() -> None:
            while not until.is_set() and not self._playing.done():
                await asyncio.sleep(0.5)
            if self._playing.done():
                await self._playing

        self._run(run())

    def close(self) -> None:
        """End; the workers are silent from now on."""
        if not self._loop.is_closed():
            for task in asyncio.all_tasks(self._loop):
                task.cancel()
            self._run(asyncio.sleep(0))
            self._loop.close()
            self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        self.close()

    def _run(self, work: Any) -> None:
        with self._simulated():
            self._loop.run_until_complete(work)

    @contextmanager
    def _simulated(self) -> Iterator[None]:
        """Let calls of the app name the time of the simulation, and its loops save after each item."""
        before, self.app.store = self.app.store, self._store
        try:
            with patch.object(loops, "SAVE_INTERVAL", 0.0):
                yield
        finally:
            self.app.store = before


class _Store(Store):
    """A store that tells which queues have got jobs."""

    def __init__(self, address: Address, *, clock: Clock, on_enqueue: Callable[[set[str]], None]) -> None:
        super().__init__(address, clock=clock)
        self._on_enqueue = on_enqueue

    def run(self, command: Command[T]) -> T:
        reply = super().run(command)
        if command.function == "enqueue":
            self._on_enqueue({batch["queue"] for batch in command.args["batches"]})
        return reply


@contextmanager
def _unchecked(app: Holdfast) -> Iterator[None]:
    """Let the store check nothing for consistency meanwhile: that would be a week's worth of checks."""
    app.configure({"check_rate": 0})
    try:
        yield
    finally:
        app.configure({"check_rate": None})
