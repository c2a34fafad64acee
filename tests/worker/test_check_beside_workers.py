"""A check of the whole store finds nothing while workers run jobs of every kind and are killed.

HOLDFAST_CHECK_JOBS=10000 runs more jobs.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from typing import Any

import pytest

from holdfast.client.checks import CheckReport
from holdfast.job.job import PENDING
from holdfast.task.task import BoundCall
from tests.apps import worker_app
from tests.support.workers import Crew, Worker, descendants

JOBS = int(os.environ.get("HOLDFAST_CHECK_JOBS", "400"))
BATCH = 200
KILLS = 12 if JOBS < 1000 else 50
PATIENCE = 60.0 + JOBS / 10  # seconds


class Checks(threading.Thread):
    """Checks the store again and again until it is stopped."""

    def __init__(self, crew: Crew) -> None:
        super().__init__(daemon=True)
        self._crew = crew
        self._stopped = threading.Event()
        self.reports: list[CheckReport] = []

    def run(self) -> None:
        while not self._stopped.is_set():
            self.reports.append(self._crew.app.check())

    def stop(self) -> None:
        self._stopped.set()
        self.join(PATIENCE)

    @property
    def found(self) -> list[Any]:
        return [finding for report in self.reports for finding in report.findings]


def _calls(dice: random.Random, first: int) -> list[BoundCall[Any]]:
    """Return calls with limits, tags, scopes, dependencies, unique keys, delays, and some that fail."""
    calls: list[BoundCall[Any]] = []
    for number in range(first, first + BATCH):
        options: dict[str, Any] = {"id": f"job{number}", "lost": 100, "queue": f"q{number % 3}"}
        if number % 5 == 0:
            options |= {"limits": dice.sample(["two", "three", "rate"], 2)}
        if number % 3 == 0:
            options |= {"tags": [f"tag{number % 7}", "all"], "scope": f"/tenant/{number % 4}"}
        if number % 7 == 0 and number > first:
            options |= {"after": [f"job{number - 1}"], "on_failed": "run"}
        if number % 11 == 0:
            options |= {"delay": "300ms"}
        if number % 13 == 0:
            options |= {"share": f"ann{number % 3}", "queue": "fair"}
        if number % 17 == 0:
            options |= {"keep": "2s"}
        if number % 19 == 0:
            options |= {"deadline": "1h", "unique": f"key{number}", "unique_for": "pending"}
        calls.append(_call(number).options(**options))
    return calls


def _call(number: int) -> BoundCall[Any]:
    if number % 23 == 0:
        return worker_app.try_until.bind(2, "fail")
    if number % 29 == 0:
        return worker_app.end_by.bind("kill").options(crashes=1)
    return worker_app.add_async.bind(number, 1) if number % 2 else worker_app.add.bind(number, 1)


def _kill_something(dice: random.Random, crew: Crew, workers: list[Worker]) -> None:
    place = dice.randrange(len(workers))
    if dice.random() < 0.2:
        workers[place].end()
        workers[place] = _start(crew)
        return
    victims = descendants(workers[place].pid)
    if victims:
        crew.kill(dice.choice(victims), signal.SIGKILL)


def _start(crew: Crew) -> Worker:
    return crew.start("--queues", "q*,fair", "--processes", "1", "--concurrency", "8")


@pytest.mark.timeout(0)
def test_a_check_finds_nothing_while_workers_are_killed(crew: Crew) -> None:
    dice = random.Random(4)
    crew.app.set_limit("two", 2)
    crew.app.set_limit("three", 3)
    crew.app.set_limit("rate", 50, per="1s")
    checks, workers = Checks(crew), [_start(crew) for _ in range(2)]
    checks.start()
    for first in range(0, JOBS, BATCH):
        crew.app.enqueue_many(_calls(dice, first))
    began, kills, goal = time.monotonic(), 0, JOBS - JOBS // KILLS
    while left := crew.app.count(state=PENDING):
        assert time.monotonic() - began < PATIENCE, f"{left} jobs have not ended"
        if left <= goal:
            _kill_something(dice, crew, workers)
            kills, goal = kills + 1, left - JOBS // KILLS
        time.sleep(0.05)  # between looks at the number
    checks.stop()

    entries = sum(report.entries for report in checks.reports)
    print(f"{JOBS} jobs, {kills} kills, {len(checks.reports)} checks of {entries:,} entries")
    assert kills > 2 < len(checks.reports)
    assert not checks.found
    assert not crew.app.check_history().findings
