"""How a recorded reply is written: which lists have names and values, and which may get further elements.

Only the recorder needs this. A client reads a case without it, as the case says itself what is compared and how.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from holdfast.conformance.values import MORE, read_names, readable

ROWS_OF_A_JOB = ("attempts", "notes", "examples", "after", "waits")  # lists of lists, which may get further elements
DEFAULTS: Mapping[str, Any] = {  # of `get`: what a case need not say
    "codec": "json", "retries": 3, "backoff": 20000, "crashes": 3, "lost": 10, "keep": 1, "lease": 30000,
}  # fmt: skip
LEFT_OUT = ("id", "arrival", "pid", "updated")
ANY = {"$any": True}
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
MIN_REPEATED = 100

Shape = Callable[[list[Any]], Any]


def write_reply(function: str, args: Mapping[str, Any], reply: Any) -> Any:
    """Write the reply of a function as a case does."""
    shape = SHAPES.get(function)
    if shape is None or not isinstance(reply, list) or (function == "list" and "fields" in args):
        return write(reply)
    return shape(reply)


def write(value: Any) -> Any:
    """Write a value that is no list of names and values."""
    if isinstance(value, list):
        return [write(each) for each in value]
    return _write_text(value) if isinstance(value, bytes) else value


def write_row(part: Any) -> Any:
    """Write a job as `list` returns it."""
    named, job = read_names(part), write_job(part)
    return {"id": write(named["id"]), **job} if named else job


def write_job(part: Any) -> Any:
    """Write a job as `get` returns it, without what is empty, 0 or a default."""
    named = read_names(part)
    if named is None:
        return write(part)
    job = {name: write(value) for name, value in named.items()}
    for name in ROWS_OF_A_JOB:
        job[name] = [[*row, MORE] for row in job.get(name, [])]
    if job.get("fields"):
        job["fields"] = dict(zip(job["fields"][::2], job["fields"][1::2], strict=True))
    return {
        name: value
        for name, value in job.items()
        if value not in (0, "", None, []) and DEFAULTS.get(name) != value and name not in LEFT_OUT
    }


def _write_text(data: bytes) -> Any:
    text = readable(data)
    if not isinstance(text, str):
        return text
    if _UNPRINTABLE.search(text):
        return {"$hex": data.hex()}
    if len(text) >= MIN_REPEATED and text == text[0] * len(text):
        return {"$repeat": [text[0], len(text)]}
    if text[:1] + text[-1:] == "{}":
        try:
            return {"$json": json.loads(text)}
        except ValueError:
            pass
    return text


def _record(row: Any) -> Any:
    """A list with a fixed meaning for each place."""
    return [*write(row), MORE] if isinstance(row, list) and row else write(row)


def _named(row: Any) -> Any:
    named = read_names(row)
    return write(row) if named is None else {name: write(value) for name, value in named.items()}


def _explained(row: Any) -> Any:
    """A job, and its reasons: lists of a code, then names and values."""
    job = _named(row)
    if isinstance(job, dict) and "reasons" in job:
        job["reasons"] = [write_reason(reason) for reason in read_names(row)["reasons"]]  # type: ignore[index]
        job = {name: value for name, value in job.items() if value not in (0, "")}
    return job


def write_reason(reason: list[Any]) -> list[Any]:
    """A code, then names and values."""
    names = read_names(reason[1:]) or {}
    return [write(reason[0]), {"$rest": {name: write(value) for name, value in names.items()}}]


def _check(reply: list[Any]) -> Any:
    """A position, numbers of keys, and findings: which keys there are, and how findings are explained, may change."""
    findings = [[write(row[0]), ANY, ANY, *write(row[3:6]), MORE] for row in reply[3]]
    return [write(reply[0]), ANY, ANY, findings, ANY, MORE]


def _settings(reply: list[Any]) -> Any:
    """The first settings, without their descriptions: later releases have more."""
    return [*([*write(row[:8]), MORE] for row in reply[:4]), MORE]


def _from(start: int, shape: Callable[[Any], Any], *, is_open: bool = False) -> Shape:
    """The elements from `start` on have a shape."""
    return lambda reply: [*write(reply[:start]), *map(shape, reply[start:]), *([MORE] if is_open else [])]


SHAPES: Mapping[str, Shape] = {
    "get": _from(0, write_job),
    "list": _from(2, write_row),
    "limit_holders": _from(2, write_row),
    "limit_parked": _from(2, write_row),
    "renew": _from(0, write, is_open=True),
    "upkeep": _from(0, write, is_open=True),
    "stats": _from(0, write, is_open=True),
    "queues": _from(1, _record),
    "load": _from(1, _record),
    "workers": _from(1, _record),
    "limits": _from(1, _record),
    "failures": _from(1, _record),
    "failure": _record,
    "events": _from(4, _record),
    "config": _settings,
    "configure": _settings,
    "schedules": _from(0, _named),
    "subscriptions": _from(0, _named),
    "get_batches": _from(0, _named),
    "list_batches": _from(1, _named),
    "start_operation": _from(0, _named),
    "continue_operation": _from(0, _named),
    "stop_operation": _from(0, _named),
    "resume_operation": _from(0, _named),
    "operations": _from(0, _named),
    "check": _check,
    "repair": _check,
    "explain": _from(0, _explained),
    "fork": _from(1, write_row),
    "sample": _from(2, write_row),
    "attach": _named,
}
