"""Why a job is not running: a code for programs, a sentence for people, and the facts behind both."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from holdfast.job import reasons
from holdfast.units import utc

UNREADABLE_REASONS = {
    "NEWER": "a newer release wrote its record: upgrade this one",
    "DAMAGED": "its record is damaged; no other job is affected",
    "NOTFOUND": "an index lists it, but its record is gone; workers remove such entries",
}
_UNREADABLE = {**UNREADABLE_REASONS, "DAMAGED": "its record is damaged, or a key that it needs"}
TIMES = ("due", "next", "lease_ends", "heartbeat", "claimed")
BOOLEANS = ("live", "cancelling")


class Reason(msgspec.Struct, frozen=True):
    """One reason: its code, in words, its facts, when it ends if that is known, and the command that would help."""

    code: str
    text: str
    facts: dict[str, Any] = {}
    until: datetime | None = None
    hint: str = ""


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """Why a job is not running, or that it is.

    `code`, `facts`, `until` and `hint` are those of the reason that matters most; `also` has the others. `text` is one
    sentence with all of them. docs/why.md lists the codes.
    """

    id: str
    state: str  # of the job: scheduled, waiting, blocked, ...; or unreadable
    code: str
    text: str
    queue: str = ""
    task: str = ""
    facts: dict[str, Any] = {}
    since: datetime | None = None  # when the job entered its state
    until: datetime | None = None  # when the reason ends, if that is known
    hint: str = ""  # the command that would help, if any
    ready: bool = False  # whether the next claim of a suitable worker takes it
    ahead: int = 0  # how many jobs of its queue start before it
    also: tuple[Reason, ...] = ()

    def __str__(self) -> str:
        return f"{self.text}{f'; `{self.hint}`' if self.hint else ''}"


def read_explanation(row: dict[str, Any], home: Path | None = None) -> Explanation:
    """Read the reply of the store. `home` is that of the embedded server, if the store is one."""
    if fault := row.get("unreadable"):
        return _unreadable(row["id"], fault)
    try:
        found = [_read_reason(code, row, facts, home) for code, facts in row["reasons"]]
    except (LookupError, OverflowError, TypeError, ValueError):  # a time or a name that is none
        return _unreadable(row["id"], "DAMAGED")
    first, *others = found or [Reason("unknown", "the store gives no reason")]
    return Explanation(
        id=row["id"],
        state=row["state"],
        code=first.code,
        text="; also, ".join(reason.text for reason in (first, *others)),
        queue=row["queue"],
        task=row["task"],
        facts=first.facts,
        since=utc(row["since"]),
        until=first.until,
        hint=first.hint,
        ready=row["ready"] == 1,
        ahead=row["ahead"],
        also=tuple(others),
    )


def _unreadable(id: str, fault: str) -> Explanation:
    text, hint = _UNREADABLE.get(fault, fault), "holdfast fsck" if fault == "DAMAGED" else ""
    return Explanation(id=id, state="unreadable", code="unreadable", text=text, hint=hint)


def in_outbox(id: str) -> Explanation:
    """Explain a job that the store has not received."""
    text = "it is still in the outbox: the server was not reachable when it was enqueued"
    return Explanation(id=id, state="waiting", code="outbox", text=text, hint="holdfast outbox")


def ran_inline(id: str, state: str) -> Explanation:
    """Explain a job that ran where it was enqueued."""
    text = "it ran in the process that enqueued it, as the server was not reachable, and has ended"
    return Explanation(id=id, state=state, code="ended", text=text)


def unreachable(id: str, state: str, why: str) -> Explanation:
    """Explain that the server does not say."""
    text = f"the server has stopped answering: {why}"
    return Explanation(id=id, state=state, code="unreachable", text=text, hint="holdfast status")


def _read_reason(code: str, row: dict[str, Any], facts: dict[str, Any], home: Path | None) -> Reason:
    if code == "no-worker" and home:
        facts = {**facts, "home": str(home)}
    words = reasons.describe(code, row, facts)
    shown = {name: _fact(name, value) for name, value in facts.items()}
    return Reason(code, words.text, shown, utc(words.until) if words.until else None, words.hint)


def _fact(name: str, value: Any) -> Any:
    if name in TIMES:
        return utc(value) if value else None
    read = _READ.get(name)
    return read(value) if read else value


_READ: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(BOOLEANS, bool),
    "error": lambda value: reasons.error_text(value) if value else "",
    "per": lambda value: value / 1000,
    "by": lambda rows: [{"id": id, "state": state} for id, state in rows],
}
