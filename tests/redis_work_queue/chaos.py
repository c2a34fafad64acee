"""Programs of all kinds share a queue, and each is killed again and again: is anything lost, or completed twice?

    python -m tests.redis_work_queue.chaos --seconds 60 --beside document
    python -m tests.redis_work_queue.chaos --seconds 60 --beside 0.1.5
    python -m tests.redis_work_queue.chaos --seconds 60 --alone 0.1.5

Every program writes what it does into a ledger, one line at a time: the ledger of a killed program is complete up to
its last line. An item is lost if no program ever tried to complete it, or if its data is still there at the end. It is
a double if two calls of `complete` returned True for it.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import logging
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import redis

from holdfast import Holdfast
from holdfast.redis_work_queue.shared_items import SharedItems
from redis_work_queue import Item, KeyPrefix
from redis_work_queue import WorkQueue as OldWorkQueue
from tests.redis_work_queue.document import WorkQueue
from tests.support.servers import running_server

ROOT = Path(__file__).parents[2]
FORK = multiprocessing.get_context("fork")
PREFIX = "p"
LEASE = 1  # seconds
ABANDONED = 0.1  # the share of items that a program leaves to their lease


@dataclass(frozen=True)
class Place:
    """Where a program works."""

    url: str
    ledger: Path

    def write(self, *words: str) -> None:
        with self.ledger.open("ab", buffering=0) as file:
            file.write((" ".join(words) + "\n").encode())

    def client(self) -> redis.Redis:
        return redis.Redis.from_url(self.url)

    def items(self) -> SharedItems:
        return Holdfast(self.url).items("thumbs", protocol="redis-work-queue", prefix=PREFIX)


def _new_id() -> str:
    return f"{os.getpid()}-{time.monotonic_ns()}"


def _pause_between_adds() -> None:
    """Add in bursts, so that items wait for the worker, too."""
    if random.random() < 0.05:
        time.sleep(random.uniform(0, 0.3))


def _work(
    place: Place, who: str, claim: Callable[[], Any], id_of: Callable[[Any], str], complete: Callable[[Any], bool]
) -> None:
    while True:
        if (item := claim()) is None:
            continue
        time.sleep(random.uniform(0, 0.02))
        if random.random() < ABANDONED:
            continue
        place.write("completing", id_of(item))
        if complete(item):
            place.write("true", id_of(item), who)


# Holdfast


def holdfast_adder(place: Place) -> None:
    items = place.items()
    while True:
        id = _new_id()
        items.put(id.encode(), id=id)
        place.write("added", id)
        _pause_between_adds()


def holdfast_claimer(place: Place) -> None:
    items = place.items()
    claim = lambda: items.claim(wait="500ms", lease=f"{LEASE}s") or None  # noqa: E731
    _work(place, "holdfast", claim, lambda item: item.id, lambda item: item.complete())


def holdfast_cleaner(place: Place) -> None:
    items = place.items()
    while True:
        items.clean(deep=random.random() < 0.3)


# Version 0.1.5


def old_adder(place: Place) -> None:
    queue, db = OldWorkQueue(KeyPrefix(PREFIX)), place.client()
    while True:
        id = _new_id()
        queue.add_item(db, Item(id, id=id))
        place.write("added", id)
        _pause_between_adds()


def old_claimer(place: Place) -> None:
    queue, db = OldWorkQueue(KeyPrefix(PREFIX)), place.client()
    _work(
        place,
        "0.1.5",
        lambda: queue.lease(db, LEASE, timeout=1),
        lambda item: str(item.id()),
        lambda item: bool(queue.complete(db, item)),
    )


def old_cleaner(place: Place) -> None:
    queue, db = OldWorkQueue(KeyPrefix(PREFIX)), place.client()
    with contextlib.redirect_stdout(io.StringIO()):
        while True:
            queue.light_clean(db)
            time.sleep(0.05)


# The document


def document_adder(place: Place) -> None:
    queue = WorkQueue(place.client(), PREFIX)
    while True:
        id = _new_id()
        queue.add(id, id.encode())
        place.write("added", id)
        _pause_between_adds()


def document_claimer(place: Place) -> None:
    queue = WorkQueue(place.client(), PREFIX)
    _work(
        place,
        "document",
        lambda: queue.lease(LEASE, 1),
        lambda item: str(item[0]),
        lambda item: queue.complete(item[0]),
    )


def document_cleaner(place: Place) -> None:
    queue = WorkQueue(place.client(), PREFIX)
    while True:
        queue.deep_clean() if random.random() < 0.1 else queue.light_clean()
        time.sleep(0.05)


Role = Callable[[Place], None]
OURS: tuple[Role, ...] = (holdfast_adder, holdfast_claimer, holdfast_cleaner)
THEIRS: dict[str, tuple[Role, ...]] = {
    "0.1.5": (old_adder, old_claimer, old_claimer, old_cleaner, old_cleaner),
    "document": (document_adder, document_claimer, document_claimer, document_cleaner, document_cleaner),
}


@dataclass
class Report:
    """What came of it."""

    added: int
    trues: Counter[str]
    lost: list[str]
    kills: int
    jobs: int  # that a worker of Holdfast has run
    by: Counter[str] = field(default_factory=Counter)  # of doubles: the programs that were told True

    @property
    def doubles(self) -> list[str]:
        return [id for id, count in self.trues.items() if count > 1]

    def __str__(self) -> str:
        return (
            f"{self.added} items, {self.kills} kills, {sum(self.trues.values())} times True, {self.jobs} jobs run: "
            f"{len(self.lost)} lost, {len(self.doubles)} doubles" + (f" {dict(self.by)}" if self.by else "")
        )


class Worker:
    """A worker of Holdfast that serves the queue, as a process."""

    def __init__(self, place: Place, folder: Path) -> None:
        self._place = place
        self._folder = folder
        self._process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        line = [sys.executable, "-m", "holdfast", "work", "tests.apps.shared_app", "--queues", "thumbs"]
        line += ["--runner", "thread", "--concurrency", "3", "--lease", "2s", "--log-level", "ERROR"]
        here = {
            "HOLDFAST_URL": self._place.url,
            "LEDGER": str(self._place.ledger),
            "XDG_RUNTIME_DIR": str(self._folder),
            "TMPDIR": str(self._folder),
        }
        with (self._folder / "log").open("ab") as log:
            return subprocess.Popen(line, cwd=ROOT, env=os.environ | here, stdout=log, stderr=log)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def restart(self) -> None:
        self.kill()
        self._process = self._start()


class Programs:
    """Programs that run until they are killed."""

    def __init__(self, place: Place, roles: tuple[Role, ...]) -> None:
        self._place = place
        self._running: list[tuple[Role, BaseProcess]] = [(role, self._start(role)) for role in roles]

    def _start(self, role: Role) -> BaseProcess:
        process = FORK.Process(target=_run, args=(role, self._place), daemon=True)
        process.start()
        return process

    def kill_one(self) -> None:
        number = random.randrange(len(self._running))
        role, process = self._running[number]
        _kill(process)
        self._running[number] = role, self._start(role)

    def kill_all(self) -> None:
        for _, process in self._running:
            _kill(process)


def _run(role: Role, place: Place) -> None:
    random.seed()
    logging.disable()  # abandoned items are dropped on purpose
    with contextlib.suppress(KeyboardInterrupt):
        role(place)


def _kill(process: BaseProcess) -> None:
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    process.join()


def _drain(place: Place) -> None:
    """Complete what is left, once all leases have expired."""
    items = place.items()
    ends = time.monotonic() + 40
    while time.monotonic() < ends:
        items.clean(deep=True)
        while item := items.claim():
            place.write("completing", item.id)
            if item.complete():
                place.write("true", item.id, "holdfast")
        if not list(place.client().scan_iter(f"{PREFIX}:item:*", count=1000)):
            return


def _drain_alone(place: Place) -> None:
    """The same with nothing but version 0.1.5."""
    queue, db = OldWorkQueue(KeyPrefix(PREFIX)), place.client()
    for _ in range(4):
        with contextlib.redirect_stdout(io.StringIO()):
            queue.light_clean(db)
        while item := queue.lease(db, LEASE, block=False):
            place.write("completing", item.id())
            if queue.complete(db, item):
                place.write("true", item.id(), "0.1.5")
        time.sleep(LEASE + 0.1)


def _report(place: Place, kills: int) -> Report:
    lines = [line.split() for line in place.ledger.read_text().splitlines()]
    by_word = {word: Counter(line[1] for line in lines if line[0] == word) for word in ("added", "completing", "true")}
    left = sorted(key.decode() for key in place.client().scan_iter(f"{PREFIX}:*", count=1000))
    undone = [key.removeprefix(f"{PREFIX}:item:") for key in left if key.startswith(f"{PREFIX}:item:")]
    lost = sorted({*(by_word["added"].keys() - by_word["completing"].keys()), *undone})
    jobs = sum(line[0] == "completing" and line[-1] == "job" for line in lines)
    told = [(line[1], line[2]) for line in lines if line[0] == "true"]
    by = Counter(
        " and ".join(who for other, who in told if other == id) for id, count in by_word["true"].items() if count > 1
    )
    return Report(len(by_word["added"]), by_word["true"], lost, kills, jobs, by)


def run(seconds: float, beside: str, *, alone: bool = False, seed: int | None = None) -> Report:
    """Let programs work and die for some seconds, then complete what is left, and count."""
    random.seed(seed)
    with running_server() as url, tempfile.TemporaryDirectory(prefix="hfq-", ignore_cleanup_errors=True) as folder:
        place = Place(url, Path(folder) / "ledger")
        place.ledger.touch()
        programs = Programs(place, THEIRS[beside] if alone else (*OURS, *THEIRS[beside]))
        worker = None if alone else Worker(place, Path(folder))
        kills = _kill_for(seconds, programs, worker)
        if worker:
            _settle(place)
            worker.kill()
        _drain_alone(place) if alone else _drain(place)
        return _report(place, kills)


def _kill_for(seconds: float, programs: Programs, worker: Worker | None) -> int:
    kills, ends, restart = 0, time.monotonic() + seconds, time.monotonic() + 3
    try:
        while time.monotonic() < ends:
            time.sleep(random.uniform(0.01, 0.06))  # between two kills
            programs.kill_one()
            kills += 1
            if worker and time.monotonic() > restart:
                worker.restart()
                kills += 1
                restart = time.monotonic() + random.uniform(2, 6)
    finally:
        programs.kill_all()
    return kills


def _settle(place: Place) -> None:
    """Wait until the worker has completed its items: nobody else claims any more."""
    ends = time.monotonic() + 60
    key = "hf:{default}:bridged:thumbs"
    while time.monotonic() < ends and (place.client().exists(key) or place.items().length()):
        time.sleep(0.1)  # between looks at a condition


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--beside", choices=THEIRS)
    parser.add_argument("--alone", choices=THEIRS)
    parser.add_argument("--seed", type=int)
    given = parser.parse_args()
    other = given.alone or given.beside or "document"
    report = run(given.seconds, other, alone=given.alone is not None, seed=given.seed)
    print(f"{other}{' alone' if given.alone else ' and Holdfast'}, {given.seconds:g} s: {report}")


if __name__ == "__main__":
    main()
