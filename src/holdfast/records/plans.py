"""Plans: when the backlogs of queues will be gone, now and with another number of workers."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any

from holdfast.records.formatting import short_duration
from holdfast.records.table import Field, Output, Record, Table, column, field, list_of, optional

if TYPE_CHECKING:
    from holdfast.planning.plans import Plan

_FORECAST_HELP = (
    "workers, after, earliest, latest (seconds; null: not within 30 days), rate (attempts per second), held_up_by"
    " (slots, limit, concurrency, paused, no_worker, task, retries, running, arrivals, unknown, complexity, or"
    " empty), name (of that limit or task), reason"
)
BLOCKED = ("paused", "no_worker", "task", "arrivals")  # the backlog never goes

FORECASTS = Table(
    "forecast",
    field("workers", int, "number of workers that serve the queue"),
    field(
        "after", float | None,
        "seconds until the backlog is gone, the middle of many simulations; null: not within 30 days",
    ),
    field("earliest", float | None, "in nine of ten simulations it takes at least this"),
    field("latest", float | None, "in nine of ten simulations it takes at most this"),
    field("rate", float | None, "attempts per second that end until then"),
    field(
        "held_up_by", str,
        "what determines that time: slots, limit, paused, no_worker, task, retries, running, arrivals, unknown, "
        "complexity, or empty",
    ),
    field("name", str, "name of that limit or task"),
    field("reason", str, "the same in words"),
)  # fmt: skip


def _number(name: str, help: str, suffix: str = "") -> Field:
    def show(record: Record, output: Output) -> str:
        value = record[name]
        return "" if value is None else f"{value:.3g}{suffix}" if output.on_terminal else f"{value:.3f}"

    return column(name, float, help, show=show, right=True)


def _run_time(record: Record, output: Output) -> str:
    value = record["run_time"]
    return "" if value is None else short_duration(value) if output.on_terminal else f"{value:.3f}"


def _forecast(name: str, type: Any, help: str) -> Field:
    def read(queue: Any) -> Record | None:
        found = getattr(queue, name)
        return None if found is None else FORECASTS.record(found)

    def show(record: Record, output: Output) -> str:
        found = record[name]
        if found is None:
            return ""
        if not output.on_terminal:
            return "" if found["after"] is None else f"{found['after']:.3f}"
        workers = f"{found['workers']:,} worker{'s' * (found['workers'] != 1)}"
        return f"{workers}: {_when(found)}{', ' * bool(found['reason'])}{found['reason']}"

    return column(name, type, f"{help}: {_FORECAST_HELP}", read, show=show, wraps=True)


def _when(found: Record) -> str:
    """Return when a backlog will be gone: 50m00s (46m00s to 54m20s)."""
    if found["held_up_by"] in ("unknown", "complexity"):
        return "unknown"
    if found["after"] is None:
        return "never" if found["held_up_by"] in BLOCKED else "not in 30 days"
    if not found["held_up_by"]:
        return "no backlog"
    latest = "more than 30d" if found["latest"] is None else span(found["latest"])
    return f"{span(found['after'])} ({span(found['earliest'])} to {latest})"


def span(seconds: float) -> str:
    """Return a time to come in its two largest units: 0.8s, 12s, 4m05s, 2h10m, 3d4h."""
    if seconds < 10:
        return f"{seconds:.1f}s"
    whole = round(seconds)
    for large, small, size, part in (("d", "h", 86_400, 3600), ("h", "m", 3600, 60), ("m", "s", 60, 1)):
        if whole >= size:
            return f"{whole // size}{large}{whole % size // part:0{1 if size > 3600 else 2}}{small}"
    return f"{whole}s"


QUEUE_PLANS = Table(
    "queue",
    column("queue", str, "name of the queue", whole=True),
    column("backlog", int, "number of jobs that wait for a slot, a limit or a retry", right=True, whole=True),
    field("running", int, "number of running jobs"),
    field("delayed", int, "number of jobs that were enqueued for later"),
    _number("arriving", "jobs that arrive per second, without retries", "/s"),
    _number("ending", "attempts that ended per second, in the last minutes", "/s"),
    column("run_time", float | None, "seconds that a job of the backlog runs on average", show=_run_time, right=True),
    field("runs", int, "number of completed attempts that the run times are known from"),
    _forecast("now", FORECASTS, "with the workers of today"),
    _forecast("then", optional(FORECASTS), "with the given number of workers; null: none is given"),
    field("notes", list[str], "what makes the forecast uncertain"),
    name="QueuePlan",
)
PLAN = Table(
    "plan",
    field("workers", int, "number of live workers that serve one of the queues", attrgetter("workers")),
    field("workers_then", int | None, "their number, if it is changed as given; null: none is given"),
    field("queues", list_of(QUEUE_PLANS), f"an array; of each queue: {', '.join(QUEUE_PLANS.help)}"),
    field("left_out", int, "number of queues with work that are not a part of the plan, because there are too many"),
)


def plan_record(found: Plan) -> Record:
    return PLAN.record(found, queues=QUEUE_PLANS.records(found.queues))
