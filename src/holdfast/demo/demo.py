"""The demonstration: jobs that outlive `kill -9`, for about half a minute, on an embedded server of its own.

    producer ──▶ store ◀── good worker, left in peace
                       ◀── bad worker, killed every second or two: all of it, or its supervisor, executor or a job

At the end the store is compared with a ledger outside of it, a file to which jobs append a line at each start and end.
How lost and completed twice are counted is said at `holdfast.ledger.Account`: an attempt that was killed between its
last line and the moment when the store heard of it is repeated, and the store accepts one completion.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import cycle
from pathlib import Path
from typing import Any, NamedTuple

from holdfast.app import Holdfast
from holdfast.demo.ledger import Account, Ledger, compare
from holdfast.demo.screen import Scene, Screen, open_screen
from holdfast.demo.tasks import LEDGER, crawl, transcode
from holdfast.demo.workers import KINDS, DemoWorker, kill_marked
from holdfast.names import new_id
from holdfast.server import server
from holdfast.server.home import find_home
from holdfast.store import socket_url
from holdfast.store.commands import HeldJob
from holdfast.task.task import BoundCall

LEASE = 2.0  # seconds
TICK = 0.1
KILL_EVERY = 1.5  # in half a minute
INTERRUPTED = 130
_FOREIGN = re.compile("HOLDFAST_(?!SERVER_)")  # settings that are meant for the user's own workers


class _Kill(NamedTuple):
    """An attempt whose process was killed, and when."""

    attempt: int
    at: float
    what: str


def run(*, keep: bool = False, jobs: int = 200, seconds: float = 30.0) -> int:
    """Play the demonstration. Returns 1 if anything was lost or completed twice.

    With `keep` the good worker goes on until Ctrl-C, and the jobs stay.
    """
    folder = Path(tempfile.mkdtemp(prefix="holdfast-demo-"))
    try:
        with _termination_as_interrupt(), closing(open_screen()) as screen, _stage(folder, keep) as (app, environ):
            account = _Play(app, screen, folder, jobs, seconds).act(environ, keep)
    except KeyboardInterrupt:
        shutil.rmtree(folder, ignore_errors=True)
        print("demo: interrupted", flush=True)
        return INTERRUPTED
    wrong = bool(account.lost or account.completed_twice)
    if wrong:
        print(f"ledger and logs are in {folder}")
    else:
        shutil.rmtree(folder, ignore_errors=True)
    print(_summary(account), flush=True)
    return int(wrong)


def _summary(account: Account) -> str:
    return (
        f"demo: {account.enqueued} enqueued, {account.succeeded} succeeded, {len(account.lost)} lost, "
        f"{len(account.completed_twice)} completed twice, {len(account.recovered)} attempts killed and recovered"
    )


@contextmanager
def _termination_as_interrupt() -> Iterator[None]:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _stage(folder: Path, keep: bool) -> Iterator[tuple[Holdfast, dict[str, str]]]:
    """A server of its own, and the environment of workers there; nothing of it is left.

    What is to be kept is in a namespace of its own on the server that is used here, where commands find it.
    """
    home = find_home() if keep else folder / "home"
    namespace = f"demo-{new_id()[-8:]}"
    ledger = str(folder / "ledger")
    environ = {name: value for name, value in os.environ.items() if not _FOREIGN.match(name)}
    environ |= {"HOLDFAST_HOME": str(home), "HOLDFAST_NAMESPACE": namespace, LEDGER: ledger}
    environ |= {"TMPDIR": str(folder), "XDG_RUNTIME_DIR": str(folder)}  # what killed workers leave goes with the folder
    app = Holdfast(socket_url(server.ensure(home)), namespace=namespace)
    try:
        yield app, environ
    finally:
        while kill_marked(f"{LEDGER}={ledger}"):
            time.sleep(TICK)
        app.close()
        if not keep:
            server.stop(home)


class _Play:
    """The course of the demonstration, in ticks: produce, kill, look, show."""

    def __init__(self, app: Holdfast, screen: Screen, folder: Path, jobs: int, seconds: float) -> None:
        self._app = app
        self._screen = screen
        self._folder = folder
        self._seconds = seconds
        self._calls = _calls(jobs, pause=0.1 * seconds / 30)
        self._ledger = Ledger(folder / "ledger")
        self._enqueued: list[str] = []
        self._kinds = cycle(KINDS)
        self._kill_every = KILL_EVERY * seconds / 30
        self._kill_at = self._kill_every
        self._kills = 0
        self._killed: dict[str, _Kill] = {}
        self._is_over = False
        self._read = 0  # entries of the ledger

    def act(self, environ: dict[str, str], keep: bool) -> Account:
        self._began = time.monotonic()
        self._good = DemoWorker(environ, self._folder / "good.log", LEASE)
        self._bad = DemoWorker(environ, self._folder / "bad.log", LEASE)
        while not self._has_ended():
            self._tick()
        self._bad.stop()
        if keep:
            self._stay()
        self._good.stop()
        self._is_over = True
        self._look_for_recoveries()
        self._screen.show(self._scene(), last=True)
        return compare(self._enqueued, self._app.get_many(self._enqueued), self._ledger.read())

    @property
    def _elapsed(self) -> float:
        return time.monotonic() - self._began

    def _has_ended(self) -> bool:
        produced = len(self._enqueued) == len(self._calls)
        return (produced and not self._app.count(state="pending")) or self._elapsed > 3 * self._seconds + 60

    def _tick(self) -> None:
        self._produce()
        self._kill_now_and_then()
        self._look_for_recoveries()
        self._screen.show(self._scene())
        time.sleep(TICK)

    def _stay(self) -> None:
        namespace = self._app.address.namespace
        self._screen.say(f"the good worker goes on until Ctrl-C; look: holdfast jobs --namespace {namespace}")
        try:
            while True:
                self._screen.show(self._scene())
                time.sleep(TICK)
        except KeyboardInterrupt:
            return

    def _produce(self) -> None:
        """Enqueue what is due, in the first third of the time: one job by itself, the others in bulk."""
        due = min(len(self._calls), 1 + int(len(self._calls) * self._elapsed / (self._seconds / 3)))
        one, many = self._calls[len(self._enqueued) : due][:1], self._calls[len(self._enqueued) : due][1:]
        self._enqueued += [self._app.enqueue(call).id for call in one]
        self._enqueued += [job.id for job in self._app.enqueue_many(many)]

    # Killing, and what comes of it

    def _kill_now_and_then(self) -> None:
        """Kill the bad worker, or a part of it, when it is due and there is something to lose."""
        if self._bad.restart_if_dead():
            self._screen.say(f"bad worker starts again, process {self._bad.pid}")
        if not self._kill_at < self._elapsed < 0.9 * self._seconds:
            return
        name, held = self._held_by_bad()
        if not held:
            return
        kind = next(self._kinds)
        victims = self._bad.kill(kind)
        if victims:
            self._kills += 1
            self._kill_at = self._elapsed + self._kill_every
            self._note_kill(kind, name, victims, held)

    def _held_by_bad(self) -> tuple[str, list[HeldJob]]:
        for worker in self._app.workers():
            if worker.pid == self._bad.pid:
                return worker.name[-4:], worker.held
        return "", []

    def _note_kill(self, kind: str, name: str, victims: list[int], held: list[HeldJob]) -> None:
        if kind == "job":
            of_victim = {entry.job for entry in self._ledger.read() if entry.pid in victims}
            held = [lease for lease in held if lease.id in of_victim]
        whose = f"worker {name}" if kind == "worker" else f"{kind} of worker {name}"
        self._screen.say(f"{whose} killed with -9: {_many(len(victims), 'process')}, {_many(len(held), 'job')} there")
        now = time.monotonic()
        self._killed |= {lease.id: _Kill(lease.attempt, now, whose) for lease in held}

    def _look_for_recoveries(self) -> None:
        """Say which jobs of the killed have started again since the last look, once for each kill."""
        entries = self._ledger.read()
        fresh, self._read = entries[self._read :], len(entries)
        taken_over: dict[tuple[str, float], list[str]] = {}
        for entry in fresh:
            kill = self._killed.get(entry.job)
            if entry.word == "start" and kill and entry.attempt > kill.attempt:
                del self._killed[entry.job]
                taken_over.setdefault((kill.what, kill.at), []).append(entry.job)
        for (what, at), jobs in taken_over.items():
            which = f"job {jobs[0]}" + (f" and {len(jobs) - 1} more" if len(jobs) > 1 else "")
            self._screen.say(f"{what} killed, {which} taken over after {time.monotonic() - at:.1f} s")

    def _scene(self) -> Scene:
        counts: dict[str, int] = {}
        for queue in self._app.queues():
            counts = queue.counts
        starts = [entry.job for entry in self._ledger.read() if entry.word == "start"]
        return Scene(
            elapsed=self._elapsed,
            enqueued=len(self._enqueued),
            total=len(self._calls),
            counts=counts,
            workers={"good worker": self._state(self._good), "bad worker": self._state(self._bad)},
            running=list(self._app.list(state="running")),
            kills=self._kills,
            recovered=len(starts) - len(set(starts)),  # all but the last attempt of each job
        )

    def _state(self, worker: DemoWorker) -> str:
        return "stopped" if self._is_over else str(worker.pid)


def _many(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}{'es' if what.endswith('s') else 's'}"


def _calls(jobs: int, pause: float) -> list[BoundCall[Any]]:
    """Jobs of 2 to 20 steps; two in three have a process of their own, the others are coroutines."""
    tasks = (transcode, transcode, crawl)
    return [tasks[place % 3].bind(2 + place * 7 % 19, pause) for place in range(jobs)]
