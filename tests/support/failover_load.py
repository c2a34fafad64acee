"""Failovers behind one address, one after the other, under load: how long do client and worker stand still?

    python -m tests.support.failover_load [--times 10]

A client enqueues without a break, and a worker runs what it enqueues. The longest silence is the longest time between
two calls that returned, or between two jobs that ran.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from holdfast import StoreUnavailable
from tests.apps import failover_app
from tests.support.failover import Pair, pair
from tests.support.workers import Crew, new_crew, until

APP = "tests.apps.failover_app"
BETWEEN_CALLS = 0.005  # seconds
AROUND = 20  # jobs that run before each failover, and after it


@dataclass
class Report:
    """What came of it. Times are in seconds."""

    enqueued: int
    errors: list[str]
    runs: Counter[str]
    client_silence: float
    worker_silence: float
    failover: float  # the longest of them
    log: str

    def __str__(self) -> str:
        return (
            f"{self.enqueued} jobs enqueued, {len(self.runs)} ran, {sum(self.runs.values()) - len(self.runs)} twice,"
            f" {len(self.errors)} calls failed\n"
            f"longest failover         {self.failover:.3f} s\n"
            f"longest silence, client  {self.client_silence:.3f} s\n"
            f"longest silence, worker  {self.worker_silence:.3f} s"
        )


class Client:
    """Enqueues in a thread, until it is told to stop."""

    def __init__(self, crew: Crew) -> None:
        self._crew = crew
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._work)
        self.returned: list[float] = []  # when
        self.errors: list[str] = []

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()

    def _work(self) -> None:
        while not self._stopping.wait(BETWEEN_CALLS):
            try:
                self._crew.put(failover_app.mark, len(self.returned))
                self.returned.append(time.monotonic())
            except StoreUnavailable as error:
                self.errors.append(str(error))


def _runs(crew: Crew) -> list[tuple[str, float]]:
    lines = (crew.folder / "ledger").read_text().splitlines()
    return [(number, float(at)) for number, at in (line.split() for line in lines)]


def _go_on(crew: Crew) -> None:
    """Wait until some more jobs have run."""
    before = len(_runs(crew))
    until(lambda: len(_runs(crew)) >= before + AROUND, what="jobs to run")


def _fail_over(two: Pair) -> float:
    began = time.monotonic()
    two.fail_over()
    return time.monotonic() - began


def _longest(times: list[float]) -> float:
    return max(later - earlier for earlier, later in pairwise(sorted(times)))


def run(times: int) -> Report:
    """Fail over so many times, and wait until all is done."""
    with tempfile.TemporaryDirectory() as folder, pair() as two, new_crew(two.url, Path(folder)) as crew:
        worker, client = crew.start("--lease", "5s", app=APP), Client(crew)
        client.start()
        try:
            _go_on(crew)
            took = []
            for _ in range(times):
                took.append(_fail_over(two))
                _go_on(crew)
                two.settle()
        finally:
            client.stop()
        until(lambda: crew.app.count(state="pending") == 0, what="the last job")
        runs = _runs(crew)
        return Report(
            enqueued=len(client.returned),
            errors=client.errors,
            runs=Counter(number for number, _ in runs),
            client_silence=_longest(client.returned),
            worker_silence=_longest([at for _, at in runs]),
            failover=max(took),
            log=worker.log,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=10, help="failovers")
    print(run(parser.parse_args().times))


if __name__ == "__main__":
    main()
