"""The demonstration: jobs survive `kill -9` for half a minute, on an embedded server of its own.

    producer ──▶ store ◀── good worker, never killed
                       ◀── bad worker, killed every second or two: all of it, or its supervisor, executor or a job

At the end the store is compared with a ledger outside of it, a file to which attempts append a line when they start and
end. `holdfast.demo.ledger.Account` defines lost and completed twice: an attempt that is killed after its last line, but
before the store records its outcome, is repeated, and the store accepts one completion.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
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
from holdfast.text import pluralize

LEASE = 2.0  # seconds
TICK = 0.1  # seconds
KILL_INTERVAL = 1.5  # seconds, if the demonstration takes half a minute
INTERRUPTED = 130
_USER_SETTINGS = re.compile("HOLDFAST_(?!SERVER_)")  # variables for the user's own workers


class _Kill(NamedTuple):
    """An attempt whose process was killed."""

    attempt: int
    at: float
    victim: str


Dashboard = Callable[[Holdfast], AbstractContextManager[str]]  # serves an app, and says where


def run(
    *, keep: bool = False, jobs: int = 200, seconds: float = 30.0, dashboard: Dashboard = lambda _: nullcontext("")
) -> int:
    """Run the demonstration. Return 1 if anything was lost or completed twice.

    With `keep` the good worker and the dashboard continue until Ctrl-C, and the jobs stay.
    """
    folder = Path(tempfile.mkdtemp(prefix="holdfast-demo-"))
    try:
        with _termination_as_interrupt(), _server(folder, keep) as (app, environ), dashboard(app) as where:
            if where:
                print(f"dashboard: {where}", flush=True)
            with closing(open_screen()) as screen:
                account = _Demonstration(app, screen, folder, jobs, seconds).run(environ, keep)
    except KeyboardInterrupt:
        shutil.rmtree(folder, ignore_errors=True)
        print("demo: interrupted", flush=True)
        return INTERRUPTED
    wrong = bool(account.lost or account.completed_twice)
    if wrong:
        print(f"the ledger and the logs are in {folder}")
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
def _server(folder: Path, keep: bool) -> Iterator[tuple[Holdfast, dict[str, str]]]:
    """Provide a server and the environment of its workers, and remove both at the end.

    With `keep` the jobs are in their own namespace on the server of the project, where commands find them.
    """
    home = find_home() if keep else folder / "home"
    namespace = f"demo-{new_id()[-8:]}"
    ledger = str(folder / "ledger")
    environ = {name: value for name, value in os.environ.items() if not _USER_SETTINGS.match(name)}
    environ |= {"HOLDFAST_HOME": str(home), "HOLDFAST_NAMESPACE": namespace, LEDGER: ledger}
    environ |= {
        "TMPDIR": str(folder),
        "XDG_RUNTIME_DIR": str(folder),
    }  # removes files of killed workers, too
    app = Holdfast(socket_url(server.ensure(home)), namespace=namespace)
    try:
        yield app, environ
    finally:
        while kill_marked(f"{LEDGER}={ledger}"):
            time.sleep(TICK)
        app.close()
        if not keep:
            server.stop(home)


class _Demonstration:
    """The demonstration, in ticks: enqueue jobs, kill processes, detect recoveries, update the screen."""

    def __init__(self, app: Holdfast, screen: Screen, folder: Path, jobs: int, seconds: float) -> None:
        self._app = app
        self._screen = screen
        self._folder = folder
        self._seconds = seconds
        self._calls = _calls(jobs, pause=0.1 * seconds / 30)
        self._ledger = Ledger(folder / "ledger")
        self._enqueued: list[str] = []
        self._kinds = cycle(KINDS)
        self._kill_interval = KILL_INTERVAL * seconds / 30
        self._kill_at = self._kill_interval
        self._kills = 0
        self._killed: dict[str, _Kill] = {}
        self._is_finished = False
        self._read = 0  # entries of the ledger

    def run(self, environ: dict[str, str], keep: bool) -> Account:
        self._began = time.monotonic()
        self._good = DemoWorker(environ, self._folder / "good.log", LEASE)
        self._bad = DemoWorker(environ, self._folder / "bad.log", LEASE)
        while not self._has_finished():
            self._tick()
        self._bad.stop()
        if keep:
            self._run_until_interrupted()
        self._good.stop()
        self._is_finished = True
        self._report_recoveries()
        self._screen.show(self._scene(), last=True)
        return compare(self._enqueued, self._app.get_many(self._enqueued), self._ledger.read())

    @property
    def _elapsed(self) -> float:
        return time.monotonic() - self._began

    def _has_finished(self) -> bool:
        produced = len(self._enqueued) == len(self._calls)
        return (produced and not self._app.count(state="pending")) or self._elapsed > 3 * self._seconds + 60

    def _tick(self) -> None:
        self._enqueue_due()
        self._kill_if_due()
        self._report_recoveries()
        self._screen.show(self._scene())
        time.sleep(TICK)

    def _run_until_interrupted(self) -> None:
        namespace = self._app.address.namespace
        self._screen.log(f"the good worker continues until Ctrl-C; see: holdfast jobs --namespace {namespace}")
        try:
            while True:
                self._screen.show(self._scene())
                time.sleep(TICK)
        except KeyboardInterrupt:
            return

    def _enqueue_due(self) -> None:
        """Enqueue jobs during the first third of the time: one individually, the others in bulk."""
        due = min(len(self._calls), 1 + int(len(self._calls) * self._elapsed / (self._seconds / 3)))
        one, many = self._calls[len(self._enqueued) : due][:1], self._calls[len(self._enqueued) : due][1:]
        self._enqueued += [self._app.enqueue(call).id for call in one]
        self._enqueued += [job.id for job in self._app.enqueue_many(many)]

    # Killing and recovering

    def _kill_if_due(self) -> None:
        """Kill the bad worker or a part of it, at intervals, while it holds jobs."""
        if self._bad.restart_if_dead():
            self._screen.log(f"bad worker restarted, pid {self._bad.pid}")
        if not self._kill_at < self._elapsed < 0.9 * self._seconds:
            return
        name, held = self._held_by_bad()
        if not held:
            return
        kind = next(self._kinds)
        victims = self._bad.kill(kind)
        if victims:
            self._kills += 1
            self._kill_at = self._elapsed + self._kill_interval
            self._record_kill(kind, name, victims, held)

    def _held_by_bad(self) -> tuple[str, list[HeldJob]]:
        for worker in self._app.workers():
            if worker.pid == self._bad.pid:
                return worker.name[-4:], worker.held
        return "", []

    def _record_kill(self, kind: str, name: str, victims: list[int], held: list[HeldJob]) -> None:
        if kind == "job":
            of_victim = {entry.job for entry in self._ledger.read() if entry.pid in victims}
            held = [lease for lease in held if lease.id in of_victim]
        victim = f"worker {name}" if kind == "worker" else f"{kind} of worker {name}"
        processes, jobs = pluralize(len(victims), "process"), pluralize(len(held), "job")
        self._screen.log(f"{victim} killed with -9: {processes}, {jobs} affected")
        now = time.monotonic()
        self._killed |= {lease.id: _Kill(lease.attempt, now, victim) for lease in held}

    def _report_recoveries(self) -> None:
        """Report which jobs of killed processes have started again, once for each kill."""
        entries = self._ledger.read()
        fresh, self._read = entries[self._read :], len(entries)
        recovered: dict[tuple[str, float], list[str]] = {}
        for entry in fresh:
            kill = self._killed.get(entry.job)
            if entry.event == "start" and kill and entry.attempt > kill.attempt:
                del self._killed[entry.job]
                recovered.setdefault((kill.victim, kill.at), []).append(entry.job)
        for (victim, at), jobs in recovered.items():
            which = f"job {jobs[0]}" + (f" and {len(jobs) - 1} more" if len(jobs) > 1 else "")
            self._screen.log(f"{victim} killed, {which} taken over after {time.monotonic() - at:.1f} s")

    def _scene(self) -> Scene:
        counts: dict[str, int] = {}
        for queue in self._app.queues():
            counts = queue.counts
        starts = [entry.job for entry in self._ledger.read() if entry.event == "start"]
        return Scene(
            elapsed=self._elapsed,
            enqueued=len(self._enqueued),
            total=len(self._calls),
            counts=counts,
            workers={"good worker": self._state(self._good), "bad worker": self._state(self._bad)},
            running=list(self._app.list(state="running")),
            kills=self._kills,
            recovered=len(starts) - len(set(starts)),  # all attempts of a job but the last
        )

    def _state(self, worker: DemoWorker) -> str:
        return "stopped" if self._is_finished else str(worker.pid)


def _calls(jobs: int, pause: float) -> list[BoundCall[Any]]:
    """Return jobs of 2 to 20 steps; two in three run in their own process, the others as coroutines."""
    tasks = (transcode, transcode, crawl)
    return [tasks[number % 3].bind(2 + number * 7 % 19, pause) for number in range(jobs)]
