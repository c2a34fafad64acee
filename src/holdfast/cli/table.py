"""Tables: each field of a command's records is declared once.

A row of the declaration says how a field is called in JSON, what it means, how it is read from a value of the client,
and how it is shown as a column. The table on a terminal, the tab-separated text, `--json`, `--help` and the pages of
docs/cli follow from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Any, NamedTuple

Record = dict[str, Any]  # a value as --json prints it
Read = Callable[[Any], Any]  # of a value of the client
Show = Callable[[Record, Any], Any]  # of a record, for an `Output`


class Field(NamedTuple):
    """A field of a record. Fields with a title are columns, too."""

    name: str
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

    def value(self, source: Any) -> Any:
        if self.read:
            return self.read(source)
        return source[self.name] if isinstance(source, Mapping) else getattr(source, self.name)

    def shown(self, record: Record, output: Any) -> Any:
        return self.show(record, output) if self.show else record[self.name]


def field(name: str, help: str, read: Read | None = None, *, volatile: bool = False) -> Field:
    """Declare a field that only JSON has."""
    return Field(name, help, read, volatile=volatile)


def column(name: str, help: str, read: Read | None = None, *, title: str | None = None, **more: Any) -> Field:
    """Declare a field that is a column, too; its title is its name unless another is given."""
    return Field(name, help, read, name.replace("_", " ").upper() if title is None else title, **more)


class Table:
    """The fields of the records that a command prints, in their order; the first identifies a record."""

    def __init__(
        self, kind: str, *fields: Field, base: Table | None = None, readers: Mapping[str, Read] | None = None
    ) -> None:
        """`readers` has how fields are read, by name, for those that do not declare it."""
        self.kind = kind
        self.fields = tuple(
            each if each.read else each._replace(read=(readers or {}).get(each.name)) for each in fields
        )
        self.base = base  # the table that this one extends

    @property
    def key(self) -> str:
        return self.fields[0].name

    @property
    def help(self) -> dict[str, str]:
        return {each.name: each.help for each in self.fields}

    @cached_property
    def volatile(self) -> set[str]:
        return {each.name for each in self.fields if each.volatile}

    @property
    def column_names(self) -> list[str]:
        """The columns of tab-separated text, in lower case."""
        return [(each.title or each.name).lower() for each in self.columns(on_terminal=False)]

    def columns(self, *, on_terminal: bool) -> list[Field]:
        return [each for each in self.fields if each.title is not None and (on_terminal or not each.on_terminal_only)]

    def record(self, source: Any, **known: Any) -> Record:
        """Return the record of a value; fields that it does not have are given as `known`."""
        return {each.name: known[each.name] if each.name in known else each.value(source) for each in self.fields}

    def records(self, sources: Iterable[Any]) -> list[Record]:
        return [self.record(each) for each in sources]

    def extended(self, *fields: Field, readers: Mapping[str, Read] | None = None) -> Table:
        return Table(self.kind, *self.fields, *fields, base=self, readers=readers)


def changed_column() -> Field:
    """Declare the field `changed`: false if nothing had to change."""
    return column(
        "changed", "whether it changed anything", title="", show=lambda row, _: "" if row["changed"] else "unchanged"
    )


def done_column(name: str) -> Field:
    """Declare a field that is always true: what was done."""
    return column(name, "true", title="", show=lambda _, __: name)
