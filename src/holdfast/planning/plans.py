"""Plans: for each queue its backlog, when it will be gone, and when with another number of workers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

import msgspec

from holdfast.client.queries import App
from holdfast.errors import Invalid
from holdfast.names import check_queue
from holdfast.planning import forecasts
from holdfast.planning.fleet import Change, Fleet, changed
from holdfast.planning.forecasts import Forecast
from holdfast.planning.inputs import MAX_QUEUES, Inputs, read_inputs
from holdfast.planning.model import Kind
from holdfast.planning.rates import ENOUGH_RUNS
from holdfast.store import Steps, in_thread

MAX_RATE = 1_000_000.0
UNREADABLE = "jobs of the backlog cannot be read, as they are damaged or of a newer release: see `holdfast fsck`"


class QueuePlan(msgspec.Struct, frozen=True):
    """What is known about a queue, and its forecasts: `now` with the workers of today, `then` with another number.

    `backlog` are jobs that wait for a slot, for a limit or for a retry; `delayed` ones were enqueued for later, and are
    not a part of it.
    """

    queue: str
    backlog: int
    running: int
    delayed: int
    arriving: float  # jobs per second, as in the last hour; retries do not count
    ending: float  # attempts per second that ended in the last minutes
    run_time: float | None  # the mean of the backlog, in seconds; None: unknown
    runs: int  # how many completed attempts all of this is based on
    now: Forecast
    then: Forecast | None
    notes: list[str]


class Plan(msgspec.Struct, frozen=True):
    """When the backlog of each queue will be gone. `workers` are those that serve one of the queues, now and then."""

    workers: int
    workers_then: int | None
    queues: list[QueuePlan]
    left_out: int = 0  # queues with work that share workers with these, but were not simulated


def plan(
    self: App,
    *queues: str,
    workers: int | str | None = None,
    processes: int | None = None,
    concurrency: int | None = None,
    arriving: float | None = None,
) -> Steps[Plan]:
    """Read the store, and simulate; see `Holdfast.plan`."""
    selected = list(dict.fromkeys(check_queue(queue) for queue in queues))
    if len(selected) > MAX_QUEUES:
        raise Invalid(
            f"{len(selected)} queues are too many for one plan (limit {MAX_QUEUES}); plan some of them, or all"
        )
    if workers is None and (processes is not None or concurrency is not None):
        raise Invalid('processes and concurrency are those of added workers: say how many, as in workers="+1"')
    change = None if workers is None else Change.read(workers, processes, concurrency)
    check_rate(arriving)
    inputs: Inputs = yield from read_inputs(self, selected)
    if arriving is not None:
        inputs = with_arrivals(inputs, arriving)
    compute = partial(make_plan, inputs, change)
    found: Plan = yield in_thread(compute)
    return found


def check_rate(arriving: object) -> None:
    if arriving is None:
        return
    if isinstance(arriving, bool) or not isinstance(arriving, int | float) or not 0 <= arriving <= MAX_RATE:
        raise Invalid(f"arriving is {arriving!r}; it must be a number of jobs per second, from 0 to {MAX_RATE:,.0f}")


def with_arrivals(inputs: Inputs, arriving: float) -> Inputs:
    """Let this number of jobs per second arrive in each of the selected queues."""
    rates = {queue: sum(kind.arriving for kind in inputs.kinds_of(queue)) for queue in inputs.queues}
    backlogs = {queue: sum(kind.waiting for kind in inputs.kinds_of(queue)) for queue in inputs.queues}

    def rate(kind: Kind) -> float:
        if rates[kind.queue]:
            return arriving * kind.arriving / rates[kind.queue]
        if backlogs[kind.queue]:
            return arriving * kind.waiting / backlogs[kind.queue]
        return arriving / len(inputs.kinds_of(kind.queue))

    kinds = [replace(kind, arriving=rate(kind)) if kind.queue in rates else kind for kind in inputs.kinds]
    return replace(inputs, kinds=tuple(kinds))


def make_plan(inputs: Inputs, change: Change | None) -> Plan:
    """Simulate what was read, with the workers of today and with others."""
    after = None if change is None else changed(inputs.fleet, change, inputs.queues)
    now, then = _forecasts(inputs, inputs.fleet), None if after is None else _forecasts(inputs, after)
    rows = [_row(inputs, queue, now[queue], None if then is None else then[queue]) for queue in inputs.queues]
    return Plan(
        _count(inputs.fleet, inputs.queues),
        None if after is None else _count(after, inputs.queues),
        rows,
        inputs.left_out,
    )


def _forecasts(inputs: Inputs, fleet: Fleet) -> dict[str, Forecast]:
    runs = forecasts.simulate(inputs.snapshot(fleet))
    found = {}
    for queue in inputs.queues:
        is_unknown = queue in inputs.unreadable or any(kind.run is None for kind in inputs.kinds_with_work(queue))
        workers, kinds = _count(fleet, [queue]), inputs.kinds_of(queue)
        found[queue] = forecasts.forecast(runs.get(queue, []), kinds, workers, is_unknown=is_unknown)
    return found


def _count(fleet: Fleet, queues: Sequence[str]) -> int:
    return sum(number for shape, number in fleet.items() if shape.serves(queues))


def _row(inputs: Inputs, queue: str, now: Forecast, then: Forecast | None) -> QueuePlan:
    kinds, load = inputs.kinds_of(queue), inputs.loads[queue]
    retrying = round(sum(number for kind in kinds for _, number in kind.retrying))
    runs = {kind.task: kind.run for kind in kinds if kind.run and (kind.waiting or kind.retrying)}
    jobs = sum(kind.waiting for kind in kinds if kind.run)
    work = sum(kind.waiting * kind.run.mean for kind in kinds if kind.run)
    return QueuePlan(
        queue=queue,
        backlog=load.waiting + load.throttled + retrying,
        running=load.running,
        delayed=max(0, load.scheduled - retrying),
        arriving=sum(kind.arriving for kind in kinds),
        ending=load.ending,
        run_time=work / jobs if jobs else None,
        runs=sum(run.count for run in runs.values()),
        now=now,
        then=then,
        notes=[*_notes(inputs.kinds_with_work(queue)), *([UNREADABLE] if queue in inputs.unreadable else [])],
    )


def _notes(kinds: Sequence[Kind]) -> Iterator[str]:
    """Say what makes a forecast worse than others."""
    known = {kind.task: kind for kind in kinds}
    for task, kind in sorted(known.items()):
        if kind.run is None:
            yield f"no attempt of {task} has completed yet, so nothing is known about its run times"
        elif not kind.run.count:
            yield f"no attempt of {task} has completed yet; its run times are assumed to be those of its queue"
        elif kind.run.count < ENOUGH_RUNS:
            yield f"only {kind.run.count} completed attempts of {task} are known"
        if not kind.is_known:
            yield f"no worker that serves the queue has the task {task}"
