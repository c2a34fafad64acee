"""What a run of a job leaves behind, and a report of the differences after a crash."""

from __future__ import annotations

import linecache
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from holdfast.task.task import Task
from holdfast.testing.positions import END, START, KillTime, Position
from holdfast.text import pluralize

MAX_REPORTED = 5  # places in a message
MAX_TEXT = 300  # characters of a value in a message
MAX_DECORATORS = 50  # lines
MAX_COMPARED = 1000  # items; longer lists are shown without the items that differ


class Left(NamedTuple):
    """What a run leaves behind."""

    state: str
    why: str
    result: object  # as JSON has it
    jobs: list[str]  # that were enqueued: task and arguments
    notes: list[str]
    progress: float | None  # the last fraction
    effects: object
    effects_before: object


class _Run(Protocol):
    @property
    def left(self) -> Left: ...
    @property
    def was_killed(self) -> bool: ...


class Crash(NamedTuple):
    """A run with a kill."""

    position: Position
    when: KillTime
    run: _Run


def report(task: Task[..., Any], undisturbed: Left, crashes: Sequence[Crash]) -> str:
    """Return a message about the crashes after which the job left something else behind; "" if there is none."""
    found = [(crash, lines) for crash in crashes if (lines := _lines_of(undisturbed, crash))]
    if not found:
        return ""
    places: dict[str, list[list[str]]] = {}
    for crash, lines in found:
        places.setdefault(_moment(crash, task), []).append(lines)
    parts = [f"{task.name} differs from an undisturbed run after {len(found)} of {len(crashes)} kills"]
    for moment, (first, *more) in [*places.items()][:MAX_REPORTED]:
        again = [f"  and {pluralize(len(more), 'more time')} at this line"] if more else []
        parts.append("\n".join([f"killed {moment}", *first, *again]))
    if len(places) > MAX_REPORTED:
        parts.append(f"... and at {len(places) - MAX_REPORTED} more places")
    return "\n\n".join(parts)


def _lines_of(undisturbed: Left, crash: Crash) -> list[str]:
    if not crash.run.was_killed:
        return ["  never: it did not get there again, so it does not do the same in each run"]
    return lines(undisturbed, crash.run.left)


def lines(undisturbed: Left, other: Left) -> list[str]:
    """Return what differs, one line each."""
    if other.state != undisturbed.state:
        return [f"  state: {other.state}: {other.why or 'no reason is known'}; undisturbed: {undisturbed.state}"]
    found = []
    for name, different in _COMPARED.items():
        before, after = getattr(undisturbed, name), getattr(other, name)
        if different(before, after):
            found += [f"  {name}: {line}" for line in _difference(before, after)]
    return found


def _differ(before: Any, after: Any) -> bool:
    return bool(before != after)


def _are_missing(before: list[str], after: list[str]) -> bool:
    """Return whether notes are missing. Others may be added or repeated: that is what notes are for."""
    return not {*before} <= {*after}


def _are_both_and_differ(before: object, after: object) -> bool:
    """Return whether two fractions differ. A loop that finds nothing more to do reports none."""
    return before is not None and after is not None and before != after


_COMPARED: dict[str, Callable[[Any, Any], bool]] = {
    "result": _differ,
    "jobs": _differ,
    "notes": _are_missing,
    "progress": _are_both_and_differ,
    "effects": _differ,
}


def _difference(before: Any, after: Any) -> Iterator[str]:
    if isinstance(before, str) and isinstance(after, str) and "\n" in before:
        before, after = before.splitlines(), after.splitlines()
    if isinstance(before, dict) and isinstance(after, dict):
        keys = [key for key in {**before, **after} if before.get(key, _NONE) != after.get(key, _NONE)]
        before, after = ({key: each[key] for key in keys if key in each} for each in (before, after))
    elif isinstance(before, list | tuple) and isinstance(after, list | tuple) and len(after) <= MAX_COMPARED:
        if more := _without(after, before):
            yield f"repeated or added: {_text(more)}"
        if missing := _without(before, after):
            yield f"missing: {_text(missing)}"
    yield f"{_text(after)}; undisturbed: {_text(before)}"


_NONE = object()


def _without(values: Sequence[Any], others: Sequence[Any]) -> list[Any]:
    """Return the values that have no equal one in the others, each of which counts once."""
    left, rest = list(others), []
    for value in values:
        if value in left:
            left.remove(value)
        else:
            rest.append(value)
    return rest


def _text(value: object) -> str:
    text = repr(value)
    return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}... ({len(text)} characters)"


def _moment(crash: Crash, task: Task[..., Any]) -> str:
    """Return when and where the job was killed, with the line of its code."""
    position = crash.position
    if position.what == START:
        moment = "before the task began"
    elif position.what == END:
        moment = "after the task had ended, before its outcome was stored"
    else:
        moment = f"{'after' if crash.when == 'after' else 'before'} {position.what} was stored"
    if crash.when == "unsent":
        moment += ", when earlier saves were not sent yet"
    file, line = (position.file, position.line) if position.line else _definition(task)
    code = linecache.getline(file, line).strip()
    return f"{moment}\n  at {_short(file)}:{line}{f': {code}' if code else ''}"


def _definition(task: Task[..., Any]) -> tuple[str, int]:
    """Return where the function of a task begins, below its decorators."""
    code = getattr(task.function, "__code__", None)
    if code is None:
        return task.name, 0
    first, name = code.co_firstlineno, f"def {code.co_name}("
    found = (line for line in range(first, first + MAX_DECORATORS) if name in linecache.getline(code.co_filename, line))
    return code.co_filename, next(found, first)


def _short(file: str) -> str:
    path, here = Path(file), Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else file
