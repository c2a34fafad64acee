"""The codec: what is accepted comes back equal, and the rest is refused with words."""

from __future__ import annotations

import math
import time as clock
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from enum import Enum, Flag, IntEnum, StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, NoReturn, NotRequired, TypedDict, TypeVar, Unpack
from uuid import UUID
from zoneinfo import ZoneInfo

import attrs
import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.codec import MAX_DEPTH, TypeCodec, decode_checkpoint, encode_checkpoint
from holdfast.errors import Invalid
from holdfast.task.signature import Signature

NAN, INFINITY = float("nan"), float("inf")


def encode_result(value: object, annotation: Any = Any) -> bytes:
    return TypeCodec.of(annotation).encode(value, "the result")


def decode_result(data: bytes, annotation: Any = Any) -> Any:
    return TypeCodec.of(annotation).decode(data, "the result")


class Color(Enum):
    RED = "red"
    BLUE = "blue"


class Level(IntEnum):
    LOW = 1
    HIGH = 2


class Size(StrEnum):
    SMALL = "s"


class Rights(Flag):
    READ = 1
    WRITE = 2


@dataclass
class Point:
    x: float
    y: float = 0.0


@dataclass(frozen=True, eq=False)
class Reading:
    """Its `==` compares nothing, and `value` would not count if it did."""

    sensor: str
    value: float | None = field(default=None, compare=False)


@dataclass
class Derived(Point):
    z: float = 0.0


@dataclass(frozen=True)
class Empty:
    pass


class Node(msgspec.Struct, frozen=True):
    value: int
    next: Node | None = None


class Tree(msgspec.Struct, eq=False):
    """`==` of two of them is false."""

    leaves: list[Any] = []


class Pair(NamedTuple):
    left: int
    right: str


class Movie(TypedDict):
    title: str
    year: NotRequired[int]


class Custom:
    pass


def one(annotation: Any) -> Signature:
    """Return the signature of a function of one parameter, of this annotation."""

    def function(value: Any) -> None: ...

    function.__annotations__["value"] = annotation
    return Signature.of(function, "shop.order")


def there_and_back(annotation: Any, value: object) -> Any:
    signature = one(annotation)
    args, kwargs = signature.decode(signature.encode([value], {}))
    assert kwargs == {}
    return args[0]


def plain(value: object) -> None: ...


def unannotated(value): ...  # type: ignore[no-untyped-def]


# What is accepted

WHEN = datetime(2026, 3, 1, 12, 30, 15, 123456, tzinfo=UTC)

ACCEPTED: list[tuple[Any, Any]] = [
    (int, 10**40),
    (int, -(2**64)),
    (float, 0.1),
    (float, 3),
    (str, "ü\0😀"),
    (str, Size.SMALL),
    (int, Level.LOW),
    (bytes, b"\x00\xff"),
    (bytearray, bytearray(b"x")),
    (None, None),
    (Color, Color.BLUE),
    (Level, Level.HIGH),
    (Rights, Rights.READ | Rights.WRITE),
    (datetime, WHEN),
    (datetime, WHEN.replace(tzinfo=None)),
    (datetime, WHEN.astimezone(timezone(timedelta(hours=-3, minutes=-30)))),
    (datetime, datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"))),
    (datetime, datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=ZoneInfo("Europe/Berlin"))),
    (date, date(2026, 2, 28)),
    (time, time(23, 59, 59, 999999)),
    (time, time(1, tzinfo=UTC)),
    (timedelta, timedelta(days=-3, microseconds=1)),
    (UUID, UUID(int=7)),
    (Decimal, Decimal("1.10")),
    (list[int], [1, 2]),
    (list[float], [1, 2.5]),
    (Sequence[int], [1, 2]),
    (tuple[int, str], (1, "a")),
    (tuple[int, ...], (1, 2, 3)),
    (set[str], {"a", "b"}),
    (frozenset[tuple[int, date]], frozenset({(1, date(2026, 1, 1))})),
    (dict[str, float | None], {"a": 1.5, "b": None}),
    (dict[int, str], {1: "a", -2: "b"}),
    (dict[float, int], {1.5: 1}),
    (dict[Color, UUID], {Color.RED: UUID(int=1)}),
    (Mapping[date, int], {date(2026, 1, 1): 1}),
    (dict[str, Any], {"a": [1, {"b": None}], "c": 2.5, "d": 2**70}),
    (int | str | None, "a"),
    (int | float, 1),
    (int | float, 1.0),
    (Literal["a", 1, None], 1),
    (Annotated[int, msgspec.Meta(gt=0)], 1),
    (Annotated[int, {"unhashable": True}], 1),
    (Movie, {"title": "M"}),
    (Pair, Pair(1, "a")),
    (tuple[int, str], Pair(1, "a")),
    (Point, Point(1, 2.5)),
    (list[Point | None], [Point(0.0), None]),
    (Empty, Empty()),
    (Node, Node(1, Node(2))),
    (TypeVar("X"), [1, "a"]),
]


