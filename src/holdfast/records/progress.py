"""The progress of a job, and for people: a bar, a percentage, counts, rates, and the estimated end."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.records.table import Output, Record, Table, Time, field
from holdfast.text import pluralize

BAR = 8  # characters

PROGRESS = Table(
    "progress",
    field("fraction", float | None, "how much is done, 0 to 1"),
    field("message", str, "what the job reports in words"),
    field("done", int | None, "number of items of `each` that are done"),
    field("total", int | None, "number of items of `each` in all"),
    field("counts", dict[str, int | float], "what the job counts, by name"),
    field("per_second", dict[str, float], "rates of the counts"),
    field("estimated_end", Time | None, "when the job will end, as far as that can be estimated"),
)


def progress_line(record: Record, output: Output) -> str:
    """Return the progress of a job on one line, or what it waits for; of a failed job the group of its failure."""
    if record["state"] == "failed":
        return str(record["group"])
    if record["state"] == "blocked":
        return f"waits for {pluralize(record['waits_for'], 'job')}"
    if record["state"] == "throttled":
        return f"waits for limit {record['throttled_by']}"
    progress = record["progress"]
    if record["state"] == "succeeded" or progress is None:
        return ""
    left = [_time_left(progress, output)] if output.on_terminal and progress["estimated_end"] else []
    message = [progress["message"]] if progress["message"] else []
    return " ".join([*bar(progress["fraction"], output), *left, *message])


def progress_lines(progress: Record, output: Output) -> str:
    """Return everything that is known about the progress of a job."""
    end = [f"ends {output.text(progress['estimated_end'])}"] if progress["estimated_end"] else []
    first = ", ".join([" ".join(bar(progress["fraction"], output)), *_amounts(progress), *end])
    return "\n".join(line for line in (first.removeprefix(", "), progress["message"]) if line)


def bar(fraction: float | None, output: Output) -> Iterator[str]:
    """Yield a bar, on a terminal, and a percentage; nothing if the fraction is unknown."""
    if fraction is not None:
        filled = round(min(max(fraction, 0), 1) * BAR)
        if output.on_terminal:
            yield "█" * filled + "░" * (BAR - filled)
        yield f"{fraction:.0%}"


def _time_left(progress: Record, output: Output) -> str:
    """Return text such as `3m left`."""
    end = output.text(progress["estimated_end"])
    return f"{end.removeprefix('in ')} left" if end.startswith("in ") else "about to end"


def _amounts(progress: Record) -> Iterator[str]:
    """Yield texts such as `450 of 1,000 items (12/s)` and `4,500 rows (120/s)`."""
    rates = progress["per_second"]
    if progress["done"] is not None:
        total = f" of {progress['total']:,}" if progress["total"] is not None else ""
        yield f"{progress['done']:,}{total} items{_rate(rates.get('items'))}"
    for name, count in progress["counts"].items():
        yield f"{count:,} {name}{_rate(rates.get(name))}"


def _rate(rate: float | None) -> str:
    return f" ({rate:,.3g}/s)" if rate is not None and rate < 1000 else f" ({rate:,.0f}/s)" if rate else ""
