"""Sentences with names in them, which are set apart."""

from __future__ import annotations

import re
from collections.abc import Iterable

from holdfast.records.table import Record


def parts_of(matter: Record) -> list[tuple[str, bool]]:
    """Return the sentence of what needs attention in parts, and whether each is a name."""
    name = matter["name"] if matter["kind"] in ("queue", "worker") else ""
    return parted(matter["text"], [name, matter["facts"].get("task") or "", matter["facts"].get("error") or ""])


def parted(text: str, names: Iterable[str]) -> list[tuple[str, bool]]:
    """Return a text in parts, and whether each is one of the names. Each name counts where it is first, as a word."""
    known = sorted({each for each in names if each}, key=len, reverse=True)
    if not known:
        return [(text, False)]
    pattern = r"(?<!\S)(" + "|".join(map(re.escape, known)) + r")(?![^\s:;,.])"
    left, parts = set(known), []
    for place, part in enumerate(re.split(pattern, text)):
        is_name = place % 2 == 1 and part in left
        left.discard(part if is_name else "")
        if part:
            parts.append((part, is_name))
    return parts
