"""The story of a job: the spans and moments of its timeline, and the same as lines, newest first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from typing import NamedTuple

from markupsafe import Markup

from holdfast.records.table import Record
from holdfast.web.pages.charts import Moment, Span, Track, timeline
from holdfast.web.pages.formats import cut, duration, number, read_time, size
from holdfast.web.pages.job_rows import FINAL, seconds_between

MAX_LINES = 200  # of the list; the newest
MAX_SAMPLES = 1_500  # of memory and CPU
MAX_LABEL = 24  # characters
IDLE = 60.0  # seconds of a wait that has a line of its own

# How an attempt ended, as the state that gives its colour.
OUTCOMES = {
    "running": "running", "succeeded": "succeeded", "advanced": "succeeded", "error": "failed", "crash": "failed",
    "lost": "failed", "cancelled": "cancelled", "released": "waiting", "snoozed": "scheduled", "unknown": "waiting",
}  # fmt: skip
_SPANS = {"released": "running", "snoozed": "running", "unknown": "running", "advanced": "running"}
# What a wait was until an entry of the history ended it; and all entries that divide waits.
_BEFORE = {
    "due": "scheduled", "unblocked": "blocked", "dependency": "blocked", "unthrottled": "throttled",
}  # fmt: skip
_DIVIDING = frozenset({*_BEFORE, *FINAL, "throttled", "retried"})
_GLYPHS = {
    "created": ("dot", "waiting"), "claimed": ("running", "running"), "started": ("running", "running"),
    "lost": ("lost", "failed"), "released": ("released", "waiting"), "error": ("failed", "failed"),
    "crash": ("failed", "failed"), "snoozed": ("scheduled", "scheduled"), "advanced": ("succeeded", "succeeded"),
    "unknown": ("released", "waiting"), "due": ("scheduled", "scheduled"), "queued": ("waiting", "waiting"),
    "unblocked": ("blocked", "blocked"), "dependency": ("blocked", "blocked"), "dependencies": ("blocked", "blocked"),
    "throttled": ("throttled", "throttled"), "unthrottled": ("throttled", "throttled"),
    "retried": ("waiting", "waiting"), "moved": ("released", "waiting"), "priority": ("released", "waiting"),
    "cancelling": ("cancelled", "cancelled"), "reported": ("note", "waiting"), "noted": ("note", "waiting"),
    "forked": ("dot", "waiting"), "succeeded": ("succeeded", "succeeded"), "failed": ("failed", "failed"),
    "cancelled": ("cancelled", "cancelled"),
}  # fmt: skip
_MOMENTS = {"lost": "lease lost", "crash": "crash", "cancelling": "cancel requested", "retried": "retried"}


class Line(NamedTuple):
    """An entry of the list. `idle` is the length of a wait, which is an entry without an event."""

    entry: Record
    shape: str
    state: str
    after: float | None = None  # seconds that the attempt took, if this is its end
    waited: float | None = None  # seconds before the attempt, if this is its beginning
    idle: float | None = None


class Story(NamedTuple):
    """The story of a job."""

    chart: Markup
    lines: list[Line]
    left_out: int  # older lines
    running: float  # seconds in all attempts
    waiting: float
    total: float


def tell(
    job: Record, now: datetime, usages: Sequence[Record] = (), *, collapse: bool = True, whole: bool = False
) -> Story:
    """Return the story of a job as it is known now; with `whole`, all of its lines. `usages` are those of attempts."""
    spans = spans_of(job, now)
    running = sum((span.end - span.start).total_seconds() for span in spans if span.label)
    total = (spans[-1].end - spans[0].start).total_seconds() if spans else 0.0
    lines = [*lines_of(job)]
    shown = lines if whole else lines[-MAX_LINES:]
    is_told = total and (running or len(spans) > 1)  # one wait is told by its line
    chart = timeline(
        _label(job, spans), spans if is_told else [], moments=_moments(job), tracks=_tracks(job, usages, spans),
        collapse=collapse and running > 0, is_open=not _is_over(job),
    )  # fmt: skip
    return Story(chart, shown[::-1], len(lines) - len(shown), running, max(total - running, 0.0), total)


def _is_over(job: Record) -> bool:
    return job["state"] in FINAL


def _label(job: Record, spans: Sequence[Span]) -> str:
    count = sum(bool(span.label) for span in spans)
    attempts = "1 attempt" if count == 1 else f"{number(count)} attempts"
    return f"Timeline of job {job['id']}: {attempts}. The same as a list follows."


# The chart


def spans_of(job: Record, now: datetime) -> list[Span]:
    """Return attempts and waits, without holes, from the beginning to the end, or until now."""
    if not job["created_at"]:
        return []
    spans: list[Span] = []
    free = read_time(job["created_at"])
    end = read_time(job["since"]) if _is_over(job) else max(now, free)
    for attempt in job["attempts"]:
        start = max(read_time(attempt["claimed_at"]), free)
        spans += _waits(job, free, start, attempt)
        free = max(read_time(attempt["ended_at"]) if attempt["ended_at"] else end, start)
        spans.append(_attempt(attempt, start, free))
    if free < end:
        spans += _waits(job, free, end, None)
    return [span for span in spans if span.end > span.start] or spans[:1]


def _attempt(attempt: Record, start: datetime, end: datetime) -> Span:
    outcome = attempt["outcome"]
    note = outcome if outcome != "succeeded" else ""
    return Span(start, end, _SPANS.get(outcome, OUTCOMES.get(outcome, "running")), f"Attempt {attempt['number']}", note)


def _waits(job: Record, start: datetime, end: datetime, attempt: Record | None) -> Iterator[Span]:
    """Yield the parts of a wait before an attempt, or of the last one: entries of the history divide it."""
    entries = [each for each in job["history"] if start <= read_time(each["at"]) <= end and not each["attempt"]]
    entries = [each for each in entries if each["what"] in _DIVIDING]
    marks = [(start, ""), *((read_time(each["at"]), each["what"]) for each in entries), (end, "")]
    *before, last = pairwise(marks)
    for (begin, began_by), (stop, ended_by) in before:
        yield Span(begin, stop, _state_between(began_by, ended_by) or "waiting")
    (begin, began_by), (stop, _) = last
    state = _state_between(began_by, "")
    if attempt is None:
        yield Span(begin, stop, state if _is_over(job) and state else job["state"])
    elif state:
        yield Span(begin, stop, state)
    else:
        queued = min(max(read_time(attempt["queued_at"]), begin), stop)
        yield Span(begin, queued, "scheduled")
        yield Span(queued, stop, "waiting")


def _state_between(began_by: str, ended_by: str) -> str | None:
    """Return what a job was between two entries, if they say it."""
    if began_by in FINAL:
        return began_by
    if ended_by == "retried":
        return "cancelled"  # it had ended
    return _BEFORE.get(ended_by) or ("throttled" if began_by == "throttled" else None)


def _moments(job: Record) -> list[Moment]:
    ends = {each["ended_at"]: each["failure"]["type"] for each in job["attempts"] if each["failure"]}
    found = []
    for entry in job["history"]:
        label = _MOMENTS.get(entry["what"], "")
        if entry["what"] in ("error", "crash"):
            label = cut(ends.get(entry["at"], label).rpartition(".")[2], MAX_LABEL)
        if label:
            found.append(Moment(read_time(entry["at"]), label))
    return found


def _tracks(job: Record, usages: Sequence[Record], spans: Sequence[Span]) -> list[Track]:
    """Return memory and CPU of all attempts that have samples, as one series over the whole time."""
    attempts = {each["number"]: each for each in job["attempts"]}
    known = [(attempts[each["attempt"]], each) for each in usages if each["attempt"] in attempts]
    if not known or not spans:
        return []
    start, end = spans[0].start, spans[-1].end
    finest = min(each["every_seconds"] for _, each in known)
    every = timedelta(seconds=max(finest, (end - start).total_seconds() / MAX_SAMPLES))
    count = int((end - start) / every) + 1
    memory: list[float | None] = [None] * count
    cpu: list[float | None] = [None] * count
    for attempt, usage in known:
        began = read_time(attempt["started_at"] or attempt["claimed_at"])
        first, step = (began - start) / every, usage["every_seconds"] / every.total_seconds()
        for place in range(max(int(first), 0), min(int(first + len(usage["cpu"]) * step) + 1, count)):
            sample = min(max(int((place - first) / step), 0), len(usage["cpu"]) - 1)
            memory[place], cpu[place] = usage["memory_bytes"][sample], usage["cpu"][sample]
    last = known[-1][1]
    return [
        Track("Memory", size(last["memory_bytes"][-1]), start, every, memory),
        Track("CPU", f"{number(last['cpu'][-1])} cores", start, every, cpu),
    ]


# The list


def lines_of(job: Record) -> Iterator[Line]:
    """Yield the entries of the history, oldest first, and long waits between them."""
    attempts = {each["number"]: each for each in job["attempts"]}
    history: list[Record] = job["history"]
    for place, entry in enumerate(history):
        attempt = attempts.get(entry["attempt"])
        following = history[place + 1]["what"] if place + 1 < len(history) else ""
        if entry["what"] == "claimed" and following == "started":
            continue  # one line is enough
        shape, state = _GLYPHS.get(entry["what"], ("dot", "waiting"))
        is_end = attempt is not None and entry["what"] == attempt["outcome"] and entry["at"] == attempt["ended_at"]
        begins = attempt is not None and entry["what"] in ("claimed", "started")
        if begins and attempt is not None:
            yield from _idle(entry, attempt)
        yield Line(
            entry, shape, state,
            after=seconds_between(attempt["claimed_at"], attempt["ended_at"]) if attempt and is_end else None,
            waited=seconds_between(attempt["queued_at"], attempt["claimed_at"]) if attempt and begins else None,
        )  # fmt: skip


def _idle(entry: Record, attempt: Record) -> Iterator[Line]:
    waited = seconds_between(attempt["queued_at"], attempt["claimed_at"])
    if waited is not None and waited >= IDLE:
        yield Line(entry, "waiting", "waiting", idle=waited)


def summary(story: Story) -> str:
    """Return how long a job ran and waited: 36 h 39 min: 25 h 07 min running, 11 h 32 min waiting."""
    if not (story.running and story.waiting):
        return duration(story.total) if story.total else ""
    return f"{duration(story.total)}: {duration(story.running)} running, {duration(story.waiting)} waiting"
