"""Operations over many jobs, and queries in constant memory: `python -m bench.operations [WHAT] [JOBS]`.

operation   (200,000) Move all jobs of a queue, beside a worker that runs others. The driver is killed; the worker
            continues; the operation is stopped half-way and resumed. Prints the counts, and how long calls took in the
            server and how long a client waited that only pings; then the same while the server does nothing else than
            calls of 0.9 ms that read: what is in these numbers, too, is not due to operations.
steps       (20,000) Each action on all jobs of a queue, alone. Prints the CPU time of the server in each step, which
            other work on the machine does not change.
queries     (1,000,000) List, count, export and act on all jobs of a queue. Prints the memory of this process after
            each, and the longest call.

Times are those of the server's slow log: on a machine with other work they contain its pauses.
"""

from __future__ import annotations

import os
import resource
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import redis
from tests.support.servers import running_server

from holdfast import Holdfast
from holdfast.store import commands

FOLDER = Path(__file__).parent
DRIVER = """
import os, signal, sys
from holdfast import Holdfast
seen = 0
def progress(count):
    global seen
    seen += count
    if seen > int(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)
Holdfast(sys.argv[1]).move_all(queue="old", to="new", progress=progress)
"""
APP = """
from holdfast import Holdfast
jobs = Holdfast()

@jobs.task(name="tick", queue="live")
async def tick() -> None:
    pass
"""


def fill(app: Holdfast, count: int, queue: str, task: str = "nothing") -> None:
    args = {"batches": [{"queue": queue, "task": task, "count": 1000}]}
    for first in range(0, count, 1000):
        ids = " ".join(f"{queue}-{n:07}" for n in range(first, first + 1000))
        app.store.run(commands.Command("enqueue", args, lambda _: None, (ids.encode(), *[b"{}"] * 1000)))


class Pings:
    """A client that does nothing but ping: how long it waits is how long others are blocked."""

    def __init__(self, url: str) -> None:
        self._client = redis.Redis.from_url(url)
        self.waits: list[float] = []
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._is_over.wait(0.002):
            began = time.perf_counter()
            self._client.ping()
            self.waits.append(1000 * (time.perf_counter() - began))

    def stop(self) -> str:
        self._is_over.set()
        self._thread.join()
        waits = sorted(self.waits)
        last = [waits[min(len(waits) - 1, int(len(waits) * part))] for part in (0.5, 0.99, 0.999)]
        return "pings: median {:.2f}, p99 {:.2f}, p99.9 {:.2f} ms".format(*last)


def watch_calls(client: redis.Redis) -> None:
    client.config_set("slowlog-log-slower-than", 500)
    client.config_set("slowlog-max-len", 5000)
    client.slowlog_reset()


def calls(client: redis.Redis, name: str) -> str:
    """How long the calls of a function took in the server, of the last 5,000 over half a millisecond."""
    wanted = f"_{name} ".encode()
    found: Any = client.slowlog_get(5000)
    times = sorted(each["duration"] / 1000 for each in found if wanted in each["command"])
    if not times:
        return f"{name}: none over 0.5 ms"
    middle, high = statistics.median(times), times[int(len(times) * 0.99)]
    return f"{name}: {len(times)} calls over 0.5 ms, median {middle:.2f}, p99 {high:.2f}, longest {times[-1]:.2f} ms"


