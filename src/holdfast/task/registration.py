"""Adds tasks, and the limits that they name, to an app."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol

from holdfast.errors import Invalid
from holdfast.job.limit import Limit
from holdfast.task.middleware import MiddlewareStack
from holdfast.task.program import PROGRAM
from holdfast.task.task import Task


class DeclaresLimits(Protocol):
    """An app with limits."""

    @property
    def declared_limits(self) -> dict[str, Limit]: ...


class App(DeclaresLimits, Protocol):
    """The app that tasks are declared on."""

    @property
    def tasks(self) -> dict[str, Task[..., Any]]: ...
    @property
    def middleware_stack(self) -> MiddlewareStack: ...


def add_task(app: App, task: Task[..., Any]) -> None:
    """Add a task to an app.

    Raises:
        Invalid: another task has its name, or the middleware of the app does not fit it.
    """
    if task.name == PROGRAM:
        raise Invalid(f"the task name {PROGRAM} is reserved for programs; pass another name=")
    known = app.tasks.get(task.name)
    if known is not None and not _is_same(known.function, task.function):
        raise Invalid(f"another task is already named {task.name}; pass another name=")
    app.middleware_stack.check(task)
    app.tasks[task.name] = task


def declare_limits(app: DeclaresLimits, limits: Iterable[Limit]) -> None:
    """Add limits to an app.

    Raises:
        Invalid: the app has another limit of the same name.
    """
    for limit in limits:
        known = app.declared_limits.setdefault(limit.name, limit)
        if known != limit:
            raise Invalid(f"limit {limit.name} is declared twice: as {known!r}, and as {limit!r}")


def _is_same(one: Callable[..., Any], other: Callable[..., Any]) -> bool:
    """Return whether two functions are the same, perhaps imported twice: as __main__, or again after a change."""
    modules = {one.__module__, other.__module__} - {"__main__"}
    return one.__qualname__ == other.__qualname__ and len(modules) <= 1
