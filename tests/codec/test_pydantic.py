"""Models of Pydantic as arguments, results and checkpoints: they come back equal, or are refused with the field."""

from __future__ import annotations

import subprocess
import sys
import typing
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from enum import IntEnum, StrEnum
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, NamedTuple, TypedDict, TypeVar
from uuid import UUID

import attrs
import msgspec
import pydantic
import pytest
import typing_extensions
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import (
    AliasPath,
    BaseModel,
    ConfigDict,
    Field,
    HttpUrl,
    ImportString,
    Json,
    NaiveDatetime,
    PastDate,
    PrivateAttr,
    RootModel,
    SecretStr,
)
from pydantic import dataclasses as pydantic_dataclasses

from holdfast.codec import TypeCodec, decode_checkpoint, encode_checkpoint, register_type
from holdfast.errors import Invalid
from tests.codec.roundtrip import signature_of, stored, there_and_back

T = TypeVar("T")


class Line(BaseModel):
    product: UUID
    price: Decimal
    count: int = Field(default=1, gt=0)


class Order(BaseModel):
    id: int
    lines: list[Line] = []
    placed: datetime | None = None
    note: str = ""


class GiftOrder(Order):
    card: str = ""


class Cart(BaseModel):
    order: Order
    earlier: dict[str, Order] = {}


class Cat(BaseModel):
    kind: Literal["cat"] = "cat"
    lives: int = 9


class Dog(BaseModel):
    kind: Literal["dog"] = "dog"
    lives: int = 1


Pet = Annotated[Cat | Dog, Field(discriminator="kind")]


class Strict(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True)

    day: date
    id: UUID
    span: timedelta
    pair: tuple[int, str]
    names: frozenset[str]


class Page(BaseModel, Generic[T]):
    items: list[T]
    next: int | None = None


class Aliased(BaseModel):
    model_config = ConfigDict(extra="forbid")

    both: int = Field(alias="bothWays")
    read: int = Field(default=0, validation_alias="readAs")
    written: int = Field(default=0, serialization_alias="writtenAs")
    deep: int = Field(default=0, validation_alias=AliasPath("nested", 0))


class Cached(BaseModel):
    x: int
    _cache: dict[str, int] = PrivateAttr(default_factory=dict)


class Excluding(BaseModel):
    x: int
    secret: str = Field(default="", exclude=True)


class Login(BaseModel):
    name: str
    password: SecretStr


class RevealedLogin(Login):
    @pydantic.field_serializer("password", when_used="json")
    def reveal(self, password: SecretStr) -> str:
        return password.get_secret_value()


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")


class Loose(BaseModel):
    ratio: float | None = None
    anything: Any = None


class Blob(BaseModel):
    data: bytes


class Base64Blob(BaseModel):
    model_config = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")

    data: bytes


class Computed(BaseModel):
    width: int
    tags: Json[list[str]]

    @pydantic.computed_field
    def area(self) -> int:
        return self.width**2


class Old(BaseModel):
    colour: str = Field(default="red", deprecated="use paint")


class Weights(BaseModel):
    model_config = ConfigDict(ser_json_inf_nan="constants")

    each: list[float] = [1.5]
    pair: tuple[float, str] = (0.5, "")


class Colour(StrEnum):
    RED = "red"


class Painted(BaseModel):
    colour: Colour | str = ""
    others: list[Colour | str] = []
    text: str = ""
    only: Colour = Colour.RED


class Level(IntEnum):
    LOW = 1


@dataclass
class Striped:
    colour: Colour | str
    cat: Cat


class Fixed(BaseModel, frozen=True):
    x: int


class Doubling(BaseModel):
    x: int

    @pydantic.field_validator("x")
    @classmethod
    def double(cls, x: int) -> int:
        return 2 * x


class Picky(BaseModel):
    x: int

    @pydantic.field_validator("x")
    @classmethod
    def small(cls, x: int) -> int:
        if x > 5:
            raise KeyError("too large")  # Pydantic only knows ValueError and AssertionError
        return x


class Tree(BaseModel):
    children: list[Tree] = []


