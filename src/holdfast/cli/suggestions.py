"""What a mistyped name may have been meant for."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import SequenceMatcher, get_close_matches

from holdfast.cli.text import listed

MOST = 3
MARGIN = 0.15  # what is so much less like the word than the best match was not meant


def nearest(word: str, names: Iterable[str]) -> list[str]:
    """Return the names that are most like a word: those that it begins, or that are spelled alike, or end in it."""
    known = list(dict.fromkeys(names))
    lower = word.lower()
    begun = [name for name in known if lower and name.lower().startswith(lower)]
    alike = _best(word, get_close_matches(word, known, n=MOST))
    parts = [name for name in known if get_close_matches(word, [name.rpartition(".")[2]], cutoff=0.7)]
    return list(dict.fromkeys([*begun, *alike, *parts]))[:MOST]


def _best(word: str, matches: list[str]) -> list[str]:
    """Return the match that is most like a word, and those that are nearly as much."""
    ratios = {match: SequenceMatcher(None, match, word).ratio() for match in matches}
    return [match for match in matches if ratios[match] >= ratios[matches[0]] - MARGIN]


def did_you_mean(word: str, names: Iterable[str]) -> str:
    """Return a question that ends a complaint about a word, or nothing."""
    near = nearest(word, names)
    return f"; did you mean {listed(near)}?" if near else ""
