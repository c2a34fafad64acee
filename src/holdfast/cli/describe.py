"""The description of a job for people: its fields, its attempts, and other events."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from holdfast.cli.output import STYLES, Fact, Output
from holdfast.cli.story import story
from holdfast.cli.usage import usage_lines
from holdfast.job.retries import BUDGETS, POLICIES
from holdfast.records.formatting import duration_text
from holdfast.records.progress import progress_lines
from holdfast.records.table import Record
from holdfast.units import humanize

MAX_ON_ONE_LINE = 100  # characters of JSON
VALUE_LINES = 12  # lines of arguments, results and checkpoints on a terminal

_TIMES = (
    ("created", "created_at"),
    ("since", "since"),
    ("due", "due_at"),
    ("deadline", "deadline"),
    ("claimed", "claimed_at"),
    ("last heartbeat", "heartbeat_at"),
    ("lease ends", "lease_ends_at"),
    ("expires", "expires_at"),
)


def describe(record: Record, output: Output) -> Iterator[Fact]:
    """Yield the facts of a job from its `details`."""
    yield Fact("id", record["id"])
    yield Fact("state", _state(record), STYLES.get(record["state"], ""))
    if record["unreadable"]:
        yield Fact("unreadable", record["unreadable"])
    else:
        yield from _describe_readable(record, output)


def _describe_readable(record: Record, output: Output) -> Iterator[Fact]:
    yield from _waits(record)
    labels = (
        "group",
        "fingerprint",
        "final_reason",
        "task",
        "queue",
        "priority",
        "share",
        "limits",
        "schedule",
        "scope",
        "batch",
        "forked_from",
    )
    for label in labels:
        if record[label] not in ("", None, [], ()):
            yield Fact(label.replace("_", " "), record[label])
    if record["tags"]:
        yield Fact("tags", "\n".join(record["tags"]), lines=VALUE_LINES)
    if record["tracked"]:
        yield Fact("tracked", "yes")
    if record["stalled"]:
        yield Fact("stalled", "its worker let the lease end, and no other has requeued it yet")
    yield from (Fact(label, output.when(record[name])) for label, name in _TIMES if record[name])
    if record["state"] == "running":
        yield Fact("worker", _process(record))
    yield Fact("arguments", _json(record["arguments"]), lines=VALUE_LINES)
    for label in ("result", "checkpoint"):
        if record[label] is not None or (label == "result" and record["state"] == "succeeded"):
            yield Fact(label, _json(record[label]), lines=VALUE_LINES)
    if record["progress"]:
        yield Fact("progress", progress_lines(record["progress"], output))
    if record["usage"]:
        yield Fact("usage", usage_lines(record["usage"], output))
    yield from _retries(record)
    yield from _options(record)
    for name in sorted(record["fields"]):
        yield Fact(f"field {name}", record["fields"][name])
    yield from story(record)


def _options(record: Record) -> Iterator[Fact]:
    if record["unique"]:
        yield Fact("unique", record["unique"])
    if record["at_most_once"] or not record["keep"]:
        yield Fact("runs", ", ".join(_guarantees(record)))
    if record["keep_seconds"] is not None:
        longer = ", or as long as its queue keeps failed jobs" if record["state"] == "failed" else ""
        yield Fact("kept", f"for {humanize(round(record['keep_seconds'] * 1000))} after its end{longer}")


def _state(record: Record) -> str:
    return f"{record['state']}{', cancelling' if record['cancelling'] else ''}"


def _waits(record: Record) -> Iterator[Fact]:
    """Yield why a job is not running, and the jobs that it waits for, or has waited for."""
    if why := _why(record):
        yield Fact(record["state"], why)
    for label in ("after", "waits"):
        if record[label]:
            yield Fact(label, "\n".join(f"{each['id']} {each['state']}" for each in record[label]), lines=VALUE_LINES)


def _why(record: Record) -> str:
    """Return why a job failed, or why it is not running and what to do about that."""
    if record["state"] == "failed":
        return str(record["why"])
    if not (found := record["explanation"]):
        return ""
    return f"{found['text']}; `{found['hint']}`" if found["hint"] else str(found["text"])


def _guarantees(record: Record) -> Iterator[str]:
    if record["at_most_once"]:
        yield "at most once"
    if not record["keep"]:
        yield "not retained after its end"


def _process(record: Record) -> str:
    return f"{record['executor']}{', pid {}'.format(record['pid']) if record['pid'] else ''}"


def _json(value: Any) -> str:
    data = msgspec.json.encode(value)
    return (data if len(data) <= MAX_ON_ONE_LINE else msgspec.json.format(data, indent=2)).decode()


def _budget(record: Record) -> str:
    names = ("retries", "crashes", "lost", *(name for name in BUDGETS.values() if record[name] is not None))
    return ", ".join(f"{name.replace('_', ' ')} {record[f'{name}_used']} of {record[name]}" for name in names)


def _retries(record: Record) -> Iterator[Fact]:
    yield Fact("budget", _budget(record))
    for name, policy in POLICIES.items():
        if record[policy]:
            title = "retry policy" if name == "retries" else f"policy of {name.replace('_', ' ')}"
            yield Fact(title, ", ".join(_retry_policy(record[policy])))


def _retry_policy(policy: Record) -> Iterator[str]:
    if policy["waits_seconds"]:
        yield f"waits {', '.join(map(duration_text, policy['waits_seconds']))}"
    if policy["cap_seconds"] is not None:
        yield f"cap {duration_text(policy['cap_seconds'])}"
    yield f"jitter {policy['jitter']:g}"
    for name in ("on", "not_on"):
        if policy[name]:
            yield f"{name} {', '.join(policy[name])}"
