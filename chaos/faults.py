"""Kill and freeze processes. A seed decides on the order, the pauses and the victims.

A bag holds each kind of fault, the likelier ones several times; it is shuffled, used up, and refilled. Frozen processes
are resumed later: a supervisor or a whole worker only after its leases have expired and another worker runs one of its
jobs, so that stale attempts really try to write.
"""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.support.workers import children, descendants

from chaos.ledger import Book, Entry
from chaos.processes import LEASE, Processes, Worker, send

KILLS = ("job", "executor", "zygote", "supervisor", "worker", "server")
FREEZES = ("job", "executor", "supervisor", "worker", "server")
BAG = (
    *[("kill", "job")] * 5,
    *[("kill", "executor")] * 2,
    *[("kill", kind) for kind in KILLS[2:]],
    *[("freeze", kind) for kind in FREEZES],
    ("freeze", "supervisor"),
)
PAUSE = (0.7, 3.0)  # seconds between two faults
SHORT = (0.5, 1.5 * LEASE)  # of a freeze after which nothing need be lost
LEAST, MOST = 1.25 * LEASE, 4 * LEASE  # of one after which leases have ended
DOWN = (0.0, 1.5)  # seconds until something dead is started again

Hit = tuple[str, int]  # a job, and which attempt


@dataclass
class Fault:
    """Something that was done. `until` is when what was frozen went on, or what was killed was started again."""

    verb: str
    kind: str
    at: int  # nanoseconds, as in the ledger
    pids: list[int]
    hits: list[Hit]
    worker: int | None = None
    least: int = 0  # if it is frozen: when it may go on, and when it must
    most: int = 0
    until: int = 0

    def __str__(self) -> str:
        whose = "" if self.worker is None else f" of worker {self.worker}"
        frozen = f", until {self.until / 1e9:.3f}" if self.verb == "freeze" and self.until else ""
        hits = " ".join(f"{job}#{attempt}" for job, attempt in self.hits)
        return f"{self.at / 1e9:.3f} {self.verb} {self.kind}{whose}{frozen}: processes {self.pids}; {hits or 'no job'}"


@dataclass
class Running:
    """The attempts that run by the ledger, with their processes."""

    book: Book
    jobs: Callable[[], list[str]]

    def attempts(self) -> dict[str, Entry]:
        """The beginning of the last attempt of each job that has begun and not ended."""
        return {job: entry for job in self.jobs() if (entry := self.book.running(job))}

    def hits(self, pids: list[int]) -> list[Hit]:
        doomed = set(pids)
        return [(job, entry.attempt) for job, entry in self.attempts().items() if entry.pid in doomed]

    def is_taken_over(self, hits: list[Hit]) -> bool:
        """Whether a later attempt of one of these has begun. Exclusive ones do not count: they do not run on."""
        stale = [hit for hit in hits if not hit[0].startswith("exclusive")]
        return any(entry.attempt > attempt for job, attempt in stale or hits for entry in self.book.begun(job))


