"""The task of a shared queue, which workers run for its items."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, Protocol

from holdfast.errors import Invalid
from holdfast.items.outcomes import as_bytes
from holdfast.job.option_kinds import limits_in
from holdfast.job.option_table import not_for
from holdfast.job.options import CheckedOptions, JobOptions
from holdfast.redis_work_queue.shared_queue import SharedQueue
from holdfast.store import Address
from holdfast.task import registration, task
from holdfast.task.registration import add_task, declare_limits
from holdfast.task.signature import Signature
from holdfast.task.task import Task

REFUSED = not_for("schedule")  # the options of a single call: no schedule and no shared queue has one


class ServingApp(registration.App, task.App, Protocol):
    """The app that the task of a shared queue is declared on."""

    @property
    def address(self) -> Address: ...
    @property
    def defaults(self) -> CheckedOptions: ...
    @property
    def shared_queues(self) -> dict[str, SharedQueue]: ...


@dataclass(frozen=True, slots=True, eq=False)
class RawSignature(Signature):
    """The signature of a task whose one argument is stored as it is."""

    def encode(self, args: Any, kwargs: Any) -> bytes:
        """Return the argument of a call.

        Raises:
            Invalid: it is not bytes, or not the only one.
        """
        argument: Any = next(iter(self._bind(args, kwargs).values()))
        return as_bytes(argument, f"the argument of task {self.task}")

    def decode(self, data: bytes) -> tuple[list[Any], dict[str, Any]]:
        """Return the arguments of the function."""
        return [data], {}


def declare(
    app: ServingApp,
    queue: str,
    prefix: bytes,
    function: Callable[..., Any],
    *,
    name: str | None,
    options: JobOptions,
) -> Task[..., Any]:
    """Declare the task of a shared queue.

    Raises:
        Invalid: the queue has another task, or an option does not apply.
        TypeError: the function does not take bytes as its only argument.
    """
    _check_options(options, queue)
    given: JobOptions = {**options, "queue": queue, "keep": None}
    made: Task[..., Any] = task.make_task(function, app, app.defaults.replace(**given), name)
    declared = replace(made, codec="raw", signature=_raw_signature(made.signature))
    known = app.shared_queues.get(queue)
    if known is not None and known.task != declared.name:
        raise Invalid(f"the items of queue {queue} already have a task, {known.task}; each shared queue has one")
    declare_limits(app, limits_in(options.get("limits")))
    add_task(app, declared)
    runner = declared.effective_options.runner or ("async" if declared.is_async else "")
    app.shared_queues[queue] = SharedQueue(queue, prefix, declared.name, runner, declared.batch)
    return declared


def _check_options(options: JobOptions, queue: str) -> None:
    for name in REFUSED:
        if options.get(name) is not None:
            raise Invalid(f"{name} applies to a single job, so the items of a shared queue cannot have it")
    if options.get("queue") not in (None, queue):
        raise Invalid(f"the jobs of these items go to the queue {queue}; remove the option queue")
    if options.get("keep") is not None:
        raise Invalid("keep cannot be set for a shared queue: a job's record must show that its item has ended")


def _raw_signature(signature: Signature) -> RawSignature:
    found = signature.parameters
    if len(found) != 1 or found[0].kind not in (
        inspect.Parameter.POSITIONAL_ONLY,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
    ):
        raise TypeError(f"task {signature.task} must take the bytes of an item as its only argument")
    if found[0].annotation not in (bytes, Any):
        raise TypeError(f"task {signature.task}: annotate its argument {found[0].key!r} with bytes")
    return RawSignature(**{each.name: getattr(signature, each.name) for each in fields(Signature)})
