"""Read the store during a run: the checkpoint and the logs of each job; and try writes that must be refused.

Its observations are the second witness beside the ledger: a checkpoint that was in the store while one attempt held the
job must be there for all later ones. The writes that it tries are those of attempts that have lost their leases, in
their names: each must be refused.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Event, Thread
from typing import Any, NamedTuple

import msgspec

from chaos.app import Kept
from holdfast import Holdfast, HoldfastError, Job, LeaseLost
from holdfast.job.outcome import Succeed
from holdfast.store import commands
from holdfast.store.commands import Finish, Lease

LOOK_EVERY = 0.3  # seconds
KEPT_LOGS = 10  # attempts
LAST_LOOKS = (5, 8)  # attempts ago, at which a log is read: soon it will not be kept any more
FORGED = msgspec.json.encode(Kept(-1, -1))


class Seen(NamedTuple):
    """The state of a job in the store: its attempt, the items done by its checkpoint, and the attempt that saved it."""

    attempt: int
    done: int
    by: int


@dataclass
class Witness:
    """What was seen of all jobs."""

    seen: dict[str, list[Seen]] = field(default_factory=dict)
    logs: dict[tuple[str, int], set[str]] = field(default_factory=dict)  # by job and attempt
    tried: int = 0  # writes in the names of stale attempts
    accepted: list[tuple[str, str]] = field(default_factory=list)  # of those: the job, and what
    looks: int = 0
    away: int = 0  # looks at which the store did not answer

    def see(self, job: Job[Any]) -> None:
        seen = self.seen.setdefault(job.id, [])
        new = seen_of(job)
        if not seen or seen[-1] != new:
            seen.append(new)


def seen_of(job: Job[Any]) -> Seen:
    return Seen(job.attempt, done_of(job.checkpoint_bytes), job.progress.attempt if job.progress else 0)


def done_of(checkpoint: bytes | None) -> int:
    """How many items are done: `each` keeps just that."""
    value = msgspec.json.decode(checkpoint) if checkpoint else 0
    return int(value["done"]) if isinstance(value, dict) else int(value)


class Observer:
    """A thread that looks."""

    def __init__(self, app: Holdfast, jobs: Callable[[], list[str]], chance: random.Random) -> None:
        self.witness = Witness()
        self._app = app
        self._jobs = jobs
        self._chance = chance
        self._read: dict[tuple[str, int], int] = {}  # how far, by job and how long ago
        self._over = Event()
        self._thread = Thread(target=self._look_on, daemon=True)
        self.failure: Exception | None = None

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        self._thread.join()

    def _look_on(self) -> None:
        while not self._over.wait(LOOK_EVERY):
            self.witness.looks += 1
            try:
                self._look()
            except HoldfastError:  # it is away; a job that is gone would be noticed at the end
                self.witness.away += 1
            except Exception as error:
                self.failure = error
                return

    def _look(self) -> None:
        found = [job for job in self._app.get_many(self._jobs()) if job]
        for job in found:
            self.witness.see(job)
            self._read_logs(job)
        if again := [job for job in found if len(job.attempts) > 1]:
            self._forge(self._chance.choice(again))

    def _read_logs(self, job: Job[Any]) -> None:
        """Read logs of attempts that are so long ago, each once; several may have come and gone since the last look."""
        for ago in LAST_LOOKS:
            for attempt in range(self._read.get((job.id, ago), 0) + 1, job.attempt - ago + 1):
                self.read_log(job.id, attempt)
                self._read[job.id, ago] = attempt

    def read_log(self, job: str, attempt: int) -> None:
        lines = self.witness.logs.setdefault((job, attempt), set())
        lines.update(self._app.logs(job, attempt=attempt).lines)

    def _forge(self, job: Job[Any]) -> None:
        """Try to save and to succeed in the name of an earlier attempt of a job."""
        stale = self._chance.choice([run for run in job.attempts if run.number < job.attempt])
        held = Lease(stale.executor, job.id, stale.number)
        self.witness.tried += 1
        try:
            self._app.store.run(commands.save(held, FORGED))
            self.witness.accepted.append((job.id, f"a checkpoint of attempt {stale.number}"))
        except LeaseLost:
            pass
        if stale.outcome in ("crash", "lost"):  # an attempt that repeats its own outcome gets the same reply again
            self.witness.tried += 1
            item = Finish(job.id, stale.number, Succeed(FORGED))
            if self._app.store.run(commands.finish(stale.executor, [item])).answers != ["LOST"]:
                self.witness.accepted.append((job.id, f"a result of attempt {stale.number}"))
