"""A run: enqueue jobs, harm everything for a while, let them end, and compare the ledger with the store."""

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
from chaos.crowd import Crowd
from chaos.harm import Harm, Running
from chaos.ledger import Book
from chaos.place import PATIENCE, TICK, Place
from chaos.record import Record, make_record
from chaos.watch import KEPT_LOGS, Watch
from holdfast import Holdfast, HoldfastError, Job

NOT_REPLACED = 25.0  # seconds before the end of the harm: what ends then is not followed by another job
SPARE = 4.0  # in the end a job may take so many times the time of its work

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

    def play(self) -> tuple[Record, list[Finding]]:
        with self._place() as self._at, self._client() as self._app, self._client() as other:
            chance = random.Random(self._settings.seed)
            self._crowd = Crowd(self._app, self._settings.jobs, self._settings.seconds, chance)
            self._running = Running(self._book, self._crowd.pending)
            self._harm = Harm(self._at, self._running, random.Random(self._settings.seed), self._folder / "journal")
            self._watch = Watch(other, self._crowd.pending, random.Random(self._settings.seed))
            try:
                self._mistreat()
            finally:
                self._harm.write_journal()
            return self._judge(self._stories())

    def _mistreat(self) -> None:
        self._crowd.fill()
        self._watch.start()
        try:
            self._let_begin()
            self._do_harm()
            self._let_end()
        finally:
            self._watch.stop()
        self._look_a_last_time()
        self._read_last_logs()
        self._stop_workers()

    @contextmanager
    def _place(self) -> Iterator[Place]:
        place = Place(self._folder, self._namespace, self._settings.workers)
        try:
            yield place
        finally:
            place.end()

    @contextmanager
    def _client(self) -> Iterator[Holdfast]:
        app = Holdfast(self._at.server.url, namespace=self._namespace)
        try:
            yield app
        finally:
            app.close()

    # The course of it

    def _let_begin(self) -> None:
        """Wait until most of them run: before, there is not much to harm."""
        deadline = time.monotonic() + PATIENCE
        while len(self._running.attempts()) < 0.8 * self._settings.jobs and time.monotonic() < deadline:
            self._tell("the workers start")
            time.sleep(10 * TICK)

    def _do_harm(self) -> None:
        """For so many seconds; and, on a machine that is slow, until each kind of harm was done once."""
        began, looked_at = time.monotonic(), 0.0
        while self._harmed < self._settings.seconds or not self._harm.bags:
            self._harmed = time.monotonic() - began
            if self._harmed > 3 * self._settings.seconds + PATIENCE:
                self._find("harness", "not all kinds of harm could be done: there was nothing to harm")
                return
            self._harm.heal()
            if blow := self._harm.strike_when_due():
                self._tell(str(blow).partition(" ")[2].partition(":")[0])
            if self._harmed - looked_at > 1 and self._at.server.is_up():
                looked_at = self._harmed
                self._crowd.look()
                if self._harmed < self._settings.seconds - NOT_REPLACED:
                    self._crowd.fill()
            time.sleep(TICK)

    def _let_end(self) -> None:
        """Start everything again; the jobs have a bounded time to end."""
        self._harm.heal(all=True)  # whatever has ended already: the logs of the frozen are still to come
        deadline = time.monotonic() + PATIENCE + SPARE * self._crowd.work_left()
        while self._crowd.pending() and time.monotonic() < deadline:
            self._harm.heal(all=True)
            self._crowd.look()
            self._tell("no more harm")
            time.sleep(10 * TICK)

    def _tell(self, words: str) -> None:
        crowd, blows = self._crowd, len(self._harm.blows)
        passed = time.monotonic() - self._began
        self._say(f"{passed:6.0f} s  {len(crowd.ended)} of {len(crowd.plans)} jobs ended, {blows} blows; {words}")

    def _look_a_last_time(self) -> None:
        """See what the store says of all jobs in the end; and write it down, for whoever has to find out more."""
        ahead = time.time_ns() - time.monotonic_ns() - CLOCKS
        with (self._folder / "jobs").open("w") as file:
            for job in self._crowd.all():
                self._watch.witness.see(job)
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
                    self._watch.read_log(story.id, attempt)
            self._tell(f"logs of {len(lacking)} jobs are not complete")
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
        witness = self._watch.witness
        sleeps = [
            Sleep(frozenset(blow.pids), blow.at, blow.until)
            for blow in self._harm.blows
            if (blow.verb, blow.kind) == ("freeze", "worker")
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
            for id, plan in self._crowd.plans.items()
        ]

    def _last(self, id: str) -> Last:
        job = self._crowd.ended.get(id)
        if job is None:
            return self._why_not_ended(id)
        if job.state != "succeeded":
            failure = job.failure
            return Last(job.state, job.attempt, job.retries_used, words=f"group {job.group}: {failure}")
        result = job.decoded_result()
        return Last(job.state, job.attempt, job.retries_used, (result["done"], result["by"]))

    def _why_not_ended(self, id: str) -> Last:
        """What there is to say of a job that has not ended in time."""
        try:
            job: Job[Any] = self._app.get(id)
        except HoldfastError as error:
            return Last("unknown", 0, words=str(error))
        attempts = "; ".join(f"{run.number} {run.outcome} {run.words}" for run in job.attempts[-3:])
        words = f"Held by {job.executor or 'nobody'}, lease until {job.lease_ends_at}, due {job.due_at}; {attempts}"
        return Last(job.state, job.attempt, job.retries_used, words=words)

    def _judge(self, stories: list[Story]) -> tuple[Record, list[Finding]]:
        found = [finding for story in stories for finding in check(story)] + self._findings
        found += [Finding(job, f"{what} was accepted, though stale") for job, what in self._watch.witness.accepted]
        if self._watch.failure:
            found.append(Finding("harness", f"the watch failed: {self._watch.failure!r}"))
        record = make_record(
            stories,
            self._harm,
            self._watch.witness,
            found,
            [worker.log for worker in self._at.workers],
            seed=self._settings.seed,
            seconds=self._harmed,
            seconds_in_all=time.monotonic() - self._began,
        )
        return record, found


def _nanoseconds(moment: datetime) -> int:
    return int(moment.timestamp() * 1000) * 1_000_000
