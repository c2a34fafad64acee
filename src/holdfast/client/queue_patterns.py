"""The queues that a pool serves: names, patterns and exclusions.

    mail           this queue
    video-*        every queue whose name matches, including queues created while the worker runs
    !video-test    except this queue; !*-slow excludes every queue that matches

A queue that is named keeps its position. A pattern stands for all matching queues that are neither named nor excluded,
sorted by name; a queue that matches several patterns belongs to the first. So each queue is served once.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterable, Mapping

from holdfast.constants import MAX_NAME
from holdfast.errors import Invalid
from holdfast.names import check_name

WILDCARD = "*"  # any characters, or none
NOT = "!"
SEPARATOR = "|"  # between the entries of several pools

Matches = Callable[[str], object]

_ENTRY = re.compile(rf"!?[A-Za-z0-9_.*-]{{1,{MAX_NAME}}}", re.ASCII)


class Patterns:
    """The queue setting of one pool: entries and their weights. Exclusions have the weight 0."""

    def __init__(self, entries: Mapping[str, int]) -> None:
        self._entries = dict(entries)
        self._patterns = {entry: _matcher(entry) for entry in entries if is_pattern(entry)}
        self._excluded = [_matcher(entry.removeprefix(NOT)) for entry in entries if entry.startswith(NOT)]

    @property
    def wildcards(self) -> list[str]:
        """The patterns among the entries; empty if all queues are named."""
        return list(self._patterns)

    def serves(self, queue: str) -> bool:
        """Return whether a queue of this name is served, whether or not it exists yet."""
        return queue in self._entries or self.pattern_of(queue) is not None

    def expand(self, queues: Iterable[str]) -> dict[str, int]:
        """Return the queues to serve and their weights, given the queues that exist."""
        found: dict[str, list[str]] = {entry: [] for entry in self._patterns}
        for queue in sorted(set(queues)):
            if queue not in self._entries and (pattern := self.pattern_of(queue)):
                found[pattern].append(queue)
        return {
            queue: weight for entry, weight in self._entries.items() if weight for queue in found.get(entry, [entry])
        }

    def pattern_of(self, queue: str) -> str | None:
        """Return the pattern to which a queue belongs that is not named."""
        if any(matches(queue) for matches in self._excluded):
            return None
        return next((pattern for pattern, matches in self._patterns.items() if matches(queue)), None)


def join(pools: Iterable[Iterable[str]]) -> list[str]:
    """Return the entries of several pools as one list, with a separator between them if one has exclusions."""
    lists = [list(entries) for entries in pools]
    if not any(entry.startswith(NOT) for entries in lists for entry in entries):
        return list(dict.fromkeys(entry for entries in lists for entry in entries))
    return [entry for entries in lists for entry in (SEPARATOR, *entries)][1:]


def expand(entries: Iterable[str], queues: Iterable[str]) -> list[str]:
    """Return the queues that joined entries stand for, given the queues that exist."""
    lists: list[dict[str, int]] = [{}]
    for entry in entries:
        if entry == SEPARATOR:
            lists.append({})
        else:
            lists[-1][entry] = 0 if entry.startswith(NOT) else 1
    names = list(queues)
    return list(dict.fromkeys(queue for each in lists for queue in Patterns(each).expand(names)))


def is_pattern(entry: str) -> bool:
    return WILDCARD in entry and not entry.startswith(NOT)


def _matcher(pattern: str) -> Matches:
    return re.compile(fnmatch.translate(pattern)).match


def check_entry(entry: str) -> str:
    """Return an entry: the name of a queue, a pattern, or an exclusion.

    Raises:
        Invalid: the entry has a character that names and patterns cannot have, or is too long.
    """
    if not isinstance(entry, str) or not (WILDCARD in entry or entry.startswith(NOT)):
        return check_name(entry, "queue")
    if _ENTRY.fullmatch(entry):
        return entry
    raise Invalid(
        f"queue is {entry[:200]!r}; a pattern must be 1 to {MAX_NAME} characters of A-Z a-z 0-9 _ . - and * (any "
        "characters), after ! to exclude what it matches"
    )


def check_entries(entries: Iterable[str], label: str) -> None:
    """Refuse exclusions that exclude nothing, or a queue that is named."""
    entries = list(entries)
    excluded = [entry for entry in entries if entry.startswith(NOT)]
    served = [entry for entry in entries if not entry.startswith(NOT)]
    if excluded and not any(is_pattern(entry) for entry in served):
        raise Invalid(
            f"{label} has {excluded[0]} but no pattern, so it excludes nothing: add a pattern, as in *,{excluded[0]}"
        )
    for entry in excluded:
        matches = _matcher(entry.removeprefix(NOT))
        if named := next((name for name in served if matches(name)), None):
            raise Invalid(f"{label} has {named} and excludes it by {entry}: remove one of the two")