@pytest.mark.parametrize(("annotation", "value"), ACCEPTED)
def test_a_value_of_its_annotation_comes_back_equal(annotation: Any, value: Any) -> None:
    came = there_and_back(annotation, value)
    if isinstance(value, datetime) and value.tzinfo is not None:
        assert came - value == timedelta()
    else:
        assert came == value


def test_a_float_may_be_written_as_an_int_and_comes_back_as_a_float() -> None:
    assert type(there_and_back(float, 3)) is float
    assert type(there_and_back(Point, Point(1)).x) is float


def test_a_value_whose_equality_is_useless_is_compared_field_by_field() -> None:
    came = there_and_back(Reading, Reading("roof", 1.5))
    assert (came.sensor, came.value) == ("roof", 1.5)
    assert there_and_back(Tree, Tree([Tree().leaves, 1])).leaves == [[], 1]


def test_the_sign_of_zero_survives() -> None:
    assert math.copysign(1, there_and_back(float, -0.0)) == -1


def test_an_unannotated_argument_takes_the_types_of_json_exactly() -> None:
    value = {"a": [1, 1.0, True, None, "x", 2**80], "b": {}, "c": []}
    for function in (plain, unannotated):
        signature = Signature.of(function)
        assert repr(signature.decode(signature.encode([value], {}))) == repr(([value], {}))


# What is refused

