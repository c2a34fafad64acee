"""The measures: each is a function that returns figures of one peer in one round."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from bench import children, environments
from bench.children import Failed
from bench.figures import Figure, Taken
from bench.recovering import recovery
from bench.roster import RUNNERS, Peer
from bench.scene import SETTLING, Scene, Size, new_folder
from bench.server import Way, between, serving

Place = Literal["plain", "1ms", "aof", "counted", "own"]
STORED = 100_000  # jobs whose memory is taken
NEAR_WIRE = 700  # jobs a second that one by one can do at a millisecond of delay
AGAIN = ("1ms", "aof")  # places where the same is measured again
FAR_ROUNDS = 2  # there
PAUSE, FAR_PAUSE = 10, 40  # milliseconds between jobs of a latency: enough for each to become idle


Run = Callable[[Scene, Peer, Size], Taken]


@dataclass(frozen=True)
class Measure:
    name: str
    title: str
    figures: tuple[Figure, ...]
    run: Run
    needs: str  # the pace that a peer must have
    place: Place = "plain"
    is_quick: bool = False  # part of a quick run
    most_rounds: int = 99  # 1: it counts, or is a median itself
    is_ours: bool = False  # of Holdfast only
    at_once: int = 1  # peers measured at the same time, for measures that count or wait and are not disturbed by others
    about: float = 0.0  # seconds of one round of a peer, if it is not like others

    def concerns(self, peer: Peer) -> bool:
        """Whether it is taken of a peer; the further limits are not where the others are not limited by them."""
        if self.place in AGAIN and peer.is_further:
            return False
        return self.needs in peer.paces and (peer.name == "holdfast" or not self.is_ours)


def _paced(scene: Scene, peer: Peer, what: str) -> float:
    """About how many jobs a second it can store on this way."""
    is_waiting = scene.way.control and (what == "enqueue" or peer.is_one_by_one)
    return min(peer.paces[what], NEAR_WIRE) if is_waiting else peer.paces[what]


def enqueue(scene: Scene, peer: Peer, size: Size) -> Taken:
    scene.clear()
    jobs = size.jobs(_paced(scene, peer, "enqueue"))
    before = scene.server.look()
    reply = scene.run_command(peer, "enqueue", jobs)
    spent = between(before, scene.server.look())
    return Taken(
        {"rate": jobs / reply["seconds"], "server": spent.microseconds(jobs), "commands": spent.commands(jobs)},
        {"jobs": jobs, "by_command": spent.by_command(jobs)},
    )


def bulk(scene: Scene, peer: Peer, size: Size) -> Taken:
    scene.clear()
    jobs = size.jobs(_paced(scene, peer, "bulk"))
    before = scene.server.look()
    reply = scene.run_command(peer, "bulk", jobs)
    after = scene.server.look()
    spent = between(before, after)
    figures = {"rate": jobs / reply["seconds"], "server": spent.microseconds(jobs)}
    return Taken(figures, {"jobs": jobs, "by_command": spent.by_command(jobs)})


def memory(_scene: Scene, peer: Peer, size: Size) -> Taken:
    """What a waiting job takes: of as many jobs of each, for a table of keys that has just doubled has much room."""
    jobs = 5000 if size.is_quick else STORED
    with serving() as server, new_folder() as folder:
        scene = Scene(server, Way(server.url), folder)
        scene.clear()
        before = server.look()
        scene.fill(peer, jobs, "one")
        children.wait_until(lambda: server.is_quiet, timeout=10, every=0.05)
        return Taken({"memory": (server.look().memory - before.memory) / jobs}, {"jobs": jobs})


def draining(kind: str) -> Run:
    """A measure of workers of a kind, which find all jobs waiting."""

    def drain(scene: Scene, peer: Peer, size: Size) -> Taken:
        scene.clear()
        are_several = kind == "two"
        jobs = size.jobs(peer.paces[kind]) + (int(peer.paces[kind] * SETTLING) if are_several else 0)
        scene.fill(peer, jobs, kind)
        with scene.worker(peer, kind):
            seen = scene.stretch(jobs + 1, size.seconds * 4 + 1, are_several=are_several)
        spent = between(seen.before, seen.after)
        return Taken(
            {
                "rate": seen.jobs / seen.seconds,
                "server": spent.microseconds(seen.jobs),
                "commands": spent.commands(seen.jobs),
            },
            {"jobs": jobs, "seen": seen.jobs, "by_command": spent.by_command(seen.jobs)},
        )

    return drain


def latency(scene: Scene, peer: Peer, size: Size) -> Taken:
    """From before a job is enqueued until it starts, on a worker that has nothing else to do."""
    scene.clear()
    jobs, pause = (size.samples // 4, FAR_PAUSE) if scene.way.control else (size.samples, PAUSE)
    with scene.worker(peer, "one"):
        scene.run_command(peer, "enqueue", 1)
        scene.await_marks(2, "the worker ran nothing")
        time.sleep(0.5 if size.is_quick else 1.5)  # until it is idle
        scene.forget_marks()
        scene.run_command(peer, "stamp", jobs, pause)
        children.wait_until(lambda: len(scene.lines()) >= jobs, timeout=20, every=0.05)
        times = sorted(nanoseconds / 1e6 for nanoseconds in scene.lines())
    if len(times) < jobs:
        raise Failed(f"only {len(times)} of {jobs} jobs were started")
    return Taken({"p50": _share(times, 0.5), "p99": _share(times, 0.99)}, {"jobs": jobs})


def _share(ordered: list[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, math.ceil(share * len(ordered)) - 1)]


def cost(scene: Scene, peer: Peer, size: Size) -> Taken:
    """What one job asks of the server and of the network: enqueued one by one, then run."""
    scene.clear()
    jobs = 200 if size.is_quick else 1000
    before, wire = scene.server.look(), scene.way.counts()
    scene.run_command(peer, "enqueue", jobs)
    sent = between(before, scene.server.look())
    stored = _difference(wire, scene.way.counts())
    with scene.worker(peer, "one"):
        scene.await_marks(1, "the worker ran nothing")
        children.wait_until(lambda: scene.marks() > jobs // 10, timeout=10)
        began, marks, wire = scene.server.look(), scene.marks(), scene.way.counts()
        children.wait_until(lambda: scene.marks() > jobs, timeout=30)
        time.sleep(0.1)  # until the last are acknowledged
        ran = between(began, scene.server.look())
        run = _difference(wire, scene.way.counts())
        seen = scene.marks() - marks
    if not seen:
        raise Failed("too few jobs to see: they were run in one go")
    return Taken(
        {
            "commands": sent.commands(jobs) + ran.commands(seen),
            "trips": stored["trips"] / jobs + run["trips"] / seen,
            "bytes": (stored["sent"] + stored["received"]) / jobs + (run["sent"] + run["received"]) / seen,
            "server": sent.microseconds(jobs) + ran.microseconds(seen),
        },
        {"jobs": jobs, "enqueue": sent.by_command(jobs), "run": ran.by_command(seen)},
    )


def _difference(before: dict[str, int], after: dict[str, int]) -> dict[str, int]:
    return {name: after[name] - number for name, number in before.items()}


def runners(scene: Scene, peer: Peer, size: Size) -> Taken:
    """Each way to run a job; async is the measure `drain`."""
    figures = {runner: draining(runner)(scene, peer, size).figures["rate"] for runner in RUNNERS}
    return Taken(figures)


def by_module(module: str, *words: str, quick: tuple[str, ...]) -> Run:
    """A measure that is a program of its own, `bench.<module>`, on servers of its own."""

    def run(_scene: Scene, _peer: Peer, size: Size) -> Taken:
        line = [sys.executable, "-m", f"bench.{module}", *(quick if size.is_quick else words)]
        root = environments.ROOT
        with new_folder() as folder:
            environment = {**environments.environment(_peer), "PYTHONPATH": f"{root / 'src'}:{root}"}
            reply = children.ask(line, env=environment, cwd=root, log=folder / "log", timeout=1500)
        return Taken(reply["figures"], reply.get("details", {}))

    return run


RATE = Figure("rate", "jobs/s", "jobs/s")
SERVER = Figure("server", "server time", "µs/job", is_higher_better=False, digits=1)
COMMANDS = Figure("commands", "commands", "per job", is_higher_better=False, digits=1)
MEMORY = Figure("memory", "store memory", "bytes/job", is_higher_better=False)
DEPTHS = ("1000", "10000", "100000", "1000000")
VERBS = ("enqueue", "claim", "finish", "enqueue one", "claim one", "finish one")
IDLE = ("1", "10", "100", "1000")


def _figures(names: tuple[str, ...], unit: str, *, digits: int = 1, higher: bool = False) -> tuple[Figure, ...]:
    return tuple(Figure(name, name, unit, is_higher_better=higher, digits=digits) for name in names)


def _throughputs(place: Place, words: str) -> tuple[Measure, ...]:
    """The measures that are taken in several places."""
    is_plain = place == "plain"
    end = "" if is_plain else f"@{place}"
    rounds = 99 if is_plain else FAR_ROUNDS
    return (
        Measure(
            f"enqueue{end}",
            f"enqueue one by one{words}",
            (RATE, SERVER, COMMANDS),
            enqueue,
            "enqueue",
            place,
            is_quick=is_plain,
            most_rounds=rounds,
        ),
        Measure(
            f"bulk{end}",
            f"enqueue in bulk{words}",
            (RATE, SERVER),
            bulk,
            "bulk",
            place,
            is_quick=is_plain,
            most_rounds=rounds,
        ),
        Measure(
            f"drain{end}",
            f"drain, one worker process{words}",
            (RATE, SERVER, COMMANDS),
            draining("one"),
            "one",
            place,
            is_quick=is_plain,
            most_rounds=rounds,
        ),
    )


def _latency(place: Place, words: str) -> Measure:
    figures = (
        Figure("p50", "median", "ms", is_higher_better=False, digits=2),
        Figure("p99", "99 of 100", "ms", is_higher_better=False, digits=2),
    )
    is_plain = place == "plain"
    name = "latency" if is_plain else f"latency@{place}"
    title = f"enqueue to start, idle worker{words}"
    rounds = 99 if is_plain else FAR_ROUNDS
    return Measure(name, title, figures, latency, "stamp", place, is_quick=is_plain, most_rounds=rounds)


MEASURES = (
    *_throughputs("plain", ""),
    Measure("two", "drain, two worker processes", (RATE, SERVER), draining("two"), "two"),
    _latency("plain", ""),
    Measure("sync", "drain sync tasks inside one worker process", (RATE, SERVER), draining("sync"), "sync"),
    Measure("per-job", "a process per job", (RATE, SERVER), draining("per-job"), "per-job"),
    Measure("memory", "a waiting job in the store", (MEMORY,), memory, "bulk", "own", most_rounds=1, at_once=4),
    Measure(
        "cost",
        "enqueue and run, per job",
        (
            COMMANDS,
            Figure("trips", "round trips", "per job", is_higher_better=False, digits=2),
            Figure("bytes", "bytes on the wire", "per job", is_higher_better=False),
            SERVER,
        ),
        cost,
        "stamp",
        "counted",
        most_rounds=1,
    ),
    *_throughputs("1ms", ", replies 1 ms late"),
    _latency("1ms", ", replies 1 ms late"),
    *_throughputs("aof", ", append-only file"),
    Measure(
        "runners",
        "drain by runner",
        _figures(RUNNERS, "jobs/s", digits=0, higher=True),
        runners,
        "thread",
        is_ours=True,
    ),
    Measure(
        "backlog",
        "server time by number of waiting jobs",
        _figures(
            tuple(f"{verb}, {int(depth):,} waiting" for verb in VERBS for depth in DEPTHS),
            "µs/job",
        ),
        by_module("backlog", *DEPTHS, quick=DEPTHS[:2]),
        "stamp",
        "own",
        most_rounds=1,
        is_ours=True,
        about=90.0,
    ),
    Measure(
        "idle",
        "cost of idle executors",
        (
            *_figures(tuple(f"idle, {int(number):,}" for number in IDLE), "ms of server time/s", digits=2),
            *_figures(tuple(f"a job, {int(number):,} idle" for number in IDLE), "µs of server time"),
        ),
        by_module("idle", *IDLE, quick=IDLE[:2]),
        "stamp",
        "own",
        most_rounds=1,
        is_ours=True,
        about=70.0,
    ),
    Measure(
        "recovery",
        "kill -9 of a worker, until its job runs again",
        (
            Figure("seconds", "a worker is started at once", "s", is_higher_better=False, digits=1),
            Figure("sibling", "another lives on the node", "s", is_higher_better=False, digits=1),
            Figure("elsewhere", "another lives elsewhere", "s", is_higher_better=False, digits=1),
        ),
        recovery,
        "stay",
        "own",
        most_rounds=1,
        at_once=99,
        about=8.0,  # all wait at once
    ),
)
BY_NAME = {measure.name: measure for measure in MEASURES}
