"""What a task returned: how it becomes its job's result, and how it is read again.

fits its annotation ──▶ Succeed
is JSON all the same ─▶ Succeed, with a note          read as the JSON value, with a warning
cannot be stored ─────▶ Error, final: a retry would do the task's work again
"""

from __future__ import annotations

import sys
import warnings
from itertools import count
from typing import Any

from holdfast.codec import Shape
from holdfast.constants import MAX_NOTE, MAX_RESULT
from holdfast.errors import Invalid, ResultTypeWarning
from holdfast.job import failure
from holdfast.job.outcome import NOT_STORED, TOO_BIG, Outcome, Succeed, failed
from holdfast.text import printable

JSON = Shape.of(Any)
AS_JSON = b" "  # before a result that its annotation would read as another value than was returned


def outcome_of_value(task: str, shape: Shape, value: Any) -> Outcome:
    """Return what it means for its job that a task returned a value. This raises nothing: the work is done."""
    what = f"the result of task {task}"
    try:
        return _sized(what, shape.encode(value, what))
    except Invalid as misfit:
        return _as_json(what, shape, value, failure.message_of(misfit))
    except Exception as error:  # of a method of the value
        return _as_json(what, shape, value, f"{what}: {type(error).__name__}: {failure.message_of(error)}")


def _as_json(what: str, shape: Shape, value: Any, misfit: str) -> Outcome:
    """Return what it means that a value does not fit the annotation: it may be JSON all the same."""
    try:
        result = JSON.encode(value, what)
    except Exception:
        return _refused("ResultNotStored", misfit, NOT_STORED)
    mark = AS_JSON if _can_read(shape, result) else b""
    return _sized(what, mark + result, _one_line(f"{misfit}; it is stored as JSON, and does not fit the annotation"))


def _can_read(shape: Shape, result: bytes) -> bool:
    """Tell whether an annotation reads JSON, perhaps as another value than it is: `bytes` reads any base64."""
    try:
        shape.decode(result, "")
    except Invalid:
        return False
    return True


def _fits(shape: Shape, value: Any) -> bool:
    try:
        shape.encode(value, "")
    except Invalid:
        return False
    return True


def _sized(what: str, result: bytes, note: str = "") -> Outcome:
    if len(result) <= MAX_RESULT:
        return Succeed(result, note)
    words = f"{what} has {len(result)} bytes; {MAX_RESULT} are allowed: store it elsewhere and return a reference"
    return _refused("ResultTooBig", words, TOO_BIG)


def _refused(kind: str, words: str, group: str) -> Outcome:
    return failed(
        kind, f"{words}. The task has done its work, and a retry would do it again", group=group, final="refused"
    )


def _one_line(words: str) -> str:
    """Return words as a note takes them: on one line, and of no more than its bytes."""
    return printable(words).encode()[:MAX_NOTE].decode(errors="ignore")


def decode_result(shape: Shape, data: bytes, what: str) -> Any:
    """Return the value of a stored result; if it does not fit its type, as the JSON value that it is, with a warning.

    Raises:
        Invalid: it is not JSON.
    """
    try:
        value = shape.decode(data, what)
        if not data.startswith(AS_JSON):
            return value
        value = JSON.decode(data, what)
        if _fits(shape, value):  # the annotation was corrected meanwhile
            return value
        misfit = f"{what} does not fit its type: the task returned a {type(value).__name__}"
    except Invalid as error:
        value, misfit = JSON.decode(data, what), str(error)
    warning = ResultTypeWarning(f"{misfit}; the JSON value is returned as it is stored")
    warnings.warn(warning, stacklevel=_level_of_caller())
    return value


def _level_of_caller() -> int:
    """Return how many frames above this function's caller the program stands that uses Holdfast."""
    for level in count(1):
        try:
            module = sys._getframe(level).f_globals.get("__name__", "")
        except ValueError:  # there is none
            return 1
        if not module.startswith("holdfast."):
            return level
    raise AssertionError
