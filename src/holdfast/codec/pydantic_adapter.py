"""Annotations that name a class of Pydantic: Pydantic stores and reads their values, as a whole.

Only Pydantic knows which model of a union a value is, what a strict model accepts, and what validators change. A class
of Pydantic exists only if the program has imported Pydantic, so nothing is imported here, and Holdfast does not depend
on it.

Fields are stored under their names, and read by name or by alias: an alias may be for validation only, or a path.
"""

from __future__ import annotations

import enum
import re
import sys
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import is_dataclass
from functools import lru_cache
from typing import Any

import msgspec
from msgspec.inspect import CustomType, type_info

from holdfast.codec.custom_types import stored_as
from holdfast.codec.json_values import TOO_DEEP
from holdfast.text import listed

OLDEST = (2, 11)  # the first release that reads fields by name, even if a model does not allow it
BYTES = (bytes, bytearray, memoryview)  # msgspec writes base64, Pydantic text
MAX_PROBLEMS = 5  # in a message
LONE_SURROGATE = (
    "its text has a lone surrogate, which is not valid Unicode; decode it correctly, or pass annotated bytes"
)

_EXPLANATIONS = (
    ("surrogates not allowed", LONE_SURROGATE),
    ("Circular reference", TOO_DEEP),
    ("depth exceeded", TOO_DEEP),
    (
        "invalid utf-8",
        "Pydantic stores bytes as text, and these are not UTF-8; set ser_json_bytes and val_json_bytes of the model's "
        'configuration to "base64"',
    ),
)
_FIRST_SENTENCE = re.compile(r"[.]\s|\n")
_UNEXPECTED = re.compile(
    r"^ *PydanticSerializationUnexpectedValue\(Expected (`.*?`) - .*?"
    r"\[(?:field_name='(?P<field>\w+)', )?input_value=.*, input_type=(?P<kind>[\w.]+)\]\)$",
    re.M,
)


class Unsupported(TypeError):
    """An annotation that msgspec must not store either."""


class PydanticAdapter:
    """Encodes and decodes the values of one annotation with Pydantic."""

    __slots__ = ("_adapter", "_validation_error")

    def __init__(self, annotation: Any) -> None:
        pydantic: Any = sys.modules["pydantic"]
        if _release(pydantic.VERSION) < OLDEST:
            raise TypeError(f"Pydantic {pydantic.VERSION} is too old; install {'.'.join(map(str, OLDEST))} or newer")
        self._validation_error: type[Exception] = pydantic.ValidationError
        try:
            self._adapter = pydantic.TypeAdapter(annotation)
            self._adapter.rebuild(raise_errors=True)
        except Exception as error:
            raise TypeError(f"Pydantic cannot store it: {_FIRST_SENTENCE.split(str(error))[0]}") from None
        if problem := next(filter(None, map(_schema_problem, _all_schemas(self._adapter.core_schema))), ""):
            raise Unsupported(problem)

    def encode(self, value: object) -> bytes:
        """Return a value as JSON.

        Raises:
            ValueError: Pydantic cannot write it, or a serializer raised an exception.
        """
        try:
            data: bytes = self._adapter.dump_json(value, by_alias=False, round_trip=True, warnings="error")
        except RecursionError:
            raise
        except Exception as error:
            raise ValueError(_serialization_problem(error)) from error
        return data

    def decode(self, data: bytes) -> Any:
        """Return the value of JSON.

        Raises:
            ValueError: the JSON does not fit, or a validator raised an exception.
        """
        try:
            return self._adapter.validate_json(data, by_alias=True, by_name=True)
        except RecursionError:
            raise
        except self._validation_error as error:
            raise ValueError(_validation_problems(error)) from None  # its text has the values
        except Exception as error:
            raise ValueError(f"a validator raised {type(error).__name__}: {error}") from error


@lru_cache(maxsize=4096)
def adapter_of(kind: type) -> PydanticAdapter:
    """Return the adapter of a class."""
    return PydanticAdapter(kind)


def is_pydantic(kind: object) -> bool:
    """Return whether only Pydantic can store the values of a class."""
    if not isinstance(kind, type) or stored_as(kind):
        return False
    if hasattr(kind, "__pydantic_validator__"):
        return True
    return hasattr(kind, "__get_pydantic_core_schema__") and isinstance(type_info(kind), CustomType)


def names_other_values(annotation: Any) -> bool:
    """Return whether an annotation names a class of Pydantic whose values are of another class: AwareDatetime."""
    return any(is_pydantic(part) and not hasattr(part, "__pydantic_validator__") for part in _all_parts(annotation))


def is_pydantic_dataclass(kind: type) -> bool:
    """Return whether this is a dataclass of Pydantic, which msgspec takes for one like any other."""
    return hasattr(kind, "__pydantic_validator__") and is_dataclass(kind)


def names_bytes(annotation: Any) -> bool:
    """Return whether an annotation names bytes outside of the classes of Pydantic."""
    return any(isinstance(part, type) and part in BYTES for part in _all_parts(annotation, is_pydantic))


def names_pydantic(annotation: Any) -> bool:
    """Return whether an annotation names a class of Pydantic, or a `Field`, at any depth."""
    if "pydantic" not in sys.modules:
        return False
    return any(is_pydantic(part) or _is_metadata(part) for part in _all_parts(annotation))


