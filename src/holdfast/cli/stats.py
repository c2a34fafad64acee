"""`holdfast stats`: how long jobs wait and run, with histograms and quantiles; failures and retries; series."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date, datetime, timedelta
from typing import Any

import click

from holdfast.cli.client import Client, pass_client
from holdfast.cli.command import command
from holdfast.cli.completers import complete_queue, complete_task
from holdfast.cli.options import read_duration
from holdfast.cli.output import Fact, Output
from holdfast.cli.suggestions import find_queue
from holdfast.client.statistics import Since
from holdfast.constants import MAX_DURATION
from holdfast.records.statistics import BY, SERIES, STATISTICS, rows_by_queue, rows_by_task, spell
from holdfast.records.table import Record

# Seconds at which the rows of a histogram begin on a terminal; each is the bound of a bucket.
ROWS = (
    0, 0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600,
    1200, 1800, 3600, 7200, 21_600, 43_200, 86_400, 172_800, 604_800, 2_592_000,
)  # fmt: skip
MIN_BAR, MAX_BAR = 10, 60  # characters


def _read_day(_: click.Context, __: click.Parameter, text: str | None) -> str | None:
    if text in (None, "today", "yesterday"):
        return text
    return _date(text or "", "--day").isoformat()


def _read_since(_: click.Context, __: click.Parameter, text: str | None) -> Since | None:
    if text is None:
        return None
    return _date(text, "--since") if "-" in text else read_duration(text, "--since", maximum=MAX_DURATION)


def _read_until(_: click.Context, __: click.Parameter, text: str | None) -> date | None:
    return None if text is None else _date(text, "--until")


def _date(text: str, hint: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise click.BadParameter(f"expected a date such as 2024-07-01, got {text!r}", param_hint=hint) from None


@command(
    "stats", "holdfast stats", "holdfast stats mail", "holdfast stats mail --task app.send --since 7d",
    "holdfast stats --by queue", "holdfast stats mail --series hour --since 2d",
    "holdfast stats mail --json | jq .run.quantiles", output=STATISTICS, in_columns=False,
)  # fmt: skip
@click.argument("queue", required=False, shell_complete=complete_queue)
@click.option("--task", shell_complete=complete_task, help="Only this task.")
@click.option("--day", metavar="DATE", callback=_read_day, help="A day, today or yesterday. Default: today.")
@click.option("--since", metavar="WHEN", callback=_read_since, help="The first day, or how long ago: 7d.")
@click.option("--until", metavar="DATE", callback=_read_until, help="The last day.")
@click.option("--by", type=click.Choice(list(BY)), help="List queues, or the tasks of a queue.")
@click.option("--series", type=click.Choice(["minute", "hour"]), help="List minutes or hours.")
@pass_client
def stats(client: Client, /, queue: str | None, by: str | None, series: Any, **given: Any) -> None:
    """Show how long jobs wait and run, failures and retries.

    Without QUEUE, all queues count together. A wait counts on the day of the claim, a run on the day of its end; days
    are those of UTC. Quantiles are read off histograms; the exact value lies within the bounds in brackets. A list of
    minutes reaches back 3 hours, one of hours as far as the setting `stats_age`. Exit code 3 if the queue does not
    exist.
    """
    task, day = given.pop("task"), given.pop("day")
    if queue is not None:
        find_queue(client.app, queue)
    if series is not None:
        if by is not None or day is not None:
            raise click.UsageError("--series excludes --by and --day; use --since and --until")
        points = client.app.stats_series(queue, task=task, resolution=series, **given)
        client.output.list((SERIES.record(point) for point in points), SERIES)
        return
    if day == "yesterday":
        day = (client.now() - timedelta(days=1)).date()
    period = {**given, "day": None if day == "today" else day}
    if by is not None:
        client.output.list(_list(client, queue, task, by, period), BY[by])
        return
    record = STATISTICS.record(client.app.stats(queue, task=task, **period))
    if client.output.mode == "json":
        client.output.json(record)
    else:
        client.output.facts(_describe(record, client.output))


def _list(client: Client, queue: str | None, task: str | None, by: str, period: Record) -> list[Record]:
    app = client.app
    if by == "queue":
        return rows_by_queue(app, [queue] if queue else [each.name for each in app.queues()], task, period)
    if queue is None:
        raise click.UsageError("--by task needs a queue")
    return rows_by_task(app, queue, [task] if task else app.stats_tasks(queue, **period), period)


# For people


def _describe(record: Record, output: Output) -> Iterator[Fact]:
    yield Fact("queue", record["queue"] or "all queues")
    if record["task"]:
        yield Fact("task", record["task"])
    yield Fact("days", _days(record["since"], record["until"]))
    for name in ("wait", "run"):
        yield Fact(name, _summary(record[name]))
    yield Fact("ended attempts", f"{record['ended']:,}")
    still = "" if record["failed"] is None else f", {record['failed']:,} still failed"
    yield Fact("failures", f"{record['failures']:,}{still}")
    yield Fact("retries", f"{record['retries']:,}")
    for name in ("wait", "run"):
        if record[name]["histogram"]:
            yield Fact(f"{name} times", "\n".join(_bars(record[name]["histogram"], output)))


def _days(since: datetime, until: datetime) -> str:
    first, last = since.date().isoformat(), (until - timedelta(milliseconds=1)).date().isoformat()
    return f"{first} (UTC)" if first == last else f"{first} to {last} (UTC)"


def _summary(times: Record) -> str:
    if not times["count"]:
        return "none"
    parts = [f"{times['count']:,} times, mean {spell(times['mean'])}"]
    if times["stdev"] is not None:
        parts.append(f"deviation {spell(times['stdev'])}")
    for name, found in times["quantiles"].items():
        if found is not None:
            high = "" if found["upper"] is None else f" to {spell(found['upper'])}"
            parts.append(f"p{float(name) * 100:.0f} {spell(found['value'])} ({spell(found['lower'])}{high})")
    return ", ".join(parts)


def _bars(histogram: Sequence[Record], output: Output) -> Iterator[str]:
    """Yield a line for each row of a histogram, from the first to the last that is not empty."""
    counts = [0] * len(ROWS)
    for bucket in histogram:
        counts[max(number for number, start in enumerate(ROWS) if start <= bucket["lower"])] += bucket["count"]
    used = [number for number, count in enumerate(counts) if count]
    shown = range(used[0], used[-1] + 1)
    ends = (*ROWS[1:], None)
    names = {each: f"{spell(ROWS[each])} to {'...' if (end := ends[each]) is None else spell(end)}" for each in shown}
    left, right = max(map(len, names.values())), max(len(f"{counts[each]:,}") for each in shown)
    room = min(MAX_BAR, max(MIN_BAR, output.console.width - left - right - 24)) if output.on_terminal else MIN_BAR
    for each in shown:
        bar = "#" * max(round(room * counts[each] / max(counts)), 1 if counts[each] else 0)
        yield f"{names[each]:>{left}}  {counts[each]:>{right},}  {bar}".rstrip()
