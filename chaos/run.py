"""A run: enqueue jobs, inject faults for a while, let the jobs end, and compare the ledgers with the store."""

from __future__ import annotations

import random
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import redis
from tests.model import invariants

from chaos.checks import Finding, Last, Sleep, Story, check, keeps_all_lines
from chaos.faults import Faults, Running
from chaos.jobs import JobPool
from chaos.ledger import Book
from chaos.observer import KEPT_LOGS, Observer
from chaos.processes import PATIENCE, TICK, Processes
from chaos.report import Report, make_report
from holdfast import Holdfast, HoldfastError, Job

NOT_REPLACED = 25.0  # seconds before the last fault: jobs that end then are not replaced
SPARE = 4.0  # times the duration of its work: how long a job may take after the last fault

CLOCKS = 20_000_000  # nanoseconds by which the server's clock may differ from that of the ledger

Say = Callable[[str], None]


@dataclass(frozen=True)
class Settings:
    seconds: float = 1200.0
    seed: int = 0
    jobs: int = 50
    workers: int = 3


class Run:
    def __init__(self, settings: Settings, folder: Path, say: Say) -> None:
        self._settings = settings
        self._folder = folder
        self._say = say
        self._namespace = "c" + secrets.token_hex(4)
        self._book = Book(folder / "ledger")
        self._findings: list[Finding] = []
        self._claims: dict[str, dict[int, int]] = {}  # when attempts were claimed, by job
        self._began = time.monotonic()
        self._harmed = 0.0

    def play(self) -> tuple[Report, list[Finding]]:
        with self._start() as self._at, self._client() as self._app, self._client() as other:
            chance = random.Random(self._settings.seed)
            self._pool = JobPool(self._app, self._settings.jobs, self._settings.seconds, chance)
            self._running = Running(self._book, self._pool.pending)
            self._faults = Faults(self._at, self._running, random.Random(self._settings.seed), self._folder / "journal")
            self._observer = Observer(other, self._pool.pending, random.Random(self._settings.seed))
            try:
                self._mistreat()
            finally:
                self._faults.write_journal()
            return self._judge(self._stories())

    def _mistreat(self) -> None:
        self._pool.fill()
        self._observer.start()
        try:
            self._let_begin()
            self._do_harm()
            self._let_end()
        finally:
            self._observer.stop()
        self._look_a_last_time()
        self._read_last_logs()
        self._stop_workers()

    @contextmanager
    def _start(self) -> Iterator[Processes]:
        processes = Processes(self._folder, self._namespace, self._settings.workers)
        try:
            yield processes
        finally:
            processes.end()

    @contextmanager
    def _client(self) -> Iterator[Holdfast]:
        app = Holdfast(self._at.server.url, namespace=self._namespace)
        try:
            yield app
        finally:
            app.close()

    # The course of it

    def _let_begin(self) -> None:
        """Wait until most of them run: before, there is little to hit."""
        deadline = time.monotonic() + PATIENCE
        while len(self._running.attempts()) < 0.8 * self._settings.jobs and time.monotonic() < deadline:
            self._report("the workers start")
            time.sleep(10 * TICK)

    def _do_harm(self) -> None:
        """Inject faults for the given time, and on a slow machine until each kind was injected once."""
        began, looked_at = time.monotonic(), 0.0
        while self._harmed < self._settings.seconds or not self._faults.bags:
            self._harmed = time.monotonic() - began
            if self._harmed > 3 * self._settings.seconds + PATIENCE:
                self._find("harness", "not every kind of fault could be injected: there was no process to hit")
                return
            self._faults.heal()
            if fault := self._faults.strike_when_due():
                self._report(str(fault).partition(" ")[2].partition(":")[0])
            if self._harmed - looked_at > 1 and self._at.server.is_up():
                looked_at = self._harmed
                self._pool.look()
                if self._harmed < self._settings.seconds - NOT_REPLACED:
                    self._pool.fill()
            time.sleep(TICK)

    def _let_end(self) -> None:
        """Start everything again; the jobs have a bounded time to end."""
        self._faults.heal(all=True)  # also if all jobs have ended: frozen processes still have logs to ship
        deadline = time.monotonic() + PATIENCE + SPARE * self._pool.work_left()
        while self._pool.pending() and time.monotonic() < deadline:
            self._faults.heal(all=True)
            self._pool.look()
            self._report("no more faults")
            time.sleep(10 * TICK)

    def _report(self, words: str) -> None:
        pool, faults = self._pool, len(self._faults.faults)
        passed = time.monotonic() - self._began
        self._say(f"{passed:6.0f} s  {len(pool.ended)} of {len(pool.plans)} jobs ended, {faults} faults; {words}")

    def _look_a_last_time(self) -> None:
        """Read the records of all jobs at the end, and write them to a file for later analysis."""
        ahead = time.time_ns() - time.monotonic_ns() - CLOCKS
        with (self._folder / "jobs").open("w") as file:
            for job in self._pool.all():
                self._observer.witness.see(job)
                self._claims[job.id] = {run.number: _nanoseconds(run.claimed_at) - ahead for run in job.attempts}
                file.writelines(f"{job.id} {entry}\n" for entry in job.history)

    # Logs

    def _read_last_logs(self) -> None:
        """Logs may come late: of dead workers, by the next one of the node. So look until all is there, or too late."""
        deadline = time.monotonic() + PATIENCE
        while True:
            lacking = [story for story in self._stories() if any(keeps_all_lines(story))]
            if not lacking or time.monotonic() > deadline:
                return
            for story in lacking:
                for attempt in range(max(1, story.last.attempt - KEPT_LOGS + 1), story.last.attempt + 1):
                    self._observer.read_log(story.id, attempt)
            self._report(f"logs of {len(lacking)} jobs are not complete")
            time.sleep(10 * TICK)

    # The end

    def _stop_workers(self) -> None:
        """As a deploy does: each ends with 0, and nothing is left of them."""
        for worker in self._at.workers:
            if code := worker.stop():
                self._find(f"worker {worker.number}", f"did not stop as it should: exit code {code}; see {worker.log}")
        deadline = time.monotonic() + PATIENCE
        while (left := self._at.left()) and time.monotonic() < deadline:
            time.sleep(TICK)
        if left:
            self._find("workers", f"have left processes behind: {left}")
        self._check_store()

    def _check_store(self) -> None:
        """All keys fit together, and nobody holds a job."""
        try:
            with redis.Redis.from_url(self._at.server.url) as client:
                held = invariants.check(client, self._namespace).held
        except AssertionError as error:
            self._find("store", f"its keys do not fit together: {error}")
        else:
            if any(held.values()):
                self._find("store", f"jobs are held by workers that are gone: {held}")

    def _find(self, what: str, words: str) -> None:
        self._findings.append(Finding(what, words))

    def _stories(self) -> list[Story]:
        """All that is known, by job."""
        witness = self._observer.witness
        sleeps = [
            Sleep(frozenset(fault.pids), fault.at, fault.until)
            for fault in self._faults.faults
            if (fault.verb, fault.kind) == ("freeze", "worker")
        ]
        logs: dict[str, dict[int, set[str]]] = {}
        for (id, attempt), lines in witness.logs.items():
            logs.setdefault(id, {})[attempt] = lines
        return [
            Story(
                id=id,
                items=plan.items,
                entries=self._book.of(id),
                last=self._last(id),
                seen=witness.seen.get(id, []),
                logs=logs.get(id, {}),
                claimed=self._claims.get(id, {}),
                exclusive=id.startswith("exclusive"),
                loops=plan.loops,
                sleeps=sleeps,
            )
            for id, plan in self._pool.plans.items()
        ]

    def _last(self, id: str) -> Last:
        job = self._pool.ended.get(id)
        if job is None:
            return self._why_not_ended(id)
        if job.state != "succeeded":
            failure = job.failure
            return Last(job.state, job.attempt, job.retries_used, words=f"group {job.group}: {failure}")
        result = job.decoded_result()
        return Last(job.state, job.attempt, job.retries_used, (result["done"], result["by"]))

    def _why_not_ended(self, id: str) -> Last:
        """Describe a job that has not ended in time."""
        try:
            job: Job[Any] = self._app.get(id)
        except HoldfastError as error:
            return Last("unknown", 0, words=str(error))
        attempts = "; ".join(f"{run.number} {run.outcome} {run.text}" for run in job.attempts[-3:])
        words = f"Held by {job.executor or 'nobody'}, lease until {job.lease_ends_at}, due {job.due_at}; {attempts}"
        return Last(job.state, job.attempt, job.retries_used, words=words)

    def _judge(self, stories: list[Story]) -> tuple[Report, list[Finding]]:
        found = [finding for story in stories for finding in check(story)] + self._findings
        found += [Finding(job, f"{what} was accepted, though stale") for job, what in self._observer.witness.accepted]
        if self._observer.failure:
            found.append(Finding("harness", f"the watch failed: {self._observer.failure!r}"))
        record = make_report(
            stories,
            self._faults,
            self._observer.witness,
            found,
            [worker.log for worker in self._at.workers],
            seed=self._settings.seed,
            seconds=self._harmed,
            seconds_in_all=time.monotonic() - self._began,
        )
        return record, found


def _nanoseconds(moment: datetime) -> int:
    return int(moment.timestamp() * 1000) * 1_000_000
