"""Arguments, results and checkpoints as JSON, checked against annotations.

    {"source": "in.mov", "height": 1080, "*": [more positional], "**": {more named}}

What is accepted comes back equal. So each value is encoded, decoded as its annotation says, and
compared, before it is stored: JSON writes a NaN as null, a tuple as a list and a subclass as its
base, and only a comparison finds every such hole. Without an annotation, JSON's own types are all
that is taken.
"""

from __future__ import annotations

import enum
import inspect
import math
import typing
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Iterable, Mapping, Sequence
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

DEEPEST = 100  # levels of nesting: far below the interpreter's limit, wherever the worker's stack stands
EXACT_IN_A_FLOAT = 2**53

_PLAIN = frozenset({str, int, bool, type(None)})
_TEXT = frozenset({str})
_SCALARS = _PLAIN | {float, bytes, date, timedelta, UUID}
_REFUSED = (msgspec.MsgspecError, TypeError, ValueError, OverflowError, RecursionError)
_NOT_FINITE = "NaN and infinities cannot be stored; pass None or a string instead"
_TOO_DEEP = f"it is nested more than {DEEPEST} levels deep"
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)

_encoder = msgspec.json.Encoder()


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
        """Return the bytes of a value, or refuse it."""
        try:
            data = _encoder.encode(value)
            came = self.decoder.decode(data)
        except _REFUSED as error:
            raise Invalid(f"{what}: {_reason(value, error)}") from None
        if objection := self.objection(value, came):
            raise Invalid(f"{what}: {objection}")
        return data

    def decode(self, data: bytes, what: str) -> Any:
        """Return the value of stored bytes, or refuse them."""
        try:
            return self.decoder.decode(data)
        except _REFUSED as error:
            raise Invalid(f"{what} does not fit its type: {error}") from None

    def objection(self, sent: object, came: object) -> str:
        """Return why a value that was encoded, and came back from decoding, must be refused, or nothing."""
        try:
            return _not_json(sent) if self.is_json else _difference(sent, came)
        except RecursionError:
            return _TOO_DEEP


class Parameter(typing.NamedTuple):
    """One parameter of a task, and the key that its argument is stored by."""

    key: str
    kind: inspect._ParameterKind
    default: object
    annotation: Any
    shape: Shape


@dataclass(frozen=True, slots=True, eq=False)
class Signature:
    """The parameters of a task: how its arguments are stored, and what its result is."""

    task: str
    python: inspect.Signature
    parameters: tuple[Parameter, ...]
    result: Shape
    decoder: msgspec.json.Decoder[Any]
    positional: tuple[str, ...]
    named: frozenset[str]
    required: frozenset[str]
    keys: frozenset[str]

    @staticmethod
    @lru_cache(maxsize=4096)
    def of(function: Callable[..., Any], task: str = "") -> Signature:
        """Read the signature of a function.

        Raises:
            TypeError: an annotation cannot be resolved, or values of it cannot be stored.
        """
        task = task or function.__qualname__
        python = inspect.signature(function)
        hints = _hints(function, task)
        parameters = tuple(_parameter(each, hints.get(each.name, Any), task) for each in python.parameters.values())
        return Signature(
            task=task,
            python=python,
            parameters=parameters,
            result=_declared(_returned(hints), f"task {task}: the return value"),
            decoder=_decoder(parameters),
            positional=tuple(each.key for each in parameters if each.kind in _POSITIONAL),
            named=frozenset(each.key for each in parameters if each.kind in _NAMED),
            required=frozenset(each.key for each in parameters if _is_required(each)),
            keys=frozenset(each.key for each in parameters),
        )

    def encode(self, args: Sequence[object], kwargs: Mapping[str, object]) -> bytes:
        """Return the arguments of a call as bytes.

        Defaults are not stored: the worker's release of the function applies its own.

        Raises:
            Invalid: they do not fit the signature, or would not come back equal.
        """
        given = self._bind(args, kwargs)
        try:
            data = _encoder.encode(given)
            came = astuple(self.decoder.decode(data))
        except _REFUSED as error:
            self._blame(given)
            raise Invalid(f"task {self.task}: {error}") from None
        for parameter, value in zip(self.parameters, came, strict=True):
            if value is not UNSET and (objection := parameter.shape.objection(given[parameter.key], value)):
                raise Invalid(f"{self._argument(parameter)}: {objection}")
        return data

    def decode(self, data: bytes) -> tuple[list[Any], dict[str, Any]]:
        """Return the positional and the named arguments that `encode` stored.

        Raises:
            Invalid: they do not fit the signature, which may be of another release.
        """
        try:
            came = astuple(self.decoder.decode(data))
        except _REFUSED as error:
            raise Invalid(
                f"task {self.task}: the stored arguments do not fit {self.python}: {error}. While jobs of an "
                "older release are kept, remove and rename no parameter, and give new ones a default"
            ) from None
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        for parameter, value in zip(self.parameters, came, strict=True):
            _place(parameter, value, args, kwargs)
        return args, kwargs

    def _bind(self, args: Sequence[object], kwargs: Mapping[str, object]) -> dict[str, object]:
        """Return the arguments by key, bound as Python would."""
        given: dict[str, object] = dict(zip(self.positional, args, strict=False))
        more = {}
        for name, value in kwargs.items():
            if name in self.named and name not in given:
                given[name] = value
            else:
                more[name] = value
        if len(args) > len(self.positional):
            given["*"] = list(args[len(self.positional) :])
        if more:
            given["**"] = more
        if not self.required <= given.keys() <= self.keys or not self.named.isdisjoint(more):
            self._check_call(args, kwargs)
        return given

    def _check_call(self, args: Sequence[object], kwargs: Mapping[str, object]) -> None:
        """Have Python say what does not fit."""
        try:
            self.python.bind(*args, **kwargs)
        except TypeError as error:
            raise Invalid(f"task {self.task}: {error}; it takes {self.python}") from None

    def _blame(self, given: Mapping[str, object]) -> None:
        """Refuse the first argument that cannot be stored."""
        for parameter in self.parameters:
            if parameter.key in given:
                parameter.shape.encode(given[parameter.key], self._argument(parameter))

    def _argument(self, parameter: Parameter) -> str:
        return f"task {self.task}: argument {parameter.key!r}"


