"""Values as JSON, checked against annotations: arguments, results and checkpoints.

Every accepted value comes back equal. So each value is encoded, decoded as its annotation, and compared before it is
stored: JSON writes NaN as null, a tuple as a list and a subclass as its base, and only a comparison finds all cases.
Without an annotation, only JSON's own types are accepted.
"""

from __future__ import annotations

import enum
import math
import re
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, fields, is_dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import lru_cache
from itertools import chain
from typing import Any, TypeVar
from uuid import UUID

import msgspec
from msgspec import UNSET
from msgspec.inspect import AnyType, CustomType, ExtType, RawType, type_info
from msgspec.structs import astuple

from holdfast.errors import Invalid

T = TypeVar("T")

MAX_DEPTH = 100  # levels of nesting: far below the recursion limit, also on the stack of a worker
EXACT_IN_A_FLOAT = 2**53

_PLAIN = frozenset({str, int, bool, type(None)})
_TEXT = frozenset({str})
_SCALARS = _PLAIN | {float, bytes, date, timedelta, UUID}
CODEC_ERRORS = (msgspec.MsgspecError, TypeError, ValueError, OverflowError, RecursionError)
_NOT_FINITE = "NaN and infinities cannot be stored; pass None or a string instead"
_TOO_DEEP = f"it is nested more than {MAX_DEPTH} levels deep"

_UNSUPPORTED = re.compile(r"Encoding objects of type (.+) is unsupported")

encoder = msgspec.json.Encoder()


@dataclass(frozen=True, slots=True, eq=False)
class TypeCodec:
    """Encodes and decodes the values of one annotation."""

    decoder: msgspec.json.Decoder[Any]
    is_json: bool  # the annotation is Any: values of JSON's own types

    @classmethod
    def of(cls, annotation: Any) -> TypeCodec:
        """Return the codec of an annotation.

        Raises:
            TypeError: values of this type cannot be stored.
        """
        annotation = Any if annotation is object else annotation
        described = type_info(annotation)
        if unsupported := _unsupported_type(described, set()):
            raise TypeError(f"{unsupported} cannot be stored as JSON")
        return cls(msgspec.json.Decoder(annotation), isinstance(described, AnyType))

    def encode(self, value: object, what: str) -> bytes:
        """Return a value as bytes, or raise Invalid about `what`."""
        try:
            data = encoder.encode(value)
            decoded = self.decoder.decode(data)
        except CODEC_ERRORS as error:
            raise Invalid(f"{what}: {_codec_problem(value, error)}") from None
        if problem := self.roundtrip_problem(value, decoded):
            raise Invalid(f"{what}: {problem}")
        return data

    def decode(self, data: bytes, what: str) -> Any:
        """Return the value of stored bytes, or raise Invalid about `what`."""
        try:
            return self.decoder.decode(data)
        except CODEC_ERRORS as error:
            raise Invalid(f"{what} does not fit its type: {error}") from None

    def roundtrip_problem(self, original: object, decoded: object) -> str:
        """Return why a value would not come back equal, or "" if it would."""
        if type(original) in _PLAIN and type(original) is type(decoded) and original == decoded:
            return ""  # the usual case
        try:
            return _json_problem(original) if self.is_json else _difference(original, decoded)
        except RecursionError:
            return _TOO_DEEP


def encode_checkpoint(value: object) -> bytes:
    """Return a checkpoint as bytes. Its type is known only when it is read, so accept any value that can be stored."""
    try:
        data = encoder.encode(value)
        problem = _value_problem(msgspec.to_builtins(value, builtin_types=(Decimal,)))
    except CODEC_ERRORS as error:
        problem = _codec_problem(value, error)
    if problem:
        raise Invalid(f"the checkpoint cannot be stored: {problem}")
    return data


def decode_checkpoint(data: bytes, kind: type[T]) -> T:
    """Return the checkpoint that `encode_checkpoint` stored, as a value of `kind`."""
    annotation: Any = kind
    try:
        value: T = _codec_of(annotation).decode(data, "the checkpoint")
    except Invalid as error:
        saved = data[:100].decode(errors="replace")
        raise Invalid(
            f"{error}. An earlier attempt saved {saved}, perhaps with an older release of the task; read the "
            "checkpoint as both types, as in checkpoint(int | str), or as Any"
        ) from None
    return value


@lru_cache(maxsize=4096)
def _codec_of(annotation: Any) -> TypeCodec:
    return TypeCodec.of(annotation)


def _unsupported_type(described: object, seen: set[int]) -> str:
    """Return the first type inside a description of msgspec that JSON cannot represent, or ""."""
    if id(described) in seen:
        return ""
    seen.add(id(described))
    if isinstance(described, CustomType):
        return repr(described.cls)
    if isinstance(described, (RawType, ExtType)):
        return "msgspec.Raw" if isinstance(described, RawType) else "msgspec.Ext"
    if isinstance(described, tuple):
        parts: Iterable[object] = described
    elif isinstance(described, msgspec.Struct) and type(described).__module__ == "msgspec.inspect":
        parts = astuple(described)
    else:
        return ""
    return next(filter(None, (_unsupported_type(part, seen) for part in parts)), "")


