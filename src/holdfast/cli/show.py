"""One job, described for people: facts, then its attempts, then what else happened to it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import msgspec

from holdfast.cli.output import STYLES, Fact, Output
from holdfast.cli.progress import described_progress
from holdfast.cli.records import Record
from holdfast.cli.text import length
from holdfast.cli.usage import described_usage
from holdfast.task.program import PROGRAM

WIDE = 100  # characters of JSON on one line
SOME = 12  # lines of what a job was given, returned or saved, on a terminal

_TIMES = (
    ("created", "created_at"),
    ("since", "since"),
    ("due", "due_at"),
    ("deadline", "deadline"),
    ("claimed", "claimed_at"),
    ("lease ends", "lease_ends_at"),
)


def describe(record: Record, output: Output, hint: str = "") -> Iterator[Fact]:
    """Yield what is known of a job, as `full_record` has it, for this output; a `hint` says why it waits."""
    yield Fact("id", record["id"])
    yield Fact("state", _state(record), STYLES.get(record["state"], ""))
    if record["unreadable"]:
        yield Fact("unreadable", record["unreadable"])
    else:
        yield from _describe_whole(record, output, hint)


def _describe_whole(record: Record, output: Output, hint: str) -> Iterator[Fact]:
    yield from _waits(record, hint)
    for label in ("group", "final_reason", "task", "queue", "priority", "share", "limits", "schedule"):
        if record[label] not in ("", None, [], ()):
            yield Fact(label.replace("_", " "), record[label])
    yield from (Fact(label, output.when(record[name])) for label, name in _TIMES if record[name])
    if record["state"] == "running":
        yield Fact("worker", _where(record))
    yield Fact("arguments", _json(record["arguments"]), lines=SOME)
    for label in ("result", "checkpoint"):
        if record[label] is not None or (label == "result" and record["state"] == "succeeded"):
            yield Fact(label, _json(record[label]), lines=SOME)
    if record["progress"]:
        yield Fact("progress", described_progress(record["progress"], output))
    if record["usage"]:
        yield Fact("usage", described_usage(record["usage"], output))
    yield Fact("budget", _budget(record))
    if record["unique"]:
        yield Fact("unique", record["unique"])
    if record["at_most_once"] or not record["keep"]:
        yield Fact("runs", ", ".join(_promises(record)))
    for name in sorted(record["fields"]):
        yield Fact(f"field {name}", record["fields"][name])
    for attempt in record["attempts"]:
        yield Fact(
            f"attempt {attempt['number']}", "\n".join(_attempt(attempt, output)), STYLES.get(attempt["outcome"], "")
        )
    for note in record["notes"]:
        yield Fact("note", f"{output.when(note['at'])} {note['what']} {note['text']}".rstrip())


def _state(record: Record) -> str:
    return f"{record['state']}{', cancelling' if record['cancelling'] else ''}"


def _waits(record: Record, hint: str) -> Iterator[Fact]:
    """What a job waits for, or has waited for."""
    if why := _why(record) or hint:
        yield Fact(record["state"], why)
    for label in ("after", "waits"):
        if record[label]:
            yield Fact(label, "\n".join(f"{each['id']} {each['state']}" for each in record[label]), lines=SOME)


def _why(record: Record) -> str:
    """Say what a job waits for, and what can be done about it if that does not come by itself; or why it failed."""
    if record["state"] == "failed":
        return str(record["why"])
    if record["state"] in ("scheduled", "waiting") and record["attempts"]:
        return _unknown(record["attempts"][-1], record["task"])
    if record["state"] == "throttled":
        return f"limit {record['throttled_by']} has no free slot for it"
    if record["state"] != "blocked":
        return ""
    all = [*record["after"], *record["waits"]]
    ended = next((each for each in record["after"] if each["state"] in _WAS), None)
    if ended is None or record["waits_for"] <= sum(each["state"] == "pending" for each in all):
        return f"it waits for {record['waits_for']} of {len(all)} jobs"  # if one has failed, it is to run all the same
    advice = f"`holdfast retry {ended['id']}`, or `holdfast depend {record['id']} --not-on {ended['id']}`"
    return f"job {ended['id']}, which it waits for, {_WAS[ended['state']]}; {advice}"


def _unknown(attempt: Record, task: str) -> str:
    """Say what a job waits for that was handed back because nobody could run it."""
    if attempt["outcome"] != "unknown":
        return ""
    if task == PROGRAM:
        return "the worker that had it runs no programs: start one with --allow-exec"
    return f"the worker that had it does not know task {task}: start one whose app has it"


_WAS = {"failed": "failed", "cancelled": "was cancelled"}


def _promises(record: Record) -> Iterator[str]:
    if record["at_most_once"]:
        yield "once at most"
    if not record["keep"]:
        yield "without being kept afterwards"


def _where(record: Record) -> str:
    return f"{record['executor']}{', pid {}'.format(record['pid']) if record['pid'] else ''}"


def _json(value: Any) -> str:
    data = msgspec.json.encode(value)
    return (data if len(data) <= WIDE else msgspec.json.format(data, indent=2)).decode()


def _budget(record: Record) -> str:
    return ", ".join(f"{name} {record[f'{name}_used']} of {record[name]}" for name in ("retries", "crashes", "lost"))


def _attempt(attempt: Record, output: Output) -> Iterator[str]:
    because = attempt["because"]
    why = "" if because == "first" else f", made because of: {because or 'not known any more'}"
    yield f"{attempt['outcome']}{why}"
    yield f"by {_where(attempt)}"
    yield ", ".join(_times(attempt, output))
    if attempt["reason"]:
        yield attempt["reason"]
    if failure := attempt["failure"]:
        words, trace = f"{failure['type']}: {failure['message']}", failure["traceback"].rstrip()
        if failure["message"] not in trace or not trace:  # an exception's ends with it; a stack, or output, does not
            yield words
        if trace:
            yield trace


def _times(attempt: Record, output: Output) -> Iterator[str]:
    claimed, started, ended = attempt["claimed_at"], attempt["started_at"], attempt["ended_at"]
    yield f"queued {output.when(attempt['queued_at'])}"
    yield f"claimed {_after(attempt['queued_at'], claimed)} later"
    if started:
        yield f"started {_after(claimed, started)} later"
    if ended:
        yield f"ran {_after(started or claimed, ended)}, ended {output.when(ended)}"


def _after(first: datetime, second: datetime) -> str:
    return length((second - first).total_seconds())
