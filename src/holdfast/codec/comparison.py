"""Compares a value with what it would come back as: by type and part by part, because `==` may compare too little.

A difference is described with the fields that lead to it: `Order.lines: Line.price: ...`.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Container, Hashable, Iterable, Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import lru_cache
from itertools import chain
from typing import Any
from uuid import UUID

import msgspec
from msgspec import UNSET

from holdfast.codec.custom_types import StoredAs, stored_as
from holdfast.codec.json_values import MAX_DEPTH, NOT_FINITE, PLAIN, TOO_DEEP, is_finite

EXACT_IN_A_FLOAT = 2**53

_SCALARS = PLAIN | {float, bytes, date, timedelta, UUID}
PRIVATE = "private fields are not stored; rename it, or leave it at its default"
MAX_MESSAGE = 600  # characters, with the fields that lead to a difference
_NO_PARTS: Mapping[str, Any] = {}


class _Everything:
    def __contains__(self, _: object) -> bool:
        return True


_ALL_ENUMS = _Everything()


def difference(original: Any, decoded: Any, enums: Container[type] = ()) -> str:
    """Return how a decoded value differs from the original, or "".

    A StrEnum may come back as text where a `str` is annotated, but not if it is one of the `enums`.

    Raises:
        RecursionError: they are nested too deeply.
    """
    try:
        return _difference(original, decoded, enums)
    except RecursionError:
        raise
    except Exception as error:  # of `__eq__`, `__len__` or `__repr__` of anyone
        return f"comparing it with what would come back raised {type(error).__name__}: {error}"


def _difference(original: Any, decoded: Any, enums: Container[type], depth: int = 0) -> str:
    if type(decoded) in _SCALARS:
        is_lost = isinstance(original, enum.Enum) and type(original) in enums
        return "" if _is_same_scalar(original, decoded) and not is_lost else _describe_change(original, decoded)
    if depth == MAX_DEPTH:
        return TOO_DEEP
    if not _have_same_structure(original, decoded):
        return _describe_change(original, decoded)
    pairs = _paired_parts(original, decoded)
    if pairs is None:
        return "" if _is_same_leaf(original, decoded) else _describe_change(original, decoded)
    if hasattr(type(decoded), "__pydantic_validator__"):
        enums = _ALL_ENUMS  # a model has converted the StrEnum that a `str` takes
    for part, decoded_part in pairs:
        if problem := _difference(part, decoded_part, enums, depth + 1):
            return _in_field(original, decoded, _place(part, decoded_part, pairs), problem)
    return ""


def _describe_change(original: object, decoded: object) -> str:
    if not is_finite(original):
        return NOT_FINITE
    if hasattr(original, "get_secret_value"):
        return "a secret is not stored, only stars; pass a reference, or give its field a serializer that reveals it"
    change = f"{original!r:.200} would come back as {decoded!r:.200}"
    if type(original) is type(decoded):
        return f"{change}; what reads or writes it must not change it"
    beside = f", and not beside {type(decoded).__name__} in a union" if isinstance(original, enum.Enum) else ""
    return f"{change}; annotate it with its actual type{beside}"


def _place(part: object, decoded_part: object, pairs: Iterable[tuple[object, object]]) -> int:
    """Return the position of the first pair of these; 0 if the pairs, of a list or dict, have been consumed."""
    return next((place for place, pair in enumerate(pairs) if pair[0] is part and pair[1] is decoded_part), 0)


def _in_field(original: object, decoded: object, place: int, problem: str) -> str:
    """Return a problem of a part with the name of its field, if it is one."""
    kind: Any = type(original)
    names = [*_model_parts(original, decoded)] if _is_model(kind) else _names_of_parts(original, decoded)
    if names is None or problem == TOO_DEEP or len(problem) > MAX_MESSAGE:
        return problem
    name = names[place]
    if _is_excluded(kind, name):
        problem = "this field is excluded from what is stored; include it, or leave it at its default"
    elif name.startswith("_"):
        problem = PRIVATE
    return f"{kind.__qualname__}.{name}: {problem}"


def _have_same_structure(original: Any, decoded: Any) -> bool:
    """Return whether two values have the same type and length, so that their parts can be compared."""
    kind: Any = type(decoded)
    if type(original) is not kind and (_has_fields(kind) or not isinstance(original, kind)):
        return False
    return not hasattr(decoded, "__len__") or len(original) == len(decoded)


def _paired_parts(original: Any, decoded: Any) -> Iterable[tuple[Any, Any]] | None:
    """Return the parts of two values of the same structure, in pairs; None if they have no parts."""
    if isinstance(decoded, (list, tuple)):
        kinds = list(map(type, decoded))
        if _SCALARS.issuperset(kinds) and kinds == list(map(type, original)) and original == decoded:
            floats = (item for item in decoded if type(item) is float) if float in kinds else ()
            if all(map(math.isfinite, floats)):
                return ()  # the usual case of a long list, at the speed of C
        return zip(original, decoded, strict=True)
    if isinstance(decoded, dict):
        return _paired_items(original, decoded)
    if isinstance(decoded, (set, frozenset)):
        decoded_items = {item: item for item in decoded}
        return [(item, decoded_items.get(item)) for item in original]
    kind: Any = type(decoded)
    names = _names_of_parts(original, decoded)
    if names is None:
        return _model_parts(original, decoded).values() if _is_model(kind) else None
    return [(getattr(original, name, UNSET), getattr(decoded, name, UNSET)) for name in names]


def _paired_items(original: dict[Any, Any], decoded: dict[Any, Any]) -> Iterable[tuple[Any, Any]]:
    """Return the keys and values of two dicts in pairs: by position, or by key if only the order differs."""
    if original.keys() == decoded.keys() and list(original) != list(decoded):  # a TypedDict has an order of its own
        place = {key: key for key in decoded}
        decoded = {place[key]: decoded[key] for key in original}
    return chain(zip(original, decoded, strict=True), zip(original.values(), decoded.values(), strict=True))


def _has_fields(kind: Hashable) -> bool:
    return field_names(kind) is not None or _is_model(kind)


@lru_cache(maxsize=4096)
def field_names(kind: Hashable) -> tuple[str, ...] | None:
    """Return the names of the fields of a struct, dataclass or attrs class, or None for other types."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return kind.__struct_fields__
    if isinstance(kind, type) and is_dataclass(kind):
        return tuple(field.name for field in fields(kind))
    attributes = getattr(kind, "__attrs_attrs__", None)
    return None if attributes is None else tuple(each.name for each in attributes)