def _json_problem(value: Any, depth: int = 0) -> str:
    """Return why a value does not consist of JSON's own types, or ""."""
    kind = type(value)
    if kind is float or kind in _PLAIN:
        return "" if kind is not float or math.isfinite(value) else _NOT_FINITE
    if kind is not list and kind is not dict:
        return f"a {kind.__qualname__} is not a JSON type; annotate it with its type, so that it comes back as one"
    if kind is dict and not _TEXT.issuperset(map(type, value)):
        return "a dict has keys that are not str; annotate it, as dict[int, str] for example"
    if depth == MAX_DEPTH:
        return _TOO_DEEP
    for item in value.values() if kind is dict else value:
        if type(item) not in _PLAIN and (problem := _json_problem(item, depth + 1)):
            return problem
    return ""


def _difference(original: Any, decoded: Any, depth: int = 0) -> str:
    """Return how a decoded value differs from the original, or ""."""
    if type(decoded) in _SCALARS:
        return "" if _is_same_scalar(original, decoded) else _describe_change(original, decoded)
    if depth == MAX_DEPTH:
        return _TOO_DEEP
    if not _have_same_structure(original, decoded):
        return _describe_change(original, decoded)
    pairs = _paired_parts(original, decoded)
    if pairs is None:
        return "" if _is_same_leaf(original, decoded) else _describe_change(original, decoded)
    for part, decoded_part in pairs:
        if problem := _difference(part, decoded_part, depth + 1):
            return problem
    return ""


def _describe_change(original: object, decoded: object) -> str:
    if not _is_finite(original):
        return _NOT_FINITE
    return f"{original!r:.200} would come back as {decoded!r:.200}; annotate it with its actual type"


def _have_same_structure(original: Any, decoded: Any) -> bool:
    """Return whether two values have the same type and length, so that their parts can be compared."""
    kind: Any = type(decoded)
    if type(original) is not kind and (_field_names(kind) is not None or not isinstance(original, kind)):
        return False
    return not hasattr(decoded, "__len__") or len(original) == len(decoded)


def _paired_parts(original: Any, decoded: Any) -> Iterable[tuple[Any, Any]] | None:
    """Return the parts of two values of the same structure, in pairs; None if they have no parts."""
    if isinstance(decoded, (list, tuple)):
        kinds = list(map(type, decoded))
        if _SCALARS.issuperset(kinds) and kinds == list(map(type, original)) and original == decoded:
            return ()  # the usual case of a long list, at the speed of C
        return zip(original, decoded, strict=True)
    if isinstance(decoded, dict):
        return chain(zip(original, decoded, strict=True), zip(original.values(), decoded.values(), strict=True))
    if isinstance(decoded, (set, frozenset)):
        decoded_items = {item: item for item in decoded}
        return [(item, decoded_items.get(item)) for item in original]
    kind: Any = type(decoded)
    names = _field_names(kind)
    return (
        None if names is None else [(getattr(original, name, UNSET), getattr(decoded, name, UNSET)) for name in names]
    )


@lru_cache(maxsize=4096)
def _field_names(kind: Hashable) -> tuple[str, ...] | None:
    """Return the names of the fields of a struct, dataclass or attrs class, or None for other types."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return kind.__struct_fields__
    if isinstance(kind, type) and is_dataclass(kind):
        return tuple(field.name for field in fields(kind))
    attributes = getattr(kind, "__attrs_attrs__", None)
    return None if attributes is None else tuple(each.name for each in attributes)


def _is_same_scalar(original: object, decoded: object) -> bool:
    if type(decoded) is float:
        whole = type(original) is int and abs(original) <= EXACT_IN_A_FLOAT
        return (whole or isinstance(original, float)) and original == decoded and math.isfinite(decoded)
    return isinstance(original, type(decoded)) and original == decoded


def _is_same_leaf(original: Any, decoded: Any) -> bool:
    if isinstance(decoded, Decimal):
        return bool(decoded.is_finite() and original == decoded)
    if isinstance(decoded, (datetime, time)) and (original.tzinfo is None) != (decoded.tzinfo is None):
        return False
    if isinstance(decoded, datetime):
        return bool(original - decoded == timedelta())  # `==` is false for all times that a clock change repeats
    return original is decoded if isinstance(decoded, enum.Enum) else bool(original == decoded)


def _codec_problem(value: object, error: Exception) -> str:
    """Return why a value could not be encoded, or not be decoded again."""
    if isinstance(error, RecursionError):
        return _TOO_DEEP
    if not _is_finite(value):
        return _NOT_FINITE
    if isinstance(error, UnicodeEncodeError):
        return "its text has a lone surrogate, which is not valid Unicode; decode it correctly, or pass annotated bytes"
    if found := _UNSUPPORTED.fullmatch(str(error)):
        return f"objects of type {found[1]} cannot be stored; use JSON's own types, dates, dataclasses or Structs"
    return str(error)


def _is_finite(value: object) -> bool:
    try:
        return _value_problem(msgspec.to_builtins(value, builtin_types=(Decimal,))) != _NOT_FINITE
    except CODEC_ERRORS:
        return True  # it cannot be stored for another reason


def _value_problem(value: object, depth: int = 0) -> str:
    """Return why a value, converted to builtin types, cannot be stored, or ""."""
    if isinstance(value, (float, Decimal)):
        is_finite = value.is_finite() if isinstance(value, Decimal) else math.isfinite(value)
        return "" if is_finite else _NOT_FINITE
    if not isinstance(value, (dict, list, tuple)):
        return ""
    if depth == MAX_DEPTH:
        return _TOO_DEEP
    for item in chain(value, value.values()) if isinstance(value, dict) else value:
        if type(item) not in _PLAIN and (problem := _value_problem(item, depth + 1)):
            return problem
    return ""