@pydantic_dataclasses.dataclass
class Point:
    x: int = Field(gt=0)
    y: int = 0


@pydantic_dataclasses.dataclass(config=ConfigDict(extra="allow"))
class OpenPoint:
    x: int

    @cached_property
    def double(self) -> int:
        return 2 * self.x


@pydantic_dataclasses.dataclass
class PaintedPoint:
    colour: Colour | str = ""


@dataclass(frozen=True)
class Delivery:
    order: Order
    pet: Cat | Dog
    path: Path


@attrs.frozen
class Parcel:
    order: Order
    path: Path = Path("/")


class Letter(msgspec.Struct):
    order: Order


class Postcard(typing_extensions.TypedDict):
    order: Order


class Letterhead(typing_extensions.TypedDict):
    name: str
    order: Order


class Stamped(NamedTuple):
    order: Order
    pet: Pet


ORDER = Order(id=7, lines=[Line(product=UUID(int=1), price=Decimal("9.90"))], placed=datetime(2026, 3, 1, 12))

STRICT_VALUE = Strict(day=date(2026, 1, 1), id=UUID(int=1), span=timedelta(1), pair=(1, "a"), names=frozenset("ab"))

ACCEPTED: list[tuple[Any, Any]] = [
    (Order, ORDER),
    (Order | None, None),
    (list[Order], [ORDER, ORDER]),
    (dict[UUID, tuple[Order, int]], {UUID(int=2): (ORDER, 1)}),
    (set[Strict], {STRICT_VALUE}),
    (Cat | Dog, Dog()),
    (Cat | Dog | int | None, 4),
    (Pet, Dog(lives=2)),
    (list[Pet], [Cat(), Dog()]),
    (Page[Order], Page[Order](items=[ORDER], next=2)),
    (Page[Pet], Page[Pet](items=[Dog()])),
    (RootModel[list[int]], RootModel[list[int]]([1, 2])),
    (Annotated[Order, "of the web shop"], ORDER),
    (Aliased, Aliased.model_validate({"bothWays": 1, "readAs": 2, "written": 3, "nested": [4]})),
    (Cached, Cached(x=1)),
    (Excluding, Excluding(x=1)),
    (RevealedLogin, RevealedLogin(name="a", password=SecretStr("b"))),
    (Open, Open.model_validate({"a": [1], "b": {"c": None}})),
    (Base64Blob, Base64Blob(data=b"\xff\x00")),
    (Computed, Computed.model_validate({"width": 3, "tags": '["a"]'})),
    (Old, Old()),
    (Tree, Tree(children=[Tree(), Tree(children=[Tree()])])),
    (Point, Point(1, 2)),
    (Weights, Weights()),
    (Painted, Painted.model_validate({"text": Colour.RED, "colour": "blue"})),
    (list[Point | None], [Point(1), None]),
    (Delivery, Delivery(ORDER, Dog(), Path("/a"))),
    (Stamped, Stamped(ORDER, Cat())),
    (Parcel, Parcel(ORDER, Path("b"))),
    (list[Parcel], [Parcel(ORDER)]),
    (Letter, Letter(ORDER)),
    (Postcard, {"order": ORDER}),
    (Letterhead, {"order": ORDER, "name": "a"}),
    (Letterhead, {"name": "a", "order": ORDER}),
    (HttpUrl, HttpUrl("https://example.org/a")),
    (Annotated[int, Field(gt=0)], 1),
]  # fmt: skip


@pytest.mark.parametrize(("annotation", "value"), ACCEPTED)
def test_a_value_that_holds_models_comes_back_equal(annotation: Any, value: Any) -> None:
    came = there_and_back(annotation, value)
    assert came == value
    assert type(came) is type(value)


