"""Measure what importing a queue and declaring a task costs a program: `make bench ARGS=imports`.

Each program below is run by fresh interpreters, alternating, so that a noisy neighbour affects all alike.
What counts is the processor time of the whole process, less that of an interpreter that does nothing. All are
installed into one virtual environment of their own (`.bench/imports`), for some of them bring plugins into pytest.

Two figures: until a task is declared, which every process of an application pays, and until the client library is
loaded as well, which a process pays when it enqueues first. Only what a program has to import anyway is imported.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
PLACE = ROOT / ".bench" / "imports"
PYTHON = PLACE / "bin" / "python"
REQUIRED = ("celery[redis]", "dramatiq", "huey", "rq", "taskiq-redis", "redis>=7.4", "hiredis")

DECLARE = {
    "holdfast": """
from holdfast import Holdfast
app = Holdfast("redis://localhost")
@app.task
def add(x, y): return x + y
""",
    "rq": """
from redis import Redis
from rq import Queue
queue = Queue(connection=Redis())
""",
    "huey": """
from huey import RedisHuey
app = RedisHuey()
@app.task()
def add(x, y): return x + y
""",
    "dramatiq": """
import dramatiq
from dramatiq.brokers.redis import RedisBroker
dramatiq.set_broker(RedisBroker())
@dramatiq.actor
def add(x, y): return x + y
""",
    "celery": """
from celery import Celery
app = Celery("app", broker="redis://localhost")
@app.task
def add(x, y): return x + y
""",
    "taskiq": """
from taskiq_redis import ListQueueBroker
broker = ListQueueBroker("redis://localhost")
@broker.task
async def add(x, y): return x + y
""",
}
CLIENT = {
    "holdfast": "import holdfast.store.pool",
    "celery": "app.amqp, app.connection_for_write().transport, add.name",
}


def prepare() -> None:
    """Install what is measured, Holdfast as it is in this tree."""
    if not PYTHON.exists():
        subprocess.run([sys.executable, "-m", "venv", PLACE], check=True)
    pip = [str(PYTHON), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, *REQUIRED], check=True)
    subprocess.run([*pip, "--force-reinstall", "--no-deps", str(ROOT)], check=True)
    subprocess.run([*pip, str(ROOT)], check=True)


def processor_time(program: str) -> float:
    """Milliseconds of processor time of an interpreter that runs a program."""
    pid = os.posix_spawn(PYTHON, [str(PYTHON), "-I", "-c", program], os.environ)
    _, status, usage = os.wait4(pid, 0)
    assert status == 0, f"failed: {program}"
    return (usage.ru_utime + usage.ru_stime) * 1000


def measure(rounds: int) -> dict[tuple[str, str], list[float]]:
    """Run all programs once per round, alternating, after one run each that writes the compiled files."""
    programs = {("nothing", "declare"): "pass", ("nothing", "client"): "pass"}
    for who, program in DECLARE.items():
        programs[who, "declare"] = program
        programs[who, "client"] = program + CLIENT.get(who, "")
    figures: dict[tuple[str, str], list[float]] = {key: [] for key in programs}
    for number in range(rounds + 1):
        for key, program in programs.items():
            spent = processor_time(program)
            if number:
                figures[key].append(spent)
    return figures


def report(figures: dict[tuple[str, str], list[float]]) -> None:
    listed = "import importlib.metadata as m; print(', '.join(f'{n} {m.version(n)}' for n in %r))"
    names = ["holdfast", "rq", "huey", "dramatiq", "celery", "taskiq", "redis"]
    versions = subprocess.run([PYTHON, "-c", listed % names], capture_output=True, text=True, check=True).stdout
    nothing = {what: statistics.median(figures["nothing", what]) for what in ("declare", "client")}
    print(f"{versions.strip()}; load {os.getloadavg()[0]:.1f}; interpreter alone {nothing['declare']:.0f} ms\n")
    print(f"{'processor time, ms':20}{'a task declared':>17}{'least':>8}{'and the client':>17}{'least':>8}")
    rows = {who: [figures[who, what] for what in ("declare", "client")] for who in DECLARE}
    for who, (declare, client) in sorted(rows.items(), key=lambda row: statistics.median(row[1][0])):
        first, second = statistics.median(declare) - nothing["declare"], statistics.median(client) - nothing["client"]
        least = [min(times) - min(figures["nothing", "declare"]) for times in (declare, client)]
        print(f"{who:20}{first:17.0f}{least[0]:8.0f}{second:17.0f}{least[1]:8.0f}")


def main(quick: bool = False) -> None:
    prepare()
    report(measure(3 if quick else 15))


if __name__ == "__main__":
    main()