def encode_result(value: object, annotation: Any = Any) -> bytes:
    """Return what a task returned as bytes, or refuse it."""
    return _shape(annotation).encode(value, "the result")


def decode_result(data: bytes, annotation: Any = Any) -> Any:
    """Return the result that `encode_result` stored, as the annotation says."""
    return _shape(annotation).decode(data, "the result")


def encode_checkpoint(value: object) -> bytes:
    """Return a checkpoint as bytes. Its type is named only when it is read, so any that can be stored is taken."""
    try:
        data = _encoder.encode(value)
        objection = _unfit(msgspec.to_builtins(value, builtin_types=(Decimal,)))
    except _REFUSED as error:
        objection = _reason(value, error)
    if objection:
        raise Invalid(f"the checkpoint: {objection}")
    return data


def decode_checkpoint(data: bytes, kind: type[T]) -> T:
    """Return the checkpoint that `encode_checkpoint` stored, as a value of `kind`."""
    annotation: Any = kind
    value: T = _shape(annotation).decode(data, "the checkpoint")
    return value


@lru_cache(maxsize=4096)
def _shape(annotation: Any) -> Shape:
    return Shape.of(annotation)


def _declared(annotation: Any, what: str) -> Shape:
    try:
        return Shape.of(annotation)
    except TypeError as error:
        raise TypeError(
            f"{what}: {error}. Annotate it with a type that JSON can carry: a dataclass, a msgspec.Struct, "
            "str, int, datetime, list[...] and the like; or pass an id or a path in its place"
        ) from None


def _hints(function: Callable[..., Any], task: str) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function, include_extras=True)
    except Exception as error:
        raise TypeError(f"task {task}: {error}; what an annotation names must be defined above the task") from None


def _parameter(parameter: inspect.Parameter, annotation: Any, task: str) -> Parameter:
    key = parameter.name
    if parameter.kind is parameter.VAR_POSITIONAL:
        key, annotation = "*", list[annotation]
    elif parameter.kind is parameter.VAR_KEYWORD:
        is_unpacked = typing.get_origin(annotation) is typing.Unpack
        key, annotation = "**", typing.get_args(annotation)[0] if is_unpacked else dict[str, annotation]
    shape = _declared(annotation, f"task {task}: parameter {parameter.name!r}")
    return Parameter(key, parameter.kind, parameter.default, Any if annotation is object else annotation, shape)


