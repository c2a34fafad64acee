"""A simulation of workers that drain queues: pure, and the same for the same random numbers.

    start what can start ──▶ next event: jobs end, come due or arrive; a limit opens ──▶ ...

A backlog is a number per kind of job, not a list of jobs. While much is left, several jobs are simulated as one chunk,
one after the other in the same slot; chunks get smaller toward the end. So a million jobs take some thousand events,
and the last jobs are simulated one by one. With many slots, a chunk takes several of them at once.
"""

from __future__ import annotations

import heapq
import math
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import count
from random import Random

from holdfast.planning.draws import Draws
from holdfast.planning.model import Kind, LimitState, PoolGroup, Snapshot

HORIZON = 30 * 86_400.0  # seconds that are simulated
MAX_EVENTS = 60_000
CHUNKS = 8  # one after the other, in the time that is left
MAX_CHUNKS = 50  # of one kind, that run at once
FINE = 4_000  # events, after which chunks are twice as large, and so on; less with many queues
MANY = 4  # queues
MAX_STEP = 1.02  # by what factor time passes before it is looked at what holds queues up
TICKS = 200  # arrivals are added this often in the time that has passed
NEWER = -1  # in place of a number of retries: the job is not of the backlog

WEIGHTED = ("weighted", "fair")


class Drained:
    """What became of the backlog of a queue: when it was gone, and what held it up until then."""

    def __init__(self) -> None:
        self.after: float | None = None  # seconds; None: not within the horizon
        self.held_up: Counter[str] = Counter()  # milliseconds by reason
        self.ended = 0  # attempts until then
        self.left = 0.0  # jobs that wait at the end of the simulation
        self.is_cut = False  # the simulation was stopped before the end, because it took too long


class _Jobs:
    """The jobs of one kind that wait, by the number of their retries."""

    def __init__(self, kind: Kind, dice: Random) -> None:
        self.kind = kind
        self.draws = Draws(kind.run, dice.gauss(0, 1))
        self.waiting: dict[int, int] = {}
        self.total = 0
        self.open = round(kind.waiting)  # jobs of the backlog that have not ended
        self.arrived = 0.0  # of a job
        self.parallel, self.width = 1, 1  # slots that the kind can have, and that a chunk takes
        self.pace = 0.0  # seconds for each job, if it has all these slots
        self.add(0, self.open)

    @property
    def fraction_left(self) -> float:
        return self.total / max(1.0, self.kind.waiting)

    def add(self, retries: int, number: int) -> None:
        if number:
            self.waiting[retries] = self.waiting.get(retries, 0) + number
            self.total += number

    def take(self, wanted: int) -> dict[int, int]:
        """Take up to so many jobs, those of the backlog first."""
        taken: dict[int, int] = {}
        for retries in sorted(self.waiting, key=lambda retries: math.inf if retries == NEWER else retries):
            number = min(self.waiting[retries], wanted)
            taken[retries], wanted = number, wanted - number
            self.waiting[retries] -= number
            self.total -= number
            if not self.waiting[retries]:
                del self.waiting[retries]
            if not wanted:
                break
        return taken


class _Limit:
    """A limit at work: its slots in use; with a period, the starts in the one that began last.

    Periods follow each other, as they do while jobs wait for the limit: all starts of a period are at its beginning.
    """

    def __init__(self, state: LimitState) -> None:
        self.name, self.slots, self.per = state.name, state.slots, state.per
        self.used = 0
        self.opens_at = (
            state.opens_after
        )  # with a period: when the last one began, or begins, if all starts before it are used up
        self.starts = 0  # in this period

    def free(self, now: float) -> float:
        if not self.per:
            return self.slots - self.used
        return math.inf if now >= self.opens_at - 1e-9 else 0

    def start(self, now: float, jobs: int) -> None:
        """Count starts. A chunk may have more than are left in this period; then the next ones are used as well."""
        if not self.per:
            return
        if now >= self.opens_at + self.per:
            self.opens_at, self.starts = now, 0
        periods, self.starts = divmod(self.starts + jobs, self.slots)
        self.opens_at += periods * self.per


