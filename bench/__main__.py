"""Holdfast beside RQ and huey on one server, in one run: `make bench`, or `make bench ARGS=--quick`.

Each figure is the median of several rounds, interleaved, so that a noisy neighbour hurts all alike. All on one
server without an append-only file, over a unix socket, one worker process, jobs that do nothing. What each worker
promises differs: Holdfast leases, fences and records every attempt; RQ keeps a record; huey removes a task from its
list when it takes it, so that a killed worker loses it.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import statistics
import sys
from collections.abc import Callable

import redis
from tests.servers import running_server

from bench import deaths, imports, peers, recovery, running

Measure = Callable[[str, int], float]

ROWS: list[tuple[str, str, int, Measure]] = [
    ("enqueue, one by one", "bare FCALL loop", 2000, peers.bare_enqueue),
    ("enqueue, one by one", "holdfast", 2000, peers.holdfast_enqueue),
    ("enqueue, one by one", "rq", 1000, peers.rq_enqueue),
    ("enqueue, one by one", "huey", 2000, peers.huey_enqueue),
    ("enqueue, in bulk", "holdfast", 20000, peers.holdfast_enqueue_many),
    ("enqueue, in bulk", "rq", 2000, peers.rq_enqueue_many),
    ("drain, in the worker's process", "holdfast", 20000, peers.holdfast_drain),
    ("drain, in the worker's process", "rq", 500, peers.rq_drain),
    ("drain, in the worker's process", "huey", 2000, peers.huey_drain),
    ("drain, a process per job", "holdfast", 400, peers.holdfast_drain_forked),
    ("drain, a process per job", "rq", 100, peers.rq_drain_forked),
]


def measure(url: str, rounds: int, scale: float) -> dict[tuple[str, str], list[float]]:
    figures: dict[tuple[str, str], list[float]] = {}
    for round in range(rounds):
        for what, who, number, run in ROWS:
            client = redis.Redis.from_url(url)
            client.flushall()
            client.close()
            count = max(50, int(number * scale))
            _progress(f"  round {round + 1}/{rounds}: {what}: {who} ...")
            figures.setdefault((what, who), []).append(count / run(url, count))
    _progress("")
    return figures


def _progress(words: str) -> None:
    if sys.stderr.isatty():
        print(f"{words:79}", end="\r", file=sys.stderr, flush=True)


def report(figures: dict[tuple[str, str], list[float]]) -> None:
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in ("holdfast", "rq", "huey", "redis"))
    print(f"{versions}; {os.cpu_count()} cores; load {os.getloadavg()[0]:.1f}\n")
    print(f"{'':34}{'':18}{'jobs/s':>10}  {'spread':>13}  {'holdfast is':>12}")
    for (what, who), rates in figures.items():
        ours = statistics.median(figures[what, "holdfast"])
        rate = statistics.median(rates)
        ratio = "" if who == "holdfast" else f"{ours / rate:.1f} x"
        print(f"{what:34}{who:18}{rate:10,.0f}  {min(rates):6,.0f}-{max(rates):6,.0f}  {ratio:>12}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "what",
        nargs="?",
        choices=("jobs", "imports", "deaths", "recovery", "running"),
        default="jobs",
        help="jobs, if not given",
    )
    parser.add_argument("--quick", action="store_true", default=bool(os.environ.get("QUICK")), help="one small round")
    options = parser.parse_args()
    if options.what == "imports":
        imports.main(options.quick)
    elif options.what == "deaths":
        deaths.main()
    elif options.what == "recovery":
        recovery.main(1 if options.quick else 3)
    elif options.what == "running":
        running.main(options.quick)
    else:
        with running_server() as url:
            report(measure(url, 1 if options.quick else 3, 0.3 if options.quick else 1.0))


if __name__ == "__main__":
    main()
