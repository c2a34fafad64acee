"""A store with many jobs in all states, made by the calls of clients and workers, some hours long and up to now.

Everything that pages list is many: queues, tasks, tags, fingerprints, limits, batches, schedules, workers. The same
size has the same names, so that pages can be asked for.
"""

from __future__ import annotations

import itertools
import json
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from holdfast import Holdfast
from holdfast.constants import LOG_BLOCK, USAGE_BLOCK
from holdfast.job import failure
from holdfast.job.failure import Failure
from holdfast.job.outcome import Error, Outcome, Succeed
from holdfast.job.usage import Series
from holdfast.store import Command, Store, commands
from holdfast.store.commands import Callback, Finish, Lease, LogBlock

T = TypeVar("T")

NOUNS = ("mail", "billing", "video", "search", "reports", "imports", "webhooks", "thumbnails", "ml", "exports")
SERVED = (*NOUNS, "limited", "running", "batches")  # whose tasks workers know
VERBS = ("send", "check", "build", "refresh", "collect")
HOUR = 3600_000  # milliseconds
PAST = 3 * HOUR  # in which jobs ended
LEASE = 3600_000  # of running jobs: nobody renews them
GROUP = 100  # jobs with the same tags, which are stored together
CALL = 1000  # jobs of a call
SHARES = {  # of all jobs, by what becomes of them
    "succeeded": 0.56, "failed": 0.10, "cancelled": 0.04, "waiting": 0.18, "scheduled": 0.06, "blocked": 0.03,
    "throttled": 0.02, "running": 0.01,
}  # fmt: skip
HEAVY, MANY, CHAIN = "heavy-job", "many-dependents", "chain"
RESULT, PAYLOAD = b'{"sent":true}', b'{"args":[],"kwargs":{"order":918000,"to":"ann@example.org"}}'


@dataclass(frozen=True)
class Size:
    """How much of what."""

    jobs: int
    workers: int
    queues: int = 50
    tags: int = 2000
    fingerprints: int = 100
    limits: int = 100
    batches: int = 500
    schedules: int = 200
    subscriptions: int = 20
    tracked: int = 500

    @property
    def queue_names(self) -> list[str]:
        return [f"{NOUNS[number % len(NOUNS)]}-{number // len(NOUNS)}" for number in range(self.queues)]

    def of(self, state: str) -> int:
        return int(self.jobs * SHARES[state])


def fill(app: Holdfast, size: Size, say: Callable[[str], object] = lambda _: None) -> None:
    """Store jobs, workers, and all else. Workers are live for half a minute: see `beat`."""
    Filling(app, size, say).run()


