"""Context variables that go along with jobs: from who enqueues to the task, and on to what the task enqueues.

    request_id: ContextVar[str] = ContextVar("request_id")
    jobs.carry("request_id", request_id)

What is set where a job is enqueued is kept with it, in what only workers read of a job (see `run`), and is set before
its task is called, and the middleware around it. They are JSON, and short: an id, a tenant, a language.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar, copy_context
from typing import Any

import msgspec

from holdfast.codec import Shape
from holdfast.errors import Invalid, TooBig
from holdfast.job.options import Run
from holdfast.names import check_name

MAX_BYTES = 512  # of all that a job carries: half of what the store keeps for workers
MAX_VARIABLES = 16

_anything = Shape.of(Any)


class Carried:
    """The variables that an app's jobs carry, by name."""

    def __init__(self) -> None:
        self._variables: dict[str, ContextVar[Any]] = {}

    def add(self, name: str, variable: ContextVar[Any]) -> None:
        """Declare a variable.

        Raises:
            Invalid: the name is taken or not acceptable, or there are too many.
        """
        if not isinstance(variable, ContextVar):
            raise Invalid(f"{variable!r} cannot be carried; it must be a ContextVar")
        if self._variables.get(check_name(name, "the name of what is carried"), variable) is not variable:
            raise Invalid(f"another variable is carried as {name} already; give one of them another name")
        self._variables[name] = variable
        if len(self._variables) > MAX_VARIABLES:
            raise Invalid(f"{len(self._variables)} variables are carried; {MAX_VARIABLES} are allowed")

    def values(self) -> dict[str, Any] | None:
        """Return what is set in this context; None if nothing is.

        Raises:
            Invalid: a value is no JSON.
            TooBig: all together are too long.
        """
        if not self._variables:
            return None
        context = copy_context()
        found = {name: context[variable] for name, variable in self._variables.items() if variable in context}
        size = sum(
            len(name) + len(_anything.encode(value, f"what the job carries as {name}")) for name, value in found.items()
        )
        if size > MAX_BYTES:
            words = f"what the job carries ({', '.join(found)}) has {size} bytes; {MAX_BYTES} are allowed"
            raise TooBig(f"{words}: carry an id in its place")
        return found or None

    def restore(self, values: Mapping[str, Any]) -> None:
        """Set in this context what a job carries; what is not declared here stays unknown."""
        for name, variable in self._variables.items():
            if name in values:
                variable.set(values[name])


def carried_by(app: object) -> dict[str, Any] | None:
    """Return what jobs carry that an app enqueues here and now."""
    carried = getattr(app, "carried", None)
    return carried.values() if isinstance(carried, Carried) else None


def restore(app: object, run: bytes) -> None:
    """Set what a job carries, if its app knows of it."""
    carried = getattr(app, "carried", None)
    if run and isinstance(carried, Carried):
        carried.restore(Run.decode(run).carry or {})


def with_carried(batch: dict[str, Any], run: Run, carried: dict[str, Any] | None) -> dict[str, Any]:
    """Return what the store is told of a job, with what it carries."""
    return batch if carried is None else {**batch, "run": msgspec.structs.replace(run, carry=carried).encode()}