REFUSED: list[tuple[Any, Any, str]] = [
    (Order, GiftOrder(id=1), "GiftOrder(id=1, lines=[], placed=None, note='', card='') would come back as Order("),
    (Cart, Cart(order=GiftOrder(id=1)), "Cart.order: GiftOrder("),
    (Cart, Cart(order=ORDER, earlier={"a": GiftOrder(id=1)}), "Cart.earlier: GiftOrder("),
    (list[Cart], [Cart(order=Order.model_construct(id=True))], "Cart.order: Order.id: True would come back as 1"),
    (Parcel, Parcel(GiftOrder(id=1)), "Parcel.order: GiftOrder("),
    (Order, {"id": 1}, "Expected `Order`"),
    (Order, Order.model_construct(id="x"), "Expected `int`, got `str` - at `$.id`"),
    (Pet, Order(id=1), "Expected `Cat` or `Dog`, got `Order`"),
    (Login, Login(name="a", password=SecretStr("b")), "Login.password: a secret is not stored, only stars"),
    (SecretStr, SecretStr("b"), "a secret is not stored"),
    (Excluding, Excluding(x=1, secret="b"), "Excluding.secret: this field is excluded"),  # noqa: S106
    (Open, Open.model_validate({"a": (1, 2)}), "Open.a: (1, 2) would come back as [1, 2]"),
    (Loose, Loose(ratio=float("nan")), "Loose.ratio: NaN and infinities cannot be stored"),
    (Loose, Loose(anything=[float("inf")]), "Loose.anything: NaN and infinities cannot be stored"),
    (Weights, Weights(each=[1.0, float("inf")]), "Weights.each: NaN and infinities cannot be stored"),
    (Weights, Weights(pair=(float("-inf"), "a")), "Weights.pair: NaN and infinities cannot be stored"),
    (Loose, Loose(anything=(1,)), "Loose.anything: (1,) would come back as [1]"),
    (Loose, Loose(anything=Cat()), "Loose.anything: Cat("),
    (Loose, Loose(anything=object()), "Unable to serialize unknown type"),
    (Loose, Loose(anything="\ud800"), "lone surrogate"),
    (Blob, Blob(data=b"\xff"), "not UTF-8; set ser_json_bytes"),
    (Picky, Picky.model_construct(x=9), "a validator raised KeyError: 'too large'"),
    (HttpUrl, "https://example.org", "Expected"),
    (Annotated[int, Field(gt=0)], 0, "greater than 0"),
    (Letterhead, {"order": GiftOrder(id=1), "name": "a"}, "GiftOrder("),
    (OpenPoint, OpenPoint(x=1, label="a"), "OpenPoint.label: 'a' would come back as"),  # type: ignore[call-arg]
    (Painted, Painted(colour=Colour.RED), "Painted.colour: <Colour.RED: 'red'> would come back as 'red'"),
    (Painted, Painted(others=[Colour.RED]), "Painted.others: <Colour.RED: 'red'> would come back as 'red'"),
    (PaintedPoint, PaintedPoint(Colour.RED), "PaintedPoint.colour: <Colour.RED: 'red'> would come back as 'red'"),
    (Loose, Loose(anything=Colour.RED), "Loose.anything: <Colour.RED: 'red'> would come back as 'red'"),
    (Colour | str | Cat, Colour.RED, "<Colour.RED: 'red'> would come back as 'red'; annotate it with its actual type"),
    (str | Colour | Cat, Colour.RED, "and not beside str in a union"),
    (list[Level | int | Cat], [Level.LOW], "and not beside int in a union"),
    (dict[str, Striped], {"a": Striped(Colour.RED, Cat())}, "Striped.colour: <Colour.RED: 'red'> would come back"),
    (Doubling, Doubling(x=1), "Doubling.x: 2 would come back as 4; what reads or writes it must not change it"),
    (Any, Cat(), "a Cat is not a JSON type; annotate it"),
    (Any, [Cat()], "a Cat is not a JSON type; annotate it"),
    (dict[str, Any], {"a": Cat()}, "would come back as"),
]


@pytest.mark.parametrize(("annotation", "value", "words"), REFUSED)
def test_a_value_that_would_come_back_different_is_refused(annotation: Any, value: Any, words: str) -> None:
    with pytest.raises(Invalid, match=r"^task shop.order: argument 'value': ") as refusal:
        there_and_back(annotation, value)
    assert words in str(refusal.value)


