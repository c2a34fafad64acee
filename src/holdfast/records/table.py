"""Tables: each field of a record is declared once.

A row of the declaration says how a field is called in JSON, which type its value has, what it means, how it is read
from a value of the client, and how it is shown as a column. The table on a terminal, the tab-separated text, `--json`,
`--help`, the pages of docs/cli, the answers of the REST API and its specification follow from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from functools import cached_property
from operator import attrgetter, itemgetter
from types import GenericAlias
from typing import Annotated, Any, NamedTuple, Protocol

import msgspec

Record = dict[str, Any]  # a value as --json prints it
Read = Callable[[Any], Any]  # of a value of the client
Show = Callable[[Record, Any], Any]  # of a record, for an `Output`
Time: Any = Annotated[datetime, msgspec.Meta(tz=True)]  # text in ISO 8601, with its time zone, in JSON


class Output(Protocol):
    """Where records are shown: on a terminal, for people, or elsewhere, for programs."""

    @property
    def on_terminal(self) -> bool: ...
    def text(self, value: Any) -> str: ...


class Nested(NamedTuple):
    """The type of a value that has records of another table in it."""

    inner: Any  # a table, or a type
    around: Callable[[Any], Any]


def list_of(inner: Any) -> Nested:
    """Return the type of a list of records."""
    return Nested(inner, lambda each: GenericAlias(list, (each,)))


def dict_of(inner: Any) -> Nested:
    """Return the type of records by name."""
    return Nested(inner, lambda each: GenericAlias(dict, (str, each)))


def optional(inner: Any) -> Nested:
    """Return the type of a record that may be null."""
    return Nested(inner, lambda each: each | None)


def _resolve(declared: Any) -> Any:
    """Return the Python type that a declaration stands for."""
    if isinstance(declared, Nested):
        return declared.around(_resolve(declared.inner))
    return declared.struct if isinstance(declared, Table) else declared


class Field(NamedTuple):
    """A field of a record. Fields with a title are columns, too."""

    name: str
    type: Any  # of its JSON value: a Python type, a table, or one of `list_of`, `dict_of` and `optional`
    help: str
    read: Read | None = None  # else the attribute, or the item, of this name
    title: str | None = None
    show: Show | None = None  # what the column shows, if that is not the value itself
    right: bool = False  # aligned
    whole: bool = False  # never cut or left out
    wraps: bool = False
    coloured: bool = False
    on_terminal_only: bool = False
    volatile: bool = False  # changes all the time, so a change of it alone is not reported by --watch

    def reader(self, kind: type) -> Read:
        """Return what reads the value from sources of a type."""
        return self.read or (itemgetter if issubclass(kind, Mapping) else attrgetter)(self.name)

    def shown(self, record: Record, output: Any) -> Any:
        return self.show(record, output) if self.show else record[self.name]


def field(name: str, type: Any, help: str, read: Read | None = None, *, volatile: bool = False) -> Field:
    """Declare a field that only JSON has."""
    return Field(name, type, help, read, volatile=volatile)


def column(
    name: str, type: Any, help: str, read: Read | None = None, *, title: str | None = None, **more: Any
) -> Field:
    """Declare a field that is a column, too; its title is its name unless another is given."""
    return Field(name, type, help, read, name.replace("_", " ").upper() if title is None else title, **more)


class Table:
    """The fields of the records of one kind, in their order; the first identifies a record."""

    def __init__(
        self, kind: str, *fields: Field, name: str = "", base: Table | None = None,
        readers: Mapping[str, Read] | None = None,
    ) -> None:  # fmt: skip
        """`name` is that of the type, if it is not the kind's; `readers` has how fields are read that do not say it."""
        self.kind = kind
        self.name = name or kind.title().replace(" ", "")
        self.fields = tuple(
            each if each.read else each._replace(read=(readers or {}).get(each.name)) for each in fields
        )
        self.base = base  # the table that this one extends
        self._readers: dict[type, list[tuple[str, Read]]] = {}  # by the type of what is read

    @property
    def key(self) -> str:
        return self.fields[0].name

    @property
    def help(self) -> dict[str, str]:
        return {each.name: each.help for each in self.fields}

    @cached_property
    def volatile(self) -> set[str]:
        return {each.name for each in self.fields if each.volatile}

    @cached_property
    def struct(self) -> type[msgspec.Struct]:
        """The type of the records. `msgspec.json.schema_components` makes a specification of such types."""
        types = [
            (each.name, Annotated[_resolve(each.type), msgspec.Meta(description=each.help)]) for each in self.fields
        ]
        return msgspec.defstruct(self.name, types, frozen=True, module=__name__)

    @property
    def column_names(self) -> list[str]:
        """The columns of tab-separated text, in lower case."""
        return [(each.title or each.name).lower() for each in self.columns(on_terminal=False)]

    def columns(self, *, on_terminal: bool) -> list[Field]:
        return [each for each in self.fields if each.title is not None and (on_terminal or not each.on_terminal_only)]

    def record(self, source: Any, **known: Any) -> Record:
        """Return the record of a value; fields that it does not have are given as `known`."""
        readers = self._readers_of(type(source))
        return {name: known[name] if name in known else read(source) for name, read in readers}

    def records(self, sources: Iterable[Any]) -> list[Record]:
        return [{name: read(each) for name, read in self._readers_of(type(each))} for each in sources]

    def _readers_of(self, kind: type) -> list[tuple[str, Read]]:
        """Return how each field is read from sources of a type. Lists have thousands of these."""
        found = self._readers.get(kind)
        if found is None:
            found = self._readers[kind] = [(each.name, each.reader(kind)) for each in self.fields]
        return found

    def extended(self, *fields: Field, name: str, readers: Mapping[str, Read] | None = None) -> Table:
        return Table(self.kind, *self.fields, *fields, name=name, base=self, readers=readers)

    def narrowed(self, names: Iterable[str]) -> Table:
        """Return the table of some of the fields, in the order given, all of them columns that may be null."""
        known = {each.name: each for each in self.fields}
        chosen = (known[name] for name in names)
        columns = (
            column(each.name, optional(each.type), each.help, each.read, whole=each.name == self.key) for each in chosen
        )
        return Table(self.kind, *columns, name=f"{self.name}Part")


def changed_column() -> Field:
    """Declare the field `changed`: false if nothing had to change."""
    return column(
        "changed", bool, "whether it changed anything", title="",
        show=lambda row, _: "" if row["changed"] else "unchanged",
    )  # fmt: skip


def done_column(name: str) -> Field:
    """Declare a field that is always true: what was done."""
    return column(name, bool, "true", title="", show=lambda _, __: name)
