"""Workers of the simulation: they claim, run and finish jobs as `holdfast work` does, in the time of the simulation.

    claim ──▶ the task, as a coroutine ──▶ finish and claim

Heartbeats, saves, logs, usage, hand-overs and endings go to the store by the functions that a worker uses.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from bench.week.shop.world import Killed, world
from bench.week.simulation import Clock
from holdfast import Holdfast
from holdfast.constants import LOG_BLOCK, USAGE_BLOCK
from holdfast.job.outcome import Cancelled, Error, Outcome, Release
from holdfast.job.progress import Progress
from holdfast.job.usage import Series
from holdfast.store import commands
from holdfast.store.commands import ClaimedJob, Finish, Lease, LogBlock, Started
from holdfast.task.call import CallEnd, LocalCall, crash_outcome
from holdfast.testing.attempt import StoreLink, call_of
from holdfast.version import __version__

MIB = 1 << 20
RARE_HEARTBEAT, HEARTBEAT = 1500.0, 5.0  # seconds, long ago and now
RARE_LEASE = 3600_000  # milliseconds
RECENT = 900.0  # seconds before the clock of the machine
FLUSH_DELAY = 0.02  # seconds in which ends are collected
# Memory and processors that jobs of these tasks use; of others, little.
USAGE = {
    "video.transcode": (1480 * MIB, 3.4),
    "ml.train_ranker": (41_400 * MIB, 6.2),
    "search.reindex": (620 * MIB, 0.9),
}
# The end of a job of these tasks may make jobs of a queue claimable: dependents, the callback of a batch, jobs that
# wait for its slot of a limit.
FOLLOWED = {
    "billing.charge_card": "billing",
    "billing.invoice": "mail",
    "imports.load_part": "imports",
    "ml.train_ranker": "ml-train",
    "ml.evaluate": "ml-train",
    "webhooks.deliver": "webhooks",
}


class Link(StoreLink):
    """Sends what a job saves to the store; its log waits for the next heartbeat."""

    def __init__(self, run: Run, *, app: Holdfast) -> None:
        super().__init__(app.store, run.lease, stopping=False)
        self._run = run

    def save(self, checkpoint: bytes | None, progress: str | None, note: str | None = None) -> None:
        super().save(checkpoint, None if progress is None else self._in_simulated_time(progress), note)

    def log(self, lines: str) -> None:
        self._run.log += lines.encode()

    def _in_simulated_time(self, text: str) -> str:
        """Correct the time since the attempt began, which a report has by the clock of the machine."""
        progress = msgspec.json.decode(text, type=Progress)
        base = (0.0, *progress.base[1:])
        changed = msgspec.structs.replace(progress, after=round(self._run.seconds, 3), base=base)
        return msgspec.json.encode(changed).decode()


class Run:
    """A job that a worker runs."""

    def __init__(self, job: ClaimedJob, executor: str, clock: Clock, pid: int) -> None:
        self.job, self.pid, self._clock = job, pid, clock
        self.lease = Lease(executor, job.id, job.attempt)
        self.began = self.sampled = clock.seconds
        self.log = b""
        self._shipped = 0  # bytes
        self._usage = Series()
        self.is_reported = False  # to the store, with its process
        self.link: Link
        self.task: asyncio.Task[None]

    @property
    def seconds(self) -> float:
        return self._clock.seconds - self.began

    def sample(self) -> None:
        memory, cores = USAGE.get(self.job.task, (60 * MIB, 0.2))
        seconds = self._clock.seconds - self.sampled
        if seconds > 0:
            share = min(1.0, 0.2 + self.seconds / 300) * world.between(0.92, 1.0)
            self._usage.add(seconds, int(memory * share), cores * seconds * world.between(0.8, 1.0))
            self.sampled = self._clock.seconds

    def blocks(self) -> list[LogBlock]:
        """Return what is new in its log, and its usage."""
        job, first = self.job, self._shipped // LOG_BLOCK
        found = []
        if len(self.log) > self._shipped:
            for number in range(first, -(-len(self.log) // LOG_BLOCK)):
                part = self.log[number * LOG_BLOCK : (number + 1) * LOG_BLOCK]
                found.append(LogBlock(job.id, job.created, job.attempt, number, part))
            self._shipped = len(self.log)
        if job.task in USAGE:
            self.sample()
            found.append(LogBlock(job.id, job.created, job.attempt, USAGE_BLOCK, self._usage.text()))
        return found


class Hints:
    """The queues that may have claimable jobs, so that nobody claims from those that certainly have none.

    A claim makes the store look after its timers, which costs more than all else while the time jumps.
    """

    def __init__(self, on_release: Callable[[list[str]], None]) -> None:
        self.queues = set[str]()
        self._on_release = on_release

    def note_end(self, job: ClaimedJob, outcome: Outcome) -> None:
        if isinstance(outcome, Release):
            self._on_release([job.queue])
        if queue := FOLLOWED.get(job.task):
            self.queues.add(queue)


class Kind(NamedTuple):
    """What workers have in common that run beside each other on a node."""

    node: str
    queues: tuple[str, ...]
    slots: int
    memory: int = 240 * MIB


class SimulatedWorker:
    """A worker of a simulation."""

    def __init__(self, app: Holdfast, clock: Clock, kind: Kind, hints: Hints) -> None:
        self.app, self.kind, self._clock, self._hints = app, kind, clock, hints
        self.name = f"{kind.node}/{_short_name()}"
        self.revision = world.revision
        self.runs: dict[tuple[str, int], Run] = {}
        self.is_draining = False
        self._executor = f"{self.name}.1"
        self._counter = itertools.count(1)
        self._pids = itertools.count(world.random.randrange(4_000, 60_000))
        self._pid = next(self._pids)
        self._started = clock.seconds
        self._busy = 0.0  # seconds of processors
        self._ended: list[Finish] = []
        self._flushing: asyncio.TimerHandle | None = None
        self._life = asyncio.create_task(self._live())

    def __repr__(self) -> str:
        return f"<worker {self.name}>"

    @property
    def free(self) -> int:
        return 0 if self.is_draining or self._life.done() else self.kind.slots - len(self.runs)

    @property
    def may_claim(self) -> bool:
        return self.free > 0 and not self._hints.queues.isdisjoint(self.kind.queues)

    # Its life

    async def _live(self) -> None:
        while True:
            self.beat()
            await asyncio.sleep(max(HEARTBEAT, min(RARE_HEARTBEAT, self._clock.behind - RECENT)))

    @property
    def _is_recent(self) -> bool:
        return self._clock.behind <= RECENT

    def beat(self) -> None:
        """Send a heartbeat, and the logs and the usage of running jobs."""
        store, runs = self.app.store, list(self.runs.values())
        started = [Started(*run.lease, run.pid, 40) for run in runs if not run.is_reported]
        for run in runs:
            run.is_reported = True
        reply = store.run(
            commands.renew(
                self.name, [run.lease for run in runs], executors=[self._executor], started=started,
                about=self._about(), queues=self.kind.queues,
            )
        )  # fmt: skip
        for lease in (*reply.cancelled, *reply.lost):
            if held := self.runs.get((lease.id, lease.attempt)):
                held.task.cancel()
        self._ship([block for run in runs for block in run.blocks()])

    def _about(self) -> str:
        kind, jobs = self.kind, len(self.runs)
        memory = kind.memory + jobs * 9 * MIB + sum(USAGE.get(run.job.task, (0, 0))[0] for run in self.runs.values())
        row = {"name": self._executor, "pid": self._pid + 1, "memory": memory, "cpu_seconds": self._busy, "jobs": jobs}
        pool = {"queues": dict.fromkeys(kind.queues, 1), "order": "strict", "processes": 0, "concurrency": kind.slots}
        about = {
            "pid": self._pid,
            "host": kind.node,
            "version": __version__,
            "app": "shop",
            "revision": self.revision,
            "started": round(self._started * 1000),
            "memory": memory,
            "cpu_seconds": round(self._busy, 2),
            "queues": list(kind.queues),
            "pools": [pool],
            **({"draining": True} if self.is_draining else {}),
            "tasks": [name for name, task in self.app.tasks.items() if task.effective_options.queue in kind.queues],
            "executors": [row],
        }
        return msgspec.json.encode(about).decode()

    def _ship(self, blocks: Sequence[LogBlock]) -> None:
        for first in range(0, len(blocks), 32):
            self.app.store.run(commands.log(blocks[first : first + 32]))

    def die(self) -> None:
        """Die without a word: the leases of its jobs have to end."""
        self._life.cancel()
        for run in self.runs.values():
            run.task.cancel()
        self.runs = {}

    async def drain(self) -> None:
        """Claim no more jobs, hand over those that can be, wait for the others, and end."""
        self.is_draining = True
        for run in self.runs.values():
            run.link.stopping = True
        self.beat()
        while self.runs:
            await asyncio.sleep(5)
        self._life.cancel()
        await asyncio.sleep(31)
        self.app.deregister(self.name)

    # Jobs

    def claim(self, ended: Sequence[Finish] = ()) -> None:
        """Finish jobs, and claim others for the free slots if there may be any."""
        request, room = None, self.free
        if self.may_claim:
            request = commands.claim_args(
                self.kind.queues, counter=next(self._counter), limit=room, pid=self._pid,
                lease=None if self._is_recent else RARE_LEASE,
            )  # fmt: skip
        elif not ended:
            return
        command = commands.finish(self._executor, ended, request=request, revision=self.revision)
        jobs = self.app.store.run(command).claim.jobs
        if request and len(jobs) < room:
            self._hints.queues.difference_update(self.kind.queues)
        self._start(jobs)

    def _start(self, jobs: Sequence[ClaimedJob]) -> None:
        for job in jobs:
            run = Run(job, self._executor, self._clock, next(self._pids))
            run.link = Link(run, app=self.app)
            self.runs[job.id, job.attempt] = run
            run.task = asyncio.create_task(self._run(run))

    async def _run(self, run: Run) -> None:
        job = run.job
        call = LocalCall(call_of(job, Path("/nonexistent")), self.app.tasks.get(job.task), run.link)
        try:
            outcome = self._outcome(run, await call.acall())
        except asyncio.CancelledError:
            if (job.id, job.attempt) not in self.runs:  # the worker died
                raise
            outcome = Cancelled()
        del self.runs[job.id, job.attempt]
        self._busy += run.seconds * USAGE.get(job.task, (0, 0.1))[1]
        if blocks := run.blocks():
            self._ship(blocks)
        self._hints.note_end(job, outcome)
        self._ended.append(Finish(job.id, job.attempt, outcome, run.pid, 40, job.created))
        if self._flushing is None:
            self._flushing = asyncio.get_running_loop().call_later(FLUSH_DELAY, self._flush)

    def _outcome(self, run: Run, end: CallEnd) -> Outcome:
        if isinstance(end.error, Killed):
            run.log += b"Killed\n"
            return crash_outcome("the process was killed by SIGKILL, perhaps for lack of memory", signal=9)
        outcome = end.outcome
        if isinstance(outcome, Error):
            policy = call_of(run.job, Path()).policy_for(outcome.group)
            outcome = outcome.with_wait(policy, world.random.random())
        return outcome

    def _flush(self) -> None:
        self._flushing = None
        ended, self._ended = self._ended, []
        self.claim(ended)


def _short_name() -> str:
    return "".join(world.random.choices("23456789ABCDEFGHJKLMNPQRSTUVWXYZ", k=8))