REFUSED: list[tuple[Any, Any, str]] = [
    (int, "1", "Expected `int`, got `str`"),
    (int, 1.0, "Expected `int`, got `float`"),
    (int, True, "Expected `int`, got `bool`"),
    (int, None, "Expected `int`, got `null`"),
    (bool, 1, "Expected `bool`"),
    (float, 2**53 + 1, "would come back as"),
    (float, 2**64, "would come back as"),
    (list[float], [2**64], "would come back as"),
    (str, b"x", "would come back as"),
    (str, WHEN, "would come back as"),
    (str, UUID(int=1), "would come back as"),
    (str, Decimal(1), "would come back as"),
    (str, Color.RED, "would come back as"),
    (str, "\ud800", "lone surrogate"),
    (bytes, "eA==", "would come back as"),
    (bytes, bytearray(b"x"), "would come back as"),
    (date, WHEN, "date"),
    (datetime, date(2026, 1, 1), "datetime"),
    (datetime, "2026-01-01T00:00:00Z", "would come back as"),
    (datetime, WHEN.astimezone(timezone(timedelta(seconds=30))), "would come back as"),
    (time, time(12, tzinfo=ZoneInfo("Europe/Berlin")), "would come back as"),
    (Decimal, 1.5, "would come back as"),
    (Color, "red", "would come back as"),
    (list[int], (1, 2), "would come back as"),
    (list[int], {1, 2}, "would come back as"),
    (tuple[int, ...], [1, 2], "would come back as"),
    (Sequence[int], (1, 2), "would come back as"),
    (set[int], [1, 1], "would come back as"),
    (dict[str, int], {1: 2}, "would come back as"),
    (dict[int | str, int], {1: 1, "1": 2}, "would come back as"),
    (dict[str, Any], {"a": (1, 2)}, "would come back as"),
    (dict[str, Any], {"a": WHEN}, "would come back as"),
    (dict[str, Any], {"a": {1: 2}}, "would come back as"),
    (dict[str, Any], {"a": Point(1)}, "would come back as"),
    (list[Any], [b"x"], "would come back as"),
    (Literal["a"], "b", "Invalid enum value 'b'"),
    (Annotated[int, msgspec.Meta(gt=0)], 0, "Expected `int` >= 1"),
    (Point, {"x": 1.0, "y": 0.0}, "would come back as"),
    (Point, Derived(1, 2, 3), "would come back as"),
    (Pair, (1, "a"), "would come back as"),
    (Movie, {"year": 1}, "missing required field `title`"),
    (Movie, {"title": "M", "extra": 1}, "would come back as"),
    (Node, Custom(), "Custom cannot be stored"),
    (list[int], [1, Custom()], "Custom cannot be stored"),
    (Any, Custom(), "Custom cannot be stored"),
    (Any, (1, 2), "a tuple is not a JSON type; annotate"),
    (Any, [{"a": (1, 2)}], "a tuple is not a JSON type; annotate"),
    (Any, {1}, "a set is not a JSON type"),
    (Any, b"x", "a bytes is not a JSON type"),
    (Any, WHEN, "a datetime is not a JSON type"),
    (Any, Size.SMALL, "a Size is not a JSON type"),
    (Any, Level.LOW, "a Level is not a JSON type"),
    (Any, Point(1), "a Point is not a JSON type"),
    (Any, Decimal(1), "a Decimal is not a JSON type"),
    (Any, {1: 2}, "keys that are not str"),
    (Any, {Size.SMALL: 2}, "keys that are not str"),
    (Any, type("MyList", (list,), {})(), "a MyList is not a JSON type"),
    (Any, type("MyDict", (dict,), {})(), "a MyDict is not a JSON type"),
    (object, (1,), "a tuple is not a JSON type"),
]


@pytest.mark.parametrize(("annotation", "value", "words"), REFUSED)
def test_a_value_that_would_come_back_different_is_refused(annotation: Any, value: Any, words: str) -> None:
    with pytest.raises(Invalid, match=r"task shop.order: argument 'value': ") as refusal:
        there_and_back(annotation, value)
    assert words in str(refusal.value)


def test_an_integer_that_python_would_not_write_out_is_refused() -> None:
    assert there_and_back(int, 10**4000) == 10**4000
    for annotation in (int, Any):
        with pytest.raises(Invalid, match="Exceeds the limit"):
            there_and_back(annotation, 10**5000)


NOT_FINITE: list[tuple[Any, Any]] = [
    (shape, value)
    for bad in (NAN, INFINITY, -INFINITY)
    for shape, value in [
        (Any, bad),
        (Any, [1, {"a": bad}]),
        (float, bad),
        (float | None, bad),
        (int | float | None, bad),
        (list[float | None], [1.0, bad]),
        (list[float], [1, bad]),
        (tuple[float | None, ...], (bad,)),
        (set[float | None], {bad}),
        (frozenset[float | None], frozenset({bad, None})),
        (dict[str, float | None], {"a": bad}),
        (dict[float, int], {bad: 1}),
        (dict[float | str, int], {bad: 1}),
        (dict[str, Any], {"a": [bad]}),
        (Point, Point(bad)),
        (Reading, Reading("roof", bad)),
        (Tree, Tree([[bad]])),
        (dict[str, list[Reading]], {"a": [Reading("roof", bad)]}),
    ]
] + [
    (shape, value)
    for bad in (Decimal("NaN"), Decimal("sNaN"), Decimal("Infinity"), Decimal("-Infinity"))
    for shape, value in [
        (Decimal, bad),
        (Decimal | None, bad),
        (list[Decimal], [Decimal(1), bad]),
        (dict[str, Decimal], {"a": bad}),
        (tuple[int, Decimal], (1, bad)),
    ]
]


