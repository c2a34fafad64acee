"""How far a job is, for people: a bar, a share, how much of what, how fast, and when it will end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from holdfast.cli.output import Output
from holdfast.job.job import Job

BAR = 8  # characters
Record = dict[str, Any]


def progress_record(job: Job[Any]) -> Record | None:
    """What a job said of its progress, and what follows from it."""
    said = job.progress
    if said is None:
        return None
    return {
        "fraction": said.fraction,
        "message": said.message,
        "done": said.done,
        "total": said.total,
        "counts": said.counts,
        "per_second": {name: round(rate, 3) for name, rate in said.rates.items()},
        "estimated_end": job.estimated_end,
    }


def progress_text(record: Record, output: Output) -> str:
    """How far a job is, on one line: 45%, with a bar before it and its words after it; or what it waits for.

    Of one that failed it is the group: how far it was is past.
    """
    if record["state"] == "failed":
        return str(record["group"])
    if record["state"] == "blocked":
        return f"waits for {record['waits_for']} job{'s' * (record['waits_for'] != 1)}"
    if record["state"] == "throttled":
        return f"waits for limit {record['throttled_by']}"
    said = record["progress"]
    if record["state"] == "succeeded" or said is None:
        return ""
    ending = [_ending(said, output)] if output.mode == "table" and said["estimated_end"] else []
    message = [said["message"]] if said["message"] else []
    return " ".join([*_share(said["fraction"], output), *ending, *message])


def described_progress(said: Record, output: Output) -> str:
    """All that is known of a job's progress, on some lines."""
    ending = [f"ends {output.text(said['estimated_end'])}"] if said["estimated_end"] else []
    first = ", ".join([" ".join(_share(said["fraction"], output)), *_amounts(said), *ending])
    return "\n".join(line for line in (first.removeprefix(", "), said["message"]) if line)


def _share(fraction: float | None, output: Output) -> Iterator[str]:
    if fraction is not None:
        filled = round(min(max(fraction, 0), 1) * BAR)
        if output.mode == "table":
            yield "█" * filled + "░" * (BAR - filled)
        yield f"{fraction:.0%}"


def _ending(said: Record, output: Output) -> str:
    """Such as `3m left`."""
    words = output.text(said["estimated_end"])
    return f"{words.removeprefix('in ')} left" if words.startswith("in ") else "about to end"


def _amounts(said: Record) -> Iterator[str]:
    """Such as `450 of 1,000 items, 12/s` and `4,500 rows, 120/s`."""
    rates = said["per_second"]
    if said["done"] is not None:
        total = f" of {said['total']:,}" if said["total"] is not None else ""
        yield f"{said['done']:,}{total} items{_rate(rates.get('items'))}"
    for name, count in said["counts"].items():
        yield f"{count:,} {name}{_rate(rates.get(name))}"


def _rate(rate: float | None) -> str:
    return f" ({rate:,.3g}/s)" if rate is not None and rate < 1000 else f" ({rate:,.0f}/s)" if rate else ""
