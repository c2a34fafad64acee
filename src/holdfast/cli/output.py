"""Where commands write: tables on a terminal, tab-separated text when piped, JSON when asked for."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from functools import cached_property
from textwrap import indent
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.cli.text import ago, json_text, moment
from holdfast.text import printable

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

STYLES = {
    "scheduled": "cyan", "waiting": "yellow", "blocked": "magenta", "throttled": "magenta", "running": "blue",
    "cancelling": "magenta", "succeeded": "green", "failed": "red", "cancelled": "dim",
    "live": "green", "silent": "red", "draining": "yellow", "ended": "green",
    "error": "red", "crash": "red", "crashed": "red", "lost": "red", "released": "yellow", "snoozed": "cyan",
    "unknown": "yellow", "unreadable": "red", "advanced": "green", "paused": "yellow",
}  # fmt: skip
LONGEST = 4000  # characters of one value on a terminal
MOST_LINES = 60  # of one value on a terminal
WIDEST = 40  # characters of what is not to be cut
NARROWEST = 4  # characters of what is
MIN_WRAPPED = 30  # characters of a text that is wrapped; where there are fewer, it stands below its row


class Column(NamedTuple):
    """A column of a list: its title, and its value for a record."""

    title: str
    value: Callable[[Any], Any]
    coloured: bool = False
    right: bool = False
    whole: bool = False
    wraps: bool = False


class Fact(NamedTuple):
    """A line of a description; the first, if its value has several, has the style. A terminal shows some `lines`."""

    label: str
    value: Any
    style: str = ""
    lines: int = MOST_LINES


class Output:
    """Writes records in one of three modes: `table`, `plain` or `json`."""

    def __init__(self, mode: str, now: Callable[[], datetime]) -> None:
        self.mode = mode
        self._ask_now = now

    @cached_property
    def _now(self) -> datetime:
        return self._ask_now()

    @cached_property
    def console(self) -> Console:
        return new_console()

    def forget_time(self) -> None:
        """Ask for the time again: ages are to be told anew."""
        self.__dict__.pop("_now", None)

    def json(self, value: Any) -> None:
        """Write a value as indented JSON."""
        write(json_text(value, indent=2))

    def list(self, records: Iterable[Any], columns: Sequence[Column], nothing: str) -> None:
        """Write records: as an array, as lines of text, or as a table; `nothing` says that there are none.

        The first two are written as the records come, so there may be more of them than memory holds.
        """
        if self.mode == "json":
            _write_array(records)
        elif self.mode == "plain":
            for record in records:
                write(self._plain(record, columns))
        else:
            self.console.print(self.table(records, columns, nothing))

    def one(self, record: Any, columns: Sequence[Column]) -> None:
        """Write one record: as an object, as a line of text, or as a table of one row."""
        if self.mode == "json":
            self.json(record)
        else:
            self.list([record], columns, "")

    def value(self, record: Any, name: str) -> None:
        """Write one value of a record; as JSON, the whole record."""
        if self.mode == "json":
            self.json(record)
        else:
            write(str(record[name]))

    def table(self, records: Iterable[Any], columns: Sequence[Column], nothing: str) -> RenderableType:
        """Return records as a table for a terminal."""
        from rich.text import Text

        rows = [[self.text(column.value(record)) for column in columns] for record in records]
        return self._table(columns, rows) if rows else Text(nothing, style="dim")

    def stream(self, record: Any, columns: Sequence[Column]) -> None:
        """Write one of many records that come one after another, and do not keep it back."""
        if self.mode == "json":
            write(json_text(record))
        elif self.mode == "plain":
            write(self._plain(record, columns))
        else:
            self._line(record, columns)
        sys.stdout.flush()

    def when(self, value: datetime) -> str:
        """Return a time as text; on a terminal, also how long ago it was or how soon it comes."""
        return f"{moment(value)} ({ago(self._now - value)})" if self.mode == "table" else moment(value)

    def facts(self, facts: Iterable[Fact]) -> None:
        """Describe something; a value may have several lines."""
        if self.mode == "table":
            return self.console.print(self.grid(facts))
        for fact in facts:
            for place, line in enumerate(self.text(fact.value, lines=True).splitlines() or [""]):
                write(f"{printable(fact.label) if place == 0 else ''}\t{line}")
        return None

    def text(self, value: Any, *, lines: bool = False) -> str:
        """Return a value as text that is safe to print."""
        if value is None:
            return ""
        if isinstance(value, bool):
            return "yes" if value else "no"
        if isinstance(value, datetime):
            return ago(self._now - value) if self.mode == "table" else moment(value)
        if isinstance(value, list | tuple):
            return " ".join(printable(str(item)) for item in value)
        return printable(str(value), lines=lines)

    def _plain(self, record: Any, columns: Sequence[Column]) -> str:
        return "\t".join(self.text(column.value(record)) for column in columns)

    def _table(self, columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> RenderableType:
        """Return a table, without the columns that say nothing: a terminal is narrow."""
        shown = [place for place in range(len(columns)) if columns[place].whole or _says_something(rows, place)]
        columns, rows = [columns[place] for place in shown], [[row[place] for place in shown] for row in rows]
        longest = [max(map(len, texts)) for texts in zip([column.title for column in columns], *rows, strict=True)]
        widths = _fit(columns, longest, self.console.width)
        taken = sum(width + 2 for width, column in zip(widths, columns, strict=True) if not column.wraps)
        if any(column.wraps for column in columns) and self.console.width - taken < MIN_WRAPPED:
            return _narrow_table(columns, widths, rows)
        return _rows_as_table(columns, widths, rows)

    def _line(self, record: Any, columns: Sequence[Column]) -> None:
        from rich.text import Text

        line = Text()
        for column in columns:
            text = self.text(column.value(record))
            line.append(f"{text:<10}  ", style=_style(text) if column.coloured else "")
        self.console.print(line, soft_wrap=True)

    def grid(self, facts: Iterable[Fact]) -> RenderableType:
        """Return a description for a terminal; what is long is cut."""
        from rich.table import Table
        from rich.text import Text

        grid = Table.grid(padding=(0, 2))
        grid.add_column(no_wrap=True)
        grid.add_column(overflow="fold")
        for fact in facts:
            text = _cut(self.text(fact.value, lines=True), fact.lines)
            value = Text(text)
            value.stylize(fact.style, 0, len(text.partition("\n")[0]))
            grid.add_row(Text(printable(fact.label), style="bold"), value)
        return grid


def new_console(*, stderr: bool = False) -> Console:
    """Return a console that reads nothing as markup. NO_COLOR leaves out bold, too."""
    from rich.console import Console

    plain: dict[str, Any] = {"color_system": None} if os.environ.get("NO_COLOR") else {}
    return Console(highlight=False, markup=False, emoji=False, stderr=stderr, **plain)


def _cut(text: str, most_lines: int) -> str:
    """Return the beginning of a long text, and say that it is one."""
    lines = text[:LONGEST].splitlines()
    if len(text) <= LONGEST and len(lines) <= most_lines:
        return text
    return "\n".join([*lines[:most_lines], "... cut here; --json has all of it"])


def _write_array(records: Iterable[Any]) -> None:
    """Write a JSON array, an element at a time."""
    before = "["
    for record in records:
        write(f"{before}\n{indent(json_text(record, indent=2), '  ')}", end="")
        before = ","
    write("[]" if before == "[" else "\n]")


def _rows_as_table(
    columns: Sequence[Column], widths: Sequence[int], rows: Sequence[Sequence[str]], *, header: bool = True
) -> RenderableType:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold", show_header=header)
    for column, width in zip(columns, widths, strict=True):
        least = min(width, WIDEST) if column.whole or column.right else None
        table.add_column(
            column.title,
            justify="right" if column.right else "left",
            no_wrap=not column.wraps,
            min_width=least,
            max_width=None if column.wraps or least else width,
        )
    for row in rows:
        styles = [_style(text) if column.coloured else "" for text, column in zip(row, columns, strict=True)]
        table.add_row(*(Text(text, style=style) for text, style in zip(row, styles, strict=True)))
    return table


def _narrow_table(columns: Sequence[Column], widths: Sequence[int], rows: Sequence[Sequence[str]]) -> RenderableType:
    """Return a table in which texts that are wrapped stand below their rows, over the whole width."""
    from rich.console import Group
    from rich.padding import Padding
    from rich.text import Text

    kept = [place for place, column in enumerate(columns) if not column.wraps]
    kept_columns, kept_widths = [columns[place] for place in kept], [widths[place] for place in kept]
    parts: list[RenderableType] = []
    for row in rows:
        parts.append(_rows_as_table(kept_columns, kept_widths, [[row[place] for place in kept]], header=not parts))
        texts = [Text(text) for text, column in zip(row, columns, strict=True) if column.wraps]
        parts += [Padding(text, (0, 0, 0, 4)) for text in texts]
    return Group(*parts)


def _fit(columns: Sequence[Column], widths: list[int], room: int) -> list[int]:
    """Make the widest columns narrower until all fit, but for ids and numbers: one that is cut is another."""
    texts = [place for place, column in enumerate(columns) if not (column.whole or column.right or column.wraps)]
    taken = sum(width + 2 for width, column in zip(widths, columns, strict=True) if not column.wraps)
    while taken > room and texts:
        widest = max(texts, key=widths.__getitem__)
        if widths[widest] <= NARROWEST:
            break
        widths[widest] -= 1
        taken -= 1
    return widths


def _says_something(rows: Sequence[Sequence[str]], place: int) -> bool:
    return any(row[place] not in ("", "0") for row in rows)


def _style(text: str) -> str:
    return STYLES.get(text, "")


def write(text: str, end: str = "\n") -> None:
    """Write to the standard output."""
    sys.stdout.write(text + end)
