"""Function libraries: which of them are in use."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.store.commands.command import Command, read_texts


def track_libraries(last_used: Mapping[str, int]) -> Command[list[str]]:
    """Remember when each library was last called, by digest. Return those that nobody has called for 30 days."""
    return Command("track_libraries", {"libraries": dict(last_used)}, read_texts)
