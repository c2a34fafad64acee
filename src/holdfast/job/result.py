"""The result of a job: how the return value of its task is stored, and read again.

fits its annotation ──▶ Succeed
is other JSON ────────▶ Succeed, with a note; read as its JSON value, with a warning
cannot be stored ─────▶ Error, final: a retry would repeat the work

`constants.MAX_RESULT` limits its size.
"""

from __future__ import annotations

import sys
import warnings
from itertools import count
from typing import Any

from holdfast.codec import TypeCodec
from holdfast.constants import MAX_NOTE, MAX_RESULT
from holdfast.errors import Invalid, ResultTypeWarning
from holdfast.job import failure
from holdfast.job.outcome import NOT_STORED, TOO_BIG, Outcome, Succeed, failed
from holdfast.text import printable

JSON = TypeCodec.of(Any)
AS_JSON = b" "  # prefix of a result that its annotation would read as a different value


def outcome_of_value(task: str, codec: TypeCodec, value: Any) -> Outcome:
    """Return the outcome of a task that returned a value. Never raise: the work is done."""
    what = f"the result of task {task}"
    try:
        return _succeed(what, codec.encode(value, what))
    except Invalid as error:
        return _as_json(what, codec, value, failure.message_of(error))
    except Exception as error:  # raised by a method of the value
        return _as_json(what, codec, value, f"{what}: {type(error).__name__}: {failure.message_of(error)}")


def _as_json(what: str, codec: TypeCodec, value: Any, problem: str) -> Outcome:
    """Return the outcome for a value that does not fit the annotation; it may still be JSON."""
    try:
        result = JSON.encode(value, what)
    except Exception:
        return _refused("ResultNotStored", problem, NOT_STORED)
    prefix = AS_JSON if _can_read(codec, result) else b""
    note = _one_line(f"{problem}; it is stored as JSON, and does not fit the annotation")
    return _succeed(what, prefix + result, note)


def _can_read(codec: TypeCodec, result: bytes) -> bool:
    """Return whether an annotation can read JSON, perhaps as a different value: `bytes` reads any base64."""
    try:
        codec.decode(result, "")
    except Invalid:
        return False
    return True


def _fits(codec: TypeCodec, value: Any) -> bool:
    try:
        codec.encode(value, "")
    except Invalid:
        return False
    return True


def _succeed(what: str, result: bytes, note: str = "") -> Outcome:
    """Return the outcome for an encoded result, which may be too big."""
    if len(result) <= MAX_RESULT:
        return Succeed(result, note)
    message = f"{what} is {len(result)} bytes (limit {MAX_RESULT}); store it elsewhere and return a reference"
    return _refused("ResultTooBig", message, TOO_BIG)


def _refused(kind: str, message: str, group: str) -> Outcome:
    return failed(kind, f"{message}. The task has done its work; a retry would repeat it", group=group, final="refused")


def _one_line(text: str) -> str:
    """Return text that fits a note: a single line, shortened to MAX_NOTE bytes."""
    return printable(text).encode()[:MAX_NOTE].decode(errors="ignore")


def decode_result(codec: TypeCodec, data: bytes, what: str) -> Any:
    """Return the value of a stored result. If it does not fit its type, warn, and return its JSON value.

    Raises:
        Invalid: it is not JSON.
    """
    try:
        value = codec.decode(data, what)
        if not data.startswith(AS_JSON):
            return value
        value = JSON.decode(data, what)
        if _fits(codec, value):  # the annotation has been corrected since
            return value
        problem = f"{what} does not fit its type: the task returned a {type(value).__name__}"
    except Invalid as error:
        value, problem = JSON.decode(data, what), str(error)
    warning = ResultTypeWarning(f"{problem}; its JSON value is returned instead")
    warnings.warn(warning, stacklevel=_level_of_caller())
    return value


def _level_of_caller() -> int:
    """Return the stack level of the first frame outside of Holdfast, for warnings."""
    for level in count(1):
        try:
            module = sys._getframe(level).f_globals.get("__name__", "")
        except ValueError:  # there is none
            return 1
        if not module.startswith("holdfast."):
            return level
    raise AssertionError