def _is_required(parameter: Parameter) -> bool:
    return parameter.kind in (*_POSITIONAL, *_NAMED) and parameter.default is inspect.Parameter.empty


def _returned(hints: dict[str, Any]) -> Any:
    annotation = hints.get("return", Any)
    if annotation in (typing.NoReturn, typing.Never):
        return None
    if typing.get_origin(annotation) in (Awaitable, Coroutine):
        return typing.get_args(annotation)[-1]
    return annotation


def _decoder(parameters: Iterable[Parameter]) -> msgspec.json.Decoder[Any]:
    """Return a decoder of stored arguments, into a struct of one field per parameter."""
    fields = [
        (f"p{n}", each.annotation) if _is_required(each) else (f"p{n}", each.annotation, UNSET)
        for n, each in enumerate(parameters)
    ]
    keys = {f"p{n}": each.key for n, each in enumerate(parameters)}
    struct = msgspec.defstruct("Arguments", fields, kw_only=True, rename=keys, forbid_unknown_fields=True)
    return msgspec.json.Decoder(struct)


def _place(parameter: Parameter, value: Any, args: list[Any], kwargs: dict[str, Any]) -> None:
    """Put a decoded argument where the call needs it."""
    if parameter.kind in _POSITIONAL:
        args.append(parameter.default if value is UNSET else value)
    elif value is UNSET:
        return
    elif parameter.key == "*":
        args.extend(value)
    elif parameter.key == "**":
        kwargs.update(value)
    else:
        kwargs[parameter.key] = value


def _stranger(described: object, seen: set[int]) -> str:
    """Return the first type inside a description that has no form in JSON, or nothing."""
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
    """Return why a value is not made of JSON's own types, or nothing."""
    kind = type(value)
    if kind is float or kind in _PLAIN:
        return "" if kind is not float or math.isfinite(value) else _NOT_FINITE
    if kind is not list and kind is not dict:
        return f"a {kind.__qualname__} is not a JSON type; annotate the parameter with its type, to have it back as one"
    if kind is dict and not _TEXT.issuperset(map(type, value)):
        return "a dict has keys that are not str; annotate the parameter, with dict[int, str] for example"
    if depth == DEEPEST:
        return _TOO_DEEP
    for item in value.values() if kind is dict else value:
        if type(item) not in _PLAIN and (objection := _not_json(item, depth + 1)):
            return objection
    return ""


def _difference(sent: Any, came: Any, depth: int = 0) -> str:
    """Return how a value that came back from decoding differs from the one sent, or nothing."""
    if type(came) in _SCALARS:
        return "" if _is_same_scalar(sent, came) else _changed(sent, came)
    if depth == DEEPEST:
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
    return f"{sent!r:.200} would come back as {came!r:.200}; annotate the parameter with the type that is passed"


def _is_alike(sent: Any, came: Any) -> bool:
    """Tell whether two values have the same type and length, so that their parts can be compared."""
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
        return bool(sent - came == timedelta())  # `==` says no to all times that a change of the clock repeats
    return sent is came if isinstance(came, enum.Enum) else bool(sent == came)


def _reason(value: object, error: Exception) -> str:
    """Return why a value could not be encoded, or not be decoded again, in words."""
    if isinstance(error, RecursionError):
        return _TOO_DEEP
    if not _is_finite(value):
        return _NOT_FINITE
    if isinstance(error, UnicodeEncodeError):
        return "its text is not Unicode (a lone surrogate); decode it properly, or pass bytes and annotate them"
    return str(error)


def _is_finite(value: object) -> bool:
    try:
        return _unfit(msgspec.to_builtins(value, builtin_types=(Decimal,))) != _NOT_FINITE
    except _REFUSED:
        return True  # it cannot be stored for another reason


def _unfit(value: object, depth: int = 0) -> str:
    """Return why a value made of builtin types cannot be stored, whatever its type was before, or nothing."""
    if isinstance(value, (float, Decimal)):
        is_finite = value.is_finite() if isinstance(value, Decimal) else math.isfinite(value)
        return "" if is_finite else _NOT_FINITE
    if not isinstance(value, (dict, list, tuple)):
        return ""
    if depth == DEEPEST:
        return _TOO_DEEP
    for item in chain(value, value.values()) if isinstance(value, dict) else value:
        if type(item) not in _PLAIN and (objection := _unfit(item, depth + 1)):
            return objection
    return ""
