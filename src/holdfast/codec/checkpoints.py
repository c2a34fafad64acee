"""Checkpoints: their type is known only when they are read.

So msgspec writes them, and models of Pydantic inside one by one. They are read in the same way. Only where msgspec
cannot read an annotation, as a union of models or a dataclass of Pydantic, Pydantic reads it as a whole. The two write
bytes differently: what Pydantic would read as other bytes is refused.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from decimal import Decimal
from functools import lru_cache
from typing import Any, TypeVar

import msgspec

from holdfast.codec.codec import TypeCodec, codec_problem, encoder
from holdfast.codec.comparison import PRIVATE, difference, field_names
from holdfast.codec.hooks import encode_custom, encode_model
from holdfast.codec.json_values import CODEC_ERRORS, PLAIN, value_problem
from holdfast.codec.pydantic_adapter import (
    BYTES,
    adapter_of,
    ambiguous_enums,
    is_pydantic_dataclass,
    names_bytes,
    names_other_values,
)
from holdfast.errors import Invalid

T = TypeVar("T")

_WITHOUT_PARTS = PLAIN | {float}


def encode_checkpoint(value: object) -> bytes:
    """Return a checkpoint as bytes. Its type is known only when it is read, so accept any value that can be stored."""
    try:
        if is_pydantic_dataclass(type(value)):
            return msgspec.json.encode(encode_model(value))
        data = encoder.encode(value)
        problem = value_problem(msgspec.to_builtins(value, builtin_types=(Decimal,), enc_hook=encode_custom))
        problem = problem or _problem_of_parts(value)
    except CODEC_ERRORS as error:
        problem = codec_problem(value, error)
    if problem:
        raise Invalid(f"the checkpoint cannot be stored: {problem}")
    return data


def check_checkpoint_type(kind: Any) -> None:
    """Check the type in which a job reads its checkpoint, before there is one.

    Raises:
        TypeError: no checkpoint can be read as this type.
    """
    _codec_of(kind, repr(kind))


def decode_checkpoint(data: bytes, kind: type[T]) -> T:
    """Return the checkpoint that `encode_checkpoint` stored, as a value of `kind`."""
    annotation: Any = kind
    try:
        value: T = _codec_of(annotation, repr(annotation)).decode(data, "the checkpoint")
    except Invalid as error:
        saved = data[:100].decode(errors="replace")
        raise Invalid(
            f"{error}. An earlier attempt saved {saved}, perhaps with an older release of the task; read the "
            "checkpoint as both types, as in checkpoint(int | str, default=0), or as Any"
        ) from None
    return value


@lru_cache(maxsize=4096)
def _codec_of(annotation: Any, _: str) -> TypeCodec:
    """Return the codec of an annotation. `A | B` equals `B | A`, but Pydantic tries A first: the text differs."""
    if "pydantic" not in sys.modules or not names_other_values(annotation):
        with suppress(TypeError):
            return TypeCodec.of_msgspec(annotation)
    codec = TypeCodec.of(annotation)
    if codec.by_pydantic and names_bytes(annotation):
        raise TypeError(
            f"a checkpoint cannot be read as {annotation!r:.200}: bytes beside a union of models or a dataclass of "
            "Pydantic; put the bytes into a model, or save them as text"
        )
    for kind, other in ambiguous_enums(annotation).items() if codec.by_pydantic else ():
        raise TypeError(
            f"a checkpoint cannot be read as {annotation!r:.200}: {kind.__qualname__} beside {other.__name__}, which "
            "would be read instead; name one of them, or put the enum into a model"
        )
    return codec


def _problem_of_parts(value: object) -> str:
    """Return which part of a value would be lost, or ""."""
    if type(value) in _WITHOUT_PARTS:
        return ""
    parts = list(_all_parts(value))
    has_private = any(_private_fields(kind) for kind in set[Any](map(type, parts)))
    if has_private and (problem := next(filter(None, map(_private_problem, parts)), "")):
        return problem
    return _pydantic_problem(parts) if "pydantic" in sys.modules else ""


def _private_problem(value: object) -> str:
    """Return which private field of an attrs class would be lost, or "". msgspec does not store them."""
    kind: Any = type(value)
    for each in _private_fields(kind):
        is_factory = hasattr(each.default, "factory")
        arguments = (value,) if getattr(each.default, "takes_self", False) else ()
        default = each.default.factory(*arguments) if is_factory else each.default
        if getattr(value, each.name, None) != default:
            return f"{kind.__qualname__}.{each.name}: {PRIVATE}"
    return ""


@lru_cache(maxsize=4096)
def _private_fields(kind: Any) -> tuple[Any, ...]:
    return tuple(each for each in getattr(kind, "__attrs_attrs__", ()) if each.name.startswith("_"))


def _pydantic_problem(parts: Sequence[object]) -> str:
    """Return why Pydantic would not read what msgspec has written of a value with these parts, or ""."""
    points = [part for part in parts if is_pydantic_dataclass(type(part))]
    for part in points:
        kind: Any = type(part)
        if problem := difference(part, adapter_of(kind).decode(encoder.encode(part))):
            return problem
    if points and any(isinstance(part, BYTES) for part in parts):
        return "bytes beside a dataclass of Pydantic; put the bytes into a model, or save them as text"
    return ""


def _all_parts(value: object) -> Iterator[object]:
    """Yield a value and everything inside it that is not plain, without the parts of what belongs to Pydantic."""
    pending = [value]
    while pending:
        part = pending.pop()
        yield part
        pending.extend(each for each in _parts(part) if type(each) not in _WITHOUT_PARTS)


def _parts(value: Any) -> Iterable[object]:
    kind: Any = type(value)
    if isinstance(value, dict):
        return [*value, *value.values()]
    if isinstance(value, (list, tuple, set, frozenset)):
        return value
    if is_pydantic_dataclass(kind):
        return ()
    return [getattr(value, name, None) for name in field_names(kind) or ()]