def test_private_attributes_are_compared_as_well() -> None:
    value = Cached(x=1)
    value._cache["a"] = 1
    with pytest.raises(Invalid, match=r"Cached\._cache: private fields are not stored"):
        there_and_back(Cached, value)


def test_a_cached_property_is_no_part_of_a_dataclass() -> None:
    value = OpenPoint(x=1)
    assert value.double == 2
    assert there_and_back(OpenPoint, value) == value


def test_a_str_takes_a_strenum() -> None:
    assert there_and_back(str, Colour.RED) == "red"
    assert there_and_back(Annotated[str, Field(max_length=9)], Colour.RED) == "red"
    assert there_and_back(str | Cat, Colour.RED) == "red"


def test_text_beside_an_enum_and_a_model_comes_back_as_text() -> None:
    for value in ("red", "green", Cat()):
        came = there_and_back(Colour | str | Cat, value)
        assert came == value
        assert type(came) is type(value)
    for annotation in (Colour | int | Cat, Colour | Cat, Colour | None | Cat):
        assert there_and_back(annotation, Colour.RED) is Colour.RED


class Vague:
    def __eq__(self, other: object) -> bool:
        raise KeyError("no idea")

    __hash__ = object.__hash__


class Endless(list[int]):
    def __len__(self) -> int:
        raise KeyError("no idea")


def test_an_error_of_a_comparison_is_a_refusal() -> None:
    register_type(Vague, lambda _: 1, lambda _: Vague())
    cases: list[tuple[Any, Any]] = [(Vague, Vague()), (list[Vague], [Vague()]), (list[int], Endless([1]))]
    for annotation, value in cases:
        with pytest.raises(Invalid, match="comparing it with what would come back raised KeyError: 'no idea'"):
            TypeCodec.of(annotation).encode(value, "it")


def test_nesting_is_bounded() -> None:
    def grow(depth: int) -> Tree:
        tree = Tree()
        for _ in range(depth):
            tree = Tree(children=[tree])
        return tree

    assert there_and_back(Tree, grow(40)) == grow(40)
    circle = Tree()
    circle.children.append(circle)
    for value in (grow(60), grow(2000), circle):
        with pytest.raises(Invalid, match="nested more than 100 levels deep"):
            there_and_back(Tree, value)


def test_fields_are_stored_under_their_names_and_read_by_name_or_alias() -> None:
    value = Aliased.model_validate({"bothWays": 1})
    assert stored(Aliased, value) == b'{"both":1,"read":0,"written":0,"deep":0}'
    decode = signature_of(Aliased).decode
    assert decode(b'{"value":{"both":1}}') == decode(b'{"value":{"bothWays":1}}') == ([value], {})


def test_computed_fields_are_not_stored() -> None:
    assert stored(Computed, Computed.model_validate({"width": 3, "tags": "[]"})) == b'{"width":3,"tags":"[]"}'


def test_arguments_that_do_not_fit_a_model_are_refused_with_their_places_and_without_their_values() -> None:
    lines = b'[{"product":"' + str(UUID(int=1)).encode() + b'","price":"top secret"}]'
    with pytest.raises(Invalid) as refusal:
        signature_of(Order).decode(b'{"value":{"id":"x","lines":' + lines + b"}}")
    message = str(refusal.value)
    assert message.startswith("task shop.order: the stored arguments do not fit (value:")
    assert (
        "argument 'value': Input should be a valid integer, unable to parse string as an integer - at `$.id`; "
        in message
    )
    assert "at `$.lines[0].price`" in message
    assert "secret" not in message
    assert refusal.value.__cause__ is None


def test_a_message_names_the_first_of_many_problems() -> None:
    with pytest.raises(Invalid) as refusal:
        TypeCodec.of(list[Order]).decode(b"[" + b",".join([b"{}"] * 1000) + b"]", "the result")
    assert "- at `$[4].id`; and 995 more" in str(refusal.value)
    assert len(str(refusal.value)) < 400


