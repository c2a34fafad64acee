"""Text of messages: escaping of untrusted text, lists, plurals, and suggestions for misspelled names.

Most text in the store comes from jobs, and from programs that enqueue them. `printable` makes it safe for a terminal,
which would execute escape sequences, and for a log, where a line break could forge a line.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

MAX_SUGGESTIONS = 3
SIMILARITY_MARGIN = 0.15  # a match that is less similar than the best one by more than this is dropped


def printable(text: str, *, lines: bool = False, tabs: bool = False) -> str:
    """Return text with every invisible character escaped: control characters (C0 and C1), line breaks, bidi marks.

    With `lines`, line breaks are not escaped; with `tabs`, tabs are not.
    """
    if text.isprintable():
        return text
    return "".join(
        each
        if each.isprintable() or (lines and each == "\n") or (tabs and each == "\t")
        else each.encode("unicode_escape").decode()
        for each in text
    )


def indented(text: str, indent: str = "    ") -> str:
    """Return text with its lines escaped and indented, so that they cannot be mistaken for lines of a log."""
    return "\n".join(f"{indent}{line}" for line in printable(text.rstrip("\n"), lines=True).split("\n"))


def listed(words: Sequence[str], last: str = "or") -> str:
    """Return words as an enumeration: a, b or c."""
    *before, end = words
    return f"{', '.join(before)} {last} {end}" if before else end


def pluralize(count: int, noun: str) -> str:
    """Return a count with its noun: 1 job, 1,000 jobs, 2 processes."""
    return f"{count:,} {noun if count == 1 else plural(noun)}"


def plural(noun: str) -> str:
    """Return the plural of a noun: jobs, processes, batches."""
    return f"{noun}es" if noun.endswith(("s", "ch")) else f"{noun}s"


def nearest(word: str, names: Iterable[str]) -> list[str]:
    """Return the names most similar to a word: those that start with it, are spelled similarly, or end in it."""
    from difflib import get_close_matches  # rarely needed, and slow to import

    known = list(dict.fromkeys(names))
    lower = word.lower()
    prefixed = [name for name in known if lower and name.lower().startswith(lower)]
    similar = _best(word, get_close_matches(word, known, n=MAX_SUGGESTIONS))
    same_end = [name for name in known if "." in name and get_close_matches(word, [name.rpartition(".")[2]])]
    return list(dict.fromkeys([*prefixed, *similar, *same_end]))[:MAX_SUGGESTIONS]


def _best(word: str, matches: list[str]) -> list[str]:
    """Return the most similar match, and those that are nearly as similar."""
    from difflib import SequenceMatcher

    ratios = {match: SequenceMatcher(None, match, word).ratio() for match in matches}
    return [match for match in matches if ratios[match] >= ratios[matches[0]] - SIMILARITY_MARGIN]


def did_you_mean(word: str, names: Iterable[str]) -> str:
    """Return "; did you mean ...?" for an unknown word, or ""."""
    similar = nearest(word, names)
    return f"; did you mean {listed(similar)}?" if similar else ""


def suggestion(word: str, names: Iterable[str]) -> str:
    """Return the end of an error about an unknown name: similar names, or all known ones."""
    known = list(names)
    return did_you_mean(word, known) or f"; expected one of {', '.join(known)}"
