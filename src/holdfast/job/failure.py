"""A failure: why an attempt failed, as text, with a fingerprint to group by. It never becomes an exception again."""

from __future__ import annotations

import re
import traceback
from signal import Signals

import msgspec

from holdfast.constants import MAX_ERROR, MAX_NAME, MAX_PLACE, MAX_TRACEBACK
from holdfast.job.fingerprint import origin_of, without_runner
from holdfast.names import class_name

MAX_MESSAGE = 8 * 1024
MAX_NOTES = 16

_CUT = "\n... cut here ...\n"
_NOT_IN_A_GROUP = re.compile(r"[^A-Za-z0-9_.-]+", re.ASCII)


class Failure(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The description of an exception of a task, or of a crash of its process.

    Failures of the same `group` have the same type or name; failures of the same `fingerprint` also came from the same
    place in the code. The store keeps one traceback for each fingerprint: if it is that of another attempt,
    `traceback_of` is the id of its job and the number of the attempt.
    """

    type: str
    message: str = ""
    notes: tuple[str, ...] = ()
    traceback: str = ""
    traceback_of: tuple[str, int] | None = None
    group: str
    fingerprint: str = ""  # the store makes one of a failure that is not an exception: of its group, type, place, task
    place: str = ""  # the innermost function of user code, as module:function; how a process crashed

    @classmethod
    def of_crash(
        cls,
        description: str,
        *,
        exit_code: int | None = None,
        signal: int | None = None,
        memory: int | None = None,
    ) -> Failure:
        """Describe the crash of a process; `memory` is the number of bytes in its last sample."""
        how = []
        if exit_code is not None:
            how.append(f"exit code {exit_code}")
        if signal is not None:
            how.append(f"signal {_signal_name(signal)}")
        facts = [description, *how]
        if memory is not None:
            facts.append(f"memory last seen {memory / 2**20:,.0f} MiB")
        return cls(type="Crash", message=_cut("; ".join(facts), MAX_MESSAGE), group="crashed", place=", ".join(how))


def describe(exception: BaseException, *, group: str | None = None) -> Failure:
    """Describe an exception. Never raise, even if a method of the exception does."""
    origin = origin_of(exception)
    return Failure(
        type=_cut(class_name(type(exception)), MAX_PLACE),
        message=message_of(exception),
        notes=_notes(exception),
        traceback=_cut(_traceback(exception), MAX_TRACEBACK),
        group=group or group_of(exception),
        fingerprint=origin.fingerprint,
        place=_cut(origin.place, MAX_PLACE),
    )


def message_of(value: object) -> str:
    """Return the text of an exception or another value as a message, shortened if it is too long. Never raise.

    UTF-8 can encode the message; a file name in an OSError may have surrogates.
    """
    return _cut(_text(value), MAX_MESSAGE)


def group_of(exception: BaseException) -> str:
    """Return the default group of an exception: its type."""
    return _NOT_IN_A_GROUP.sub("_", class_name(type(exception)).replace("<locals>.", ""))[:MAX_NAME]


def encode(failure: Failure) -> bytes:
    """Return a failure as bytes. Shorten it if escaped control characters make it too long."""
    data = msgspec.json.encode(failure)
    if len(data) > MAX_ERROR:
        message, trace = _cut(failure.message, 2048), _cut(failure.traceback, 16 * 1024)
        data = msgspec.json.encode(msgspec.structs.replace(failure, message=message, traceback=trace, notes=()))
    return data


def decode(data: bytes) -> Failure:
    """Return the failure that `encode` wrote. Invalid bytes become a failure as well, so that every job can be read."""
    try:
        return msgspec.json.decode(data, type=Failure)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        message = f"the error of this attempt cannot be read: {error}"
        return Failure(type="Unreadable", message=message, group="unreadable")


class Description(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the store keeps with each attempt that failed; the rest of a failure is in the record of its fingerprint."""

    type: str
    message: str = ""
    notes: tuple[str, ...] = ()
    group: str = ""  # if it is not the type


def describe_attempt(failure: Failure) -> bytes:
    """Return what the store keeps with the attempt."""
    group = "" if failure.group == failure.type else failure.group
    kept = Description(type=failure.type, message=failure.message, notes=failure.notes, group=group)
    return msgspec.json.encode(kept)


class Example(msgspec.Struct, frozen=True):
    """What the store keeps with a fingerprint: the traceback, and of which attempt of which job it is."""

    place: str
    job: str
    attempt: int
    traceback: str

    @classmethod
    def read(cls, place: bytes, job: bytes, attempt: int, trace: bytes) -> Example:
        return cls(place.decode(errors="replace"), job.decode(), attempt, trace.decode(errors="replace"))


def restore(data: bytes, fingerprint: str, example: Example | None, *, of: tuple[str, int]) -> Failure:
    """Return the failure of an attempt, from what the store has: `of` are its job and its number."""
    try:
        kept = msgspec.json.decode(data, type=Description)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return decode(data)
    found = example or Example("", *of, "")
    taken_from = found.job, found.attempt
    return Failure(
        type=kept.type,
        message=kept.message,
        notes=kept.notes,
        traceback=found.traceback,
        traceback_of=taken_from if found.traceback and taken_from != of else None,
        group=kept.group or kept.type,
        fingerprint=fingerprint,
        place=found.place,
    )


def _text(value: object) -> str:
    try:
        return str(value)
    except BaseException as error:
        return f"<no text: __str__ raised {type(error).__name__}>"


def _notes(exception: BaseException) -> tuple[str, ...]:
    try:
        notes = getattr(exception, "__notes__", ())
    except BaseException:
        return ("<no notes: reading them raised an exception>",)
    return tuple(_cut(_text(note), MAX_MESSAGE) for note in notes[:MAX_NOTES]) if isinstance(notes, list) else ()


def _traceback(exception: BaseException) -> str:
    """Return the traceback as Python prints it, starting at the first frame of the task."""
    try:
        own = without_runner(exception.__traceback__)
        return "".join(traceback.format_exception(type(exception), exception, own))
    except BaseException as error:
        return f"<no traceback: formatting it raised {type(error).__name__}>\n"


def _signal_name(number: int) -> str:
    try:
        return Signals(number).name
    except ValueError:
        return str(number)


def _cut(text: str, max: int) -> str:
    """Return text that UTF-8 can encode in `max` bytes, with the middle cut out if necessary."""
    half = (max - len(_CUT)) // 2
    if len(text) > 2 * max:  # a huge text is not encoded as a whole
        text = f"{text[:max]}{text[-max:]}"
    data = text.encode("utf-8", "backslashreplace")
    if len(data) <= max:
        return data.decode()
    return data[:half].decode(errors="ignore") + _CUT + data[-half:].decode(errors="ignore")