def test_an_error_of_a_validator_is_the_cause_of_the_refusal() -> None:
    with pytest.raises(Invalid, match="a validator raised KeyError") as refusal:
        signature_of(Picky).decode(b'{"value":{"x":9}}')
    assert isinstance(refusal.value.__cause__, KeyError)


def test_a_call_mixes_parameters_with_and_without_models() -> None:
    def ship(first: int, order: Order, /, *more: Cat, express: bool = False, **named: Pet) -> None: ...

    signature = _signature(ship)
    args: list[Any] = [1, ORDER, Cat(), Cat(lives=2)]
    for kwargs in ({}, {"express": True}, {"rex": Dog(), "express": False}):
        assert signature.decode(signature.encode(args, kwargs)) == (args, kwargs)
    assert signature.decode(signature.encode(args[:2], {})) == (args[:2], {})
    with pytest.raises(Invalid, match=r"argument '\*\*': "):
        signature.encode(args, {"rex": ORDER})


def test_a_model_with_a_default_is_left_out_like_any_other_parameter() -> None:
    def ship(order: Order = ORDER) -> None: ...

    signature = _signature(ship)
    assert signature.encode([], {}) == b"{}"
    assert signature.decode(b"{}") == ([ORDER], {})


def _signature(function: Any) -> Any:
    from holdfast.task.signature import Signature

    return Signature.of(function)


# Annotations that cannot be stored


@attrs.define
class Kennel:
    pet: Cat | Dog


@attrs.define
class Chart:
    point: Point


class Plugin(BaseModel):
    load: ImportString[Any]


class Stream(BaseModel):
    numbers: Iterable[int]


class OldPostcard(TypedDict):
    order: Order


class Unknown:
    pass


class Incomplete(BaseModel):
    later: NotYet  # type: ignore[name-defined]  # noqa: F821


@pytest.mark.parametrize(
    ("annotation", "words"),
    [
        (Kennel, "Pydantic cannot store it: .*Kennel.*; nor can msgspec: Type unions may not contain more than one"),
        (Chart, "Point.* inside a class that Pydantic does not know cannot be stored"),
        (Incomplete, "Pydantic cannot store it: .*Incomplete.*is not fully defined|NotYet"),
        (Cat | Unknown, "nor can msgspec"),
        (ImportString, "an ImportString would import any object"),
        (list[ImportString[Any]], "an ImportString would import any object"),
        (list[Plugin], "an ImportString would import any object"),
        (Iterable[Cat], "an Iterable of Pydantic can be read only once; write list or Sequence"),
        (list[Stream], "an Iterable of Pydantic can be read only once; write list or Sequence"),
        (BaseModel, "BaseModel has no fields; name the model, or a union of models"),
        (list[BaseModel], "BaseModel has no fields; name the model, or a union of models"),
        pytest.param(
            OldPostcard,
            "OldPostcard.* beside a class of Pydantic; use typing_extensions.TypedDict",
            marks=pytest.mark.skipif(sys.version_info >= (3, 12), reason="Pydantic reads it"),
        ),
    ],
)
def test_an_annotation_that_cannot_be_stored_is_refused_at_the_declaration(annotation: Any, words: str) -> None:
    with pytest.raises(TypeError, match=f"task shop.order: parameter 'value': .*({words})"):
        signature_of(annotation)


def test_an_old_pydantic_is_refused_at_the_declaration(monkeypatch: pytest.MonkeyPatch) -> None:
    class Fresh(BaseModel):
        pass

    monkeypatch.setattr(pydantic, "VERSION", "2.10.6")
    with pytest.raises(TypeError, match=r"Pydantic 2\.10\.6 is too old; install 2\.11 or newer"):
        signature_of(Fresh)


