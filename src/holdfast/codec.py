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
REFUSED = (msgspec.MsgspecError, TypeError, ValueError, OverflowError, RecursionError)
_NOT_FINITE = "NaN and infinities cannot be stored; pass None or a string instead"
_TOO_DEEP = f"it is nested more than {MAX_DEPTH} levels deep"

_UNSUPPORTED = re.compile(r"Encoding objects of type (.+) is unsupported")

encoder = msgspec.json.Encoder()


@dataclass(frozen=True, slots=True, eq=False)
class Shape:
    """The values of one annotation, and how they are stored."""

    decoder: msgspec.json.Decoder[Any]
    is_json: bool

    @classmethod
    def of(cls, annotation: Any) -> Shape:
        """Return the shape of an annotation.

        Raises:
            TypeError: values of it cannot be stored.
        """
        annotation = Any if annotation is object else annotation
        described = type_info(annotation)
        if stranger := _stranger(described, set()):
            raise TypeError(f"{stranger} cannot be stored")
        return cls(msgspec.json.Decoder(annotation), isinstance(described, AnyType))

    def encode(self, value: object, what: str) -> bytes:
        """Return the bytes of a value, or raise Invalid."""
        try:
            data = encoder.encode(value)
            came = self.decoder.decode(data)
        except REFUSED as error:
            raise Invalid(f"{what}: {_reason(value, error)}") from None
        if objection := self.objection(value, came):
            raise Invalid(f"{what}: {objection}")
        return data

    def decode(self, data: bytes, what: str) -> Any:
        """Return the value of stored bytes, or raise Invalid."""
        try:
            return self.decoder.decode(data)
        except REFUSED as error:
            raise Invalid(f"{what} does not fit its type: {error}") from None

    def objection(self, sent: object, came: object) -> str:
        """Return why a value and its decoded copy differ too much to store it, or ""."""
        if type(sent) in _PLAIN and type(sent) is type(came) and sent == came:
            return ""  # the usual case
        try:
            return _not_json(sent) if self.is_json else _difference(sent, came)
        except RecursionError:
            return _TOO_DEEP


def encode_checkpoint(value: object) -> bytes:
    """Return a checkpoint as bytes. Its type is known only when it is read, so any storable value is accepted."""
    try:
        data = encoder.encode(value)
        objection = _unfit(msgspec.to_builtins(value, builtin_types=(Decimal,)))
    except REFUSED as error:
        objection = _reason(value, error)
    if objection:
        raise Invalid(f"the checkpoint cannot be stored: {objection}")
    return data


def decode_checkpoint(data: bytes, kind: type[T]) -> T:
    """Return the checkpoint that `encode_checkpoint` stored, as a value of `kind`."""
    annotation: Any = kind
    try:
        value: T = _shape(annotation).decode(data, "the checkpoint")
    except Invalid as error:
        saved = data[:100].decode(errors="replace")
        raise Invalid(
            f"{error}. It is {saved}: an earlier attempt saved it, perhaps of another release; "
            "ask for both types, as `int | str`, or for Any"
        ) from None
    return value


@lru_cache(maxsize=4096)
def _shape(annotation: Any) -> Shape:
    return Shape.of(annotation)


def _stranger(described: object, seen: set[int]) -> str:
    """Return the first type inside a description that JSON cannot represent, or ""."""
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
    return next(filter(None, (_stranger(part, seen) for part in parts)), "")


def _not_json(value: Any, depth: int = 0) -> str:
    """Return why a value does not consist of JSON's own types, or ""."""
    kind = type(value)
    if kind is float or kind in _PLAIN:
        return "" if kind is not float or math.isfinite(value) else _NOT_FINITE
    if kind is not list and kind is not dict:
        return f"a {kind.__qualname__} is not a JSON type; annotate it with its type to get it back as one"
    if kind is dict and not _TEXT.issuperset(map(type, value)):
        return "a dict has keys that are not str; annotate it, with dict[int, str] for example"
    if depth == MAX_DEPTH:
        return _TOO_DEEP
    for item in value.values() if kind is dict else value:
        if type(item) not in _PLAIN and (objection := _not_json(item, depth + 1)):
            return objection
    return ""


