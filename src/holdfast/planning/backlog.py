"""What the backlog of a queue consists of: kinds of jobs, estimated from a sample of bounded size."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from holdfast.client.queries import App
from holdfast.client.queues import Load
from holdfast.job.options import RunOptions
from holdfast.planning.model import Kind, RunTimes
from holdfast.planning.rates import QueueRates, TaskRates, read_rates
from holdfast.store import Steps, commands
from holdfast.store.commands import Fields, SampleReply

SAMPLE_SIZE, SAMPLE_PAGE = 1000, 200
MAX_KINDS = 40  # of a queue
SOON = 3600.0  # seconds; jobs that are delayed until then are a part of the usual arrivals
NO_RATES = TaskRates(None, 0.0, 0.0)

Key = tuple[str, int, tuple[str, ...]]  # task, priority, limits


class Backlog(NamedTuple):
    """The kinds of jobs of a queue, one job for each list of limits that has parked jobs, and the store's time.

    `is_readable` is false if it has jobs in a state of which none can be read, such as those of a newer release.
    """

    kinds: list[Kind]
    is_readable: bool
    parked: dict[tuple[str, ...], str]
    now: int  # in milliseconds


class _Row(NamedTuple):
    """A job of a sample: it stands for `number` jobs, which are due in so many seconds."""

    fields: Fields
    number: float
    due: float
    is_sampled: bool

    @property
    def key(self) -> Key:
        return self.fields["task"], self.fields["priority"], tuple(self.fields["limits"].split())


@dataclass
class _Sum:
    """The jobs of one kind."""

    key: Key
    waiting: float = 0.0
    sampled: int = 0
    retrying: list[tuple[float, float]] = field(default_factory=list)
    delayed: list[tuple[float, float]] = field(default_factory=list)
    retries: int = 0
    waits: tuple[float, ...] = (0.0,)


def read_backlog(self: App, load: Load, running_tasks: Iterable[str]) -> Steps[Backlog]:
    """Read a sample of the jobs of a queue, and the rates of their tasks."""
    rows: list[_Row] = []
    now, is_readable = 0, True
    for state in ("waiting", "throttled", "scheduled"):
        now, total, found = yield from _read_sample(load.queue, state)
        rows += found
        is_readable = is_readable and bool(found or not total)
    sums: dict[Key, _Sum] = {}
    for row in rows:
        _add(sums.setdefault(row.key, _Sum(row.key)), row)
    sums = _merge_rare(sums)
    tasks = dict.fromkeys([*(sum.key[0] for sum in sums.values()), *running_tasks])
    rates = yield from read_rates(self, load.queue, list(tasks))
    for task in (*tasks, *rates.tasks):
        if not any(key[0] == task for key in sums):
            sums[task, 0, ()] = _Sum((task, 0, ()))
    parked = {row.key[2]: row.fields["id"] for row in rows if row.fields["state"] == "throttled"}
    return Backlog(_kinds(load, sums, rates), is_readable, parked, now)


def _read_sample(queue: str, state: str) -> Steps[tuple[int, int, list[_Row]]]:
    """Return the time, the number of jobs in a state, and all of them if they are few, or else some at random."""
    found: list[Fields] = []
    for skip in range(0, SAMPLE_SIZE, SAMPLE_PAGE):
        reply: SampleReply = yield commands.sample(queue, state, limit=SAMPLE_PAGE, size=SAMPLE_SIZE, skip=skip)
        found += reply.jobs
        if reply.total <= skip + SAMPLE_PAGE:
            break
    is_sampled = reply.total > SAMPLE_SIZE
    due = [max(0.0, (job["timer"] - reply.now) / 1000) if state == "scheduled" else 0.0 for job in found]
    rows = [_Row(job, reply.total / len(found), at, is_sampled) for job, at in zip(found, due, strict=True)]
    return reply.now, reply.total, rows


def _add(sum: _Sum, row: _Row) -> None:
    if row.fields["state"] != "scheduled":
        sum.waiting += row.number
        sum.sampled += row.is_sampled
    else:
        later = sum.retrying if row.fields["attempt"] else sum.delayed
        later.append((row.due, row.number))
    sum.retries, sum.waits = row.fields["retries"], _waits(row.fields)


def _waits(fields: Fields) -> tuple[float, ...]:
    """Return the waits before the first retry, the second ...: see `backoff.lua`."""
    policy = RunOptions.decode(fields["run"].encode()).retry_policy
    waits = policy.waits if policy and policy.waits else [fields["backoff"] * 2**used for used in range(20)]
    cap = policy.cap if policy and policy.cap is not None else max(waits)
    spread = 1 + (policy.jitter if policy else 0.0) / 2
    return tuple(min(wait, cap) * spread / 1000 for wait in waits)


def _merge_rare(sums: dict[Key, _Sum]) -> dict[Key, _Sum]:
    """Merge rare kinds of a task, without their limits: a limit with thousands of keys holds up few jobs of each."""
    ranked = sorted(sums.values(), key=lambda sum: sum.waiting, reverse=True)
    merged = {sum.key: sum for sum in ranked[:MAX_KINDS]}
    for sum in ranked[MAX_KINDS:]:
        key = (sum.key[0], 0, ())
        into = merged.setdefault(key, _Sum(key, retries=sum.retries, waits=sum.waits))
        into.waiting += sum.waiting
        into.sampled += sum.sampled
        into.retrying += sum.retrying
        into.delayed += sum.delayed
    return merged


def _kinds(load: Load, sums: dict[Key, _Sum], rates: QueueRates) -> list[Kind]:
    soon = sum(number for each in sums.values() for due, number in each.delayed if due <= SOON)
    arriving = max(0.0, rates.arriving - soon / SOON)
    shares = _shares(list(sums.values()), rates)
    return [
        Kind(
            queue=load.queue, task=each.key[0], priority=each.key[1], limits=each.key[2],
            run=_run_times(load, rates, each.key[0]), waiting=each.waiting, sampled=each.sampled,
            retrying=tuple(each.retrying), delayed=tuple(each.delayed), arriving=arriving * share,
            retried=rates.tasks.get(each.key[0], NO_RATES).retried, retries=each.retries, waits=each.waits,
        )
        for each, share in zip(sums.values(), shares, strict=True)
    ]  # fmt: skip


def _run_times(load: Load, rates: QueueRates, task: str) -> RunTimes | None:
    """Return the run times of a task; if it never completed, those of all attempts of the queue in the last minutes."""
    known = rates.tasks.get(task, NO_RATES).run
    if known is None and load.run_time is not None:
        return RunTimes(0, load.run_time, load.run_time)
    return known


def _shares(sums: Sequence[_Sum], rates: QueueRates) -> list[float]:
    """Divide the arrivals: by task as the statistics say, and among the kinds of a task as in the backlog."""
    of_task: dict[str, float] = {}
    for each in sums:
        of_task[each.key[0]] = of_task.get(each.key[0], 0.0) + each.waiting + 1e-9
    parts = [
        rates.tasks.get(each.key[0], NO_RATES).share * (each.waiting + 1e-9) / of_task[each.key[0]] for each in sums
    ]
    whole = sum(parts)
    return [part / whole if whole else 1 / len(parts) for part in parts]
