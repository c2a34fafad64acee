"""Subscriptions: handlers of events, declared by apps; list, pause, resume and remove them.

The supervisor of a worker delivers the events (`worker/supervisor/subscriptions.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from typing import Any, Literal, ParamSpec, Protocol, TypeVar, Unpack, overload

import msgspec

from holdfast.client.events import HandlerConditions
from holdfast.errors import Invalid, SubscriptionNotFound
from holdfast.events.event import Event
from holdfast.events.filter import EventFilter
from holdfast.events.handlers import HandlerSpec
from holdfast.job.option_table import not_for
from holdfast.names import check_subscription
from holdfast.store import Steps, Stores, commands
from holdfast.store.commands.command import read_number, read_template
from holdfast.task.task import AsyncTask, BoundCall, Task
from holdfast.units import utc

P = ParamSpec("P")
R = TypeVar("R")
Start = Literal["now", "start"]
_EXAMPLE = Event("0-1", datetime(2020, 1, 1, tzinfo=UTC), "failed", ("id",))


class DeclareHandler(Protocol):
    """Declares a handler: `jobs.on(...)` returns it."""

    @overload
    def __call__(self, handler: AsyncTask[P, R], /) -> AsyncTask[P, R]: ...
    @overload
    def __call__(self, handler: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...
    @overload
    def __call__(self, handler: Task[P, R], /) -> Task[P, R]: ...
    @overload
    def __call__(self, handler: Callable[P, R], /) -> Task[P, R]: ...


class App(Protocol):
    """The app that handlers are declared on."""

    @property
    def declared_subscriptions(self) -> dict[str, dict[str, Any]]: ...
    @property
    def revision(self) -> int: ...
    def task(self, function: Callable[..., Any], /) -> Task[..., Any]: ...


class Subscription(msgspec.Struct, frozen=True):
    """A snapshot of a subscription."""

    name: str
    filter: EventFilter | None  # None if another release declared it in a way unknown here
    task: str
    queue: str  # of the handler's jobs
    paused: bool
    position: str  # of the last event that was looked at; to read on, pass it as `after`
    lag: float  # seconds from that event to the latest one; workers store positions every few seconds
    delivered: int  # number of jobs of the handler
    last_job: str  # id of the last one
    last_at: datetime | None  # when it was enqueued
    worker: str  # that delivers its events; "" if none does


def on(
    self: App, *types: str, name: str | None = None, start: Start = "now", **conditions: Unpack[HandlerConditions]
) -> DeclareHandler:
    """Declare a task, or a function that becomes one, as the handler of events: each event is a job of the task.

    @jobs.on("failed", queue="mail")
    @jobs.task(queue="alerts", retries=5)
    def alert(event: Event) -> None: ...

    The conditions are those of `subscribe`. Workers of the app declare the subscription when they start, under `name`
    (default: the name of the task), and deliver all events since, also those of times without a worker. With
    `start="start"`, a new subscription begins with the oldest event that is kept. Events of handlers' own jobs call no
    handler.
    """
    selects = EventFilter.of(types, **conditions)

    def declare(handler: Any, /) -> Any:
        task: Task[..., Any] = handler if isinstance(handler, Task) else self.task(handler)
        declared = declaration(task, selects, name=name, start=start, revision=self.revision)
        known = self.declared_subscriptions.setdefault(declared["name"], declared)
        if known["batch"]["task"] != task.name or known["spec"] != declared["spec"]:
            raise Invalid(f"another subscription is already named {declared['name']}; pass another name=")
        return task

    return declare


def declaration(
    task: Task[..., Any], selects: EventFilter, *, name: str | None, start: Start, revision: int
) -> dict[str, Any]:
    """Return the arguments of `commands.declare_subscription`."""
    if not selects.types:
        raise Invalid("name at least one type of event, as jobs.on('failed')")
    if start not in ("now", "start"):
        raise Invalid(f"start is {start!r}; it must be 'now' or 'start'")
    call = _bind(task)
    for option in not_for("schedule"):
        if getattr(call.effective_options, option) is not None:
            raise Invalid(f"the task of a handler cannot have the option {option}: each event is a job of its own")
    (parameter,) = msgspec.json.decode(call.payload)
    return {
        "name": check_subscription(name or task.name),
        "spec": HandlerSpec(selects, parameter).encode(),
        "batch": call.variant.batch,
        "revision": revision,
        "start": start,
    }


def _bind(task: Task[..., Any]) -> BoundCall[Any]:
    try:
        call = task.bind(_EXAMPLE)
    except (Invalid, TypeError) as error:
        raise Invalid(f"task {task.name} cannot handle events: it must take one argument, an Event: {error}") from None
    if any(key.startswith("*") for key in msgspec.json.decode(call.payload)):
        raise Invalid(f"task {task.name} cannot handle events: name its parameter, as def {task.name}(event: Event)")
    return call


def subscriptions(_: Stores) -> Steps[list[Subscription]]:
    """Return all subscriptions, sorted by name."""
    found: list[Subscription] = []
    while part := (yield commands.subscriptions(after=found[-1].name if found else None)):
        found += [_read(fields) for fields in part]
    return found


def get_subscription(_: Stores, name: str) -> Steps[Subscription]:
    """Return a subscription.

    Raises:
        SubscriptionNotFound: no subscription has this name.
    """
    found = yield commands.subscriptions([name])
    if not found:
        raise SubscriptionNotFound(f"subscription {name} does not exist")
    return _read(found[0])


def pause_subscription(_: Stores, name: str) -> Steps[bool]:
    """Deliver no more events until `resume_subscription`. Return whether it changed anything."""
    changed: bool = yield commands.pause_subscription(name)
    return changed


def resume_subscription(_: Stores, name: str) -> Steps[bool]:
    """Deliver the events since the subscription was paused, as far as they are kept, and all that follow.

    Return whether it changed anything.
    """
    changed: bool = yield commands.resume_subscription(name)
    return changed


def unsubscribe(_: Stores, name: str) -> Steps[bool]:
    """Remove a subscription; its jobs stay. Return whether it existed.

    One that an app declares is added again when a worker of the app starts, and then begins anew: pause it instead.
    """
    gone: bool = yield commands.unsubscribe(name)
    return gone


def _read(fields: dict[str, Any]) -> Subscription:
    """Read a subscription. What is damaged is left out, so that it can be listed and removed."""
    template, position = read_template(fields.get("batch")), fields.get("position", "")
    return Subscription(
        name=fields["name"],
        filter=_read_filter(fields.get("spec", "")),
        task=template.task,
        queue=template.queue,
        paused=fields.get("paused") == "1",
        position=position,
        lag=_lag(position, fields["last_event"]),
        delivered=read_number(fields.get("delivered")),
        last_job=fields.get("job", ""),
        last_at=utc(read_number(fields["at"])) if "at" in fields else None,
        worker=fields.get("holder", "") if read_number(fields.get("ends")) > int(fields["now"]) else "",
    )


def _lag(position: str, last: str) -> float:
    """Return the seconds between two positions; 0 for one that does not name an event."""
    if position == "0-0":
        return 0.0
    at, now = (read_number(text.partition("-")[0]) for text in (position, last))
    return max(0, now - at) / 1000 if at else 0.0


def _read_filter(spec: str) -> EventFilter | None:
    try:
        return HandlerSpec.decode(spec).filter
    except msgspec.MsgspecError:
        return None
