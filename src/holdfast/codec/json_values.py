"""JSON's own types: which values consist of them, and what JSON cannot represent."""

from __future__ import annotations

import math
from decimal import Decimal
from itertools import chain
from numbers import Real
from typing import Any

import msgspec

MAX_DEPTH = 100  # levels of nesting: far below the recursion limit, also on the stack of a worker
CODEC_ERRORS = (msgspec.MsgspecError, TypeError, ValueError, OverflowError, RecursionError)
NOT_FINITE = "NaN and infinities cannot be stored; pass None or a string instead"
TOO_DEEP = f"it is nested more than {MAX_DEPTH} levels deep"
PLAIN = frozenset({str, int, bool, type(None)})

_TEXT = frozenset({str})


def type_name(kind: type) -> str:
    """Return the name of a class for messages, with its module unless it is builtin."""
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def json_problem(value: Any, depth: int = 0) -> str:
    """Return why a value does not consist of JSON's own types, or ""."""
    kind = type(value)
    if kind is float or kind in PLAIN:
        return "" if kind is not float or math.isfinite(value) else NOT_FINITE
    if kind is not list and kind is not dict:
        advice = ", or call .item()" if kind.__module__ == "numpy" else ", so that it comes back as one"
        name = type_name(kind) if kind.__module__ == "numpy" else kind.__qualname__
        return f"a {name} is not a JSON type; annotate it with its type{advice}"
    if kind is dict and not _TEXT.issuperset(map(type, value)):
        return "a dict has keys that are not str; annotate it, as dict[int, str] for example"
    if depth == MAX_DEPTH:
        return TOO_DEEP
    for item in value.values() if kind is dict else value:
        if type(item) not in PLAIN and (problem := json_problem(item, depth + 1)):
            return problem
    return ""


def is_finite(value: object) -> bool:
    """Return whether a value contains no NaN and no infinity, as far as its parts are known."""
    try:
        return value_problem(msgspec.to_builtins(value, builtin_types=(Decimal,), enc_hook=_parts)) != NOT_FINITE
    except CODEC_ERRORS:
        return True  # it cannot be stored for another reason


def _parts(value: object) -> Any:
    """Return an object that msgspec does not know as one that it knows, to look for NaN in it."""
    kind = type(value)
    if kind.__module__ == "numpy" and isinstance(value, Real):
        return float(value)
    return vars(value) if hasattr(kind, "__pydantic_validator__") else None


def value_problem(value: object, depth: int = 0) -> str:
    """Return why a value, converted to builtin types, cannot be stored, or ""."""
    if isinstance(value, (float, Decimal)):
        finite = value.is_finite() if isinstance(value, Decimal) else math.isfinite(value)
        return "" if finite else NOT_FINITE
    if not isinstance(value, (dict, list, tuple)):
        return ""
    if depth == MAX_DEPTH:
        return TOO_DEEP
    for item in chain(value, value.values()) if isinstance(value, dict) else value:
        if type(item) not in PLAIN and (problem := value_problem(item, depth + 1)):
            return problem
    return ""