# Models of Pydantic


@lru_cache(maxsize=4096)
def _is_model(kind: Hashable) -> bool:
    """Return whether this is a model of Pydantic. Its dataclasses are dataclasses like any other."""
    return hasattr(kind, "__pydantic_validator__") and not is_dataclass(kind)


def _fields_of_model(kind: Any) -> Mapping[str, Any]:
    found: Mapping[str, Any] = kind.__pydantic_fields__
    return found


def _model_parts(original: Any, decoded: Any) -> dict[str, tuple[Any, Any]]:
    """Return the fields of two models in pairs: declared, extra and private ones."""
    pairs = {
        name: (vars(original).get(name, UNSET), vars(decoded).get(name, UNSET))
        for name in _fields_of_model(type(decoded))
    }
    for attribute in ("__pydantic_extra__", "__pydantic_private__"):
        parts, decoded_parts = (getattr(model, attribute) or _NO_PARTS for model in (original, decoded))
        for name in {**parts, **decoded_parts}:
            pairs[name] = (parts.get(name, UNSET), decoded_parts.get(name, UNSET))
    return pairs


def _names_of_parts(original: Any, decoded: Any) -> tuple[str, ...] | None:
    """Return the names of the fields of two objects with fields, and of what a dataclass of Pydantic has besides."""
    kind: Any = type(decoded)
    names = field_names(kind)
    if names is None or getattr(kind, "__pydantic_config__", _NO_PARTS).get("extra") != "allow":
        return names
    found = {**getattr(original, "__dict__", _NO_PARTS), **getattr(decoded, "__dict__", _NO_PARTS)}
    return (*names, *(name for name in found if name not in names and not hasattr(kind, name)))  # not cached ones


def _is_excluded(kind: Any, name: str) -> bool:
    found = getattr(kind, "__pydantic_fields__", _NO_PARTS).get(name)
    return bool(getattr(found, "exclude", False))


# Values without parts


def _is_same_scalar(original: object, decoded: object) -> bool:
    if type(decoded) is float:
        whole = type(original) is int and abs(original) <= EXACT_IN_A_FLOAT
        return (whole or isinstance(original, float)) and original == decoded and math.isfinite(decoded)
    if type(original) is bool and type(decoded) is int:  # as Pydantic reads it
        return False
    return isinstance(original, type(decoded)) and original == decoded


def _is_same_leaf(original: Any, decoded: Any) -> bool:
    if isinstance(decoded, Decimal):
        return bool(decoded.is_finite() and original == decoded)
    if isinstance(decoded, (datetime, time)) and (original.tzinfo is None) != (decoded.tzinfo is None):
        return False
    if isinstance(decoded, datetime):
        return bool(original - decoded == timedelta())  # `==` is false for all times that a clock change repeats
    kind: Any = type(decoded)
    if stored := stored_as(kind):
        return _is_same_custom(original, decoded, stored)
    return original is decoded if isinstance(decoded, enum.Enum) else bool(original == decoded)


def _is_same_custom(original: Any, decoded: Any, stored: StoredAs) -> bool:
    """Compare by `==`; where it says nothing, as for arrays and for classes without it, by what is stored."""
    kind: Any = type(decoded)
    if kind.__eq__ is not object.__eq__:
        with suppress(ValueError):
            return bool(original == decoded)
    try:
        return bool(stored.to_json(original) == stored.to_json(decoded))
    except ValueError:
        return False
