"""The signature of a task: binds arguments as Python does, checks them, and stores them as JSON.

{"source": "in.mov", "height": 1080, "*": [further positional arguments], "**": {further named arguments}}
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import msgspec
from msgspec import UNSET
from msgspec.structs import astuple

from holdfast.codec import CODEC_ERRORS, TypeCodec, decode_custom, encoder
from holdfast.errors import Invalid, WrongArguments
from holdfast.hints import HINTS
from holdfast.job.option_table import BY_NAME

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class Parameter(typing.NamedTuple):
    """One parameter of a task, and the key under which its argument is stored."""

    key: str
    kind: inspect._ParameterKind
    default: object
    annotation: Any
    codec: TypeCodec


@dataclass(frozen=True, slots=True, eq=False)
class Signature:
    """The parameters of a task, and the type of its result."""

    task: str
    python: inspect.Signature
    parameters: tuple[Parameter, ...]
    result: TypeCodec
    decoder: msgspec.json.Decoder[Any]
    positional: tuple[str, ...]
    named: frozenset[str]
    required: frozenset[str]
    keys: frozenset[str]
    by_pydantic: tuple[int, ...]  # positions of the parameters that Pydantic encodes and decodes

    @staticmethod
    @lru_cache(maxsize=4096)
    def of(function: Callable[..., Any], task: str = "") -> Signature:
        """Read the signature of a function.

        Raises:
            TypeError: an annotation cannot be resolved, or its values cannot be stored.
        """
        task = task or function.__qualname__
        python = inspect.signature(function)
        hints = _hints(function, task)
        parameters = tuple(_parameter(each, hints.get(each.name, Any), task) for each in python.parameters.values())
        return Signature(
            task=task,
            python=python,
            parameters=parameters,
            result=_codec_of(_return_annotation(hints), f"task {task}: the return value"),
            decoder=_decoder(parameters),
            positional=tuple(each.key for each in parameters if each.kind in _POSITIONAL),
            named=frozenset(each.key for each in parameters if each.kind in _NAMED),
            required=frozenset(each.key for each in parameters if _is_required(each)),
            keys=frozenset(each.key for each in parameters),
            by_pydantic=tuple(n for n, each in enumerate(parameters) if each.codec.by_pydantic),
        )

    def encode(self, args: Sequence[object], kwargs: Mapping[str, object]) -> bytes:
        """Return the arguments of a call as bytes.

        Defaults are not stored: the worker's release of the function applies its own.

        Raises:
            Invalid: the arguments do not fit the signature, or would not come back equal.
        """
        given = self._bind(args, kwargs)
        try:
            data = encoder.encode(self._with_models_encoded(given) if self.by_pydantic else given)
            decoded = astuple(self.decoder.decode(data))
            if self.by_pydantic:
                decoded = self._with_models_decoded(decoded)
        except CODEC_ERRORS as error:
            self._raise_for_unstorable(given)
            raise Invalid(f"task {self.task}: {error}") from None
        for parameter, value in zip(self.parameters, decoded, strict=True):
            if value is not UNSET and (problem := parameter.codec.roundtrip_problem(given[parameter.key], value)):
                raise Invalid(f"{self._label(parameter)}: {problem}")
        return data

    def decode(self, data: bytes) -> tuple[list[Any], dict[str, Any]]:
        """Return the positional and the named arguments that `encode` stored.

        Raises:
            WrongArguments: the arguments do not fit the signature, which a release may have changed.
        """
        try:
            decoded = astuple(self.decoder.decode(data))
            if self.by_pydantic:
                decoded = self._with_models_decoded(decoded)
        except CODEC_ERRORS as error:
            raise WrongArguments(
                f"task {self.task}: the stored arguments do not fit {self.python}: {error}. While jobs of an older "
                "release exist, do not remove or rename parameters, and give new ones a default"
            ) from error.__cause__
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        for parameter, value in zip(self.parameters, decoded, strict=True):
            _add_argument(parameter, value, args, kwargs)
        return args, kwargs

    def _with_models_encoded(self, given: Mapping[str, object]) -> dict[str, object]:
        """Return the arguments by key, those for Pydantic already as JSON."""
        encoded = dict(given)
        for parameter in map(self.parameters.__getitem__, self.by_pydantic):
            if parameter.key in given:
                encoded[parameter.key] = msgspec.Raw(parameter.codec.to_json(given[parameter.key]))
        return encoded

    def _with_models_decoded(self, decoded: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the decoded arguments, those for Pydantic no longer as JSON."""
        complete = list(decoded)
        for n in self.by_pydantic:
            if decoded[n] is not UNSET:
                complete[n] = self._decode_model(self.parameters[n], decoded[n])
        return tuple(complete)

    def _decode_model(self, parameter: Parameter, data: msgspec.Raw) -> Any:
        try:
            return parameter.codec.decoder.decode(bytes(data))
        except ValueError as error:
            raise ValueError(f"argument {parameter.key!r}: {error}") from error.__cause__

    def _bind(self, args: Sequence[object], kwargs: Mapping[str, object]) -> dict[str, object]:
        """Return the arguments by key, bound as Python does."""
        given: dict[str, object] = dict(zip(self.positional, args, strict=False))
        if len(args) > len(self.positional):
            given["*"] = list(args[len(self.positional) :])
        more = {}
        for name, value in kwargs.items():
            if name in self.named and name not in given:
                given[name] = value
            else:
                more[name] = value
        if more:
            given["**"] = more
        if given.keys() != self.keys or more:
            self._check_call(given, args, kwargs)
        return given

    def _check_call(self, given: dict[str, Any], args: Sequence[object], kwargs: Mapping[str, object]) -> None:
        """Raise Invalid with the message of Python if the arguments do not fit."""
        if self.required <= given.keys() <= self.keys and self.named.isdisjoint(given.get("**", ())):
            return
        try:
            self.python.bind(*args, **kwargs)
        except TypeError as error:
            raise Invalid(f"task {self.task}: {error}; it takes {self.python}{_option_hint(kwargs)}") from None

    def _raise_for_unstorable(self, given: Mapping[str, object]) -> None:
        """Raise Invalid for the first argument that cannot be stored."""
        for parameter in self.parameters:
            if parameter.key in given:
                parameter.codec.encode(given[parameter.key], self._label(parameter))

    def _label(self, parameter: Parameter) -> str:
        return f"task {self.task}: argument {parameter.key!r}"