class Faults:
    """Strikes when it is time to, and heals what was struck when that is over."""

    def __init__(self, processes: Processes, running: Running, chance: random.Random, journal: Path) -> None:
        self._processes = processes
        self._running = running
        self._chance = chance
        self._journal = journal
        self._bag: list[tuple[str, str]] = []
        self._next_at = 0.0
        self._restart_at: dict[object, float] = {}
        self.bags = 0  # that were used up
        self.faults: list[Fault] = []
        self.frozen: list[Fault] = []

    # Strike

    def strike_when_due(self) -> Fault | None:
        if time.monotonic() < self._next_at:
            return None
        if not self._bag:
            self._bag = self._chance.sample(BAG, len(BAG))
        for choice in self._bag:
            if fault := self._strike(*choice):
                self._bag.remove(choice)
                self.bags += not self._bag
                self._next_at = time.monotonic() + self._chance.uniform(*PAUSE)
                self.faults.append(fault)
                return fault
        return None  # nothing that is left can be done just now

    def _strike(self, verb: str, kind: str) -> Fault | None:
        if verb == "freeze" and any(fault.kind not in ("job", "server") or fault.kind == kind for fault in self.frozen):
            return None  # of workers, one at a time: another has to take over
        if kind == "server":
            return self._strike_server(verb)
        if kind == "job":
            return self._strike_job(verb)
        return self._strike_worker(verb, kind)

    def _strike_server(self, verb: str) -> Fault | None:
        if self._processes.server.is_dead() or any(fault.kind == "server" for fault in self.frozen):
            return None
        return self._hit(verb, "server", [self._processes.server.pid], [])

    def _strike_job(self, verb: str) -> Fault | None:
        """A job's own process; those that share the executor's are hit with it."""
        executors = {pid for worker in self._processes.workers for pid in worker.executors}
        attempts = self._running.attempts()
        is_ours = self._processes.is_ours
        own = [job for job, entry in attempts.items() if entry.pid not in executors and is_ours(entry.pid)]
        if not own:
            return None
        job = self._chance.choice(own)
        return self._hit(verb, "job", [attempts[job].pid], [(job, attempts[job].attempt)])

    def _strike_worker(self, verb: str, kind: str) -> Fault | None:
        worker = self._choose(verb)
        if worker.is_dead():
            return None
        pids = _parts(worker, kind)
        doomed = worker.tree if kind in ("supervisor", "worker") else [each for pid in pids for each in _family(pid)]
        hits = self._running.hits(doomed)
        if not pids or not hits:  # it has only just started
            return None
        if kind == "worker":
            pids = worker.stop_still()
        fault = self._hit(verb, kind, pids, hits)
        fault.worker = worker.number
        return fault

    def _choose(self, verb: str) -> Worker:
        """Any worker; to freeze, the one with most exclusive jobs, which must not run beside their next attempts."""
        workers = self._chance.sample(self._processes.workers, len(self._processes.workers))
        return max(workers, key=self._exclusives) if verb == "freeze" else workers[0]

    def _exclusives(self, worker: Worker) -> int:
        return sum(job.startswith("exclusive") for job, _ in self._running.hits(worker.tree))

    def _hit(self, verb: str, kind: str, pids: list[int], hits: list[Hit]) -> Fault:
        fault = Fault(verb, kind, time.monotonic_ns(), pids, hits)
        if verb == "kill":
            send(signal.SIGKILL, pids)
            return fault
        send(signal.SIGSTOP, pids)
        least, most = (LEAST, MOST) if kind in ("supervisor", "worker") else (self._chance.uniform(*SHORT),) * 2
        fault.least, fault.most = fault.at + int(least * 1e9), fault.at + int(most * 1e9)
        self.frozen.append(fault)
        return fault

    # Heal

    def heal(self, *, all: bool = False) -> None:
        """Have what was frozen long enough go on, and start what is dead again; at the end, `all` of it at once."""
        for fault in list(self.frozen):
            if all or self._is_over(fault):
                self._thaw(fault)
        if self._is_due(self._processes.server, self._processes.server.is_dead(), all):
            self._processes.server.start()
        for worker in self._processes.workers:
            if self._is_due(worker, worker.is_dead(), all):
                worker.start()

    def _is_over(self, fault: Fault) -> bool:
        """It lasted as long as it may; or long enough, and a job is elsewhere now, or the frozen one was killed."""
        now = time.monotonic_ns()
        if now < fault.least or now >= fault.most:
            return now >= fault.most
        return self._running.is_taken_over(fault.hits) or not any(map(self._processes.is_ours, fault.pids))

    def _thaw(self, fault: Fault) -> None:
        """Wake all but what another freeze still holds, or a job would run while its whole worker is frozen."""
        fault.until = time.monotonic_ns()
        self.frozen.remove(fault)
        held = {pid for other in self.frozen for pid in other.pids}
        send(signal.SIGCONT, [pid for pid in fault.pids if pid not in held and self._processes.is_ours(pid)])

    def _is_due(self, what: object, is_dead: bool, now: bool) -> bool:
        """Whether to start something again: a while after it was found dead."""
        if not is_dead:
            self._restart_at.pop(what, None)
            return False
        at = self._restart_at.setdefault(what, time.monotonic() + self._chance.uniform(*DOWN))
        return now or time.monotonic() >= at

    def write_journal(self) -> None:
        self._journal.write_text("".join(f"{fault}\n" for fault in self.faults))

    def count(self, verb: str) -> Mapping[str, int]:
        kinds = KILLS if verb == "kill" else FREEZES
        return {kind: sum(1 for fault in self.faults if (fault.verb, fault.kind) == (verb, kind)) for kind in kinds}


def _parts(worker: Worker, kind: str) -> list[int]:
    """The processes of a worker that are hit."""
    if kind == "supervisor":
        return [worker.pid]
    if kind == "worker":
        return worker.tree
    executors = worker.executors[:1]
    return [zygote for executor in executors for zygote in children(executor)[:1]] if kind == "zygote" else executors


def _family(pid: int) -> list[int]:
    """A process and its descendants; of a zygote, also its executor, which dies with it."""
    executor = _parent(pid)
    return [executor, pid, *descendants(pid)] if executor else [pid, *descendants(pid)]


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0