def _difference(sent: Any, came: Any, depth: int = 0) -> str:
    """Return how a decoded value differs from the original, or ""."""
    if type(came) in _SCALARS:
        return "" if _is_same_scalar(sent, came) else _changed(sent, came)
    if depth == MAX_DEPTH:
        return _TOO_DEEP
    if not _is_alike(sent, came):
        return _changed(sent, came)
    pairs = _pairs(sent, came)
    if pairs is None:
        return "" if _is_same_leaf(sent, came) else _changed(sent, came)
    for part, twin in pairs:
        if objection := _difference(part, twin, depth + 1):
            return objection
    return ""


def _changed(sent: object, came: object) -> str:
    if not _is_finite(sent):
        return _NOT_FINITE
    return f"{sent!r:.200} would come back as {came!r:.200}; annotate it with the type that it has"


def _is_alike(sent: Any, came: Any) -> bool:
    """Whether two values have the same type and length, so that their parts can be compared."""
    kind: Any = type(came)
    if type(sent) is not kind and (_field_names(kind) is not None or not isinstance(sent, kind)):
        return False
    return not hasattr(came, "__len__") or len(sent) == len(came)


def _pairs(sent: Any, came: Any) -> Iterable[tuple[Any, Any]] | None:
    """Return the parts of two values that are alike, pair by pair, or None if they have no parts."""
    if isinstance(came, (list, tuple)):
        kinds = list(map(type, came))
        if _SCALARS.issuperset(kinds) and kinds == list(map(type, sent)) and sent == came:
            return ()  # the usual case of a long list, at the speed of C
        return zip(sent, came, strict=True)
    if isinstance(came, dict):
        return chain(zip(sent, came, strict=True), zip(sent.values(), came.values(), strict=True))
    if isinstance(came, (set, frozenset)):
        twins = {item: item for item in came}
        return [(item, twins.get(item)) for item in sent]
    kind: Any = type(came)
    names = _field_names(kind)
    return None if names is None else [(getattr(sent, name, UNSET), getattr(came, name, UNSET)) for name in names]


@lru_cache(maxsize=4096)
def _field_names(kind: Hashable) -> tuple[str, ...] | None:
    """Return the names of the fields of a struct, dataclass or attrs class, or None for other types."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return kind.__struct_fields__
    if isinstance(kind, type) and is_dataclass(kind):
        return tuple(field.name for field in fields(kind))
    attributes = getattr(kind, "__attrs_attrs__", None)
    return None if attributes is None else tuple(each.name for each in attributes)


def _is_same_scalar(sent: object, came: object) -> bool:
    if type(came) is float:
        whole = type(sent) is int and abs(sent) <= EXACT_IN_A_FLOAT
        return (whole or isinstance(sent, float)) and sent == came and math.isfinite(came)
    return isinstance(sent, type(came)) and sent == came


def _is_same_leaf(sent: Any, came: Any) -> bool:
    if isinstance(came, Decimal):
        return bool(came.is_finite() and sent == came)
    if isinstance(came, (datetime, time)) and (sent.tzinfo is None) != (came.tzinfo is None):
        return False
    if isinstance(came, datetime):
        return bool(sent - came == timedelta())  # `==` is false for all times that a clock change repeats
    return sent is came if isinstance(came, enum.Enum) else bool(sent == came)


def _reason(value: object, error: Exception) -> str:
    """Return why a value could not be encoded, or not decoded again."""
    if isinstance(error, RecursionError):
        return _TOO_DEEP
    if not _is_finite(value):
        return _NOT_FINITE
    if isinstance(error, UnicodeEncodeError):
        return "its text is not Unicode (a lone surrogate); decode it properly, or pass bytes and annotate them"
    if found := _UNSUPPORTED.fullmatch(str(error)):
        return f"objects of type {found[1]} cannot be stored; JSON's own types, dates, dataclasses and the like can"
    return str(error)


def _is_finite(value: object) -> bool:
    try:
        return _unfit(msgspec.to_builtins(value, builtin_types=(Decimal,))) != _NOT_FINITE
    except REFUSED:
        return True  # it cannot be stored for another reason


def _unfit(value: object, depth: int = 0) -> str:
    """Return why a value, converted to builtin types, cannot be stored, or ""."""
    if isinstance(value, (float, Decimal)):
        is_finite = value.is_finite() if isinstance(value, Decimal) else math.isfinite(value)
        return "" if is_finite else _NOT_FINITE
    if not isinstance(value, (dict, list, tuple)):
        return ""
    if depth == MAX_DEPTH:
        return _TOO_DEEP
    for item in chain(value, value.values()) if isinstance(value, dict) else value:
        if type(item) not in _PLAIN and (objection := _unfit(item, depth + 1)):
            return objection
    return ""