@pytest.mark.parametrize(("annotation", "value"), NOT_FINITE)
def test_nan_and_infinities_are_refused_wherever_they_stand(annotation: Any, value: Any) -> None:
    with pytest.raises(Invalid, match="NaN and infinities cannot be stored"):
        there_and_back(annotation, value)


def nested(depth: int) -> Any:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


def linked(depth: int) -> Node:
    node = Node(0)
    for _ in range(depth):
        node = Node(0, node)
    return node


@pytest.mark.parametrize("annotation", [Any, list[Any]])
def test_nesting_is_bounded(annotation: Any) -> None:
    assert there_and_back(annotation, nested(MAX_DEPTH - 1)) == nested(MAX_DEPTH - 1)
    loop: list[Any] = []
    loop.append(loop)
    for value in (nested(MAX_DEPTH), nested(MAX_DEPTH + 1), nested(100_000), loop):
        with pytest.raises(Invalid, match="nested more than 100 levels deep"):
            there_and_back(annotation, value)


def test_a_chain_of_structs_is_bounded_like_any_nesting() -> None:
    assert there_and_back(Node, linked(MAX_DEPTH - 1)) == linked(MAX_DEPTH - 1)
    for depth in (MAX_DEPTH, 5_000):
        with pytest.raises(Invalid, match="nested more than 100 levels deep"):
            there_and_back(Node, linked(depth))


def test_a_refusal_of_a_huge_value_is_short() -> None:
    with pytest.raises(Invalid) as refusal:
        there_and_back(list[int], tuple(range(100_000)))
    assert len(str(refusal.value)) < 1000


# Properties

LEAVES: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (int, st.integers()),
    (float, st.floats(allow_nan=False, allow_infinity=False)),
    (str, st.text()),
    (bool, st.booleans()),
    (None, st.none()),
    (bytes, st.binary()),
    (datetime, st.datetimes(timezones=st.none() | st.just(UTC))),
    (date, st.dates()),
    (time, st.times()),
    (timedelta, st.timedeltas()),
    (UUID, st.uuids()),
    (Decimal, st.decimals(allow_nan=False, allow_infinity=False)),
    (Color, st.sampled_from(Color)),
    (Level, st.sampled_from(Level)),
]

HASHABLE = st.sampled_from(LEAVES)
Typed = tuple[Any, st.SearchStrategy[Any]]


def widen(inner: st.SearchStrategy[Typed]) -> st.SearchStrategy[Typed]:
    """Return annotations, with their values, made of simpler ones."""
    lists, dicts, tuples, sets, frozen = (typing.cast(Any, kind) for kind in (list, dict, tuple, set, frozenset))
    return st.one_of(
        inner.map(lambda each: (lists[each[0]], st.lists(each[1], max_size=4))),
        inner.map(lambda each: (tuples[each[0], ...], st.lists(each[1], max_size=4).map(tuple))),
        inner.map(lambda each: (dicts[str, each[0]], st.dictionaries(st.text(), each[1], max_size=4))),
        inner.map(lambda each: (each[0] | None if each[0] else None, each[1] | st.none())),
        st.tuples(inner, inner).map(lambda two: (tuples[two[0][0], two[1][0]], st.tuples(two[0][1], two[1][1]))),
        HASHABLE.map(lambda each: (sets[each[0]], st.sets(each[1], max_size=4))),
        HASHABLE.map(lambda each: (frozen[each[0]], st.frozensets(each[1], max_size=4))),
    )


