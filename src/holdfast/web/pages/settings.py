"""The page of settings: those of all queues, or of one, with their bounds and what they control."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.records.config import written
from holdfast.records.table import Record
from holdfast.web.call import Call
from holdfast.web.pages.formats import duration, number
from holdfast.web.pages.page import Page, Pages
from holdfast.web.resources.config import list_queue_settings, list_settings
from holdfast.web.resources.queues import list_queues

pages = Pages()

# Settings by what they are about; others come last.
GROUPS: dict[str, tuple[str, ...]] = {
    "Attempts and retries": ("lease", "grace", "timeout", "retries", "backoff", "crashes", "lost"),
    "How much runs at once": ("concurrency",),
    "How long records are kept": (
        "keep_succeeded", "keep_succeeded_count", "keep_failed", "keep_failed_count", "keep_cancelled",
        "keep_cancelled_count", "history",
    ),
    "Statistics, events and workers": ("stats_age", "histogram_age", "events", "worker_age", "check_rate"),
}  # fmt: skip
OTHERS = "Others"


NO_LIMIT = "0: no limit"  # in the explanation of a setting of which 0 is no number


class SettingsPageQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Of which queue."""

    queue: str | None = None


@pages.get("/settings")
async def settings_page(call: Call, query: SettingsPageQuery) -> Page:
    """The settings of all queues, or of one."""
    found = await (list_queue_settings(call, queue=query.queue) if query.queue else list_settings(call))
    queues = [each["queue"] for each in (await list_queues(call)).items]
    shown = [in_words(each) for each in found.items if query.queue is None or each["per_queue"]]
    own = "queue" if query.queue else "global"
    return Page(
        "settings.html", title="Settings", section="Settings", groups=_groups(shown), queues=queues, queue=query.queue,
        own=own, changed=sum(each["source"] == own for each in shown),
        path=call.url("/settings"), live_events="type=configured", live_every=30,
    )  # fmt: skip


def in_words(setting: Record) -> Record:
    """Return a setting with its numbers as people read them, and as they write them."""
    is_duration = setting["unit"] == "s"

    def spell(name: str) -> str:
        value = setting[name]
        if not value and name in ("value", "default") and NO_LIMIT in setting["explanation"]:
            return "no limit"
        return duration(value) if is_duration else number(int(value))

    shown = {f"{name}_text": spell(name) for name in ("value", "default", "min", "max")}
    return {**setting, **shown, "written": written(setting, "value"), "is_duration": is_duration}


def _groups(settings: list[Record]) -> list[tuple[str, list[Record]]]:
    known = {name: group for group, names in GROUPS.items() for name in names}
    found: dict[str, list[Any]] = {group: [] for group in (*GROUPS, OTHERS)}
    for each in settings:
        found[known.get(each["name"], OTHERS)].append(each)
    return [(group, rows) for group, rows in found.items() if rows]