def ambiguous_enums(annotation: Any) -> dict[type, type]:
    """Return the enums that a union names beside the type of their values, which Pydantic reads instead of them."""
    found: dict[Any, type] = {}
    for part in _all_parts(annotation):
        if typing.get_origin(part) not in (typing.Union, types.UnionType):
            continue
        members = [each for each in typing.get_args(part) if isinstance(each, type)]
        for kind in members:
            if issubclass(kind, enum.Enum):
                values = tuple(each.value for each in kind)
                others = (other for other in members if any(type(value) is other for value in values))
                found.update((kind, other) for other in others)
    return found


def check_classes(annotation: Any) -> None:
    """Refuse classes whose values would be stored incompletely, or only by some releases of Python.

    Pydantic reads a TypedDict of the standard library only in a newer Python.

    Raises:
        Unsupported: the annotation names such a class.
    """
    for part in _all_parts(annotation):
        if part is sys.modules["pydantic"].BaseModel:
            raise Unsupported("BaseModel has no fields; name the model, or a union of models")
        if typing.is_typeddict(part) and type(part).__module__ == "typing" and sys.version_info < (3, 12):
            raise Unsupported(
                f"{part!r} beside a class of Pydantic; use typing_extensions.TypedDict before Python 3.12"
            )


def _schema_problem(schema: dict[str, Any]) -> str:
    """Return why values of a schema of Pydantic cannot be stored, or ""."""
    if getattr(schema.get("function"), "__name__", "") == "import_string":
        return "an ImportString would import any object that the store names; pass its name as a str"
    if schema.get("type") == "generator":
        return "an Iterable of Pydantic can be read only once; write list or Sequence"
    return ""


def _all_schemas(schema: object) -> Iterator[dict[str, Any]]:
    """Yield a schema of Pydantic, and all schemas inside it, each once."""
    seen: dict[int, object] = {}
    pending = [schema]
    while pending:
        part = pending.pop()
        if id(part) in seen:
            continue
        seen[id(part)] = part
        if isinstance(part, dict):
            yield part
            pending.extend(part.values())
        elif isinstance(part, (list, tuple)):
            pending.extend(part)


def _is_metadata(part: object) -> bool:
    return not isinstance(part, type) and type(part).__module__.partition(".")[0] == "pydantic"


def _all_parts(annotation: Any, is_closed: Callable[[Any], bool] = lambda _: False) -> Iterator[Any]:
    """Yield an annotation, and everything inside it, each once; without what is inside closed ones."""
    seen: dict[int, Any] = {}  # by identity, because metadata need not be hashable
    pending = [annotation]
    while pending:
        part = pending.pop()
        if id(part) not in seen:
            seen[id(part)] = part
            yield part
            pending.extend(() if is_closed(part) else _parts(part))


def _parts(annotation: Any) -> Iterable[Any]:
    """Return the annotations that an annotation consists of: its arguments, or the fields of a class."""
    if typing.get_origin(annotation) is not None:
        return [typing.get_origin(annotation), *typing.get_args(annotation)]
    for attribute in ("__value__", "__supertype__"):  # of a type alias, and of a NewType
        if hasattr(annotation, attribute):
            return [getattr(annotation, attribute)]
    if not isinstance(annotation, type) or not _has_fields(annotation):
        return ()
    try:
        return typing.get_type_hints(annotation, include_extras=True).values()
    except Exception:  # msgspec or Pydantic report a name that does not exist
        return ()


def _has_fields(kind: type) -> bool:
    is_struct = issubclass(kind, msgspec.Struct)
    return (
        is_struct
        or is_dataclass(kind)
        or any(hasattr(kind, name) for name in ("__attrs_attrs__", "__total__", "_fields"))
    )


def _release(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)[:2]))


def _serialization_problem(error: Exception) -> str:
    text = str(error)
    for needle, explanation in _EXPLANATIONS:
        if needle in text:
            return explanation
    if unexpected := list(_UNEXPECTED.finditer(text)):
        return _unexpected_value(unexpected)
    is_own = type(error).__name__ == "PydanticSerializationError"
    return text if is_own else f"a serializer raised {type(error).__name__}: {text}"


def _unexpected_value(found: Sequence[re.Match[str]]) -> str:
    """Return what the first value should be, what it is, and where, without the value itself, which may be secret."""
    field, kind = found[0].group("field", "kind")
    expected = dict.fromkeys(each[1] for each in found if each["field"] == field)  # one per member of a union
    return f"Expected {listed(list(expected))}, got `{kind}`{_place([field] if field else [])}"


def _validation_problems(error: Any) -> str:
    """Return what is wrong, and where, without the values, which may be secret."""
    problems = error.errors(include_url=False, include_context=False, include_input=False)
    told = [f"{each['msg']}{_place(each['loc'])}" for each in problems[:MAX_PROBLEMS]]
    more = len(problems) - len(told)
    return "; ".join([*told, f"and {more} more"] if more else told)


def _place(loc: Iterable[int | str]) -> str:
    """Return the place of an error as msgspec writes it."""
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc)
    return f" - at `${path}`" if path else ""