TYPED = st.recursive(HASHABLE, widen, max_leaves=6)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)
ANYTHING = st.recursive(
    st.one_of(
        *(values for _, values in LEAVES), st.floats(), st.decimals(), st.sampled_from(Size), st.complex_numbers()
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(st.text(max_size=3) | st.integers() | st.floats(), inner, max_size=3),
        st.builds(Point, inner, inner),
        st.builds(Reading, inner, inner),
        st.builds(Tree, st.lists(inner, max_size=3)),
    ),
    max_leaves=8,
)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data(), TYPED)
def test_every_value_of_a_type_comes_back_equal(data: st.DataObject, typed: Typed) -> None:
    annotation, values = typed
    value = data.draw(values)
    came = there_and_back(annotation, value)
    assert came == value
    assert type(came) is type(value)
    assert decode_result(encode_result(value, annotation), annotation) == value


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(JSON)
def test_every_json_value_comes_back_exactly_without_an_annotation(value: Any) -> None:
    assert repr(there_and_back(Any, value)) == repr(value)
    assert repr(decode_result(encode_result(value))) == repr(value)
    assert repr(decode_checkpoint(encode_checkpoint(value), object)) == repr(value)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(ANYTHING)
def test_whatever_is_passed_without_an_annotation_comes_back_exactly_or_is_refused(value: Any) -> None:
    try:
        came = there_and_back(Any, value)
    except Invalid:
        return
    assert repr(came) == repr(value)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(TYPED, ANYTHING)
def test_whatever_is_passed_for_a_type_comes_back_equal_or_is_refused(typed: Typed, value: Any) -> None:
    try:
        came = there_and_back(typed[0], value)
    except Invalid:
        return
    assert came == value


# Signatures


def every(first: int, /, second: str = "b", *rest: float, third: bool = False, **others: date) -> None: ...


@pytest.mark.parametrize(
    ("args", "kwargs", "expected"),
    [
        ((1,), {}, ([1, "b"], {})),
        ((1, "x"), {}, ([1, "x"], {})),
        ((1,), {"second": "x"}, ([1, "x"], {})),
        ((1, "x", 2.5, 3), {}, ([1, "x", 2.5, 3.0], {})),
        ((1,), {"third": True}, ([1, "b"], {"third": True})),
        ((1,), {"first": date(2026, 1, 1)}, ([1, "b"], {"first": date(2026, 1, 1)})),
        ((1,), {"*": date(2026, 1, 1)}, ([1, "b"], {"*": date(2026, 1, 1)})),
    ],
)
def test_arguments_are_bound_as_python_does(args: Any, kwargs: Any, expected: Any) -> None:
    signature = Signature.of(every)
    assert signature.decode(signature.encode(args, kwargs)) == expected


def two(first: int, second: str) -> None: ...


@pytest.mark.parametrize(
    ("args", "kwargs", "words"),
    [
        ((1,), {}, "missing a required argument: 'second'"),
        ((1, "a", 2), {}, "too many positional arguments"),
        ((1, "a"), {"first": 1}, "multiple values for argument 'first'"),
        ((1, "a"), {"third": 1}, "unexpected keyword argument 'third'"),
        ((1, 2), {}, "argument 'second': Expected `str`, got `int`"),
        (("a", "b"), {}, "argument 'first': Expected `int`, got `str`"),
    ],
)
def test_arguments_that_do_not_fit_are_refused_with_the_name_of_task_and_parameter(
    args: Any, kwargs: Any, words: str
) -> None:
    with pytest.raises(Invalid, match=r"task shop.two: ") as refusal:
        Signature.of(two, "shop.two").encode(args, kwargs)
    assert words in str(refusal.value)


def test_a_named_argument_that_was_given_by_position_is_not_taken_for_one_of_the_others() -> None:
    with pytest.raises(Invalid, match="multiple values for argument 'second'"):
        Signature.of(every).encode([1, "x"], {"second": "y"})


def test_the_place_inside_an_argument_is_named() -> None:
    with pytest.raises(Invalid, match=r"argument 'value': Expected `float`, got `str` - at `\$\[1\]\.x`"):
        there_and_back(list[Point], [Point(1), Point("a")])  # type: ignore[arg-type]


def test_defaults_are_not_stored_so_that_a_release_may_change_them() -> None:
    def old(size: int = 1, *, deep: bool = False) -> None: ...
    def new(size: int = 2, *, deep: bool = True, wide: bool = False) -> None: ...

    stored = Signature.of(old).encode([], {})
    assert stored == b"{}"
    assert Signature.of(new).decode(stored) == ([2], {})
    assert Signature.of(new).decode(Signature.of(old).encode([], {"deep": False})) == ([2], {"deep": False})


