"""Which queues a worker is told to serve: names, patterns of names, and what is excluded.

    mail           this queue
    video-*        each queue whose name begins so, also one that comes to be while the worker runs
    !video-test    but not this one; !*-slow: none whose name ends so

A queue that is named keeps its place. A pattern stands for all queues that match it and are neither named nor excluded,
in the order of their names; one that matches two patterns belongs to the first. So a queue is served once.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterable, Mapping

from holdfast.errors import Invalid
from holdfast.names import check_name

ANY = "*"  # any characters, or none
NOT = "!"

Matches = Callable[[str], object]

_WORD = re.compile(r"!?[A-Za-z0-9_.*-]{1,100}", re.ASCII)


class Patterns:
    """What one pool is told: words and weights. What is excluded weighs nothing."""

    def __init__(self, told: Mapping[str, int]) -> None:
        self._told = dict(told)
        self._patterns = {word: _matcher(word) for word in told if is_pattern(word)}
        self._excluded = [_matcher(word.removeprefix(NOT)) for word in told if word.startswith(NOT)]

    @property
    def words(self) -> list[str]:
        """The patterns alone. None, if all queues are named."""
        return list(self._patterns)

    def serves(self, queue: str) -> bool:
        """Whether a queue of this name is served, now or when there is one."""
        return queue in self._told or self._pattern_of(queue) is not None

    def expand(self, queues: Iterable[str]) -> dict[str, int]:
        """Return the names and weights of all queues to serve, where there are these."""
        found: dict[str, list[str]] = {word: [] for word in self._patterns}
        for queue in sorted(set(queues)):
            if queue not in self._told and (word := self._pattern_of(queue)):
                found[word].append(queue)
        return {queue: weight for word, weight in self._told.items() if weight for queue in found.get(word, [word])}

    def _pattern_of(self, queue: str) -> str | None:
        if any(matches(queue) for matches in self._excluded):
            return None
        return next((word for word, matches in self._patterns.items() if matches(queue)), None)


def is_pattern(word: str) -> bool:
    return ANY in word and not word.startswith(NOT)


def _matcher(pattern: str) -> Matches:
    return re.compile(fnmatch.translate(pattern)).match


def check_word(word: str) -> str:
    """Return the name of a queue, a pattern, or what is excluded; or refuse it."""
    if not isinstance(word, str) or not (ANY in word or word.startswith(NOT)):
        return check_name(word, "queue")
    if _WORD.fullmatch(word):
        return word
    raise Invalid(
        f"queue is {word[:200]!r}; a pattern must be 1 to 100 of A-Z a-z 0-9 _ . - and * (which stands for any "
        "characters), after ! if it is to be excluded"
    )


def check_together(words: Iterable[str], what: str) -> None:
    """Refuse words that make no sense together."""
    words = list(words)
    excluded = [word for word in words if word.startswith(NOT)]
    served = [word for word in words if not word.startswith(NOT)]
    if excluded and not any(is_pattern(word) for word in served):
        raise Invalid(
            f"{what} has {excluded[0]}, but no pattern, so it excludes nothing: write one too, as in *,{excluded[0]}"
        )
    for word in excluded:
        matches = _matcher(word.removeprefix(NOT))
        if named := next((name for name in served if matches(name)), None):
            raise Invalid(f"{what} has {named}, and excludes it by {word}: write one of the two")