def _option_hint(kwargs: Iterable[str]) -> str:
    """Return the end of an error about arguments if one of them is an option, here or in another queue."""
    for name in kwargs:
        if name in BY_NAME:
            return f". To give the option: task.options({name}=...).enqueue(...)"
        if name in HINTS["option"]:
            return f". As an option, in task.options(...): {HINTS['option'][name]}"
    return ""


def _codec_of(annotation: Any, what: str) -> TypeCodec:
    try:
        return TypeCodec.of(annotation)
    except TypeError as error:
        raise TypeError(
            f"{what}: {error}. Annotate it with a supported type, such as str, int, datetime, list[...], a dataclass "
            "or a Pydantic model; pass an id or a path instead of an object; or declare above the task how objects of "
            "a class are stored: jobs.type(Money, encode=str, decode=Money.parse)"
        ) from None


def _hints(function: Callable[..., Any], task: str) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function, include_extras=True)
    except Exception as error:
        raise TypeError(f"task {task}: {error}; define the names in its annotations above it") from None


def _parameter(parameter: inspect.Parameter, annotation: Any, task: str) -> Parameter:
    key = parameter.name
    if parameter.kind is parameter.VAR_POSITIONAL:
        key, annotation = "*", list[annotation]
    elif parameter.kind is parameter.VAR_KEYWORD:
        is_unpacked = typing.get_origin(annotation) is typing.Unpack
        key, annotation = "**", typing.get_args(annotation)[0] if is_unpacked else dict[str, annotation]
    codec = _codec_of(annotation, f"task {task}: parameter {parameter.name!r}")
    return Parameter(key, parameter.kind, parameter.default, Any if annotation is object else annotation, codec)


def _is_required(parameter: Parameter) -> bool:
    return parameter.kind in (*_POSITIONAL, *_NAMED) and parameter.default is inspect.Parameter.empty


def _return_annotation(hints: dict[str, Any]) -> Any:
    annotation = hints.get("return", Any)
    if annotation in (typing.NoReturn, typing.Never):
        return None
    if typing.get_origin(annotation) in (Awaitable, Coroutine):
        return typing.get_args(annotation)[-1]
    return annotation


def _decoder(parameters: Iterable[Parameter]) -> msgspec.json.Decoder[Any]:
    """Return a decoder that reads stored arguments as a struct with one field per parameter."""
    types = [msgspec.Raw if each.codec.by_pydantic else each.annotation for each in parameters]
    fields = [
        (f"p{n}", kind) if _is_required(each) else (f"p{n}", kind, UNSET)
        for n, (each, kind) in enumerate(zip(parameters, types, strict=True))
    ]
    keys = {f"p{n}": each.key for n, each in enumerate(parameters)}
    struct = msgspec.defstruct("Arguments", fields, kw_only=True, rename=keys, forbid_unknown_fields=True)
    return msgspec.json.Decoder(struct, dec_hook=decode_custom)


def _add_argument(parameter: Parameter, value: Any, args: list[Any], kwargs: dict[str, Any]) -> None:
    """Add a decoded argument to the positional or the named arguments of a call."""
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
