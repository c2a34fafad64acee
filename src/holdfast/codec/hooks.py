"""The hooks of msgspec, which it calls for values of classes that it does not know."""

from __future__ import annotations

from typing import Any, get_origin

import msgspec

from holdfast.codec.comparison import difference
from holdfast.codec.custom_types import stored_as
from holdfast.codec.json_values import type_name
from holdfast.codec.pydantic_adapter import adapter_of, is_pydantic


def is_storable(kind: object) -> bool:
    """Return whether the hooks can store the values of a class.

    Raises:
        TypeError: it belongs to Pydantic, which cannot store its values.
    """
    origin: Any = get_origin(kind) or kind
    return stored_as(origin) is not None or (is_pydantic(origin) and bool(adapter_of(origin)))


def encode_custom(value: object) -> Any:
    """Return a value as JSON's own types.

    Raises:
        TypeError: values of its class cannot be stored.
        ValueError: this one cannot.
    """
    kind = type(value)
    if stored := stored_as(kind):
        return stored.to_json(value)
    if is_pydantic(kind):
        return encode_model(value)
    if kind in (dict, list):  # what a model or a class of one's own was encoded as
        raise TypeError("the keys of a dict must be stored as text or numbers; use a list of pairs")
    raise TypeError(
        f"objects of type {type_name(kind)} cannot be stored; use JSON's own types, dates, dataclasses or Structs, or "
        f"declare how they are stored: jobs.type({kind.__name__}, encode, decode)"
    )


def decode_custom(kind: Any, value: Any) -> Any:
    """Return the value of a class that `encode_custom` has encoded.

    Raises:
        ValueError: this JSON does not fit.
    """
    if stored := stored_as(get_origin(kind) or kind):
        return stored.from_json(value)
    return adapter_of(kind).decode(msgspec.json.encode(value))


def encode_model(value: object) -> Any:
    """Encode a model that stands outside of annotations of Pydantic, where nothing else compares all of its parts."""
    kind: Any = type(value)
    adapter = adapter_of(kind)
    data = adapter.encode(value)
    if problem := difference(value, adapter.decode(data)):
        raise ValueError(problem)
    return msgspec.json.decode(data)
