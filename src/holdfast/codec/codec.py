"""The codec of an annotation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec
from msgspec.inspect import AnyType, CustomType, DataclassType, ExtType, RawType, type_info
from msgspec.structs import astuple

from holdfast.codec.comparison import difference
from holdfast.codec.hooks import decode_custom, encode_custom, is_storable
from holdfast.codec.json_values import CODEC_ERRORS, NOT_FINITE, PLAIN, TOO_DEEP, is_finite, json_problem
from holdfast.codec.pydantic_adapter import (
    LONE_SURROGATE,
    PydanticAdapter,
    Unsupported,
    ambiguous_enums,
    check_classes,
    names_pydantic,
)
from holdfast.errors import Invalid

encoder = msgspec.json.Encoder(enc_hook=encode_custom)


class Decoder(Protocol):
    """Decodes JSON as one annotation: a decoder of msgspec, or Pydantic."""

    def decode(self, data: bytes, /) -> Any: ...


@dataclass(frozen=True, slots=True, eq=False)
class TypeCodec:
    """Encodes and decodes the values of one annotation."""

    decoder: Decoder
    is_json: bool = False  # the annotation is Any: values of JSON's own types
    by_pydantic: bool = False  # Pydantic encodes and decodes its values
    to_json: Callable[[object], bytes] = encoder.encode
    enums: frozenset[type] = frozenset()  # those that a union names beside the type of their values

    @classmethod
    def of(cls, annotation: Any) -> TypeCodec:
        """Return the codec of an annotation.

        Raises:
            TypeError: values of this type cannot be stored.
        """
        annotation = Any if annotation is object else annotation
        if not names_pydantic(annotation):
            return cls.of_msgspec(annotation)
        check_classes(annotation)
        try:
            adapter = PydanticAdapter(annotation)
        except Unsupported:
            raise
        except TypeError as error:
            # It also names a class that Pydantic does not know, such as a Struct. Let it store the models alone.
            try:
                return cls.of_msgspec(annotation)
            except TypeError as other:
                raise TypeError(f"{error}; nor can msgspec: {other}") from None
        return cls(adapter, by_pydantic=True, to_json=adapter.encode, enums=frozenset(ambiguous_enums(annotation)))

    @classmethod
    def of_msgspec(cls, annotation: Any) -> TypeCodec:
        """Return the codec of an annotation whose classes of Pydantic are stored one by one.

        Raises:
            TypeError: msgspec cannot store values of this type.
        """
        described = _described(annotation)
        if unsupported := next(filter(None, map(_unsupported_type, _all_parts(described))), ""):
            raise TypeError(f"{unsupported} cannot be stored as JSON")
        return cls(msgspec.json.Decoder(annotation, dec_hook=decode_custom), isinstance(described, AnyType))

    def encode(self, value: object, what: str) -> bytes:
        """Return a value as bytes, or raise Invalid about `what`."""
        try:
            data = self.to_json(value)
            decoded = self.decoder.decode(data)
        except CODEC_ERRORS as error:
            raise Invalid(f"{what}: {codec_problem(value, error)}") from error.__cause__
        if problem := self.roundtrip_problem(value, decoded):
            raise Invalid(f"{what}: {problem}")
        return data

    def decode(self, data: bytes, what: str) -> Any:
        """Return the value of stored bytes, or raise Invalid about `what`."""
        try:
            return self.decoder.decode(data)
        except CODEC_ERRORS as error:
            raise Invalid(f"{what} does not fit its type: {error}") from error.__cause__

    def roundtrip_problem(self, original: object, decoded: object) -> str:
        """Return why a value would not come back equal, or "" if it would."""
        if type(original) in PLAIN and type(original) is type(decoded) and original == decoded:
            return ""  # the usual case
        try:
            return json_problem(original) if self.is_json else difference(original, decoded, self.enums)
        except RecursionError:
            return TOO_DEEP


def _described(annotation: Any) -> Any:
    """Return the description of an annotation by msgspec.

    Raises:
        TypeError: it has none.
    """
    try:
        return type_info(annotation)
    except KeyError as error:
        raise TypeError(f"{annotation!r:.200}: field {error} has no annotation") from None
    except NameError as error:
        raise TypeError(f"{annotation!r:.200}: {error}; define the class at the top level of its module") from None
    except NotImplementedError as error:
        raise TypeError(f"{annotation!r:.200}: {str(error).partition('. ')[0]}") from None


def _all_parts(described: object) -> Iterator[object]:
    """Yield a description of msgspec, and all descriptions inside it, each once."""
    seen: set[int] = set()
    pending = [described]
    while pending:
        part = pending.pop(0)
        if id(part) not in seen:
            seen.add(id(part))
            yield part
            pending.extend(_parts(part))


def _parts(described: object) -> Iterable[object]:
    if isinstance(described, tuple):
        return described
    if isinstance(described, msgspec.Struct) and type(described).__module__ == "msgspec.inspect":
        return astuple(described)
    return ()


def _unsupported_type(described: object) -> str:
    """Return the type that a description of msgspec stands for if no value of it can be stored, or ""."""
    if isinstance(described, CustomType):
        return "" if is_storable(described.cls) else repr(described.cls)
    if isinstance(described, DataclassType) and hasattr(described.cls, "__pydantic_validator__"):
        return f"{described.cls!r} inside a class that Pydantic does not know"  # its validators would not run
    if isinstance(described, (RawType, ExtType)):
        return "msgspec.Raw" if isinstance(described, RawType) else "msgspec.Ext"
    return ""


def codec_problem(value: object, error: Exception) -> str:
    """Return why a value could not be encoded, or not be decoded again."""
    if isinstance(error, RecursionError):
        return TOO_DEEP
    if not is_finite(value):
        return NOT_FINITE
    if isinstance(error, UnicodeEncodeError):
        return LONE_SURROGATE
    return (
        f"{error}; private fields are not stored, so rename it"
        if "missing required field `_" in str(error)
        else str(error)
    )
