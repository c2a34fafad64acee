"""The scope of jobs: a path such as `/tenant/7` that they are found and counted by.

    Holdfast(scope="/tenant/7")              all jobs of this program
    Holdfast(scope=tenant)                   a ContextVar, or a function, read when a job is enqueued

A job has the scope of its call, or of its task; else that of the variable or the function; else that of the job that
enqueues it; else that of the app. When a job starts, the variable is set to its scope.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

from holdfast.errors import Invalid
from holdfast.names import check_scope
from holdfast.running.current import current_scope

Scope = str | ContextVar[Any] | Callable[[], str | None]


class ScopeOfApp:
    """Where the jobs of an app get their scope from."""

    def __init__(self, source: Scope | None = None) -> None:
        if isinstance(source, str):
            check_scope(source)
        elif source is not None and not isinstance(source, ContextVar) and not callable(source):
            raise Invalid(
                f"scope is {source!r}; it must be a path such as /tenant/7, a ContextVar, or a function that returns it"
            )
        self._source = source

    def now(self) -> str | None:
        """Return the scope that a job gets if it is enqueued now, unless it has one of its own; None: none.

        Raises:
            Invalid: the variable or the function does not say a scope.
        """
        source = self._source
        if isinstance(source, ContextVar):
            found = source.get(None) or current_scope() or _default(source)
        elif callable(source):
            found = source() or current_scope()
        else:
            found = current_scope() or source
        return check_scope(found) if found else None

    def restore(self, scope: str) -> None:
        """Let the variable say the scope of a job that starts."""
        if scope and isinstance(self._source, ContextVar):
            self._source.set(scope)


def _default(variable: ContextVar[Any]) -> Any:
    try:
        return variable.get()
    except LookupError:
        return None


def scope_now(app: object) -> str | None:
    """Return the scope that a job of an app gets if it is enqueued now, unless it has one of its own."""
    source = getattr(app, "scope_of_jobs", None)
    return source.now() if isinstance(source, ScopeOfApp) else None


def restore_scope(app: object, scope: str) -> None:
    """Let the variable of an app say the scope of a job that starts."""
    source = getattr(app, "scope_of_jobs", None)
    if isinstance(source, ScopeOfApp):
        source.restore(scope)


def with_scope(batch: dict[str, Any], scope: str | None) -> dict[str, Any]:
    """Return the arguments of the store's `enqueue`, with a scope unless they have one."""
    return batch if scope is None or "scope" in batch else {**batch, "scope": scope}