class _Group:
    """The free slots of a group of pools, and whose turn it is."""

    def __init__(self, group: PoolGroup, paused: Iterable[str]) -> None:
        self.free = [group.processes, group.concurrency]
        self.kinds: set[bool] = set()  # of slots that its queues need: places of `free`
        self.order = group.order
        self.weights = {
            queue: weight if group.order in WEIGHTED else 1 for queue, weight in group.queues if queue not in paused
        }
        self._turns = dict.fromkeys(self.weights, 0.0)

    def queues(self, running: Counter[str]) -> Sequence[str]:
        """Return the queues in the order in which they are asked for the next job."""
        if self.order == "fair":
            return sorted(self.weights, key=lambda queue: (running[queue] / self.weights[queue], self._turns[queue]))
        return list(self.weights) if self.order == "strict" else sorted(self.weights, key=self._turns.__getitem__)

    def record(self, queue: str, jobs: int, is_empty: Callable[[str], bool]) -> None:
        """Count the turns of a queue. Queues that were empty do not save up theirs."""
        if self.order == "strict" or len(self.weights) == 1:
            return
        before = self._turns[queue]
        self._turns[queue] += jobs / self.weights[queue]
        for other in self._turns:
            if other != queue and is_empty(other):
                self._turns[other] = max(self._turns[other], before)


