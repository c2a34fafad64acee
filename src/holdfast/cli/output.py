"""Output on standard output: tables on a terminal, tab-separated text in a pipe, JSON on request."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from functools import cached_property
from textwrap import indent
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.records.formatting import age, iso_time, json_text
from holdfast.records.table import Field, Record, Table
from holdfast.text import plural, printable

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

STYLES = {
    "scheduled": "cyan", "waiting": "yellow", "blocked": "magenta", "throttled": "magenta", "running": "blue",
    "cancelling": "magenta", "succeeded": "green", "failed": "red", "cancelled": "dim",
    "live": "green", "silent": "red", "draining": "yellow", "ended": "green",
    "error": "red", "crash": "red", "crashed": "red", "lost": "red", "released": "yellow", "snoozed": "cyan",
    "unknown": "yellow", "unreadable": "red", "advanced": "green", "paused": "yellow",
    "overridden": "yellow", "open": "yellow", "closed": "blue", "done": "green",
}  # fmt: skip
MAX_VALUE = 4000  # characters of one value on a terminal
MAX_LINES = 60  # of one value on a terminal
MAX_WHOLE = 40  # characters of a column that is never cut
MIN_CUT = 4  # characters that stay of a column that is cut
MIN_WRAPPED = 30  # characters of a column that wraps; if there is less room, its text goes below the row


class Fact(NamedTuple):
    """A labelled value of a description.

    The style is that of the first line; a terminal shows up to `lines` lines.
    """

    label: str
    value: Any
    style: str = ""
    lines: int = MAX_LINES


class Output:
    """Writes records in one of three modes: `table`, `plain` or `json`."""

    def __init__(self, mode: str, now: Callable[[], datetime]) -> None:
        self.mode = mode
        self._server_time = now

    @property
    def on_terminal(self) -> bool:
        return self.mode == "table"

    @property
    def can_redraw(self) -> bool:
        """Whether a view can be refreshed in place."""
        return self.on_terminal and not self.console.is_dumb_terminal

    @cached_property
    def _now(self) -> datetime:
        return self._server_time()

    @cached_property
    def console(self) -> Console:
        return new_console()

    def refresh_time(self) -> None:
        """Read the time again, so that ages are current."""
        self.__dict__.pop("_now", None)

    def json(self, value: Any) -> None:
        """Write a value as indented JSON."""
        write(json_text(value, indent=2))

    def list(self, records: Iterable[Record], table: Table, empty: str | None = None) -> None:
        """Write records as an array, as lines of text, or as a table; `empty` replaces a table without rows.

        The first two are written while the records arrive, so that memory need not hold them all.
        """
        if self.mode == "json":
            _write_array(records)
        elif self.mode == "plain":
            for record in records:
                write(self._plain(record, table))
        else:
            self.console.print(self.table(records, table, empty))

    def one(self, record: Record, table: Table) -> None:
        """Write one record: as an object, as a line of text, or as a table of one row."""
        if self.mode == "json":
            self.json(record)
        else:
            self.list([record], table)

    def value(self, record: Record, name: str) -> None:
        """Write one value of a record; as JSON, the whole record."""
        if self.mode == "json":
            self.json(record)
        else:
            write(str(record[name]))

    def stream(self, record: Record, table: Table) -> None:
        """Write one of many records at once, without buffering."""
        if self.mode == "json":
            write(json_text(record))
        elif self.mode == "plain":
            write(self._plain(record, table))
        else:
            self._line(record, table)
        sys.stdout.flush()

    def facts(self, facts: Iterable[Fact]) -> None:
        """Write a description; a value may have several lines."""
        if self.on_terminal:
            self.console.print(self.grid(facts))
            return
        for fact in facts:
            for number, line in enumerate(self.text(fact.value, lines=True).splitlines() or [""]):
                write(f"{printable(fact.label) if number == 0 else ''}\t{line}")

    # Values as text

    def when(self, value: datetime) -> str:
        """Return a time as text; on a terminal with its age."""
        return f"{iso_time(value)} ({age(self._now - value)})" if self.on_terminal else iso_time(value)

    def text(self, value: Any, *, lines: bool = False) -> str:
        """Return a value as text that is safe to print."""
        if value is None:
            return ""
        if isinstance(value, bool):
            return "yes" if value else "no"
        if isinstance(value, datetime):
            return age(self._now - value) if self.on_terminal else iso_time(value)
        if isinstance(value, list | tuple):
            return " ".join(printable(str(item)) for item in value)
        return printable(str(value), lines=lines)

    def _texts(self, record: Record, columns: Iterable[Field]) -> Sequence[str]:
        return [self.text(column.shown(record, self)) for column in columns]

    def _plain(self, record: Record, table: Table) -> str:
        return "\t".join(self._texts(record, table.columns(on_terminal=False)))

    # On a terminal

    def table(self, records: Iterable[Record], table: Table, empty: str | None = None) -> RenderableType:
        """Return records as a table for a terminal."""
        from rich.text import Text

        columns = table.columns(on_terminal=True)
        rows = [self._texts(record, columns) for record in records]
        if not rows:
            return Text(f"no {plural(table.kind)}" if empty is None else empty, style="dim")
        return self._layout(columns, rows)

    def _layout(self, columns: Sequence[Field], rows: Sequence[Sequence[str]]) -> RenderableType:
        """Return a table without its empty columns, as wide as the terminal."""
        shown = [index for index in range(len(columns)) if columns[index].whole or _has_content(rows, index)]
        columns, rows = [columns[index] for index in shown], [[row[index] for index in shown] for row in rows]
        longest = [
            max(map(len, texts)) for texts in zip([column.title or "" for column in columns], *rows, strict=True)
        ]
        widths = _fit(columns, longest, self.console.width)
        taken = sum(width + 2 for width, column in zip(widths, columns, strict=True) if not column.wraps)
        if any(column.wraps for column in columns) and self.console.width - taken < MIN_WRAPPED:
            return _narrow_table(columns, widths, rows)
        return _rich_table(columns, widths, rows)

    def _line(self, record: Record, table: Table) -> None:
        from rich.text import Text

        line, columns = Text(), table.columns(on_terminal=True)
        for column, text in zip(columns, self._texts(record, columns), strict=True):
            line.append(f"{text:<10}  ", style=_style(text) if column.coloured else "")
        self.console.print(line, soft_wrap=True)

    def grid(self, facts: Iterable[Fact]) -> RenderableType:
        """Return a description for a terminal; long values are cut."""
        from rich.table import Table as RichTable
        from rich.text import Text

        grid = RichTable.grid(padding=(0, 2))
        grid.add_column(no_wrap=True)
        grid.add_column(overflow="fold")
        for fact in facts:
            text = _cut(self.text(fact.value, lines=True), fact.lines)
            value = Text(text)
            value.stylize(fact.style, 0, len(text.partition("\n")[0]))
            grid.add_row(Text(printable(fact.label), style="bold"), value)
        return grid


def new_console(*, stderr: bool = False) -> Console:
    """Return a console that interprets no markup. NO_COLOR turns off bold, too."""
    from rich.console import Console

    plain: dict[str, Any] = {"color_system": None} if os.environ.get("NO_COLOR") else {}
    return Console(highlight=False, markup=False, emoji=False, stderr=stderr, **plain)


def write(text: str, end: str = "\n") -> None:
    """Write to standard output."""
    sys.stdout.write(text + end)


def _cut(text: str, max_lines: int) -> str:
    """Return the beginning of a long text, and mark where it is cut."""
    lines = text[:MAX_VALUE].splitlines()
    if len(text) <= MAX_VALUE and len(lines) <= max_lines:
        return text
    return "\n".join([*lines[:max_lines], "... cut; --json prints all of it"])


def _write_array(records: Iterable[Record]) -> None:
    """Write a JSON array, an element at a time."""
    before = "["
    for record in records:
        write(f"{before}\n{indent(json_text(record, indent=2), '  ')}", end="")
        before = ","
    write("[]" if before == "[" else "\n]")


def _rich_table(
    columns: Sequence[Field], widths: Sequence[int], rows: Sequence[Sequence[str]], *, header: bool = True
) -> RenderableType:
    from rich.table import Table as RichTable
    from rich.text import Text

    table = RichTable(box=None, pad_edge=False, header_style="bold", show_header=header)
    for column, width in zip(columns, widths, strict=True):
        minimum = min(width, MAX_WHOLE) if column.whole or column.right else None
        table.add_column(
            column.title or "",
            justify="right" if column.right else "left",
            no_wrap=not column.wraps,
            min_width=minimum,
            max_width=None if column.wraps or minimum else width,
        )
    for row in rows:
        styles = [_style(text) if column.coloured else "" for text, column in zip(row, columns, strict=True)]
        table.add_row(*(Text(text, style=style) for text, style in zip(row, styles, strict=True)))
    return table


def _narrow_table(columns: Sequence[Field], widths: Sequence[int], rows: Sequence[Sequence[str]]) -> RenderableType:
    """Return a table in which wrapped texts stand below their rows, over the whole width."""
    from rich.console import Group
    from rich.padding import Padding
    from rich.text import Text

    fixed = [index for index, column in enumerate(columns) if not column.wraps]
    fixed_columns, fixed_widths = [columns[index] for index in fixed], [widths[index] for index in fixed]
    parts: list[RenderableType] = []
    for row in rows:
        parts.append(_rich_table(fixed_columns, fixed_widths, [[row[index] for index in fixed]], header=not parts))
        texts = [Text(text) for text, column in zip(row, columns, strict=True) if column.wraps]
        parts += [Padding(text, (0, 0, 0, 4)) for text in texts]
    return Group(*parts)


def _fit(columns: Sequence[Field], widths: list[int], room: int) -> list[int]:
    """Narrow the widest columns until all fit, but never ids and numbers: a cut one reads as another."""
    texts = [index for index, column in enumerate(columns) if not (column.whole or column.right or column.wraps)]
    taken = sum(width + 2 for width, column in zip(widths, columns, strict=True) if not column.wraps)
    while taken > room and texts:
        widest = max(texts, key=widths.__getitem__)
        if widths[widest] <= MIN_CUT:
            break
        widths[widest] -= 1
        taken -= 1
    return widths


def _has_content(rows: Sequence[Sequence[str]], index: int) -> bool:
    return any(row[index] not in ("", "0") for row in rows)


def _style(text: str) -> str:
    return STYLES.get(text, "")
