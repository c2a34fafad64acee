"""Why an attempt failed, as a value: text to read and a fingerprint to count by, never an exception to rebuild."""

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

MAX_MESSAGE = 8 * 1024
MAX_TRACEBACK = 64 * 1024
MAX_NOTES = 16

_CUT = "\n... cut here ...\n"
_NOT_IN_A_GROUP = re.compile(r"[^A-Za-z0-9_.-]+", re.ASCII)
_LIBRARIES = tuple({sysconfig.get_path(path) + "/" for path in ("stdlib", "platstdlib", "purelib", "platlib")})
_RUNNERS = ("holdfast.", "asyncio.", "concurrent.futures.", "threading.")  # what may stand above a task's own frames


class Failure(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An exception of a task, or the death of its process, described.

    Failures of one `group` share a cause, as far as anyone can tell; those of
    one `fingerprint` came from the same place in the code as well.
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
        """Describe the death of a process; `memory` is the bytes that it was last seen to hold."""
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
    """Describe an exception. This raises nothing, whatever the exception's own methods do."""
    kind = _kind(exception)
    return Failure(
        type=_cut(kind, 512),
        message=message_of(exception),
        notes=_notes(exception),
        traceback=_cut(_traceback(exception), MAX_TRACEBACK),
        group=group or group_of(exception),
        fingerprint=_fingerprint(exception, kind),
    )


def message_of(exception: BaseException) -> str:
    """Return the text of an exception, however long it is and whatever its own methods do."""
    return message_from(exception)


def message_from(words: object) -> str:
    """Return any words as a failure can have them, also those that UTF-8 has not: a file's name in an OSError."""
    return _cut(_text(words), MAX_MESSAGE)


def group_of(exception: BaseException) -> str:
    """Return the group of an exception that names none: its type."""
    return _NOT_IN_A_GROUP.sub("_", _kind(exception).replace("<locals>.", ""))[:MAX_NAME]


def encode(failure: Failure) -> bytes:
    """Return a failure as bytes for the store; shortened if they are too many, as control characters may make them."""
    data = msgspec.json.encode(failure)
    if len(data) > MAX_ERROR:
        message, trace = _cut(failure.message, 2048), _cut(failure.traceback, 16 * 1024)
        data = msgspec.json.encode(msgspec.structs.replace(failure, message=message, traceback=trace, notes=()))
    return data


def decode(data: bytes) -> Failure:
    """Return the failure that `encode` wrote. Bytes that are none give one that says so: a job can always be read."""
    try:
        return msgspec.json.decode(data, type=Failure)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        words = f"the error of this attempt cannot be read: {error}"
        return Failure(type="Unreadable", message=words, group="unreadable", fingerprint="unreadable")


def _kind(exception: BaseException) -> str:
    kind = type(exception)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _text(value: object) -> str:
    try:
        return str(value)
    except BaseException as error:
        return f"<its text cannot be had: __str__ raised {type(error).__name__}>"


def _notes(exception: BaseException) -> tuple[str, ...]:
    try:
        notes = getattr(exception, "__notes__", ())
    except BaseException:
        return ("<its notes cannot be had>",)
    return tuple(_cut(_text(note), MAX_MESSAGE) for note in notes[:MAX_NOTES]) if isinstance(notes, list) else ()


def _traceback(exception: BaseException) -> str:
    """Return the traceback as Python prints it, from the first frame of the task on."""
    try:
        own = _without_runner(exception.__traceback__)
        return "".join(traceback.format_exception(type(exception), exception, own))
    except BaseException as error:
        return f"<the traceback cannot be had: {type(error).__name__} while formatting it>\n"


def _without_runner(trace: TracebackType | None) -> TracebackType | None:
    """Skip the frames that called the task: ours, then ours and the event loop's."""
    own = trace
    prefixes: tuple[str, ...] = _RUNNERS[:1]
    while own is not None and _module(own).startswith(prefixes):
        own, prefixes = own.tb_next, _RUNNERS
    return own or trace


def _module(trace: TracebackType) -> str:
    return f"{trace.tb_frame.f_globals.get('__name__', '')}."


def _fingerprint(exception: BaseException, kind: str) -> str:
    """Digest the type and the functions of the user's code that it passed through, without their lines.

    A function counts once, so that the depth of a recursion does not matter.
    """
    frames = list(_frames(_without_runner(exception.__traceback__)))
    user = [(module, code) for module, code in frames if not code.co_filename.startswith((*_LIBRARIES, "<frozen"))]
    places = dict.fromkeys(f"{module}:{code.co_qualname}" for module, code in user or frames)
    members = exception.exceptions if isinstance(exception, BaseExceptionGroup) else ()
    return _digest(kind, *places, *sorted({_kind(member) for member in members}))


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


def _cut(text: str, most: int) -> str:
    """Return text that UTF-8 can hold in `most` bytes: the middle goes first."""
    half = (most - len(_CUT)) // 2
    if len(text) > 2 * most:  # so that a huge text is not encoded as a whole
        text = f"{text[:most]}{text[-most:]}"
    data = text.encode("utf-8", "backslashreplace")
    if len(data) <= most:
        return data.decode()
    return data[:half].decode(errors="ignore") + _CUT + data[-half:].decode(errors="ignore")
