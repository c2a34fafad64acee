"""The peers: how each is installed and configured, and what it does with the work of a killed worker.

A peer's script is `peers/<folder>/peer.py`; the words that it understands are in `peers/common.py`. What it can do is
said by `paces`: about how many jobs a second, by which the number of jobs of a measure is chosen; for `stay`, how many
it is given at once. A measure whose pace is not given is not taken.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Keeps = Literal["recovers", "loses", "limit"]


@dataclass(frozen=True)
class Peer:
    name: str
    packages: tuple[str, ...]  # the first names it
    settings: str
    keeps: Keeps  # what becomes of the jobs of a killed worker, and in words; the measure `recovery` tries it
    fate: str
    paces: dict[str, int]
    folder: str = ""
    runtime: Literal["python", "node", "tree"] = "python"  # tree: the interpreter that runs the benchmark
    is_one_by_one: bool = False  # it has no way to store many jobs that shares round trips
    is_further: bool = False  # a variant, which is measured on the plain way only
    environment: dict[str, str] = field(default_factory=dict)
    workers: dict[str, str] = field(default_factory=dict)  # which kind of worker does for another

    @property
    def place(self) -> str:
        """The folder of its script, and the name of its environment."""
        return self.folder or self.name

    def kind(self, kind: str) -> tuple[str, int]:
        """The kind of worker to start, and how many."""
        if kind == "two" and "two" not in self.workers:
            return "one", 2
        return self.workers.get(kind, kind), 1


def _paces(enqueue: int, bulk: int, one: int, two: int, **more: int) -> dict[str, int]:
    return {"enqueue": enqueue, "bulk": bulk, "one": one, "two": two, "stamp": 1, "stay": 1, **more}


SAME = {"stay": "one", "sync": "one"}
PAIR = {**SAME, "two": "two"}
RUNNERS = ("thread", "process", "fork", "spawn")

PEERS = (
    Peer(
        "holdfast",
        ("holdfast",),
        "defaults; async jobs in the event loop of one executor, or of two",
        "recovers",
        "run again, within 2 s where another worker of the node lives, else when their leases of 30 s end",
        _paces(8000, 60000, 20000, 25000, sync=6000, **{"per-job": 350})
        | {"stay": 4, "thread": 6000, "process": 4000, "fork": 350, "spawn": 15},
        runtime="tree",
        workers={**PAIR, "sync": "sync"},
    ),
    Peer(
        "bare",
        ("redis",),
        "redis-py: EVALSHA per job; bulk: 100 jobs a call; a worker that takes 100 a call",
        "limit",
        "lost",
        {"enqueue": 10000, "bulk": 120000, "one": 60000},
        runtime="tree",
        workers={"one": "100"},
    ),
    Peer(
        "bare, 10 a call",
        ("redis",),
        "a worker that takes 10 a call",
        "limit",
        "lost",
        {"one": 30000},
        folder="bare",
        is_further=True,
        runtime="tree",
        workers={"one": "10"},
    ),
    Peer(
        "bare, 1 a call",
        ("redis",),
        "a worker that takes one a call",
        "limit",
        "lost",
        {"one": 5000},
        folder="bare",
        is_further=True,
        runtime="tree",
        workers={"one": "1"},
    ),
    Peer(
        "bare, pipelined",
        ("redis",),
        "a worker that takes one a call, 100 calls in a pipeline",
        "limit",
        "lost",
        {"one": 20000},
        folder="bare",
        is_further=True,
        runtime="tree",
        workers={"one": "pipe"},
    ),
    Peer(
        "bare, a list",
        ("redis",),
        "RPUSH, and a worker that blocks in BLPOP",
        "limit",
        "lost",
        {"stamp": 1},
        folder="bare",
        runtime="tree",
        environment={"BENCH_LIST": "1"},
        workers={"one": "list"},
    ),
    Peer(
        "bare, forks",
        ("redis",),
        "a worker that takes one a call and forks a process for it, four at once",
        "limit",
        "lost",
        {"per-job": 500},
        folder="bare",
        runtime="tree",
        workers={"per-job": "forks"},
    ),
    Peer(
        "rq",
        ("rq", "hiredis"),
        "SimpleWorker; a process per job: Worker; Retry(max=3)",
        "recovers",
        "run again when its heartbeat is old and the registry is looked at, some ten minutes later",
        _paces(1500, 3000, 400, 600, sync=400, **{"per-job": 70}),
        workers={"sync": "one"},
    ),
    Peer(
        "rq, defaults",
        ("rq", "hiredis"),
        "no retries",
        "loses",
        "counted as failed, when its heartbeat is old",
        {"stay": 1},
        folder="rq",
        environment={"BENCH_RETRIES": "0"},
    ),
    Peer(
        "celery",
        ("celery[redis]", "hiredis"),
        "acks_late, prefetch multiplier 64, as advised for short tasks; pool solo; two: prefork 2; a process per job: "
        "--max-tasks-per-child 1; no result backend (default)",
        "recovers",
        "run again after the visibility time-out, an hour",
        _paces(1500, 2000, 1000, 1200, sync=1000, **{"per-job": 30}),
        workers={"sync": "one", "two": "two"},
        is_one_by_one=True,
    ),
    Peer(
        "celery, defaults",
        ("celery[redis]", "hiredis"),
        "acknowledged when taken",
        "loses",
        "lost",
        {"stay": 1},
        folder="celery",
        environment={"BENCH_ACKS": "early"},
    ),
    Peer(
        "dramatiq",
        ("dramatiq[redis]", "hiredis"),
        "8 threads (default); no results (default)",
        "recovers",
        "run again, a minute after its last sign, at a random call of another worker",
        _paces(6000, 6000, 1800, 3000, sync=1800),
        workers=PAIR,
        is_one_by_one=True,
    ),
    Peer(
        "dramatiq, 16 threads",
        ("dramatiq[redis]", "hiredis"),
        "16 threads, which was the fastest of 8, 16, 32 and 64",
        "recovers",
        "as of dramatiq",
        {"one": 2500, "two": 3500, "sync": 2500},
        folder="dramatiq",
        environment={"BENCH_THREADS": "16"},
        is_further=True,
        workers=PAIR,
    ),
    Peer(
        "huey",
        ("huey", "redis", "hiredis"),
        "RedisHuey, two threads, which was the fastest of 1, 2, 4 and 8; two: two such processes",
        "loses",
        "lost",
        _paces(8000, 9000, 5000, 6000, sync=5000),
        workers=SAME,
        is_one_by_one=True,
    ),
    Peer(
        "arq",
        ("arq", "hiredis"),
        "max_jobs 100, poll_delay 0.1 s: with the default, 0.5 s, it runs 1,000 a second at most",
        "recovers",
        "run again after their time-out, five minutes, and ten seconds",
        _paces(1500, 2500, 2000, 2500),
        workers=SAME,
    ),
    Peer(
        "taskiq",
        ("taskiq-redis", "hiredis", "uvloop"),
        "RedisStreamBroker, 100 at once, uvloop; no result backend (default)",
        "recovers",
        "run again after ten minutes, once another message has come",
        _paces(2500, 5000, 1500, 2000),
        workers=PAIR,
    ),
    Peer(
        "taskiq, prefetch 100",
        ("taskiq-redis", "hiredis", "uvloop"),
        "--max-prefetch 100, which is for high rates, its guide says, with a broker that acknowledges",
        "recovers",
        "as of taskiq",
        {"one": 2500, "two": 2500},
        folder="taskiq",
        environment={"BENCH_PREFETCH": "100"},
        is_further=True,
        workers=PAIR,
    ),
    Peer(
        "taskiq, lists",
        ("taskiq-redis", "hiredis", "uvloop"),
        "ListQueueBroker, 100 at once, uvloop; no result backend (default)",
        "loses",
        "lost",
        _paces(2500, 5000, 3000, 4000),
        folder="taskiq",
        environment={"BENCH_BROKER": "list"},
        workers=PAIR,
    ),
    Peer(
        "saq",
        ("saq[redis,hiredis]", "typing-extensions", "uvloop"),
        "concurrency 100, retries 3",
        "recovers",
        "run again by the sweep, once a minute, after their time-out, ten seconds by default; one each five seconds",
        _paces(1500, 2500, 1000, 1500),
        workers=PAIR,
    ),
    Peer(
        "saq, defaults",
        ("saq[redis,hiredis]", "typing-extensions", "uvloop"),
        "no retries",
        "loses",
        "aborted by the sweep",
        {"stay": 1},
        folder="saq",
        environment={"BENCH_RETRIES": "1"},
        workers=SAME,
    ),
    Peer(
        "streaq",
        ("streaq", "uvloop"),
        "concurrency 100, uvloop",
        "recovers",
        "run again after the idle time-out, a minute",
        _paces(2500, 9000, 1500, 2500, sync=1000),
        workers={**SAME, "sync": "sync"},
    ),
    Peer(
        "bullmq",
        ("bullmq", "hiredis"),
        "concurrency 100",
        "recovers",
        "run again when their locks of 30 s have ended, at the next check, every 30 s; failed the second time",
        _paces(4000, 12000, 2200, 3000),
        workers=SAME,
    ),
    Peer(
        "bullmq (Node)",
        ("bullmq", "ioredis"),
        "concurrency 100",
        "recovers",
        "run again when their locks of 30 s have ended, at the next check, every 30 s; failed the second time",
        _paces(8000, 16000, 9000, 9000),
        folder="bullmq_node",
        runtime="node",
        workers=SAME,
    ),
    Peer(
        "pydocket",
        ("pydocket", "hiredis"),
        "concurrency 100, minimum_check_interval 10 ms: with 100 ms it runs 1,000 a second at most; 500 connections",
        "recovers",
        "run again after the redelivery time-out, five minutes",
        _paces(2000, 5000, 1500, 2000),
        workers=SAME,
    ),
)
BY_NAME = {peer.name: peer for peer in PEERS}
OURS = BY_NAME["holdfast"]
