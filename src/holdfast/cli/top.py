"""`holdfast top`: throughput, queues, workers, running jobs and failures, refreshed in place."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

import click

from holdfast.cli.client import Client, pass_client
from holdfast.cli.command import command
from holdfast.cli.keys import Keys
from holdfast.cli.output import STYLES, Fact, Output
from holdfast.cli.watch import INTERVAL, live_screen, show, sleep
from holdfast.errors import StoreUnavailable
from holdfast.job.job import PENDING
from holdfast.records.formatting import short_duration, short_size
from holdfast.records.progress import progress_line
from holdfast.records.table import Record
from holdfast.records.top import TOP, Top
from holdfast.text import pluralize, printable

if TYPE_CHECKING:
    from rich.text import Text

SHARE = 5  # the pause between two views is at least so many times as long as reading one
MIN_FAILURES, MAX_PROBLEMS = 1, 2  # rows
BAR = 16  # characters
LEVELS = " ▁▂▃▄▅▆▇█"
HELP = "p pause  ↑↓ scroll  q quit"


@command("top", "holdfast top", "holdfast top --json | jq .ending", output=TOP, in_columns=False)
@click.option("--once", is_flag=True, help="Print it once, and exit.")
@pass_client
def top(client: Client, *, once: bool) -> None:
    """Show throughput, queues, workers, running jobs and failures, refreshed every second.

    Fits any terminal from 80 columns and 24 lines. Queues with most pending jobs and jobs that run longest come first.
    Keys: `p` pauses, the arrows scroll running jobs, `q` or Ctrl-C exits. In a pipe or on a dumb terminal it is printed
    once, and with --json as a line per second, until Ctrl-C. The cost does not depend on the number of jobs.
    """
    output, source = client.output, Top(client.app)
    try:
        if output.can_redraw and not once:
            _Screen(output, source).run()
        elif output.mode == "json" and not once:
            _write_lines(output, source)
        elif output.mode == "json":
            output.json(source.read())
        else:
            output.facts(_facts(source.read(), output))
    except KeyboardInterrupt:
        return


def _write_lines(output: Output, source: Top) -> None:
    while True:
        began = time.monotonic()
        output.stream(source.read(), TOP)
        sleep(_pause(began))


def _pause(began: float) -> float:
    """Return for how long to leave the server alone."""
    return max(INTERVAL, SHARE * (time.monotonic() - began))


# In a pipe


def _facts(moment: Record, output: Output) -> Iterator[Fact]:
    workers = moment["workers"]
    yield Fact("time", output.text(moment["time"]))
    yield Fact("jobs", _states(moment) or "none")
    yield Fact("rate", f"{_rate(moment['arriving'])}/s in, {_rate(moment['ending'])}/s out")
    yield Fact("workers", f"{_worker_counts(workers)}; {workers['busy']:,} of {workers['slots']:,} slots busy")
    yield Fact("overdue timers", moment["overdue"])
    for row in moment["queues"]:
        counts = ", ".join(f"{row[state]:,} {state}" for state in (*PENDING, "failed") if row[state])
        yield Fact(f"queue {row['queue']}", f"{counts or 'empty'}{', paused' * row['paused']}; needs {row['needed']:,}")
    for job in moment["running"]:
        yield Fact(f"running {job['id']}", f"{job['task']} {progress_line(job, output)}".rstrip())
    for failure in moment["failures"]:
        yield Fact(f"failure {failure['name']}", f"{failure['count']:,} {_described(failure)}")
    for problem in moment["problems"]:
        yield Fact("problem", problem)


def _states(moment: Record) -> str:
    return ", ".join(f"{count:,} {state}" for state, count in moment["jobs"].items() if count)


def _worker_counts(workers: Record) -> str:
    parts = [f"{workers['live']:,} live"]
    parts += [f"{workers[state]:,} {state}" for state in ("draining", "silent") if workers[state]]
    return ", ".join(parts)


def _described(failure: Record) -> str:
    words = f"{(failure['type'] or failure['name']).rpartition('.')[2]}: {failure['message'] or ''}"
    return printable(words.removesuffix(": "))


# On a terminal


class _Rows(NamedTuple):
    """How many rows there is room for."""

    queues: int
    running: int
    failures: int
    problems: int

    @classmethod
    def of(cls, height: int, moment: Record) -> _Rows:
        """Share the rows of a terminal: at the top are four, before each list an empty one and a heading."""
        queues, running, failures = (len(moment[name]) for name in ("queues", "running", "failures"))
        left = height - 10 - (problems := min(MAX_PROBLEMS, len(moment["problems"])))
        failures = min(failures, max(MIN_FAILURES, left // 5))
        left = left - failures if failures else left + 2  # without failures there is no heading either
        for_queues = max(1, min(queues, left // 2))
        for_running = max(1, min(running, left - for_queues))
        return cls(max(1, min(queues, left - for_running)), for_running, failures, problems)


class _Screen:
    """The view on a terminal, and its keys."""

    def __init__(self, output: Output, source: Top) -> None:
        self._output, self._source = output, source
        self._first = 0  # running job that is shown
        self._is_paused = False
        self._error = ""
        self._moment: Record | None = None

    def run(self) -> None:
        with live_screen(self._output) as live, Keys() as keys:
            show(live, self._draw())
            while True:
                began = time.monotonic()
                self._read()
                show(live, self._draw())
                ends = time.monotonic() + _pause(began)
                while self._is_paused or time.monotonic() < ends:
                    for key in keys.wait(60 if self._is_paused else max(0.0, ends - time.monotonic())):
                        if key == "quit":
                            return
                        self._press(key)
                        show(live, self._draw())

    def _press(self, key: str) -> None:
        if key == "pause":
            self._is_paused = not self._is_paused
        else:
            self._first = max(0, self._first + (1 if key == "down" else -1))

    def _read(self) -> None:
        self._output.refresh_time()
        try:
            self._moment, self._error = self._source.read(), ""
        except StoreUnavailable as error:
            self._error = str(error)

    def _draw(self) -> Text:
        from rich.text import Text

        width, height = self._output.console.size
        lines = list(self._lines(width, height))[:height]
        for line in lines:
            line.truncate(width, overflow="ellipsis")
        return Text("\n").join(lines)

    def _lines(self, width: int, height: int) -> Iterator[Text]:
        from rich.text import Text

        moment = self._moment
        if self._error:
            yield Text(self._error, style="red")
        elif moment is None:
            yield Text("reading ...", style="dim")
        if moment is None:
            return
        rows = _Rows.of(height, moment)
        yield from self._summary(moment, width)
        for problem in moment["problems"][: rows.problems]:
            yield Text(printable(problem), style="yellow")
        yield Text()
        yield from _queue_lines(moment, rows.queues, width)
        yield Text()
        yield from self._running_lines(moment, rows.running)
        if rows.failures:
            yield Text()
            yield from _failure_lines(moment, rows.failures)

    def _summary(self, moment: Record, width: int) -> Iterator[Text]:
        from rich.text import Text

        state = "paused" if self._is_paused else moment["time"].strftime("%H:%M:%S UTC")
        left = f"{printable(moment['namespace'])}  {state}"
        yield Text.assemble((left, "bold"), f"{HELP:>{max(0, width - len(left))}}")
        yield Text.assemble(("jobs     ", "bold"), *_counts(moment["jobs"]))
        rate = f"{_rate(moment['arriving'])}/s in, {_rate(moment['ending'])}/s out"
        series = moment["ended_by_minute"] or []
        spark = _sparkline(series[-max(0, width - len(rate) - 24) :])
        yield Text.assemble(("rate     ", "bold"), rate, (f"  {spark}", "green"), " per minute" * bool(spark))
        workers = moment["workers"]
        slots = f"{workers['busy']:,} of {workers['slots']:,} slots busy"
        memory = f", {short_size(workers['memory_bytes'])}" if workers["memory_bytes"] else ""
        overdue = f"   {pluralize(moment['overdue'], 'overdue timer')}" if moment["overdue"] else ""
        yield Text.assemble(
            ("workers  ", "bold"), f"{_worker_counts(workers)}   ", (_bar(workers["busy"], workers["slots"]), "blue"),
            f" {slots}{memory}", (overdue, "red"),
        )  # fmt: skip

    def _running_lines(self, moment: Record, room: int) -> Iterator[Text]:
        from rich.text import Text

        jobs = moment["running"]
        self._first = min(self._first, max(0, len(jobs) - room))
        shown = jobs[self._first : self._first + room]
        place = f"({self._first + 1} to {self._first + len(shown)} of {len(jobs)})" if len(shown) < len(jobs) else ""
        task = max([4, *(min(28, len(job["task"])) for job in shown)])
        yield Text(f"{'RUNNING JOB':<16}  {'TASK':<{task}}  {'FOR':>4} TRY  PROGRESS  {place}", style="bold")
        for job in shown:
            line = f"{job['id']:<16.16}  {job['task']:<{task}.{task}}  {_ago(moment, job['claimed_at']):>4} "
            state = "cancelling " if job["cancelling"] else "stalled " if job["stalled"] else ""
            progress = printable(progress_line(job, self._output))
            yield Text.assemble(f"{line}{job['attempt']:>3}  ", (state, STYLES["cancelling"]), progress)
        if not shown:
            yield Text("no running jobs", style="dim")


def _ago(moment: Record, time: datetime | None) -> str:
    """Return how long ago a time was at that moment."""
    return "" if time is None else short_duration(max(0.0, (moment["time"] - time).total_seconds()))


def _counts(jobs: Record) -> Iterator[tuple[str, str] | str]:
    shown = [(state, count) for state, count in jobs.items() if count]
    for place, (state, count) in enumerate(shown):
        yield (f"{_short(count)} {state}", STYLES.get(state, "") if state != "succeeded" else "")
        yield ", " if place < len(shown) - 1 else ""
    if not shown:
        yield "none"


_COLUMNS = (
    ("RUN", "running", 5), ("WAIT", "waiting", 6), ("THROT", "throttled", 5), ("BLOCK", "blocked", 5),
    ("SCHED", "scheduled", 5), ("FAIL", "failed", 5),
)  # fmt: skip


def _queue_lines(moment: Record, room: int, width: int) -> Iterator[Text]:
    """Yield a heading and a line for each queue: 18 characters for its name at 80 columns."""
    from rich.text import Text

    queues: list[Record] = moment["queues"][:room]
    more = moment["queue_count"] - len(queues)
    name = max(8, min(width - 63, 40))
    counts = " ".join(f"{title:>{size}}" for title, _, size in _COLUMNS)
    title = f"QUEUE (+{more:,})" if more else "QUEUE"
    yield Text(f"{title:<{name}.{name}} {counts} {'OLDEST':>6} {'IN/s':>6} {'OUT/s':>6} NEED", style="bold")
    for row in queues:
        oldest = "" if row["oldest"] is None else short_duration(row["oldest"])
        rates = f"{_rate(row['arriving']):>6} {_rate(row['ending']):>6}"
        parts: list[tuple[str, str]] = [(f"{row['queue']:<{name}.{name}}", STYLES["paused"] if row["paused"] else "")]
        for _, state, size in _COLUMNS:
            count = row[state]
            parts.append((f" {_short(count) if count else '':>{size}}", STYLES[state] if count else ""))
        lacks = row["waiting"] > 0 and row["workers"] == 0
        parts.append((f" {oldest:>6} {rates} ", ""))
        parts.append((f"{_short(row['needed']):>4}", "red" if lacks or row["needed"] > row["running"] + 1 else ""))
        yield Text.assemble(*parts)
    if not queues:
        yield Text("no queues", style="dim")


def _failure_lines(moment: Record, room: int) -> Iterator[Text]:
    from rich.text import Text

    yield Text(f"{'FAILED':>6}  {'LAST':>4}  ERROR", style="bold")
    for failure in moment["failures"][:room]:
        words = f"  {_ago(moment, failure['last_seen']):>4}  {_described(failure)}"
        yield Text.assemble((f"{_short(failure['count']):>6}", STYLES["failed"]), words)


def _bar(part: int, whole: int) -> str:
    filled = round(BAR * min(1.0, part / whole)) if whole else 0
    return "█" * filled + "░" * (BAR - filled)


def _sparkline(numbers: Sequence[int]) -> str:
    most = max(numbers, default=0)
    if not most:
        return ""
    return "".join(LEVELS[-(-number * (len(LEVELS) - 1) // most)] for number in numbers)


def _rate(rate: float) -> str:
    """Return a rate in at most five characters."""
    if rate < 10:
        return f"{rate:.2f}" if rate >= 0.005 else f"{rate:.3f}" if rate else "0"
    return f"{rate:.1f}" if rate < 1000 else _short(round(rate))


def _short(count: int) -> str:
    """Return a count in at most five characters: 1,204 as 1204, 31,500 as 31.5k."""
    if count < 10_000:
        return str(count)
    return f"{count / 1000:.3g}k" if count < 999_500 else f"{count / 1e6:.3g}M"
