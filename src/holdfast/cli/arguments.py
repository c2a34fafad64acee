"""Arguments of a task, as words of a command line or as lines of JSON, and the calls that they make."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from inspect import formatannotation
from typing import Any, NamedTuple

import click
import msgspec

from holdfast import Holdfast, errors
from holdfast.cli.suggestions import did_you_mean
from holdfast.names import new_id
from holdfast.signature import Parameter
from holdfast.task import BoundCall, Options, Task, make_task

AnyTask = Task[..., Any]


class Arguments(NamedTuple):
    """The words after the task's name, sorted into those without a name and those with one."""

    positional: list[str]
    named: dict[str, str]

    @classmethod
    def of(cls, words: Sequence[str]) -> Arguments:
        positional, named = [], {}
        for word in words:
            name, equals, value = word.partition("=")
            if not equals or not name.isidentifier():
                positional.append(word)
            elif name in named:
                raise click.UsageError(f"the argument {name} is given twice.")
            else:
                named[name] = value
        return cls(positional, named)


def find_task(app: Holdfast, name: str) -> AnyTask:
    """Return a task by its name, or by the last part of it if that is enough."""
    if name in app.tasks:
        return app.tasks[name]
    meant = [known for known in app.tasks if known.endswith(f".{name}")]
    if len(meant) == 1:
        return app.tasks[meant[0]]
    there_are = f"; it has {', '.join(sorted(app.tasks)) or 'none'}"
    raise errors.Invalid(f"the app has no task {name}{did_you_mean(name, app.tasks) or there_are}")


def call_of_words(task: AnyTask, arguments: Arguments) -> BoundCall[Any]:
    """Bind words to a task, read as its signature wants them."""
    parameters = _parameters(task)
    keys: list[str | None] = [*task.signature.positional, *[None] * len(arguments.positional)]
    args = [_value(word, parameters.get(key or "")) for word, key in zip(arguments.positional, keys, strict=False)]
    kwargs = {name: _value(word, parameters.get(name)) for name, word in arguments.named.items()}
    return task.bind(*args, **kwargs)


def call_of_line(task: AnyTask, named: Mapping[str, msgspec.Raw]) -> BoundCall[Any]:
    """Bind an object of JSON to a task."""
    parameters = _parameters(task)
    return task.bind(**{name: _decoded(bytes(data), name, parameters.get(name)) for name, data in named.items()})


def named_task(app: Holdfast, name: str, chosen: Options) -> AnyTask:
    """Return a task of which only the name is known: `unchecked_call` makes its calls."""

    def unknown() -> Any: ...

    task: AnyTask = make_task(unknown, app, chosen, name)
    return task


def unchecked_call(task: AnyTask, named: Mapping[str, Any]) -> BoundCall[Any]:
    """Return a call whose arguments nobody has checked."""
    return BoundCall(task.chosen.id or new_id(), task, msgspec.json.encode(named), task.chosen)


def json_or_text(word: str) -> Any:
    """Return what a word says in JSON, else the word itself."""
    try:
        return msgspec.json.decode(word)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return word


def _parameters(task: AnyTask) -> dict[str, Parameter]:
    return {each.key: each for each in task.signature.parameters}


def _value(word: str, parameter: Parameter | None) -> Any:
    """Read a value as its parameter wants it: as JSON, else as text."""
    if parameter is None:
        return json_or_text(word)
    for data in (word.encode(), msgspec.json.encode(word)):
        with suppress(errors.Invalid):
            return parameter.shape.decode(data, parameter.key)
    wanted = formatannotation(parameter.annotation)
    raise errors.Invalid(f"argument {parameter.key!r} is {word!r}; it must be what {wanted} takes")


def _decoded(data: bytes, name: str, parameter: Parameter | None) -> Any:
    return parameter.shape.decode(data, f"argument {name!r}") if parameter else msgspec.json.decode(data)
