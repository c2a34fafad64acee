"""Which queues a worker serves now: those that it was told by name, and those that match its patterns.

The store tells a worker that serves patterns when a queue is new, by a word in its inbox; should that be lost, the next
renewal answers another number. Then all names are asked for, and the executors are told.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

from holdfast import errors
from holdfast.store import commands
from holdfast.worker.linux import boot_time
from holdfast.worker.queue_patterns import Patterns
from holdfast.worker.retrying import RetryingStore
from holdfast.worker.settings import MAX_QUEUES, Pool

log = logging.getLogger("holdfast.worker")

LEAST_PAUSE = 0.01  # seconds between two looks at all names; more where there are many
MOST_SHOWN = 10  # names in a line of the log


class ServedQueues:
    """The queues of all pools of a worker. `on_change` hears which pool has other queues than before."""

    def __init__(self, pools: Iterable[Pool], store: RetryingStore, *, on_change: Callable[[str], None]) -> None:
        self._store = store
        self._on_change = on_change
        self._patterns = {pool.name: Patterns(pool.queues) for pool in pools}
        self._now = {name: patterns.expand(()) for name, patterns in self._patterns.items()}
        self._number: int | None = None  # of changes of the queues, when we looked last
        self._wanted = asyncio.Event()
        self._after_look: list[Callable[[], None]] = []
        self._said: set[str] = set()

    @property
    def matches(self) -> bool:
        """Whether there is a pattern, so that the store is to tell of new queues."""
        return any(patterns.wildcards for patterns in self._patterns.values())

    @property
    def names(self) -> list[str]:
        """The names of all queues that are served now, each once; as many as the store hears of in one call."""
        return list(dict.fromkeys(queue for queues in self._now.values() for queue in queues))[:MAX_QUEUES]

    def of(self, pool: Pool) -> dict[str, int] | None:
        """The queues of a pool now, and their weights. None, if they are as it was told and remain so."""
        return self._now[pool.name] if self._patterns[pool.name].wildcards else None

    def serves(self, queue: str) -> bool:
        """Whether a queue of this name is served, or would be if there were one."""
        return any(patterns.serves(queue) for patterns in self._patterns.values())

    # Looking

    def heard(self, number: int) -> None:
        """Of a renewal: so many queues were new, or forgotten, so far. Look, if the number is another."""
        if number != self._number:
            self._number = number
            self._wanted.set()

    def look(self, then: Callable[[], None] | None = None) -> None:
        """Have all names asked for once more, if there are patterns; and then something done."""
        if then:
            self._after_look.append(then)
        self._wanted.set()

    async def keep(self) -> None:
        """Look whenever there is a reason to."""
        while await self._wanted.wait():
            self._wanted.clear()
            then, self._after_look = self._after_look, []
            began = boot_time()
            try:
                if self.matches:
                    self._learn(await self._store.run(commands.queue_names()))
            except errors.Invalid as error:
                self._say(logging.ERROR, f"no new queues can be found: {error}")
            except errors.HoldfastError:
                self._wanted.set()
                raise
            for do in then:
                do()
            await asyncio.sleep(max(LEAST_PAUSE, 10 * (boot_time() - began)))

    def _learn(self, names: list[str]) -> None:
        for pool, patterns in self._patterns.items():
            before, now = self._now[pool], patterns.expand(names)
            self._now[pool] = now
            if patterns.wildcards:
                self._say_change(pool, before, now)
            if list(now.items()) != list(before.items()):
                self._on_change(pool)

    # Words

    def _say_change(self, pool: str, before: dict[str, int], now: dict[str, int]) -> None:
        whose = f"pool {pool}: " if len(self._patterns) > 1 else ""
        patterns = ", ".join(self._patterns[pool].wildcards)
        if new := [queue for queue in now if queue not in before]:
            log.info("%squeues that match %s: %s", whose, patterns, _shown(new))
        if not now:
            self._say(logging.WARNING, f"{whose}no queue matches {patterns} yet; waiting for one")
        if len(now) > MAX_QUEUES:
            self._say(
                logging.WARNING,
                f"{whose}more than {MAX_QUEUES} queues match {patterns}: each claim asks for a part of them, in turn, "
                "so their order is not exact",
            )

    def _say(self, level: int, words: str) -> None:
        """Once."""
        if words not in self._said:
            self._said.add(words)
            log.log(level, "%s", words)


def _shown(names: list[str]) -> str:
    more = f", and {len(names) - MOST_SHOWN} more" if len(names) > MOST_SHOWN else ""
    return ", ".join(names[:MOST_SHOWN]) + more
