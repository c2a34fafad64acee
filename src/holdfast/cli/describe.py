"""The description of a job for people: its fields, its attempts, and other events."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import msgspec

from holdfast.cli.formatting import duration_text, short_duration
from holdfast.cli.output import STYLES, Fact, Output
from holdfast.cli.progress import progress_lines
from holdfast.cli.table import Record
from holdfast.cli.usage import usage_lines
from holdfast.task.program import PROGRAM
from holdfast.units import humanize

MAX_ON_ONE_LINE = 100  # characters of JSON
VALUE_LINES = 12  # lines of arguments, results and checkpoints on a terminal

_TIMES = (
    ("created", "created_at"),
    ("since", "since"),
    ("due", "due_at"),
    ("deadline", "deadline"),
    ("claimed", "claimed_at"),
    ("lease ends", "lease_ends_at"),
    ("expires", "expires_at"),
)


def describe(record: Record, output: Output, hint: str = "") -> Iterator[Fact]:
    """Yield the facts of a job from its `details`; a `hint` explains why it is waiting."""
    yield Fact("id", record["id"])
    yield Fact("state", _state(record), STYLES.get(record["state"], ""))
    if record["unreadable"]:
        yield Fact("unreadable", record["unreadable"])
    else:
        yield from _describe_readable(record, output, hint)


def _describe_readable(record: Record, output: Output, hint: str) -> Iterator[Fact]:
    yield from _waits(record, hint)
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
    )
    for label in labels:
        if record[label] not in ("", None, [], ()):
            yield Fact(label.replace("_", " "), record[label])
    if record["tags"]:
        yield Fact("tags", "\n".join(record["tags"]), lines=VALUE_LINES)
    if record["tracked"]:
        yield Fact("tracked", "yes")
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
    yield from _attempts(record["attempts"], output)
    for note in record["notes"]:
        yield Fact("note", f"{output.when(note['at'])} {note['what']} {note['text']}".rstrip())


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


def _waits(record: Record, hint: str) -> Iterator[Fact]:
    """Yield what a job waits for, or has waited for."""
    if why := _why(record) or hint:
        yield Fact(record["state"], why)
    for label in ("after", "waits"):
        if record[label]:
            yield Fact(label, "\n".join(f"{each['id']} {each['state']}" for each in record[label]), lines=VALUE_LINES)


def _why(record: Record) -> str:
    """Return why a job failed, or what it waits for and how to resolve that."""
    if record["state"] == "failed":
        return str(record["why"])
    if record["state"] in ("scheduled", "waiting") and record["attempts"]:
        return _not_runnable(record["attempts"][-1], record["task"])
    if record["state"] == "throttled":
        return f"limit {record['throttled_by']} has no free slot"
    if record["state"] != "blocked":
        return ""
    all = [*record["after"], *record["waits"]]
    ended = next((each for each in record["after"] if each["state"] in _ENDED), None)
    if ended is None or record["waits_for"] <= sum(each["state"] == "pending" for each in all):
        return f"waits for {record['waits_for']} of {len(all)} jobs"  # one that failed does not block it
    advice = f"`holdfast retry {ended['id']}`, or `holdfast depend {record['id']} --not-on {ended['id']}`"
    return f"waits for job {ended['id']}, which {_ENDED[ended['state']]}; {advice}"


def _not_runnable(attempt: Record, task: str) -> str:
    """Return why a worker requeued a job without running it."""
    if attempt["outcome"] != "unknown":
        return ""
    if task == PROGRAM:
        return "its last worker does not run programs; start one with --allow-exec"
    return f"its last worker does not know task {task}; start one whose app has it"


_ENDED = {"failed": "failed", "cancelled": "was cancelled"}


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
    return ", ".join(f"{name} {record[f'{name}_used']} of {record[name]}" for name in ("retries", "crashes", "lost"))


def _retries(record: Record) -> Iterator[Fact]:
    yield Fact("budget", _budget(record))
    if record["retry_policy"]:
        yield Fact("retry policy", ", ".join(_retry_policy(record["retry_policy"])))


def _retry_policy(policy: Record) -> Iterator[str]:
    if policy["waits_seconds"]:
        yield f"waits {', '.join(map(duration_text, policy['waits_seconds']))}"
    if policy["cap_seconds"] is not None:
        yield f"cap {duration_text(policy['cap_seconds'])}"
    yield f"jitter {policy['jitter']:g}"
    for name in ("on", "not_on"):
        if policy[name]:
            yield f"{name} {', '.join(policy[name])}"


def _attempts(attempts: list[Record], output: Output) -> Iterator[Fact]:
    shown: dict[tuple[str, str], int] = {}  # fingerprint and traceback -> attempt
    for attempt in attempts:
        lines = "\n".join([*_attempt(attempt, output), *_failure(attempt, shown)])
        yield Fact(f"attempt {attempt['number']}", lines, STYLES.get(attempt["outcome"], ""))


def _attempt(attempt: Record, output: Output) -> Iterator[str]:
    because = attempt["because"]
    why = "" if because == "first" else f", after: {because or 'unknown'}"
    yield f"{attempt['outcome']}{why}"
    yield f"by {_process(attempt)}"
    yield ", ".join(_times(attempt, output))
    if attempt["reason"]:
        yield attempt["reason"]


def _failure(attempt: Record, shown: dict[tuple[str, str], int]) -> Iterator[str]:
    """Yield the error of an attempt, and its traceback unless an earlier attempt has shown it."""
    failure = attempt["failure"]
    if not failure:
        return
    words, trace = f"{failure['type']}: {failure['message']}", failure["traceback"].rstrip()
    of, before = failure["traceback_of"], shown.get((failure["fingerprint"], trace))
    if not trace or of or before or failure["message"] not in trace:  # a traceback ends with it; a stack does not
        yield words
    if trace and before:
        yield f"the traceback is above, with attempt {before}"
    elif trace:
        shown[failure["fingerprint"], trace] = attempt["number"]
        if of:
            yield f"an example of the same fingerprint, attempt {of[1]} of job {of[0]}:"
        yield trace


def _times(attempt: Record, output: Output) -> Iterator[str]:
    claimed, started, ended = attempt["claimed_at"], attempt["started_at"], attempt["ended_at"]
    yield f"queued {output.when(attempt['queued_at'])}"
    yield f"claimed {_elapsed(attempt['queued_at'], claimed)} later"
    if started:
        yield f"started {_elapsed(claimed, started)} later"
    if ended:
        yield f"ran {_elapsed(started or claimed, ended)}, ended {output.when(ended)}"


def _elapsed(first: datetime, second: datetime) -> str:
    return short_duration((second - first).total_seconds())
