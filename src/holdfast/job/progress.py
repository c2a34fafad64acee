"""The progress of a job: what it reports while it runs, and the rates and estimates derived from that.

    report, count, each ──▶ Reporter ──▶ text in the store ──▶ Progress ──▶ rates, seconds left

Estimates are not stored, because they change with time: they are computed when the progress is shown. A report has the
seconds since the attempt began, by the clock of the machine that runs it.
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

MAX_MESSAGE = 200  # characters
MAX_COUNTERS = 8
MAX_COUNTER_NAME = 32
MAX_COUNT = 10**15  # exact in a float
REPORT_COUNTS_EVERY = 0.2  # seconds

Number = int | float


class Progress(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, eq=True):
    """The last report of a job: from this attempt, or from an earlier one if this one has not reported yet."""

    fraction: float | None = msgspec.field(default=None, name="progress")  # from 0 to 1
    message: str = ""
    done: int | None = None  # items that `each` has done, in all attempts
    total: int | None = None  # items that `each` has in all
    counts: dict[str, Number] = {}  # what this attempt has counted
    attempt: int = 0  # the attempt that reported; 0: unknown
    after: float = 0.0  # seconds after the beginning of that attempt
    base: tuple[float, float, int] = (0.0, 0.0, 0)  # where that attempt began: seconds, fraction, items done

    @property
    def rates(self) -> dict[str, float]:
        """Counts per second, and items per second."""
        seconds, _, done = self.base
        rates = {name: count / self.after for name, count in self.counts.items() if self.after > 0}
        if self.done is not None and self.after > seconds:
            rates["items"] = (self.done - done) / (self.after - seconds)
        return rates

    @property
    def seconds_left(self) -> float | None:
        """Estimated seconds left at the time of the report; None if there is too little to estimate from."""
        seconds, fraction, _ = self.base
        if self.fraction is None or self.fraction <= fraction or self.after <= seconds:
            return None
        return (1 - self.fraction) * (self.after - seconds) / (self.fraction - fraction)


def read_progress(text: str) -> Progress | None:
    """Read stored progress. Text that is not ours becomes the message."""
    if not text:
        return None
    try:
        return msgspec.json.decode(text, type=Progress)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return Progress(message=text)


class Reporter:
    """Encodes the progress of one attempt for the store. Threads of a job may share it."""

    def __init__(self, attempt: int, *, resumes: bool, began: float | None = None) -> None:
        self._attempt = attempt
        self._began = time.monotonic() if began is None else began
        self._base: tuple[float, float, int] | None = None if resumes else (0.0, 0.0, 0)
        self._reported: dict[str, Any] = {}
        self._counts: dict[str, Number] = {}
        self._counted_at = -math.inf
        self._has_unreported = False  # something was counted since the last report
        self._lock = Lock()

    def begin(self, fraction: float, done: int) -> None:
        """Set where a loop begins, so that earlier work does not count towards the rate of this attempt."""
        self._base = (self._seconds(), fraction, done)

    def report(
        self, fraction: float | None, message: str | None, *, done: int | None = None, total: int | None = None
    ) -> str | None:
        """Return the text to store; None if there is nothing to report."""
        if fraction is None and message is None and done is None:
            return None
        if fraction is not None and not (isinstance(fraction, int | float) and 0 <= fraction <= 1):
            raise Invalid(f"progress is {fraction!r}; it must be a number from 0 to 1, such as 0.45 for 45 %")
        with self._lock:
            self._reported = _report_fields(fraction=fraction, message=message, done=done, total=total)
            return self._text()

    def count(self, amounts: dict[str, Number]) -> str | None:
        """Add to counters. Return the text to store; None if that can wait."""
        _check_amounts(amounts)
        with self._lock:
            if not amounts.keys() <= self._counts.keys():
                self._add(amounts)
            for name, amount in amounts.items():
                self._counts[name] += amount
            self._has_unreported = True
            return self._text() if time.monotonic() - self._counted_at >= REPORT_COUNTS_EVERY else None

    def _add(self, names: Iterable[str]) -> None:
        counts = dict(self._counts)
        for name in names:
            counts.setdefault(_check_name(name), 0)
        if len(counts) > MAX_COUNTERS:
            raise TooBig(
                f"there are {len(counts)} counters (limit {MAX_COUNTERS}): {', '.join(counts)}; use the checkpoint or "
                "the log for more"
            )
        self._counts = counts

    def unreported(self) -> str | None:
        """Return the text to store if something was counted since the last report; otherwise None."""
        with self._lock:
            return self._text() if self._has_unreported else None

    def _seconds(self) -> float:
        return round(time.monotonic() - self._began, 3)

    def _text(self) -> str:
        reported, after = self._reported, self._seconds()
        if self._base is None:  # the first report of a job that resumes shows where the attempt began
            self._base = (after, reported.get("fraction") or 0.0, 0)
        self._has_unreported, self._counted_at = False, time.monotonic()
        return _encode(Progress(**reported, counts=self._counts, attempt=self._attempt, after=after, base=self._base))


def _report_fields(
    *, fraction: float | None, message: str | None, done: int | None, total: int | None
) -> dict[str, Any]:
    values = {
        "fraction": None if fraction is None else round(fraction, 4),
        "message": check_text(message or "", "the message")[:MAX_MESSAGE],
        "done": done,
        "total": total,
    }
    return {name: value for name, value in values.items() if value not in (None, "")}


def _check_amounts(amounts: dict[str, Number]) -> None:
    for name, amount in amounts.items():
        if isinstance(amount, bool) or not isinstance(amount, int | float) or not abs(amount) <= MAX_COUNT:
            raise Invalid(f"counter {name} cannot grow by {amount!r}; the amount must be a number up to 10^15")


def _check_name(name: str) -> str:
    if len(name) > MAX_COUNTER_NAME or not (name.isascii() and name.isprintable()):
        raise Invalid(f"counter name is {name!r}; it must be up to {MAX_COUNTER_NAME} printable ASCII characters")
    return name


def _encode(progress: Progress) -> str:
    """Return progress as text. Shorten the message if the text would be too long for the store."""
    while len(data := msgspec.json.encode(progress)) > MAX_PROGRESS and progress.message:
        progress = msgspec.structs.replace(progress, message=progress.message[: len(progress.message) // 2])
    return data.decode()
