"""Times of schedules in words: every 15 minutes, at 12:00 on Monday through Friday."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from holdfast.records.table import Record
from holdfast.web.pages.formats import number

_STEP = re.compile(r"\*/([1-9]\d*)", re.ASCII)
_UNITS = ((86_400, "day"), (3_600, "hour"), (60, "minute"), (1, "second"))


def when_in_words(schedule: Record) -> str:
    """Return when a schedule fires, without its time zone."""
    if schedule["cron"]:
        return cron_in_words(schedule["cron"])
    if schedule["every_seconds"] is None:
        return "At times that this release does not know"
    offset = f", {_spell(schedule['offset_seconds'])} later" if schedule["offset_seconds"] else ""
    return f"Every {_interval(schedule['every_seconds'])}{offset}"


def cron_in_words(expression: str) -> str:
    """Return a cron expression in words; as it is, if it is not valid."""
    fields = expression.split()
    if len(fields) in (5, 6) and all(each == "*" for each in fields[1:]) and (step := _STEP.fullmatch(fields[0])):
        unit, size = ("minute", 60) if len(fields) == 5 else ("second", 60)
        if size % int(step[1]) == 0:
            return f"Every {unit}" if step[1] == "1" else f"Every {step[1]} {unit}s"
    from cronsim import CronSim, CronSimError

    try:
        return str(CronSim(expression, datetime.now(UTC)).explain())
    except CronSimError:
        return expression


def _interval(seconds: float) -> str:
    """Return an interval in its largest unit that leaves no rest: 15 minutes, day."""
    for size, unit in _UNITS:
        if seconds >= size and seconds % size == 0:
            count = int(seconds // size)
            return unit if count == 1 else f"{count:,} {unit}s"
    return f"{number(seconds)} seconds"


def _spell(seconds: float) -> str:
    found = _interval(seconds)
    return found if found[0].isdigit() else f"1 {found}"