class Filling:
    """Fills a store. Its time goes on as the work does, from some hours ago to now."""

    def __init__(self, app: Holdfast, size: Size, say: Callable[[str], object]) -> None:
        self._app, self._size, self._say = app, size, say
        self._random = random.Random(7)
        self._now = int(time.time() * 1000) - PAST
        self._store = Store(app.address, clock=lambda: self._now)
        self._numbers = itertools.count()
        self._counter = itertools.count(1)
        self._queues = size.queue_names
        self._weights = [1 / (place + 4) for place in range(size.queues)]  # some have ten times as many jobs

    def run(self) -> None:
        self._store.run(commands.configure(None, set={"check_rate": 0}, reset=[]))  # no pass over all jobs meanwhile
        for what in (
            self._settle, self._past, self._pending, self._blocked, self._throttled, self._running, self._batches,
            self._special, self._others,
        ):  # fmt: skip
            began = time.monotonic()
            what()
            self._say(f"{what.__name__.strip('_')}: {time.monotonic() - began:.1f} s")
        self._now = int(time.time() * 1000)
        beat(self._app, self._size)
        self._store.close()

    def _do(self, command: Command[T]) -> T:
        return self._store.run(command)

    # Jobs

    def _parts(self, count: int) -> Iterator[tuple[str, int]]:
        """Yield queues, and how many jobs each gets in a call, until all are spent."""
        while count > 0:
            [queue] = self._random.choices(self._queues, self._weights)
            part = min(count, CALL)
            yield queue, part
            count -= part

    def _put(self, queue: str, count: int, **options: Any) -> list[str]:
        """Store jobs of some tasks, most of them with tags."""
        ids = [f"{queue}-{next(self._numbers):07}" for _ in range(count)]
        batches = []
        for first in range(0, count, GROUP):
            more: dict[str, Any] = dict(options)
            if (draw := self._random.random()) < 0.5:
                tags = {f"customer:{self._random.randrange(self._size.tags)}" for _ in range(1 + int(draw * 4))}
                more |= {"tags": sorted(tags), "scope": f"/acme/{self._random.randrange(40)}"}
            task = f"{queue.partition('-')[0]}.{self._random.choice(VERBS)}"
            batches.append({"queue": queue, "task": task, "count": min(GROUP, count - first), **more})
        args = {"batches": batches}
        self._do(Command("enqueue", args, lambda _: None, (" ".join(ids).encode(), *[PAYLOAD] * count)))
        return ids

    def _claim(self, executor: str, queue: str, count: int) -> list[Finish]:
        """Claim jobs, and return how they would end."""
        request = commands.claim_args([queue], counter=next(self._counter), limit=count, pid=4711, lease=LEASE)
        found = self._do(commands.claim(executor, request)).jobs
        return [Finish(job.id, job.attempt, Succeed(RESULT), 4711, 1, job.created) for job in found]

    def _end(self, executor: str, claimed: Sequence[Finish], outcome: Callable[[], Outcome]) -> None:
        items = [Finish(each.id, each.attempt, outcome(), 4711, 1, each.created) for each in claimed]
        self._do(commands.finish(executor, items, revision=418))

    def _settle(self) -> None:
        """Let each queue have a job, and some a pause and settings of their own."""
        for queue in self._queues:
            self._put(queue, 1)
            self._end("node-00/w0000.1", self._claim("node-00/w0000.1", queue, 1), lambda: Succeed(RESULT))
        for queue in self._queues[-2:]:
            self._do(commands.pause(queue))
        self._do(commands.configure(self._queues[0], set={"retries": 7, "lease": 60_000}, reset=[]))

    def _past(self) -> None:
        """Run jobs that succeed or fail, and cancel some, over the last hours."""
        size = self._size
        ended = [*itertools.repeat("succeeded", size.of("succeeded") // CALL + 1)]
        ended += [*itertools.repeat("failed", size.of("failed") // CALL + 1)]
        ended += [*itertools.repeat("cancelled", size.of("cancelled") // CALL + 1)]
        self._random.shuffle(ended)
        left = {state: size.of(state) for state in ("succeeded", "failed", "cancelled")}
        step = int(PAST * 0.98 / len(ended))
        served = self._queues[:-2]  # the others are paused
        for state in ended:
            count = min(CALL, left[state])
            left[state] -= count
            if not count:
                continue
            [queue] = self._random.choices(served, self._weights[:-2])
            ids = self._put(queue, count)
            self._now += step // 3
            if state == "cancelled":
                self._do(commands.cancel(ids, reason="not needed"))
                continue
            executor = f"node-{self._random.randrange(50):02}/w0000.1"
            claimed = self._claim(executor, queue, count)
            self._now += self._random.randrange(1, 2 * step // 3 + 2)
            self._end(executor, claimed, (lambda: Succeed(RESULT)) if state == "succeeded" else self._error)

    def _error(self) -> Error:
        """Return one of the errors, some of which are much more frequent."""
        number = int(self._size.fingerprints * self._random.random() ** 2)
        kind = f"shop.errors.{NOUNS[number % 10].title()}Error{number}"
        trace = "".join(f'  File "shop/{line}.py", line {number}, in step_{line}\n    call()\n' for line in range(30))
        found = Failure(
            type=kind, message=f"no answer from host {self._random.randrange(9)} in 5 s", traceback=trace,
            group=f"{kind.rpartition('.')[2]}", fingerprint=f"{number:012x}", place=f"shop/{number}.py:{number}",
        )  # fmt: skip
        return Error(failure.encode(found), found.group, final=True)

    def _pending(self) -> None:
        """Store jobs that wait, or are due later."""
        for queue, count in self._parts(self._size.of("waiting")):
            self._put(queue, count, priority=self._random.randrange(3))
        for queue, count in self._parts(self._size.of("scheduled")):
            self._put(queue, count, delay=self._random.randrange(6 * HOUR, 90 * HOUR))

    def _blocked(self) -> None:
        """Store jobs that wait for others: most for one of some, many for one."""
        [first] = self._put_named(MANY, "reports-0", delay=80 * HOUR)
        left = self._size.of("blocked")
        for queue, count in self._parts(left // 2):
            self._put(queue, count, after=[first])
        for queue, count in self._parts(left - left // 2):
            roots = self._put(queue, 3, delay=70 * HOUR)
            self._put(queue, count, after=roots)
        before: list[str] = []
        for number in range(400):
            before = self._put_named(f"{CHAIN}-{number:03}", "reports-0", delay=70 * HOUR, after=before[-2:])

    def _put_named(self, id: str, queue: str, **options: Any) -> list[str]:
        batch = {"queue": queue, "task": "reports.build", **{name: value for name, value in options.items() if value}}
        self._do(Command("enqueue", {"batches": [batch]}, lambda _: None, (id.encode(), PAYLOAD)))
        return [id]

    def _throttled(self) -> None:
        """Fill limits, and let jobs wait for their slots."""
        size = self._size
        each = max(1, size.of("throttled") // size.limits)
        for number in range(size.limits):
            name, queue = f"api-{number:03}", f"limited-{number % 5}"
            self._do(commands.set_limit(name, 5, per=None))
            for first in range(0, each + 5, CALL):
                self._put(queue, min(CALL, each + 5 - first), limits=[f"{name}:acme" if number % 2 else name])
            while self._claim(f"node-00/w0000.{number}", queue, CALL):
                pass

    def _running(self) -> None:
        """Let workers run jobs."""
        size = self._size
        each = max(1, size.of("running") // max(1, size.workers))
        for number in range(size.workers):
            queue = f"running-{number % 5}"
            self._put(queue, each)
            self._claim(f"{worker_name(number)}.1", queue, each)
            self._now += 1

    # What else there is

    def _batches(self) -> None:
        size = self._size
        for number in range(size.batches):
            name = f"import-{number:04}"
            done = Callback("done", f"{name}-done", {"queue": "reports-0", "task": "reports.build"}, PAYLOAD)
            self._do(commands.open_batch(name, callbacks=[done]))
            self._put("batches-0", 20, batch=name, delay=60 * HOUR if number % 2 else 0)
            if number % 5:
                self._do(commands.close_batch(name))

    def _special(self) -> None:
        """Store a job that has as much of everything as there can be."""
        fields = {f"field-{number}": "x" * 500 for number in range(60)}
        tags = [f"customer:{number}" for number in range(20)]
        batch = {
            "queue": "heavy", "task": "ml.build", "fields": fields, "tags": tags, "scope": "/acme/1", "retries": 90,
            "backoff": 1,
        }  # fmt: skip
        payload = json.dumps({"args": [], "kwargs": {"rows": list(range(40_000))}}).encode()
        self._do(Command("enqueue", {"batches": [batch]}, lambda _: None, (HEAVY.encode(), payload)))
        executor = f"{worker_name(0)}.1"
        for number in range(30):
            [held] = self._claim(executor, "heavy", 1)
            created = held.created or 0
            text = "".join(f"epoch {number}  step {line}  loss 0.21{line:04}\n" for line in range(9000)).encode()
            blocks = [
                LogBlock(HEAVY, created, held.attempt, place, text[place * LOG_BLOCK : (place + 1) * LOG_BLOCK])
                for place in range(-(-len(text) // LOG_BLOCK))
            ]
            usage = Series()
            for minute in range(60):
                usage.add(float(minute + 1), minute << 26, 2.0)
            self._do(commands.log([*blocks, LogBlock(HEAVY, created, held.attempt, USAGE_BLOCK, usage.text())]))
            lease = Lease(executor, HEAVY, held.attempt)
            notes = [f"note {place} of attempt {number}" for place in range(5)]
            self._do(commands.save(lease, b'{"epoch": 7}' + b" " * 100_000, notes=notes))
            self._now += 5000
            if number < 29:
                self._end(executor, [held], lambda: Error(failure.encode(_refused()), "net", delay=1))
                self._now += 100

    def _others(self) -> None:
        size, batch = self._size, {"queue": "reports-0", "task": "reports.build"}
        for number in range(size.schedules):
            self._do(commands.schedule(f"nightly-{number:03}", batch, PAYLOAD, every=HOUR * (number % 24 + 1)))
        for number in range(size.subscriptions):
            self._do(commands.declare_subscription(f"audit-{number:02}", "{}", batch, 1, "now"))
        found = self._app.page(limit=min(CALL, size.tracked), state="waiting").rows
        self._do(commands.track([each.id for each in found]))
        for number in range(20):
            self._do(commands.start_operation(f"seen{number}", "tag", arguments={"tags": ["seen"]}, queues=["heavy"]))
            self._do(commands.continue_operation(f"seen{number}", 0))


def _refused() -> Failure:
    return Failure(type="OSError", message="connection refused", traceback="", group="net")


def worker_name(number: int) -> str:
    return f"node-{number % 50:02}/w{number:04}"


def beat(app: Holdfast, size: Size) -> None:
    """Send a heartbeat of each worker."""
    names = size.queue_names
    started = int(time.time() - 7200) * 1000
    for number in range(size.workers):
        queues = sorted({names[(number * 7 + place) % len(names)] for place in range(5)} | {f"running-{number % 5}"})
        pool = {"queues": dict.fromkeys(queues, 1), "order": "strict", "processes": 4, "concurrency": 100}
        about = {
            "pid": 4711 + number, "host": f"node-{number % 50:02}", "version": "0.1.0", "app": "shop", "revision": 418,
            "started": started, "memory": 3 << 28, "cpu_seconds": 5000, "pools": [pool], "queues": queues,
            "tasks": [f"{noun}.{verb}" for noun in SERVED for verb in VERBS],
        }  # fmt: skip
        app.store.run(commands.renew(worker_name(number), [], about=json.dumps(about), queues=queues))