def test_pydantic_is_never_imported_by_us() -> None:
    program = (
        "import sys, attrs, holdfast.codec as codec\n"
        "codec.TypeCodec.of(dict[str, list[int]]).encode({'a': [1]}, 'it')\n"
        "codec.encode_checkpoint([1])\n"
        "print([name for name in ('pydantic', 'numpy') if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[]\n"


# Results and checkpoints


def test_a_checkpoint_holds_models_and_is_read_as_one() -> None:
    assert decode_checkpoint(encode_checkpoint(ORDER), Order) == ORDER
    assert decode_checkpoint(encode_checkpoint([Dog()]), list[Pet]) == [Dog()]
    assert decode_checkpoint(encode_checkpoint({"at": Parcel(ORDER)}), dict[str, Parcel]) == {"at": Parcel(ORDER)}
    assert decode_checkpoint(encode_checkpoint(Point(3)), Point) == Point(3)
    with pytest.raises(Invalid, match=r"Field required - at `[$].id`.* An earlier attempt saved"):
        decode_checkpoint(b"{}", Order)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"a": Login(name="a", password=SecretStr("b"))}, "Login.password: a secret is not stored"),
        ([Excluding(x=1, secret="b")], "Excluding.secret: this field is excluded"),  # noqa: S106
        (Cart(order=GiftOrder(id=1)), "Cart.order: GiftOrder"),
        (Loose(ratio=float("nan")), "NaN and infinities"),
    ],
)
def test_a_checkpoint_whose_model_would_come_back_different_is_refused(value: Any, words: str) -> None:
    with pytest.raises(Invalid, match=f"the checkpoint cannot be stored: .*{words}"):
        encode_checkpoint(value)


@dataclass
class Scan:
    order: Order
    image: bytes


@pydantic_dataclasses.dataclass
class Thumbnail:
    image: bytes


@dataclass
class Gallery:
    point: Point
    image: bytes = b"abcd"


CHECKPOINTS: list[tuple[Any, Any]] = [
    (tuple[Order, bytes], (ORDER, b"abcd")),
    (Scan, Scan(ORDER, b"abcd")),
    (list[Scan], [Scan(ORDER, b"\xff")]),
    (Thumbnail, Thumbnail(b"abcd")),
    (Thumbnail | None, Thumbnail(b"abcd")),
    (Annotated[bytes, Field(max_length=9)], b"abcd"),
    (dict[str, Base64Blob], {"a": Base64Blob(data=b"\xff\x00")}),
    (dict[bytes, Blob | None], {b"abcd": Blob(data=b"abcd")}),
    (list[Cat | Dog | Blob], [Dog(), Blob(data=b"abcd")]),
    (list[Point], [Point(3)]),
    (tuple[Pet, timedelta, Decimal, datetime], (Dog(), timedelta(1, 2, 3), Decimal("1.10"), datetime(2026, 3, 1))),
    (NaiveDatetime, datetime(2026, 3, 1)),
    (list[PastDate | None], [date(2026, 3, 1), None]),
    (Colour | Cat, Colour.RED),
    (Colour | int | Cat, Colour.RED),
]


@pytest.mark.parametrize(("annotation", "value"), CHECKPOINTS)
def test_a_checkpoint_is_read_as_it_was_written(annotation: Any, value: Any) -> None:
    came = decode_checkpoint(encode_checkpoint(value), annotation)
    assert came == value
    assert type(came) is type(value)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ([Thumbnail(b"abcd")], r"Thumbnail.image: b'abcd' would come back as b'YWJjZA=='"),
        (Thumbnail(b"\xff"), "not UTF-8"),
        (Gallery(Point(3)), "bytes beside a dataclass of Pydantic; put the bytes into a model"),
        ({b"abcd": [Point(3)]}, "bytes beside a dataclass of Pydantic"),
    ],
)
def test_a_checkpoint_whose_bytes_would_come_back_different_is_refused(value: Any, words: str) -> None:
    with pytest.raises(Invalid, match=f"the checkpoint cannot be stored: .*{words}"):
        encode_checkpoint(value)


@pytest.mark.parametrize("annotation", [tuple[Pet, bytes], Cat | bytes, dict[bytes, Cat | Dog], Gallery])
def test_a_checkpoint_is_not_read_with_bytes_beside_a_union_of_models(annotation: Any) -> None:
    with pytest.raises(TypeError, match=r"a checkpoint cannot be read as .*: bytes beside a union of models"):
        decode_checkpoint(b"[]", annotation)


