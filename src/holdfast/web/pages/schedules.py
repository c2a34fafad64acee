"""The pages of schedules: when each fires next, how its last runs went, and forms that add and change them."""

from __future__ import annotations

from typing import Any, get_args

import msgspec

from holdfast.client.timing import Missed, Overlap
from holdfast.records.table import Record
from holdfast.web.call import Call
from holdfast.web.pages.page import Page, Pages
from holdfast.web.pages.plain_words import when_in_words
from holdfast.web.resources.schedules import SchedulesQuery, list_schedules, show_schedule

pages = Pages()

PAGE = 50  # schedules
RUNS = 12

# What the policies do, in words.
MISSED = {
    "one": "run once for all missed times",
    "all": "run once for each missed time",
    "skip": "skip times that are too late",
}
OVERLAP = {"allow": "start anyway", "skip": "skip if running"}


class SchedulesPageQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which schedules."""

    after: str | None = None  # the last schedule of the page before


@pages.get("/schedules")
async def schedules_page(call: Call, query: SchedulesPageQuery) -> Page:
    """Schedules with their next time and their last runs."""
    found = await list_schedules(call, query=SchedulesQuery(history=RUNS, limit=PAGE, cursor=query.after))
    return Page(
        "schedules.html", title="Schedules", section="Schedules", schedules=found.items, next=found.next, query=query,
        live_events="type=fired,paused,resumed,configured", **_WORDS,
    )  # fmt: skip


@pages.get("/schedules/{schedule}")
async def schedule_page(call: Call, schedule: str) -> Page:
    """A schedule: its next ten times, its last runs, what it enqueues."""
    found = await show_schedule(call, schedule=schedule)
    now = form_values(found)
    return Page(
        "schedule.html", title=f"Schedule {schedule}", section="Schedules", schedule=found,
        values_now=now, values_given={name: value for name, value in now.items() if value},
        live_events="type=fired,paused,resumed,configured", **_WORDS,
    )  # fmt: skip


_WORDS: dict[str, Any] = {
    "when_in_words": when_in_words, "MISSED": MISSED, "OVERLAP": OVERLAP, "MISSED_CHOICES": get_args(Missed),
    "OVERLAP_CHOICES": get_args(Overlap),
}  # fmt: skip


def form_values(schedule: Record) -> dict[str, Any]:
    """Return what the form of a schedule begins with: all that a form of the API must send to change nothing else."""
    found = {
        "cron": schedule["cron"],
        "tz": schedule["tz"] if schedule["cron"] else None,
        "every": _seconds(schedule["every_seconds"]),
        "offset": _seconds(schedule["offset_seconds"]),
        "missed": schedule["missed"],
        "backlog": schedule["backlog"],
        "late": _seconds(schedule["late_seconds"]),
        "overlap": schedule["overlap"],
        "jitter": _seconds(schedule["jitter_seconds"]),
    }
    return {name: value or "" for name, value in found.items()}


def _seconds(value: float | None) -> str | None:
    return f"{value:.3f}".rstrip("0").rstrip(".") + "s" if value else None