class Simulation:
    """One run, from a snapshot to the end of all backlogs."""

    def __init__(self, snapshot: Snapshot, dice: Random, deadline: float = math.inf) -> None:
        self.now = 0.0
        self._deadline = deadline  # of time.thread_time(): other processes do not count
        self.events = 0
        self._dice = dice
        self._paused, self._concurrency = snapshot.paused, snapshot.concurrency
        self._limits = {each.name: _Limit(each) for each in snapshot.limits}
        self._groups = [_Group(each, snapshot.paused) for each in snapshot.groups]
        self._jobs = [_Jobs(kind, dice) for kind in snapshot.kinds]
        self._by_queue: dict[str, list[_Jobs]] = defaultdict(list)
        for jobs in sorted(self._jobs, key=lambda each: each.kind.priority):
            self._by_queue[jobs.kind.queue].append(jobs)
        self._serving = {queue: [group for group in self._groups if queue in group.weights] for queue in self._by_queue}
        for group in self._groups:
            group.kinds = {jobs.kind.in_process for queue in group.weights for jobs in self._by_queue.get(queue, ())}
        self._running: Counter[str] = Counter()  # slots in use, by queue
        self._late: Counter[str] = Counter()  # the longest jobs of chunks that have ended, by queue
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()
        self._ticked = 0.0
        self._wakes: set[str] = set()
        self.drained = {queue: Drained() for queue in self._by_queue}
        self._undrained = set(self.drained)
        self._looked = 0.0
        self._fine = FINE // math.ceil(max(1, len(self.drained) / MANY))
        self._set_widths()
        self._begin(snapshot)

    def run(self) -> dict[str, Drained]:
        """Simulate until all backlogs are gone, or until the horizon; return what became of each."""
        self._start_all()
        self._note_drained()
        while self._heap and self._undrained and self._heap[0][0] <= HORIZON:
            if self.events >= MAX_EVENTS or time.thread_time() > self._deadline:
                return self._cut()
            self._look(self._heap[0][0])
            self.now = self._heap[0][0]
            while self._heap and self._heap[0][0] <= self.now and self.events < MAX_EVENTS:
                heapq.heappop(self._heap)[2]()
                self.events += 1
            self._start_all()
            self._note_drained()
        self._look(HORIZON)
        for queue, drained in self.drained.items():
            drained.left = sum(each.total for each in self._by_queue[queue])
        return self.drained

    def _cut(self) -> dict[str, Drained]:
        for queue in self._undrained:
            self.drained[queue].is_cut = True
        return self.drained

    def _set_widths(self) -> None:
        """Decide how many slots each kind can have, and how many of them a chunk takes."""
        for jobs in self._jobs:
            kind, limits = jobs.kind, [self._limits[name] for name in jobs.kind.limits]
            slots = sum(group.free[kind.in_process] for group in self._serving[kind.queue])
            most = [self._concurrency.get(kind.queue, slots), *(limit.slots for limit in limits if not limit.per)]
            jobs.parallel = max(1, min([slots, *most]))
            jobs.width = math.ceil(jobs.parallel / MAX_CHUNKS)
            starts = [limit.per / limit.slots for limit in limits]
            jobs.pace = max([jobs.draws.mean / jobs.parallel, *starts])

    # Events

    def _after(self, seconds: float, event: Callable[[], None]) -> None:
        heapq.heappush(self._heap, (self.now + seconds, next(self._numbers), event))

    def _begin(self, snapshot: Snapshot) -> None:
        for each in snapshot.running:
            jobs = self._jobs[each.kind]
            jobs.open += 1
            group = self._group_with_slot(jobs.kind) if each.takes_slot else None
            self._occupy(jobs.kind, group, 1)
            left = jobs.draws.rest(self._dice, each.elapsed)
            self._after(left, partial(self._end, jobs, group, 1, {0: 1}))
        for jobs in self._jobs:
            for seconds, number in jobs.kind.retrying:
                whole = self._round(number)
                jobs.open += whole
                self._after(seconds, partial(jobs.add, 1, whole))
            for seconds, number in jobs.kind.delayed:
                self._after(seconds, partial(jobs.add, NEWER, self._round(number)))
        if any(jobs.kind.arriving for jobs in self._jobs):
            self._after(self._tick_length(), self._tick)

    def _group_with_slot(self, kind: Kind) -> _Group | None:
        return max(self._serving[kind.queue], key=lambda group: group.free[kind.in_process], default=None)

    def _round(self, number: float) -> int:
        """Round at random, so that many fractions of a job add up to the right number."""
        return int(number + self._dice.random())

    def _tick_length(self) -> float:
        return max(1 / sum(jobs.kind.arriving for jobs in self._jobs), self.now / TICKS)

    def _tick(self) -> None:
        for jobs in self._jobs:
            if jobs.kind.arriving:
                jobs.arrived += jobs.kind.arriving * (self.now - self._ticked)
                jobs.add(NEWER, int(jobs.arrived))
                jobs.arrived %= 1
        self._ticked = self.now
        self._after(self._tick_length(), self._tick)

    def _end(self, jobs: _Jobs, group: _Group | None, slots: int, taken: dict[int, int]) -> None:
        self._occupy(jobs.kind, group, -slots)
        drained = self.drained[jobs.kind.queue]
        drained.ended += sum(taken.values()) if drained.after is None else 0
        for retries, number in taken.items():
            again = self._count_retried(jobs.kind, retries, number)
            if retries != NEWER:
                jobs.open -= number - again
            if again:
                waits = jobs.kind.waits
                wait = waits[min(max(retries, 0), len(waits) - 1)]
                self._after(wait, partial(jobs.add, NEWER if retries == NEWER else retries + 1, again))

    def _count_retried(self, kind: Kind, retries: int, number: int) -> int:
        if not kind.retried or retries >= kind.retries:
            return 0
        if number <= 10:
            return sum(self._dice.random() < kind.retried for _ in range(number))
        return min(number, self._round(number * kind.retried))

    # Starting jobs

    def _start_all(self) -> None:
        for group in self._groups:
            while any(group.free[kind] > 0 for kind in group.kinds) and self._start_one(group):
                pass
        for limit in self._limits.values():
            if limit.name not in self._wakes and limit.free(self.now) < 1 and limit.per:
                self._wakes.add(limit.name)
                self._after(limit.opens_at - self.now, partial(self._wakes.discard, limit.name))

    def _start_one(self, group: _Group) -> bool:
        for queue in group.queues(self._running):
            jobs = self._choose(queue, group)
            if jobs is not None:
                self._start(jobs, group)
                return True
        return False

    def _choose(self, queue: str, group: _Group) -> _Jobs | None:
        """Return the kind of the next job: the most urgent; of several, the one of whose backlog most is left.

        Jobs of different kinds are mixed in a queue, so all kinds of one priority are gone at about the same time.
        """
        found: _Jobs | None = None
        for jobs in self._by_queue.get(queue, ()):
            if found is not None and jobs.kind.priority > found.kind.priority:
                break
            if found is not None and jobs.fraction_left <= found.fraction_left:
                continue
            if group.free[jobs.kind.in_process] > 0 and jobs.kind.is_known and jobs.total and self._room(jobs) >= 1:
                found = jobs
        return found

    def _room(self, jobs: _Jobs) -> float:
        free = [self._limits[name].free(self.now) for name in jobs.kind.limits]
        return min([self._queue_room(jobs.kind.queue), *free])

    def _queue_room(self, queue: str) -> float:
        return self._concurrency.get(queue, math.inf) - self._running[queue]

    def _start(self, jobs: _Jobs, group: _Group) -> None:
        kind = jobs.kind
        slots = int(min(jobs.width, group.free[kind.in_process], self._room(jobs)))
        taken = jobs.take(max(slots, self._chunk(jobs)))
        number = sum(taken.values())
        slots = min(slots, number)
        self._occupy(kind, group, slots)
        for name in kind.limits:
            self._limits[name].start(self.now, number)
        group.record(kind.queue, number, self._is_empty)
        together, longest = jobs.draws.several(self._dice, number)
        if slots > 1:
            self._end_longest(jobs, slots, taken, together, longest)
        self._after(together / slots, partial(self._end, jobs, group, slots, taken))

    def _end_longest(self, jobs: _Jobs, slots: int, taken: dict[int, int], together: float, longest: float) -> None:
        """Let the longest job of a chunk that takes several slots end later than the chunk.

        The slots are free when they would be on average. So the work is the same, and no chunk has to be divided.
        """
        number, last = sum(taken.values()), min(taken)
        begins = self._dice.random() * max(0.0, together - longest) * (1 / slots - 1 / number)
        if begins + longest > together / slots:
            taken[last] -= 1
            self._late[jobs.kind.queue] += 1
            self._after(begins + longest, partial(self._end_late, jobs, last))

    def _end_late(self, jobs: _Jobs, retries: int) -> None:
        self._late[jobs.kind.queue] -= 1
        self._end(jobs, None, 0, {retries: 1})

    def _chunk(self, jobs: _Jobs) -> int:
        """Return how many jobs to simulate as one: a part of them, for a part of the time that the queue needs."""
        if not jobs.draws.mean:
            return jobs.total
        needed = max(sum(each.total * each.pace for each in self._by_queue[jobs.kind.queue]), jobs.total * jobs.pace)
        coarse = 2 ** (self.events // self._fine)
        in_time = needed * jobs.width / jobs.draws.mean
        return int(min(in_time, jobs.total) * coarse / CHUNKS)

    def _is_empty(self, queue: str) -> bool:
        return not any(jobs.total for jobs in self._by_queue.get(queue, ()))

    def _occupy(self, kind: Kind, group: _Group | None, slots: int) -> None:
        """Take slots of the group and of the limits; a negative number gives them back."""
        self._running[kind.queue] += slots
        if group is not None:
            group.free[kind.in_process] -= slots
        for name in kind.limits:
            self._limits[name].used += slots

    # What happened

    def _note_drained(self) -> None:
        for queue in self._undrained.copy():
            if not any(jobs.open or jobs.total for jobs in self._by_queue[queue]):
                self.drained[queue].after = self.now
                self._undrained.remove(queue)

    def _look(self, until: float) -> None:
        """Note what has held up each queue since the last look."""
        if until > self._looked * MAX_STEP:
            for queue in self._undrained:
                self.drained[queue].held_up[self._why(queue)] += round(1000 * (until - self._looked))
            self._looked = until

    def _why(self, queue: str) -> str:
        """Return what holds a queue up, as in `Forecast.held_up_by`, with the name of a task or limit after a colon."""
        waiting = [jobs for jobs in self._by_queue[queue] if jobs.total]
        if not waiting:
            return "running" if self._running[queue] or self._late[queue] else "retries"
        closed = self._why_closed(queue)
        if closed:
            return closed
        for jobs in waiting:
            if any(group.free[jobs.kind.in_process] > 0 for group in self._serving[queue]):
                if not jobs.kind.is_known:
                    return f"task:{jobs.kind.task}"
                full = [name for name in jobs.kind.limits if self._limits[name].free(self.now) < 1]
                if full:
                    return f"limit:{full[0]}"
        return "slots"

    def _why_closed(self, queue: str) -> str:
        """Return why no job of a queue can start: paused, no_worker, concurrency, or nothing."""
        if queue in self._paused:
            return "paused"
        if not self._serving[queue]:
            return "no_worker"
        return "concurrency" if self._queue_room(queue) < 1 else ""