def test_a_parameter_may_move_or_become_named_between_releases() -> None:
    def old(a: int, b: int = 0) -> None: ...
    def new(b: int = 5, a: int = 6, /) -> None: ...
    def named(*, a: int, b: int = 0) -> None: ...

    stored = Signature.of(old).encode([1], {})
    assert Signature.of(new).decode(stored) == ([5, 1], {})
    assert Signature.of(named).decode(stored) == ([], {"a": 1})


@pytest.mark.parametrize(
    ("stored", "words"),
    [
        (b'{"first":1,"second":"a","third":3}', "unknown field `third`"),
        (b'{"first":1}', "missing required field `second`"),
        (b'{"first":"1","second":"a"}', "Expected `int`, got `str`"),
        (b"[]", "Expected `object`"),
        (b"{", "truncated"),
        (b'{"first":1,"second":"\xff"}', "utf-8"),
    ],
)
def test_stored_arguments_that_do_not_fit_this_release_are_refused(stored: bytes, words: str) -> None:
    with pytest.raises(Invalid, match=r"task shop.two: the stored arguments do not fit") as refusal:
        Signature.of(two, "shop.two").decode(stored)
    assert words in str(refusal.value)


def test_stored_arguments_without_end_are_refused() -> None:
    with pytest.raises(Invalid, match="recursion"):
        Signature.of(plain).decode(b'{"value":' + b"[" * 100_000)


def test_named_arguments_may_be_a_typed_dict() -> None:
    def function(**movie: Unpack[Movie]) -> None: ...

    signature = Signature.of(function)
    assert signature.decode(signature.encode([], {"title": "M"})) == ([], {"title": "M"})
    with pytest.raises(Invalid, match="argument '\\*\\*'"):
        signature.encode([], {"title": 1})


def test_a_signature_is_read_once() -> None:
    assert Signature.of(two) is Signature.of(two)


@pytest.mark.parametrize(
    "annotation",
    [
        Custom,
        Custom | None,
        int | Custom,
        list[Custom],
        dict[str, tuple[Custom, ...]],
        Callable[[int], int],
        Callable,
        Iterator[int],
        type[int],
        Path | str,
        complex,
        range,
        msgspec.Raw,
        datetime | str,
        list[int] | tuple[int, ...],
        Literal[b"x"],
        "Missing",
    ],
)
def test_an_annotation_that_cannot_be_stored_is_refused_at_the_declaration(annotation: Any) -> None:
    with pytest.raises(TypeError, match=r"task shop.order: (parameter 'value': .* Annotate it|name 'Missing' is not)"):
        one(annotation)


@dataclass
class Holder:
    inside: list[Custom]


class Loop(msgspec.Struct):
    again: Loop | None
    inside: Custom | None = None


def test_what_cannot_be_stored_is_found_inside_classes() -> None:
    for annotation in (Holder, list[Holder], Loop):
        with pytest.raises(TypeError, match="Custom"):
            one(annotation)


@attrs.define
class Unannotated:
    x = attrs.field()  # type: ignore[var-annotated]


@attrs.define
class FromItself:
    x: int
    y: list[int] = attrs.field(default=attrs.Factory(lambda self: [self.x], takes_self=True))


def test_a_class_that_msgspec_cannot_describe_is_refused_at_the_declaration() -> None:
    def local() -> Any:
        class Inner:
            pass

        @dataclass
        class Outer:
            inner: Inner

        return Outer

    for annotation, words in [
        (Unannotated, "field 'x' has no annotation"),
        (FromItself, "default factories with `takes_self=True` is not implemented"),
        (local(), "name 'Inner' is not defined; define the class at the top level of its module"),
    ]:
        with pytest.raises(TypeError, match=rf"parameter 'value': .*{words}[^.]*[.] Annotate it"):
            one(annotation)


def test_a_return_annotation_that_cannot_be_stored_is_refused_at_the_declaration() -> None:
    def function() -> Custom:
        raise NotImplementedError

    with pytest.raises(TypeError, match=r"task shop.get: the return value: .*Custom"):
        Signature.of(function, "shop.get")


