"""Context variables that jobs carry: from the program that enqueues to the task, and on to the jobs that it enqueues.

    request_id: ContextVar[str] = ContextVar("request_id")
    jobs.carry("request_id", request_id)

When a job is enqueued, the values of these variables are stored with it, in its `RunOptions`. They are set again before
its middleware and its task run. They are short JSON values: an id, a tenant, a language.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar, copy_context
from typing import Any

import msgspec

from holdfast.codec import TypeCodec
from holdfast.errors import Invalid, TooBig
from holdfast.job.options import RunOptions
from holdfast.names import check_name

MAX_BYTES = 512  # all carried values of a job: a sixth of MAX_RUN_OPTIONS
MAX_VARIABLES = 16

_json = TypeCodec.of(Any)


class CarriedContext:
    """The variables that an app's jobs carry, by name."""

    def __init__(self) -> None:
        self._variables: dict[str, ContextVar[Any]] = {}

    def add(self, name: str, variable: ContextVar[Any]) -> None:
        """Declare a variable.

        Raises:
            Invalid: the name is invalid or in use, or there are too many variables.
        """
        if not isinstance(variable, ContextVar):
            raise Invalid(f"expected a ContextVar to carry as {name}, got {variable!r}")
        if self._variables.get(check_name(name, "the name of a carried variable"), variable) is not variable:
            raise Invalid(f"another variable is already carried as {name}; choose another name")
        self._variables[name] = variable
        if len(self._variables) > MAX_VARIABLES:
            raise Invalid(
                f"{len(self._variables)} variables are carried (limit {MAX_VARIABLES}); carry one dict instead"
            )

    def values(self) -> dict[str, Any] | None:
        """Return the values that are set in this context; None if there are none.

        Raises:
            Invalid: a value cannot be stored as JSON.
            TooBig: the values together are too long.
        """
        if not self._variables:
            return None
        context = copy_context()
        found = {name: context[variable] for name, variable in self._variables.items() if variable in context}
        size = sum(len(name) + len(_json.encode(value, f"carried variable {name}")) for name, value in found.items())
        if size > MAX_BYTES:
            raise TooBig(
                f"carried context ({', '.join(found)}) is {size} bytes (limit {MAX_BYTES}); carry an id instead"
            )
        return found or None

    def restore(self, values: Mapping[str, Any]) -> None:
        """Set the values of a job in this context; values of undeclared variables are ignored."""
        for name, variable in self._variables.items():
            if name in values:
                variable.set(values[name])


def carried_values(app: object) -> dict[str, Any] | None:
    """Return the values that a job would carry if it were enqueued now."""
    carried = getattr(app, "carried", None)
    return carried.values() if isinstance(carried, CarriedContext) else None


def restore(app: object, run: bytes) -> None:
    """Set the carried values of a job, if its app has declared them."""
    carried = getattr(app, "carried", None)
    if run and isinstance(carried, CarriedContext):
        carried.restore(RunOptions.decode(run).carry or {})


def with_carried(batch: dict[str, Any], run: RunOptions, carried: dict[str, Any] | None) -> dict[str, Any]:
    """Return the arguments of the store's `enqueue`, with the carried values."""
    return batch if carried is None else {**batch, "run": msgspec.structs.replace(run, carry=carried).encode()}
