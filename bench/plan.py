"""Compare plans with what happens then: `python -m bench.plan`, or with rounds and scenes: `... 3 mixed limited`.

Each scene has a server of its own, and real workers whose jobs sleep. When the run times are known, a backlog is
enqueued and a plan made, with the workers of the moment and with twice as many. Then the backlog is drained; the other
workers are started, the same backlog is enqueued again and drained by all. Both forecasts were made before either.

Two columns tell the errors of a plan from the noise of the machine. `ideal` is how long the drain takes if every job
takes exactly as long as it sleeps, and no slot is ever idle. `overhead` is by how many milliseconds the mean run time
exceeds the mean sleep: in the history, which the plan is made from, and in the drain.
"""

from __future__ import annotations

import heapq
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from bench import children, plan_app
from bench.server import ROOT, serving
from holdfast import Holdfast
from holdfast.planning.forecasts import Forecast

QUEUE = "default"
WORKERS, MORE = 2, 2
PATIENCE = 600.0  # seconds
ROUNDS = 3
SLOTS = 5  # of each worker
HISTORY_PROCESSES, HISTORY_CONCURRENCY = 10, 100  # of the worker that makes the history
FLAKY_WAIT = 1.0  # seconds, before a retry


class Call(NamedTuple):
    """A job of a scene: its task, how long it sleeps, and how many of its attempts fail."""

    task: Any
    seconds: float
    failures: int = 0

    def bind(self) -> Any:
        return (
            self.task.bind(self.seconds, self.failures) if self.task is plan_app.flaky else self.task.bind(self.seconds)
        )


@dataclass(frozen=True)
class Scene:
    """Which calls a backlog has, and how many of each are run before, so that their run times are known."""

    make: Callable[[Random, int], list[Call]]
    history: int
    backlog: int


class Drain(NamedTuple):
    """What a drain took, and what it would have taken with nothing but its sleeps."""

    seconds: float
    ideal: float
    overhead: float  # seconds, of an attempt


def _seconds(dice: Random, mean: float, shape: float) -> float:
    """Draw a run time; the smaller the shape, the more they differ."""
    return round(dice.gammavariate(shape, mean / shape), 6)


