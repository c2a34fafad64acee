"""Paths, numbers of NumPy, attrs classes and one's own classes: stored as JSON, and back as they were."""

from __future__ import annotations

import enum
import re
import sys
from pathlib import Path, PurePath, PurePosixPath, PureWindowsPath
from types import ModuleType
from typing import Any, Generic, TypeVar

import attrs
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from holdfast import Holdfast
from holdfast.codec import decode_checkpoint, encode_checkpoint
from holdfast.errors import Invalid
from tests.codec.roundtrip import signature_of, stored, there_and_back

T = TypeVar("T")
jobs = Holdfast("redis://localhost")


class Money:
    """It has no `__eq__`: what is stored is compared."""

    def __init__(self, cents: Any, currency: str = "EUR") -> None:
        self.cents = cents
        self.currency = currency

    def stored(self) -> Any:
        return [self.cents, self.currency]

    @classmethod
    def read(cls, stored: Any) -> Money:
        return cls(*stored)


class Tip(Money):
    pass


class Forgetful:
    """Its `decode` loses something, which `==` notices."""

    def __init__(self, kept: int, lost: int = 0) -> None:
        self.kept, self.lost = kept, lost

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Forgetful) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash(self.kept)


class Wrapped(Generic[T]):
    def __init__(self, value: T) -> None:
        self.value = value


class Fragile:
    def __init__(self, value: int) -> None:
        self.value = value


def break_above_5(stored: int) -> Fragile:
    if stored > 5:
        raise KeyError(stored)
    return Fragile(stored)


