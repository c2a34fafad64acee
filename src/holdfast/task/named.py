"""Calls of tasks by name, with arguments as JSON or as words: for the command line and the web.

The app may not know the task, whose function is elsewhere. Then nothing is checked, and only the options that are given
apply, not those that the task declares.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from inspect import formatannotation
from typing import Any

import msgspec

from holdfast.errors import Invalid
from holdfast.job.options import CheckedOptions, JobOptions
from holdfast.names import check_task, new_id
from holdfast.task.signature import Parameter
from holdfast.task.task import App, BoundCall, Task, make_task
from holdfast.text import did_you_mean

AnyTask = Task[..., Any]


def find_task(tasks: Mapping[str, AnyTask], name: str) -> AnyTask:
    """Return a task by its name, or by the last part of its name if that is unique.

    Raises:
        Invalid: there is no such task.
    """
    if name in tasks:
        return tasks[name]
    matches = [known for known in tasks if known.endswith(f".{name}")]
    if len(matches) == 1:
        return tasks[matches[0]]
    known = f"; the app has {', '.join(sorted(tasks)) or 'no tasks'}"
    raise Invalid(f"unknown task {name}{did_you_mean(name, tasks) or known}")


def unknown_task(app: App, name: str, options: JobOptions) -> AnyTask:
    """Return a task of which only the name is known; `unchecked_call` makes its calls."""

    def unknown() -> Any: ...

    task: AnyTask = make_task(unknown, app, CheckedOptions().replace(**options), check_task(name))
    return task


# Arguments as JSON


def checked_json_call(task: AnyTask, named: Mapping[str, msgspec.Raw]) -> BoundCall[Any]:
    """Bind a JSON object to a task, checked by its signature."""
    parameters = _parameters(task)
    return task.bind(**{name: _decode(bytes(data), name, parameters.get(name)) for name, data in named.items()})


def unchecked_call(task: AnyTask, named: Mapping[str, Any]) -> BoundCall[Any]:
    """Return a call whose arguments are not checked."""
    return BoundCall(task.effective_options.id or new_id(), task, msgspec.json.encode(named))


def _parameters(task: AnyTask) -> dict[str, Parameter]:
    return {each.key: each for each in task.signature.parameters}


def _decode(data: bytes, name: str, parameter: Parameter | None) -> Any:
    return parameter.codec.decode(data, f"argument {name!r}") if parameter else msgspec.json.decode(data)


# Arguments as words


def checked_call(task: AnyTask, positional: Sequence[str], named: Mapping[str, str]) -> BoundCall[Any]:
    """Bind words to a task, converted as its signature requires."""
    parameters = _parameters(task)
    keys: list[str | None] = [*task.signature.positional, *[None] * len(positional)]
    args = [_convert(word, parameters.get(key or "")) for word, key in zip(positional, keys, strict=False)]
    return task.bind(*args, **{name: _convert(word, parameters.get(name)) for name, word in named.items()})


def json_or_text(word: str) -> Any:
    """Return the value of a word that is JSON, else the word itself."""
    try:
        return msgspec.json.decode(word)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return word


def _convert(word: str, parameter: Parameter | None) -> Any:
    """Convert a word to the type of its parameter: as JSON, else as text."""
    if parameter is None:
        return json_or_text(word)
    for data in (word.encode(), msgspec.json.encode(word)):
        with suppress(Invalid):
            return parameter.codec.decode(data, parameter.key)
    if word.startswith(("{", "[")):  # say which part of it does not fit
        parameter.codec.decode(word.encode(), f"argument {parameter.key!r}")
    expected = formatannotation(parameter.annotation)
    raise Invalid(f"argument {parameter.key!r}: expected {expected}, got {word!r}")
