"""A failure: why an attempt failed, as text, with a fingerprint to group by. It never becomes an exception again."""

from __future__ import annotations

import re
import sysconfig
import traceback
from collections.abc import Iterator
from hashlib import blake2s
from signal import Signals
from types import CodeType, TracebackType

import msgspec

from holdfast.constants import MAX_ERROR, MAX_NAME
from holdfast.names import class_name

MAX_MESSAGE = 8 * 1024
MAX_TRACEBACK = 64 * 1024
MAX_NOTES = 16

_CUT = "\n... cut here ...\n"
_NOT_IN_A_GROUP = re.compile(r"[^A-Za-z0-9_.-]+", re.ASCII)
_LIBRARIES = tuple({sysconfig.get_path(path) + "/" for path in ("stdlib", "platstdlib", "purelib", "platlib")})
_RUNNERS = ("holdfast.", "asyncio.", "concurrent.futures.", "threading.")  # modules of frames above those of the task


class Failure(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The description of an exception of a task, or of a crash of its process.

    Failures of the same `group` have the same type or name; failures of the same `fingerprint` also came from the same
    place in the code.
    """

    type: str
    message: str = ""
    notes: tuple[str, ...] = ()
    traceback: str = ""
    group: str
    fingerprint: str

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
        facts = [description]
        if exit_code is not None:
            facts.append(f"exit code {exit_code}")
        if signal is not None:
            facts.append(f"signal {_signal_name(signal)}")
        if memory is not None:
            facts.append(f"memory last seen {memory / 2**20:,.0f} MiB")
        message = _cut("; ".join(facts), MAX_MESSAGE)
        fingerprint = _digest("crash", str(exit_code), str(signal))
        return cls(type="Crash", message=message, group="crashed", fingerprint=fingerprint)


def describe(exception: BaseException, *, group: str | None = None) -> Failure:
    """Describe an exception. Never raise, even if a method of the exception does."""
    kind = class_name(type(exception))
    return Failure(
        type=_cut(kind, 512),
        message=message_of(exception),
        notes=_notes(exception),
        traceback=_cut(_traceback(exception), MAX_TRACEBACK),
        group=group or group_of(exception),
        fingerprint=_fingerprint(exception, kind),
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
    """Return a failure as bytes for the store. Shorten it if escaped control characters make it too long."""
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
        return Failure(type="Unreadable", message=message, group="unreadable", fingerprint="unreadable")


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
        own = _without_runner(exception.__traceback__)
        return "".join(traceback.format_exception(type(exception), exception, own))
    except BaseException as error:
        return f"<no traceback: formatting it raised {type(error).__name__}>\n"


def _without_runner(trace: TracebackType | None) -> TracebackType | None:
    """Skip the frames that called the task: those of Holdfast, and then those of the event loop."""
    own = trace
    prefixes: tuple[str, ...] = _RUNNERS[:1]
    while own is not None and _module(own).startswith(prefixes):
        own, prefixes = own.tb_next, _RUNNERS
    return own or trace


def _module(trace: TracebackType) -> str:
    return f"{trace.tb_frame.f_globals.get('__name__', '')}."


def _fingerprint(exception: BaseException, kind: str) -> str:
    """Digest the type and the functions of user code in the traceback, without line numbers.

    Each function counts once, so the depth of a recursion does not matter.
    """
    frames = list(_frames(_without_runner(exception.__traceback__)))
    user = [(module, code) for module, code in frames if not code.co_filename.startswith((*_LIBRARIES, "<frozen"))]
    places = dict.fromkeys(f"{module}:{code.co_qualname}" for module, code in user or frames)
    members = exception.exceptions if isinstance(exception, BaseExceptionGroup) else ()
    return _digest(kind, *places, *sorted({class_name(type(member)) for member in members}))


def _frames(trace: TracebackType | None) -> Iterator[tuple[str, CodeType]]:
    while trace is not None:
        yield _module(trace), trace.tb_frame.f_code
        trace = trace.tb_next


def _digest(*parts: str) -> str:
    return blake2s("\n".join(parts).encode("utf-8", "backslashreplace"), digest_size=8).hexdigest()


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