@contextmanager
def worker(url: str, folder: Path) -> Iterator[None]:
    (folder / "ticking.py").write_text(APP)
    line = [sys.executable, "-m", "holdfast", "work", "ticking", "--queues", "live", "--processes", "1"]
    process = subprocess.Popen(line, cwd=folder, env={**os.environ, "HOLDFAST_URL": url}, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def wait_for(condition: Callable[[], bool]) -> float:
    began = time.monotonic()
    while not condition():
        time.sleep(0.1)
    return time.monotonic() - began


def operation(count: int) -> None:
    import tempfile

    with running_server() as url, tempfile.TemporaryDirectory() as folder, redis.Redis.from_url(url) as client:
        app = Holdfast(url)
        fill(app, count, "old")
        tick = app.task(name="tick", queue="live")(lambda: None)
        watch_calls(client)
        pings = Pings(url)
        killed = subprocess.run([sys.executable, "-c", DRIVER, url, str(count // 4)], check=False)
        assert killed.returncode == -signal.SIGKILL
        (found,) = app.operations()
        print(f"driver killed after {found.acted_on:,} of {count:,}; {found.state}")
        ticks = 0
        with worker(url, Path(folder)):
            waited = wait_for(lambda: app.operation(found.id).acted_on > found.acted_on)
            print(f"the worker continued after {waited:.1f} s")
            while app.operation(found.id).acted_on < count // 2:
                app.enqueue_many(tick.bind() for _ in range(20))
                ticks += 20
                time.sleep(0.05)
            stopped = found.stop()
            assert stopped.counts == {"waiting": app.count(queue="new")}, stopped
            print(f"stopped at {stopped.acted_on:,}, of which the worker did {stopped.acted_on - found.acted_on:,}")
            began = time.monotonic()
            done = found.resume().wait()
            print(f"resumed: {done.acted_on - stopped.acted_on:,} in {time.monotonic() - began:.1f} s")
            wait_for(lambda: app.count(queue="live", state="succeeded") == ticks)
        assert done.counts == {"waiting": count}, done
        assert (app.count(queue="old"), app.count(queue="new")) == (0, count)
        print(f"exact: {done.counts}, looked at {done.looked_at:,}; beside it {ticks:,} other jobs ran")
        print(pings.stop())
        for name in ("continue_operation", "claim", "finish", "renew"):
            print(calls(client, name))
        control(app, client, url)


def control(app: Holdfast, client: redis.Redis, url: str, seconds: float = 20) -> None:
    """Print how long calls and pings take while one client makes calls that look at 430 jobs each and find none."""
    watch_calls(client)
    pings, ends = Pings(url), time.monotonic() + seconds
    while time.monotonic() < ends:
        app.store.run(commands.list_jobs(limit=1000, task="none"))
        time.sleep(0.001)
    print(f"control: {pings.stop()}; {calls(client, 'list')}")


def cpu(client: redis.Redis) -> float:
    """Milliseconds of the server's main thread."""
    about = client.info("cpu")
    return 1000 * float(about["used_cpu_user_main_thread"] + about["used_cpu_sys_main_thread"])


def spent_in(client: redis.Redis, run: Callable[[], Any]) -> tuple[Any, float]:
    """What a call returns, and the CPU time that it took, with that of asking for it: about 0.1 ms."""
    before = cpu(client)
    result = run()
    return result, cpu(client) - before


def steps(count: int) -> None:
    actions: list[tuple[str, str, dict[str, Any]]] = [
        ("move", "waiting", {"queue": "new"}),
        ("cancel", "waiting", {"reason": "because"}),
        ("retry", "cancelled", {}),
        ("fail", "waiting", {"reason": "because"}),
        ("delete", "failed", {}),
    ]
    with running_server() as url, redis.Redis.from_url(url) as client:
        app = Holdfast(url)
        fill(app, count, "old")
        for number, (action, state, arguments) in enumerate(actions):
            start = commands.start_operation(f"o{number}", action, arguments=arguments, states=[state])
            found = app.store.run(start)
            times = []
            while found.state == "running":
                step = commands.continue_operation(found.id, found.steps)
                found, time_spent = spent_in(client, partial(app.store.run, step))
                times.append(time_spent)
            times.sort()
            last = times[len(times) // 2], times[int(len(times) * 0.99)], times[-1]
            each = 1000 * sum(times) / count
            text = "median {:.2f}, p99 {:.2f}, longest {:.2f} ms of CPU".format(*last)
            print(f"{action}: {found.answers} in {len(times)} steps; {each:.0f} µs a job; {text}", flush=True)
        queries: list[tuple[str, commands.Command[Any]]] = [
            ("list, 1,000 wanted", commands.list_jobs(limit=1000)),
            ("rows, 1,000 wanted", commands.list_rows(["id", "state", "task"], limit=1000)),
            ("no match", commands.list_jobs(limit=1000, task="none")),
        ]
        for name, command in queries:
            fill(app, 5000, name.partition(",")[0].replace(" ", "-"))
            replies = [spent_in(client, partial(app.store.run, command)) for _ in range(50)]
            reply, middle = replies[0][0], statistics.median(spent for _, spent in replies)
            print(f"{name}: {len(reply[0])} rows, {reply.looked_at} looked at, {middle:.2f} ms of CPU")


def resident() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def queries(count: int) -> None:
    with running_server() as url, redis.Redis.from_url(url) as client:
        app = Holdfast(url)
        fill(app, count, "old")
        watch_calls(client)
        memory = client.info("memory")["used_memory"]
        print(f"{count:,} jobs: {memory / count:.0f} bytes each; this process has {resident():.1f} MiB")
        steps: dict[str, Callable[[], object]] = {
            "count by queue": lambda: app.count(queue="old"),
            "count by task": lambda: app.count(task="nothing"),
            "rows": lambda: sum(1 for _ in app.rows("id", "state", "task", queue="old")),
            "list": lambda: sum(1 for _ in app.list(queue="old")),
            "list, newest": lambda: sum(1 for _ in app.list(queue="old", newest=True)),
            "export": lambda: sum(1 for _ in app.export(queue="old")),
            "cancel_all": lambda: app.cancel_all(queue="old").counts,
            "delete_all": lambda: app.delete_all(queue="old").counts,
        }
        for name, step in steps.items():
            client.slowlog_reset()
            began = time.monotonic()
            result = step()
            spent = time.monotonic() - began
            functions = {"count": "count", "cancel_": "continue_operation", "delete_": "continue_operation"}
            function = next((value for key, value in functions.items() if name.startswith(key)), "list")
            print(
                f"{name}: {result} in {spent:.1f} s, peak {resident():.1f} MiB; {calls(client, function)}", flush=True
            )


if __name__ == "__main__":
    what = sys.argv[1] if len(sys.argv) > 1 else "operation"
    size = (
        int(sys.argv[2]) if len(sys.argv) > 2 else {"operation": 200_000, "steps": 20_000, "queries": 1_000_000}[what]
    )
    {"operation": operation, "steps": steps, "queries": queries}[what](size)