# Results and checkpoints


def test_a_result_is_of_the_annotated_type() -> None:
    assert decode_result(encode_result(Point(1.5), Point), Point) == Point(1.5)
    assert decode_result(encode_result(None)) is None
    assert decode_result(encode_result(None, None), None) is None
    for value, annotation in [(1, str), (NAN, Any), (NAN, float), ((1, 2), Any), (Point(1), Any), (5, None)]:
        with pytest.raises(Invalid, match="the result: "):
            encode_result(value, annotation)
    with pytest.raises(Invalid, match="the result does not fit its type"):
        decode_result(b'"x"', int)


def test_a_signature_knows_the_shape_of_the_result() -> None:
    async def paused() -> Point:
        raise NotImplementedError

    def endless() -> NoReturn:
        raise NotImplementedError

    point = Signature.of(paused).result
    assert point.decode(point.encode(Point(1.0), "it"), "it") == Point(1.0)
    assert Signature.of(endless).result.encode(None, "it") == b"null"
    assert Signature.of(unannotated).result.is_json


def test_a_checkpoint_is_read_as_the_type_that_the_reader_names() -> None:
    for value, kind in [(Point(1.5), Point), ({"a": (1, 2)}, dict[str, tuple[int, int]]), (None, object), (7, int)]:
        assert decode_checkpoint(encode_checkpoint(value), kind) == value
    with pytest.raises(Invalid, match="the checkpoint does not fit its type"):
        decode_checkpoint(b'"x"', int)


@pytest.mark.parametrize(
    "value",
    [NAN, [INFINITY], {"a": (NAN,)}, {INFINITY: 1}, Point(NAN), Tree([{NAN}]), Decimal("NaN"), Custom(), "\ud800"],
)
def test_a_checkpoint_that_cannot_be_stored_is_refused(value: Any) -> None:
    with pytest.raises(Invalid, match="the checkpoint cannot be stored: "):
        encode_checkpoint(value)


@attrs.define
class Secretive:
    x: int
    _y: int = 1
    _z: list[int] = attrs.Factory(list)


def test_a_checkpoint_whose_private_field_would_be_lost_is_refused() -> None:
    assert decode_checkpoint(encode_checkpoint(Secretive(1)), Secretive) == Secretive(1)
    for value in (Secretive(1, 5), [Secretive(1), Secretive(1, z=[1])], {"a": Secretive(1, 2)}):
        with pytest.raises(Invalid, match=r"Secretive\._[yz]: private fields are not stored"):
            encode_checkpoint(value)


def test_a_checkpoint_without_end_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    for value in (loop, nested(100_000), nested(MAX_DEPTH + 1)):
        with pytest.raises(Invalid, match="nested more than 100 levels deep"):
            encode_checkpoint(value)


def test_every_annotation_that_can_be_stored_has_a_codec() -> None:
    assert TypeCodec.of(list[int]).decode(b"[1]", "it") == [1]
    with pytest.raises(TypeError, match="Custom"):
        TypeCodec.of(Custom)


class Zone(tzinfo):
    """Says that it knows no offset."""

    def utcoffset(self, _when: datetime | None) -> None:
        return None

    def dst(self, _when: datetime | None) -> None:
        return None

    def tzname(self, _when: datetime | None) -> str:
        return "nowhere"


def test_a_zone_that_would_be_lost_is_refused() -> None:
    with pytest.raises(Invalid, match="would come back as"):
        there_and_back(datetime, datetime(2026, 1, 1, tzinfo=Zone()))


def test_a_small_call_is_encoded_in_microseconds() -> None:
    def transcode(source: str, height: int = 720) -> str: ...  # type: ignore[empty-body]

    signature = Signature.of(transcode)
    began = clock.perf_counter()
    for _ in range(1000):
        signature.encode(["in.mov"], {"height": 1080})
    assert clock.perf_counter() - began < 0.1  # 3 µs each on a quiet machine; this leaves room for a busy one