jobs.type(Money, Money.stored, Money.read)
jobs.type(Forgetful, encode=lambda value: value.kept, decode=Forgetful)
jobs.type(Wrapped, encode=lambda value: value.value, decode=Wrapped)
jobs.type(np.ndarray, encode=np.ndarray.tolist, decode=np.array)
jobs.type(Fragile, encode=lambda value: 10 // value.value, decode=break_above_5)


@attrs.define
class Converted:
    count: int = attrs.field(converter=int)
    total: int = attrs.field(init=False, default=0)
    ratio: float = attrs.field(default=0.5, validator=attrs.validators.gt(0))


ZERO = np.int32(0)


@attrs.frozen(kw_only=True)
class Frozen:
    path: Path
    money: Money | None = None
    size: np.int32 = ZERO


@attrs.define
class Private:
    public: int = 0
    _private: int = 0


@attrs.define
class RequiredPrivate:
    _private: int


ACCEPTED: list[tuple[Any, Any, bytes]] = [
    (Path, Path("/data/in.mov"), b'"/data/in.mov"'),
    (Path | None, None, b"null"),
    (PurePath, PurePath("a/b"), b'"a/b"'),
    (PurePosixPath, PurePosixPath("a"), b'"a"'),
    (PureWindowsPath, PureWindowsPath("c:\\a"), b'"c:\\\\a"'),
    (dict[Path, set[Path]], {Path("a"): {Path("b")}}, b'{"a":["b"]}'),
    (np.float64, np.float64(0.1), b"0.1"),
    (np.float32, np.float32(0.5), b"0.5"),
    (np.int32, np.int32(-3), b"-3"),
    (np.uint64, np.uint64(2**64 - 1), b"18446744073709551615"),
    (np.bool_, np.True_, b"true"),
    (list[np.int8 | None], [np.int8(1), None], b"[1,null]"),
    (tuple[np.float16, ...], (np.float16(2),), b"[2.0]"),
    (float, np.float64(1.5), b"1.5"),
    (Converted, Converted("3"), b'{"count":3,"ratio":0.5,"total":0}'),
    (Frozen, Frozen(path=Path("x"), size=np.int32(4)), b'{"money":null,"path":"x","size":4}'),
    (Private, Private(1), b'{"public":1}'),
    (Forgetful, Forgetful(1), b"1"),
    (list[Forgetful], [Forgetful(1)], b"[1]"),
]


@pytest.mark.parametrize(("annotation", "value", "data"), ACCEPTED)
def test_a_value_comes_back_equal(annotation: Any, value: Any, data: bytes) -> None:
    assert stored(annotation, value) == data
    came = there_and_back(annotation, value)
    assert came == value
    assert type(came) is (float if annotation is float else type(value))
    assert decode_checkpoint(encode_checkpoint(value), annotation) == value


REFUSED: list[tuple[Any, Any, str]] = [
    (Path, "a", "'a' would come back as PosixPath('a')"),
    (Path, Path(b"\xff".decode(errors="surrogateescape")), "lone surrogate"),
    (str, Path("a"), "PosixPath('a') would come back as 'a'"),
    (Any, Path("a"), "a PosixPath is not a JSON type; annotate it with its type"),
    (Any, np.int64(1), "a numpy.int64 is not a JSON type; annotate it with its type, or call .item()"),
    (Any, [np.float64(1)], "a numpy.float64 is not a JSON type; annotate it with its type, or call .item()"),
    (Any, np.complex128(1), "objects of type numpy.complex128 cannot be stored"),
    (np.ndarray, np.array([float("nan")]), "NaN and infinities cannot be stored"),
    (np.ndarray, np.array([b"x"]), "a bytes is not a JSON type"),
    (int, np.int64(1), "np.int64(1) would come back as 1"),
    (np.float64, 1.5, "1.5 would come back as np.float64(1.5)"),
    (np.int8, 300, "OverflowError"),
    (np.float64, np.float64("nan"), "NaN and infinities cannot be stored"),
    (np.float32, np.float32("inf"), "NaN and infinities cannot be stored"),
    (list[np.float64 | None], [np.float64("nan")], "NaN and infinities cannot be stored"),
    (np.longdouble, np.longdouble(1) / 3, "would come back as"),
    (Private, Private(1, 2), "Private._private: private fields are not stored"),
    (RequiredPrivate, RequiredPrivate(1), "missing required field `_private`; private fields are not stored"),
    (Frozen, Frozen(path=Path("x"), money=Tip(1)), "Tip cannot be stored"),
    (Money, Tip(1), "Tip cannot be stored"),
    (Money, Money((1, 2)), "Money returned [(1, 2), 'EUR']: a tuple is not a JSON type"),
    (Money, Money(Money(1)), "a Money is not a JSON type"),
    (Any, Money(1), "a Money is not a JSON type; annotate it"),
    (Forgetful, Forgetful(1, 2), "would come back as"),
    (Fragile, Fragile(0), "encode of tests.codec.test_custom_types.Fragile raised ZeroDivisionError"),
    (Fragile, Fragile(1), "decode of tests.codec.test_custom_types.Fragile raised KeyError: 10"),
]


@pytest.mark.parametrize(("annotation", "value", "words"), REFUSED)
def test_a_value_that_would_come_back_different_is_refused(annotation: Any, value: Any, words: str) -> None:
    with pytest.raises(Invalid, match=r"^task shop.order: argument 'value': ") as refusal:
        there_and_back(annotation, value)
    assert words in str(refusal.value)


def test_a_class_without_equality_is_compared_by_what_is_stored() -> None:
    came = there_and_back(dict[str, list[Money]], {"a": [Money(990)]})["a"][0]
    assert (came.cents, came.currency) == (990, "EUR")


@pytest.mark.parametrize("array", [np.array([]), np.array([1.5]), np.arange(6).reshape(2, 3)])
def test_a_class_whose_equality_is_not_a_bool_is_compared_by_what_is_stored(array: np.ndarray[Any, Any]) -> None:
    assert np.array_equal(there_and_back(np.ndarray, array), array)


def test_a_generic_class_is_stored_like_its_origin() -> None:
    assert there_and_back(list[Wrapped[int]], [Wrapped(3)])[0].value == 3


def test_decode_gets_only_what_fits() -> None:
    for annotation, data in (
        (np.int32, b'"1"'),
        (np.int32, b"true"),
        (np.int32, b"1.0"),
        (np.int8, b"128"),
        (np.bool_, b"1"),
        (np.float32, b"1e300"),
        (np.float64, b"null"),
        (Path, b"1"),
        (Path, b"null"),
    ):
        with pytest.raises(Invalid, match=r"the stored arguments do not fit .* - at `[$].value`"):
            signature_of(annotation).decode(b'{"value":' + data + b"}")


def test_the_error_of_a_function_is_the_cause_of_the_refusal() -> None:
    with pytest.raises(Invalid, match=r"decode of .*Fragile raised KeyError: 9 - at `[$].value`") as refusal:
        signature_of(Fragile).decode(b'{"value":9}')
    causes = [refusal.value.__cause__, getattr(refusal.value.__cause__, "__cause__", None)]
    assert any(isinstance(cause, KeyError) for cause in causes)


@given(
    st.integers(-(2**31), 2**31 - 1),
    st.floats(width=32, allow_nan=False, allow_infinity=False),
    st.floats(allow_nan=False, allow_infinity=False),
)
def test_every_number_of_numpy_comes_back_equal(whole: int, single: float, double: float) -> None:
    value = (np.int32(whole), np.float32(single), np.float64(double))
    came = there_and_back(tuple[np.int32, np.float32, np.float64], value)
    assert came == value
    assert list(map(type, came)) == list(map(type, value))


# Declarations


class Unknown:
    pass


class Late:
    pass


class Names(list[str]):
    pass


class Model(BaseModel):
    pass


@pytest.mark.parametrize(
    "annotation", [Unknown, list[Unknown | None], np.integer, np.complex128, np.timedelta64, Path | str]
)
def test_a_class_that_is_not_declared_is_refused_with_advice(annotation: Any) -> None:
    with pytest.raises(
        TypeError, match=r"declare above the task .*: jobs\.type\(Money, encode=str, decode=Money\.parse\)"
    ):
        signature_of(annotation)


def test_a_class_may_be_declared_after_a_refusal() -> None:
    with pytest.raises(TypeError, match=r"Late.* cannot be stored"):
        jobs.task(name="late")(takes_late)
    jobs.type(Late, encode=lambda _: None, decode=lambda _: Late())
    jobs.task(name="late")(takes_late).bind(Late())


def takes_late(late: Late) -> None: ...


def test_a_class_is_declared_once() -> None:
    jobs.type(Money, Money.stored, Money.read)  # the same again
    Holdfast("redis://localhost", namespace="other").type(Money, Money.stored, Money.read)
    with pytest.raises(Invalid, match=r"test_custom_types.Money is already declared, with other functions"):
        jobs.type(Money, str, Money)


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (Model, "Pydantic stores its values"),
        (Frozen, "field by field"),
        (Names, "its values are stored like any list; wrap the list"),
        (int, "without a declaration"),
        (Path, "without a declaration"),
        (np.int32, "without a declaration"),
        (list[int], "expected a class"),
        ("Money", "expected a class to declare as a type, got 'Money'"),
    ],
)
def test_a_declaration_that_would_have_no_effect_is_refused(kind: Any, words: str) -> None:
    with pytest.raises(Invalid, match=re.escape(words)):
        jobs.type(kind, str, str)


def test_the_functions_are_checked() -> None:
    broken: Any = "str"
    with pytest.raises(Invalid, match="Unknown: expected decode as a function, got 'str'"):
        jobs.type(Unknown, str, broken)


def test_a_numpy_that_another_thread_is_importing_is_not_touched(monkeypatch: pytest.MonkeyPatch) -> None:
    class Colour(enum.Enum):
        RED = "red"

    monkeypatch.setitem(sys.modules, "numpy", ModuleType("numpy"))  # as it is when its import begins
    assert there_and_back(Colour, Colour.RED) is Colour.RED
    assert there_and_back(np.uint32, np.uint32(7)) == 7
