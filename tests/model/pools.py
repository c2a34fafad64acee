"""The model of pools, sets of queues between which the store chooses: the rules at the head of `pools.lua`."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from holdfast.client.queue_patterns import Patterns
from tests.model.job import Job

if TYPE_CHECKING:
    from tests.model.workers import Claiming, Workers

UNUSED = 600_000
TOUCHED = 60_000


def set_id(text: str) -> str:
    return "+" + hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()[:20]


@dataclass
class Entry:
    """A queue as a claim has read it."""

    queue: str
    position: float
    weight: int
    place: int
    load: float = 0.0
    running: float = 0.0
    waiting: float = math.inf
    planned: int = 0
    took: int = 0
    steps: int = 0
    is_new: bool = False
    is_asked: bool = False
    is_exhausted: bool = False


@dataclass
class Pool:
    """A pool that is registered. `ready` has the positions of queues; `filled` the last queue looked at, if not all."""

    text: str
    used: int
    ready: dict[str, float] = field(default_factory=dict)
    filled: str | None = ""

    def __post_init__(self) -> None:
        self.order, *words = self.text.split()
        pairs = [word.partition("=") for word in words]
        self.weights = {name: int(weight or 1) if name[0] != "!" else 0 for name, _, weight in pairs}
        self.places = {name: place for place, (name, _, _) in enumerate(pairs, 1)}
        self.patterns = Patterns(self.weights)

    def entry(self, queue: str) -> str | None:
        """The word to which a queue belongs."""
        if not self.patterns.serves(queue):
            return None
        return queue if queue in self.weights else self.patterns.pattern_of(queue)

    def add(self, queue: str) -> None:
        if word := self.entry(queue):
            self.ready.setdefault(queue, self.places[word] if self.order == "strict" else -1)

    def weight(self, queue: str) -> int:
        return self.weights[self.entry(queue) or ""] if self.order in ("weighted", "fair") else 1

    def in_order(self) -> list[tuple[float, str]]:
        return sorted((position, queue) for queue, position in self.ready.items())


class Pools:
    def __init__(self, model: Workers) -> None:
        self.model = model
        self.all: dict[str, Pool] = {}

    # When a queue may have jobs to claim

    def moved(self, job: Job, before: str, state: str) -> None:
        queue = job.new.queue
        if state == "waiting" or (before == "running" and self.model.settings.value("concurrency", queue)):
            self.mark(queue)

    def mark(self, queue: str) -> None:
        for pool in self.all.values():
            pool.add(queue)

    def look_again(self) -> None:
        for pool in self.all.values():
            pool.filled = ""

    def prune(self, now: int) -> None:
        self.all = {text: pool for text, pool in self.all.items() if pool.used > now - UNUSED}

    def stored(self) -> dict[str, dict[str, float]]:
        return {set_id(text): pool.ready for text, pool in self.all.items() if pool.ready}

    # Claims

    def claim(self, claim: Claiming, now: int) -> bool:
        """Returns whether to claim again at once."""
        pool = self._use(claim.request["pool"], now)
        is_filling = self._fill(pool)
        how = {"strict": self._claim_strictly, "fair": self._claim_fairly}.get(pool.order, self._claim_in_proportion)
        _, is_more = how(pool, claim, now)
        return is_filling or is_more

    def _use(self, text: str, now: int) -> Pool:
        pool = self.all.setdefault(text, Pool(text, now))
        if abs(now - pool.used) >= TOUCHED:
            pool.used = now
        return pool

    def _fill(self, pool: Pool) -> bool:
        if pool.filled is None:
            return False
        most = self.model.steps.filled
        queues = sorted(queue for queue in self.model.queues if queue > (pool.filled or ""))[:most]
        for queue in queues:
            if self.model.index(queue, "waiting"):
                pool.add(queue)
        pool.filled = queues[-1] if len(queues) == most else None
        return len(queues) == most

    def _has_nothing(self, queue: str) -> bool:
        concurrency = self.model.settings.value("concurrency", queue)
        is_full = concurrency and len(self.model.index(queue, "running")) >= concurrency
        return not self.model.index(queue, "waiting") or queue in self.model.paused or bool(is_full)

    def _claim_strictly(self, pool: Pool, claim: Claiming, now: int) -> tuple[bool, bool]:
        visits, stay, most = 0, 0, self.model.steps.visited
        while visits < most:
            page = min(20, most - visits)
            queues = [queue for _, queue in pool.in_order()[stay : stay + page]]
            gone: list[str] = []
            for queue in queues:
                _, is_complete = self.model.take_from(queue, claim.left, claim, now)
                if is_complete:
                    self._drop(pool, gone)
                    return True, True
                if self._has_nothing(queue):
                    gone.append(queue)
                else:
                    stay += 1
            self._drop(pool, gone)
            visits += len(queues)
            if len(queues) < page:
                return False, False
        return False, True

    def _drop(self, pool: Pool, queues: list[str]) -> None:
        for queue in queues:
            pool.ready.pop(queue, None)

    def _read(self, pool: Pool, count: int) -> list[Entry]:
        known = [position for position in pool.ready.values() if position >= 0]
        entries = []
        for place, (position, queue) in enumerate(pool.in_order()[:count], 1):
            at = position if position >= 0 else min(known, default=0.0)
            weight = pool.weight(queue)
            entries.append(Entry(queue, at, weight, place, load=at, running=at * weight, is_new=position < 0))
        return entries

    def _plan(self, entries: list[Entry], count: int, most: float = math.inf) -> list[Entry]:
        """One after the other of the one furthest behind, or with the fewest running jobs."""
        chosen: list[Entry] = []
        while count:
            open_ones = [each for each in entries if each.waiting and not each.is_exhausted and each.load <= most]
            if not open_ones:
                break
            entry = min(open_ones, key=lambda entry: (entry.load, entry.place))
            if not entry.planned:
                chosen.append(entry)
            entry.planned, entry.waiting, entry.running = entry.planned + 1, entry.waiting - 1, entry.running + 1
            entry.load = entry.running / entry.weight
            count -= 1
        return chosen

    def _take(self, claim: Claiming, chosen: list[Entry], now: int) -> bool:
        for entry in chosen:
            took, is_complete = self.model.take_from(entry.queue, entry.planned, claim, now)
            entry.took, entry.is_asked, entry.steps = entry.took + took, True, max(entry.took + took, 1)
            entry.is_exhausted, entry.planned = took < entry.planned, 0
            if is_complete:
                return True
        return False

    def _store(self, pool: Pool, entries: list[Entry]) -> int:
        count = 0
        for entry in entries:
            if entry.is_asked and not entry.took and self._has_nothing(entry.queue):
                self._drop(pool, [entry.queue])
                count += 1
            elif entry.steps or entry.is_new:
                pool.ready[entry.queue] = entry.position + entry.steps / entry.weight
                count += entry.took > 0
        return count

    def _claim_in_proportion(self, pool: Pool, claim: Claiming, now: int) -> tuple[bool, bool]:
        visits, most = 0, self.model.steps.visited
        asked: set[str] = set()
        while visits < most:
            size = min(max(claim.left, 20), most - visits)
            entries = self._read(pool, size)
            last = entries[-1].position if len(entries) == size else math.inf
            is_complete, here = False, 0
            before = len(asked)
            while here < most and not is_complete and (chosen := self._plan(entries, claim.left, last)):
                here += len(chosen)
                asked.update(entry.queue for entry in chosen)
                is_complete = self._take(claim, chosen, now)
            count = self._store(pool, entries)
            if is_complete:
                return True, True
            if not count and len(asked) == before:
                return False, False
            visits += here
        return False, True

    def _claim_fairly(self, pool: Pool, claim: Claiming, now: int) -> tuple[bool, bool]:
        most = self.model.steps.visited
        window = self._read(pool, most)
        for entry in window:
            entry.waiting = 0 if entry.queue in self.model.paused else len(self.model.index(entry.queue, "waiting"))
            entry.running = len(self.model.index(entry.queue, "running"))
            entry.load = entry.running / entry.weight
        is_complete = False
        while not is_complete and (chosen := self._plan(window, claim.left)):
            is_complete = self._take(claim, chosen, now)
        is_full = len(window) == most
        for entry in window:
            entry.is_asked = entry.is_asked or entry.waiting == 0
            if is_full or entry.is_asked:
                entry.steps = entry.steps or 1
        self._store(pool, window)
        return is_complete, is_full
