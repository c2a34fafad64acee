"""How far a job is: what it says while it runs, and what follows from that where it is shown.

    report, count, each ──▶ Reporter ──▶ text in the store ──▶ Progress ──▶ rates, seconds left

Nothing that changes with time is stored. A report says how long after the attempt's beginning it was made, by the clock
of the machine that it runs on; when it will end is computed by whoever looks.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from threading import Lock
from typing import Any

import msgspec

from holdfast.constants import MAX_PROGRESS
from holdfast.errors import Invalid, TooBig
from holdfast.names import check_text

LONGEST_MESSAGE = 200  # characters
MOST_COUNTERS = 8
LONGEST_NAME = 32
MOST_COUNT = 10**15  # exact in a float; so may the sums be, for as long as anybody counts
SAY_COUNTS_EVERY = 0.2  # seconds

Number = int | float


class Progress(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, eq=True):
    """What a job said last of how far it is: in this attempt, or in the one before if this one has said nothing yet."""

    fraction: float | None = msgspec.field(default=None, name="progress")  # from 0 to 1
    message: str = ""
    done: int | None = None  # items that `each` has done, in all attempts
    total: int | None = None  # items that `each` has in all
    counts: dict[str, Number] = {}  # what this attempt has counted
    attempt: int = 0  # which attempt said so; 0: it is not known
    after: float = 0.0  # seconds after the beginning of that attempt
    base: tuple[float, float, int] = (0.0, 0.0, 0)  # where it began: seconds after, fraction, items done

    @property
    def rates(self) -> dict[str, float]:
        """How many of what was counted came in a second; of items, too."""
        seconds, _, done = self.base
        rates = {name: count / self.after for name, count in self.counts.items() if self.after > 0}
        if self.done is not None and self.after > seconds:
            rates["items"] = (self.done - done) / (self.after - seconds)
        return rates

    @property
    def seconds_left(self) -> float | None:
        """How many were left when this was said, if it goes on as before; None if nobody can tell."""
        seconds, fraction, _ = self.base
        if self.fraction is None or self.fraction <= fraction or self.after <= seconds:
            return None
        return (1 - self.fraction) * (self.after - seconds) / (self.fraction - fraction)


def read_progress(text: str) -> Progress | None:
    """Read what is stored. Others may have written it: what is not as ours is a message."""
    if not text:
        return None
    try:
        return msgspec.json.decode(text, type=Progress)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return Progress(message=text)


class Reporter:
    """Puts what one attempt says of itself into text for the store. A job may have threads."""

    def __init__(self, attempt: int, *, resumes: bool, began: float | None = None) -> None:
        self._attempt = attempt
        self._began = time.monotonic() if began is None else began
        self._base: tuple[float, float, int] | None = None if resumes else (0.0, 0.0, 0)
        self._said: dict[str, Any] = {}
        self._counts: dict[str, Number] = {}
        self._counted_at = -math.inf
        self._has_news = False  # that were counted, and not said
        self._lock = Lock()

    def begin(self, fraction: float, done: int) -> None:
        """Say where a loop begins: what was done before is not this attempt's speed."""
        self._base = (self._seconds(), fraction, done)

    def report(
        self, fraction: float | None, message: str | None, *, done: int | None = None, total: int | None = None
    ) -> str | None:
        """Return what to store; None if nothing was said."""
        if fraction is None and message is None and done is None:
            return None
        if fraction is not None and not (isinstance(fraction, int | float) and 0 <= fraction <= 1):
            raise Invalid(f"progress is {fraction!r}; it must be a number from 0 to 1: 45 % is 0.45")
        with self._lock:
            self._said = _given(fraction=fraction, message=message, done=done, total=total)
            return self._text()

    def count(self, amounts: dict[str, Number]) -> str | None:
        """Add to counters. Returns what to store; None if that can wait."""
        _check(amounts)
        with self._lock:
            if not amounts.keys() <= self._counts.keys():
                self._add(amounts)
            for name, amount in amounts.items():
                self._counts[name] += amount
            self._has_news = True
            return self._text() if time.monotonic() - self._counted_at >= SAY_COUNTS_EVERY else None

    def _add(self, names: Iterable[str]) -> None:
        counts = dict(self._counts)
        for name in names:
            counts.setdefault(_check_name(name), 0)
        if len(counts) > MOST_COUNTERS:
            words = f"the counters are {', '.join(counts)}; a job has up to {MOST_COUNTERS}"
            raise TooBig(f"{words}: what has more kinds belongs in the checkpoint, or in the log")
        self._counts = counts

    def rest(self) -> str | None:
        """Return what was counted and is not said yet."""
        with self._lock:
            return self._text() if self._has_news else None

    def _seconds(self) -> float:
        return round(time.monotonic() - self._began, 3)

    def _text(self) -> str:
        said, after = self._said, self._seconds()
        if self._base is None:  # of a job that resumed by itself, the first report says where
            self._base = (after, said.get("fraction") or 0.0, 0)
        self._has_news, self._counted_at = False, time.monotonic()
        return _encode(Progress(**said, counts=self._counts, attempt=self._attempt, after=after, base=self._base))


def _given(*, fraction: float | None, message: str | None, done: int | None, total: int | None) -> dict[str, Any]:
    said = {
        "fraction": None if fraction is None else round(fraction, 4),
        "message": check_text(message or "", "the message")[:LONGEST_MESSAGE],
        "done": done,
        "total": total,
    }
    return {name: value for name, value in said.items() if value not in (None, "")}


def _check(amounts: dict[str, Number]) -> None:
    for name, amount in amounts.items():
        if isinstance(amount, bool) or not isinstance(amount, int | float) or not abs(amount) <= MOST_COUNT:
            raise Invalid(f"the counter {name} is to grow by {amount!r}; it must be a number up to 10^15")


def _check_name(name: str) -> str:
    if len(name) > LONGEST_NAME or not (name.isascii() and name.isprintable()):
        raise Invalid(f"{name!r} is no name of a counter; it must be up to {LONGEST_NAME} printable ASCII characters")
    return name


def _encode(progress: Progress) -> str:
    """Return progress as text that the store takes: of a message that is too long in bytes, the beginning."""
    while len(data := msgspec.json.encode(progress)) > MAX_PROGRESS and progress.message:
        progress = msgspec.structs.replace(progress, message=progress.message[: len(progress.message) // 2])
    return data.decode()
