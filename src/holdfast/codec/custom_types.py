"""Classes that msgspec does not know: how their values are written as JSON, and read again.

    paths               as text
    numbers of NumPy    as numbers
    one's own classes   as `jobs.type(Money, encode, decode)` declares

The registry belongs to the process, not to an app: a class is stored in the same way everywhere. An entry is valid for
exactly one class, because a value of a subclass would come back as a value of its base.
"""

from __future__ import annotations

import math
import pathlib
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

from msgspec.inspect import CustomType, type_info

from holdfast.codec.json_values import json_problem, type_name
from holdfast.errors import Invalid

T = TypeVar("T")

_CONTAINERS = (list, tuple, dict, set, frozenset, UUID)  # msgspec writes their subclasses as it writes them


class StoredAs(NamedTuple):
    """How the values of a class are stored: as what `encode` returns, and `decode` takes."""

    kind: type
    encode: Callable[[Any], Any]
    decode: Callable[[Any], Any]

    def to_json(self, value: object) -> Any:
        """Return a value as JSON's own types.

        Raises:
            ValueError: it cannot be encoded.
        """
        try:
            encoded = self.encode(value)
        except Exception as error:
            raise ValueError(f"encode of {type_name(self.kind)} raised {type(error).__name__}: {error}") from error
        if problem := json_problem(encoded):
            raise ValueError(f"encode of {type_name(self.kind)} returned {encoded!r:.100}: {problem}")
        return encoded

    def from_json(self, encoded: Any) -> Any:
        """Return the value that `to_json` encoded.

        Raises:
            ValueError: the JSON is not what `encode` returns.
        """
        try:
            return self.decode(encoded)
        except Exception as error:
            raise ValueError(f"decode of {type_name(self.kind)} raised {type(error).__name__}: {error}") from error


def stored_as(kind: object) -> StoredAs | None:
    """Return how the values of a class are stored, or None if it is unknown."""
    if not isinstance(kind, type):
        return None
    found: Any = kind  # mypy does not take classes for hashable
    return _PATHS.get(found) or _registered.get(found) or _numpy_number(found)


def register_type(kind: type[T], encode: Callable[[T], Any], decode: Callable[[Any], T]) -> None:
    """Declare how the values of a class are stored.

    Raises:
        Invalid: this is not a class, it needs no declaration, or another one was made.
    """
    if not isinstance(kind, type):
        raise Invalid(f"expected a class to declare as a type, got {kind!r:.100}")
    for name, function in (("encode", encode), ("decode", decode)):
        if not callable(function):
            raise Invalid(f"type {type_name(kind)}: expected {name} as a function, got {function!r:.100}")
    if reason := _needs_no_declaration(kind):
        raise Invalid(f"type {type_name(kind)} cannot be declared: {reason}")
    new = StoredAs(kind, encode, decode)
    if _registered.setdefault(kind, new) != new:
        raise Invalid(f"type {type_name(kind)} is already declared, with other functions; declare it once")


def _needs_no_declaration(kind: type) -> str:
    """Return why Holdfast would not use the functions of a class, or ""."""
    if kind in _PATHS or _numpy_number(kind):
        return "Holdfast stores its values without a declaration"
    if hasattr(kind, "__pydantic_validator__"):
        return "Pydantic stores its values; use serializers and validators of Pydantic"
    if base := next((base for base in _CONTAINERS if issubclass(kind, base)), None):
        return f"its values are stored like any {base.__name__}; wrap the {base.__name__} in a class of its own"
    if not isinstance(type_info(kind), CustomType):
        return "its values are stored without a declaration, field by field if it has fields"
    return ""


# Paths


def _path(kind: type[pathlib.PurePath], text: Any) -> pathlib.PurePath:
    if not isinstance(text, str):
        raise TypeError(f"expected text, got {text!r:.100}")
    return kind(text)


_PATHS = {
    kind: StoredAs(kind, str, partial(_path, kind))
    for kind in (
        pathlib.PurePath,
        pathlib.PurePosixPath,
        pathlib.PureWindowsPath,
        pathlib.Path,
        pathlib.PosixPath,
    )
}
_registered: dict[type, StoredAs] = {}


# Numbers of NumPy

_NUMPY_PLAIN: dict[str, type] = {"bool": bool, "bool_": bool, "integer": int, "floating": float}
_NUMPY_OTHER = frozenset({
    "integer", "signedinteger", "unsignedinteger", "floating",  # abstract
    "timedelta64",  # an integer for NumPy, but with a unit
})  # fmt: skip


@lru_cache(maxsize=4096)
def _numpy_number(kind: type) -> StoredAs | None:
    """Return how the numbers of a class of NumPy are stored; None for other classes, and for abstract ones.

    Only the names of the class and its bases are read: another thread may be about to import NumPy.
    """
    if kind.__module__ != "numpy" or kind.__name__ in _NUMPY_OTHER:
        return None
    bases = (each.__name__ for each in kind.__mro__ if each.__module__ == "numpy")
    plain = next((_NUMPY_PLAIN[base] for base in bases if base in _NUMPY_PLAIN), None)
    return StoredAs(kind, plain, partial(_number, kind, plain)) if plain else None


def _number(kind: type, plain: type, number: Any) -> Any:
    if type(number) is not plain and not (plain is float and type(number) is int):
        raise TypeError(f"expected {plain.__name__}, got {number!r:.100}")
    value = kind(number)
    if plain is float and not math.isfinite(value):
        raise ValueError(f"{number!r:.100} is out of range")
    return value