@pytest.mark.parametrize("annotation", [Colour | str | Cat, list[str | Colour | Cat], int | Level | Cat, Striped])
def test_a_checkpoint_is_not_read_as_an_enum_beside_its_values(annotation: Any) -> None:
    with pytest.raises(TypeError, match=r"a checkpoint cannot be read as .*: (Colour beside str|Level beside int)"):
        decode_checkpoint(b'"red"', annotation)


def test_a_model_as_a_key_is_refused() -> None:
    with pytest.raises(Invalid, match="the keys of a dict must be stored as text or numbers; use a list of pairs"):
        encode_checkpoint({Fixed(x=1): 1})


def test_the_order_of_a_union_counts_also_where_codecs_are_cached() -> None:
    class Second(Cat):
        pass

    assert type(decode_checkpoint(b"{}", Cat | Second)) is Cat  # type: ignore[arg-type]
    assert type(decode_checkpoint(b"{}", Second | Cat)) is Second  # type: ignore[arg-type]


# Properties


@dataclass
class Box:
    label: str
    order: Order | None = None


@attrs.define(slots=True)
class Crate:
    boxes: list[int]
    order: Order
    path: Path = Path()


def orders() -> st.SearchStrategy[Any]:
    lines = st.builds(
        Line,
        product=st.uuids(),
        price=st.decimals(allow_nan=False, allow_infinity=False),
        count=st.integers(min_value=1),
    )
    return st.builds(
        Order,
        id=st.integers(),
        lines=st.lists(lines, max_size=3),
        placed=st.none() | st.datetimes().map(lambda each: each.replace(fold=0)),
        note=st.text(),
    )


ORDERS = orders()
PETS = st.builds(Cat, lives=st.integers()) | st.builds(Dog, lives=st.integers())
STRICT = st.builds(
    Strict,
    day=st.dates(),
    id=st.uuids(),
    span=st.timedeltas(),
    pair=st.tuples(st.integers(), st.text()),
    names=st.frozensets(st.text(max_size=5), max_size=1),
)
PATHS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20).map(Path)
TYPED: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (Order, ORDERS),
    (Pet, PETS),
    (Cat | Dog, PETS),
    (Strict, STRICT),
    (Page[Pet], st.builds(Page[Pet], items=st.lists(PETS, max_size=3), next=st.none() | st.integers())),
    (Point, st.builds(Point, x=st.integers(min_value=1), y=st.integers())),
    (Box, st.builds(Box, label=st.text(), order=st.none() | ORDERS)),
    (Crate, st.builds(Crate, boxes=st.lists(st.integers()), order=ORDERS, path=PATHS)),
    (Letter, st.builds(Letter, order=ORDERS)),
    (Delivery, st.builds(Delivery, order=ORDERS, pet=PETS, path=PATHS)),
]
Typed = tuple[Any, st.SearchStrategy[Any]]


def widen(inner: st.SearchStrategy[Typed]) -> st.SearchStrategy[Typed]:
    """Return annotations, with their values, made of simpler ones."""
    lists, dicts, tuples = (typing.cast(Any, kind) for kind in (list, dict, tuple))
    return st.one_of(
        inner.map(lambda each: (lists[each[0]], st.lists(each[1], max_size=3))),
        inner.map(lambda each: (dicts[str, each[0]], st.dictionaries(st.text(), each[1], max_size=3))),
        inner.map(lambda each: (each[0] | None, each[1] | st.none())),
        inner.map(lambda each: (tuples[int, each[0]], st.tuples(st.integers(), each[1]))),
    )


@settings(max_examples=200)
@given(st.data(), st.recursive(st.sampled_from(TYPED), widen, max_leaves=4))
def test_every_value_of_models_attrs_classes_and_dataclasses_comes_back_equal(
    data: st.DataObject, typed: Typed
) -> None:
    annotation, values = typed
    value = data.draw(values)
    came = there_and_back(annotation, value)
    assert came == value
    assert repr(came) == repr(value)
    assert decode_checkpoint(encode_checkpoint(value), annotation) == value