def _mixed(dice: Random, number: int) -> list[Call]:
    short = [Call(plan_app.short, _seconds(dice, 0.3, 4)) for _ in range(number * 6 // 10)]
    long = [Call(plan_app.long, _seconds(dice, 2, 2)) for _ in range(number * 2 // 10)]
    flaky = [Call(plan_app.flaky, _seconds(dice, 0.3, 4), int(dice.random() < 0.3)) for _ in range(number * 2 // 10)]
    return [*short, *long, *flaky]


def _limited(dice: Random, number: int) -> list[Call]:
    limited = [Call(plan_app.limited, _seconds(dice, 0.8, 4)) for _ in range(number // 2)]
    return [*limited, *(Call(plan_app.short, _seconds(dice, 0.4, 4)) for _ in range(number // 2))]


def _uneven(dice: Random, number: int) -> list[Call]:
    """A twentieth of the jobs takes half of the time."""
    return [Call(plan_app.fetch, _seconds(dice, 5 if place % 20 == 0 else 0.25, 4)) for place in range(number)]


def _coroutines(dice: Random, number: int) -> list[Call]:
    return [Call(plan_app.fetch, _seconds(dice, 0.6, 1)) for _ in range(number)]


SCENES = {
    "mixed": Scene(_mixed, 300, 400),
    "limited": Scene(_limited, 120, 200),
    "uneven": Scene(_uneven, 2400, 600),  # 120 long runs: the standard error of the mean is 5 %
    "coroutines": Scene(_coroutines, 400, 400),
}


@contextmanager
def _workers(url: str, folder: Path) -> Iterator[Callable[..., list[Any]]]:
    """Yield a function that starts workers."""
    environ = {**os.environ, "HOLDFAST_URL": url, "PYTHONPATH": str(ROOT)}
    with ExitStack() as stack:

        def start(number: int, processes: int = SLOTS, concurrency: int = SLOTS) -> list[Any]:
            slots = ["--processes", str(processes), "--concurrency", str(concurrency)]
            line = [sys.executable, "-m", "holdfast", "work", "bench.plan_app", "--queues", QUEUE, *slots]
            started = [children.start(line, env=environ, cwd=folder, log=folder / "log") for _ in range(number)]
            for child in started:
                stack.callback(children.kill, child)
            return started

        yield start


def _run(scene: Scene, seed: int) -> dict[str, Any]:
    with serving() as server, tempfile.TemporaryDirectory() as name, _workers(server.url, Path(name)) as start:
        app = Holdfast(server.url)
        dice = Random(seed)
        history = _make_history(app, start, scene.make(dice, scene.history), dice)
        start(WORKERS)
        _wait(lambda: _live(app) == WORKERS)
        backlog = scene.make(Random(1000 + seed), scene.backlog)
        _enqueue(app, backlog, dice)
        drains = []
        began = time.monotonic()
        [found] = app.plan(QUEUE, workers=f"+{MORE}", arriving=0).queues
        drains.append(_drain(app, backlog, WORKERS, began))
        start(MORE)
        _wait(lambda: _live(app) == WORKERS + MORE)
        _enqueue(app, backlog, dice)
        drains.append(_drain(app, backlog, WORKERS + MORE, time.monotonic()))
        app.close()
    assert found.then is not None
    return {"history": history, "drains": drains, "forecasts": [_read(found.now), _read(found.then)], "plan": found}


def _make_history(app: Holdfast, start: Callable[..., list[Any]], calls: list[Call], dice: Random) -> Drain:
    """Run jobs with more slots than later, so that it does not take long."""
    [worker] = start(1, HISTORY_PROCESSES, HISTORY_CONCURRENCY)
    _wait(lambda: _live(app) == 1)
    _enqueue(app, calls, dice)
    drain = _drain(app, calls, 1, time.monotonic())
    worker.terminate()
    _wait(lambda: not _live(app))
    return drain


def _drain(app: Holdfast, calls: list[Call], workers: int, began: float) -> Drain:
    """Wait until the backlog is gone. The calls have been enqueued in this order."""
    count, total = _runs(app)
    _wait(lambda: not _pending(app))
    seconds = time.monotonic() - began
    time.sleep(1)  # until the last statistics are there
    later_count, later_total = _runs(app)
    slept = sum(call.seconds for call in calls) / len(calls)
    overhead = (later_total - total) / max(1, later_count - count) - slept
    return Drain(seconds, _ideal(calls, workers * SLOTS), overhead)


def _runs(app: Holdfast) -> tuple[int, float]:
    """Return how many attempts completed, and how long they took together."""
    run = app.stats(QUEUE).run
    return run.count, run.total


def _ideal(calls: Sequence[Call], slots: int) -> float:
    """Return when the last of these jobs ends, if each starts as soon as a slot, and its limit, has room."""
    waiting = [*calls]
    busy: list[tuple[float, int, Call]] = []  # when it ends
    later: list[tuple[float, int, Call]] = []  # retries
    now, numbers, limited = 0.0, 0, 0
    while waiting or busy or later:
        while later and later[0][0] <= now:
            waiting.append(heapq.heappop(later)[2])
        for call in [*waiting]:
            if len(busy) == slots:
                break
            if call.task is plan_app.limited and limited == plan_app.LIMIT:
                continue
            waiting.remove(call)
            limited += call.task is plan_app.limited
            numbers += 1
            heapq.heappush(busy, (now + call.seconds, numbers, call))
        now = min(times[0][0] for times in (busy, later) if times)
        while busy and busy[0][0] <= now:
            _, numbers_of, call = heapq.heappop(busy)
            limited -= call.task is plan_app.limited
            if call.failures:
                heapq.heappush(later, (now + FLAKY_WAIT, numbers_of, call._replace(failures=call.failures - 1)))
    return now


def _read(found: Forecast) -> dict[str, Any]:
    return {"after": found.after, "range": (found.earliest, found.latest), "reason": found.reason}


def _enqueue(app: Holdfast, calls: list[Call], dice: Random) -> None:
    """Shuffle the calls, and enqueue them."""
    dice.shuffle(calls)
    app.enqueue_many([call.bind() for call in calls])


def _live(app: Holdfast) -> int:
    return sum(worker.is_live and worker.tasks is not None for worker in app.workers())


def _pending(app: Holdfast) -> int:
    return sum(queue.pending for queue in app.queues())


def _wait(condition: Callable[[], object]) -> None:
    if not children.wait_until(condition, timeout=PATIENCE, every=0.05):
        raise children.Failed(f"it took longer than {PATIENCE:.0f} s")


def _print(name: str, number: int, taken: dict[str, Any]) -> None:
    for workers, forecast, drain in zip((WORKERS, WORKERS + MORE), taken["forecasts"], taken["drains"], strict=True):
        low, high = forecast["range"]
        predicted = f"{forecast['after']:7.1f} ({low:.1f} to {high:.1f})"
        error, noise = (100 * (value / drain.ideal - 1) for value in (forecast["after"], drain.seconds))
        missed = 100 * (forecast["after"] / drain.seconds - 1)
        overheads = f"{1000 * taken['history'].overhead:4.0f} {1000 * drain.overhead:4.0f} ms"
        inside = "in " if low <= drain.seconds <= high else "out"
        about = f"{name:10} {number:5} {taken['plan'].runs:5} {taken['plan'].backlog:8} {workers:8}"
        row = f"{about}  {predicted:28} {drain.seconds:7.1f} {missed:+6.1f} % {inside}"
        row = f"{row} {drain.ideal:7.1f} {error:+6.1f} % {noise:+6.1f} %  {overheads}"
        print(f"{row}  {forecast['reason']}", flush=True)


def main(words: Sequence[str]) -> int:
    rounds = int(words[0]) if words else ROUNDS
    print(
        "scene      round  runs  backlog  workers  predicted (range)                took    error range  ideal"
        "  plan/ideal took/ideal overhead    held up by"
    )
    for number in range(1, rounds + 1):
        for name in words[1:] or SCENES:
            _print(name, number, _run(SCENES[name], number))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
