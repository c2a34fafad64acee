"""Where commands write: tables on a terminal, tab-separated text when piped, JSON when asked for.

What comes from the store was written by others. Characters that a terminal would obey are shown escaped, in every form
of output, and nothing of it is read as markup.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

if TYPE_CHECKING:
    from rich.console import Console

STYLES = {
    "scheduled": "cyan", "waiting": "yellow", "blocked": "magenta", "throttled": "magenta", "running": "blue",
    "cancelling": "magenta", "succeeded": "green", "failed": "red", "cancelled": "dim",
    "error": "red", "crash": "red", "crashed": "red", "lost": "red", "released": "yellow", "snoozed": "cyan",
    "unknown": "yellow", "paused": "yellow",
}  # fmt: skip
LONGEST = 4000  # characters of one value on a terminal
WIDEST = 40  # characters of what is not to be cut


class Column(NamedTuple):
    """A column of a list: its title, and its value for a record."""

    title: str
    value: Callable[[Any], Any]
    coloured: bool = False
    right: bool = False
    whole: bool = False


class Fact(NamedTuple):
    """A line of a description; the first, if its value has several, has the style."""

    label: str
    value: Any
    style: str = ""


class Output:
    """Writes records in one of three modes: `table`, `plain` or `json`."""

    def __init__(self, mode: str, now: Callable[[], datetime]) -> None:
        self.mode = mode
        self._ask_now = now

    @cached_property
    def _now(self) -> datetime:
        return self._ask_now()

    @cached_property
    def _console(self) -> Console:
        from rich.console import Console

        return Console(highlight=False, markup=False, emoji=False)

    def json(self, value: Any) -> None:
        """Write a value as indented JSON."""
        write(json_text(value, indent=2))

    def list(self, records: Sequence[Any], columns: Sequence[Column], nothing: str) -> None:
        """Write records: as an array, as lines of text, or as a table; `nothing` says that there are none."""
        if self.mode == "json":
            return self.json(records)
        rows = [[self.text(column.value(record)) for column in columns] for record in records]
        if self.mode == "plain":
            return write("".join(f"{line}\n" for line in map("\t".join, rows)), end="")
        if not rows:
            return self._console.print(nothing, style="dim")
        return self._table(columns, rows)

    def stream(self, record: Any, columns: Sequence[Column]) -> None:
        """Write one of many records that come one after another, and do not keep it back."""
        if self.mode == "json":
            write(json_text(record))
        elif self.mode == "plain":
            write("\t".join(self.text(column.value(record)) for column in columns))
        else:
            self._line(record, columns)
        sys.stdout.flush()

    def facts(self, facts: Iterable[Fact]) -> None:
        """Describe something; a value may have several lines."""
        if self.mode == "table":
            return self._grid(facts)
        for fact in facts:
            for place, line in enumerate(self.text(fact.value, lines=True).splitlines() or [""]):
                write(f"{fact.label if place == 0 else ''}\t{line}")
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

    def _table(self, columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> None:
        """Write a table, without the columns that say nothing: a terminal is narrow."""
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, pad_edge=False, header_style="bold")
        shown = [place for place in range(len(columns)) if columns[place].whole or _says_something(rows, place)]
        for place in shown:
            column, widest = (
                columns[place],
                max(len(text) for text in (columns[place].title, *(row[place] for row in rows))),
            )
            least = min(widest, WIDEST) if column.whole else None
            table.add_column(column.title, justify="right" if column.right else "left", no_wrap=True, min_width=least)
        for row in rows:
            styles = [_style(row[place]) if columns[place].coloured else "" for place in shown]
            table.add_row(*(Text(row[place], style=style) for place, style in zip(shown, styles, strict=True)))
        self._console.print(table)

    def _line(self, record: Any, columns: Sequence[Column]) -> None:
        from rich.text import Text

        line = Text()
        for column in columns:
            text = self.text(column.value(record))
            line.append(f"{text:<10}  ", style=_style(text) if column.coloured else "")
        self._console.print(line, soft_wrap=True)

    def _grid(self, facts: Iterable[Fact]) -> None:
        from rich.table import Table
        from rich.text import Text

        grid = Table.grid(padding=(0, 2))
        grid.add_column(no_wrap=True)
        grid.add_column(overflow="fold")
        for fact in facts:
            text = self.text(fact.value, lines=True)
            if len(text) > LONGEST:
                text = f"{text[:LONGEST]}\n... cut here; --json has all of it"
            value = Text(text)
            value.stylize(fact.style, 0, len(text.partition("\n")[0]))
            grid.add_row(Text(fact.label, style="bold"), value)
        self._console.print(grid)


def _says_something(rows: Sequence[Sequence[str]], place: int) -> bool:
    return any(row[place] not in ("", "0") for row in rows)


def _style(text: str) -> str:
    return STYLES.get(text, "")


def write(text: str, end: str = "\n") -> None:
    """Write to the standard output."""
    sys.stdout.write(text + end)


def complain(text: str) -> None:
    """Say on the standard error what is wrong."""
    sys.stdout.flush()
    sys.stderr.write(f"holdfast: {printable(text, lines=True)}\n")


def printable(text: str, *, lines: bool = False) -> str:
    """Return text in which what is no visible character is escaped; `lines` may stay lines."""
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() or (lines and each == "\n") else each.encode("unicode_escape").decode()
        for each in text
    )


def json_text(value: Any, *, indent: int = 0) -> str:
    """Return JSON that shows no control character: inside strings they are escaped, as JSON allows."""
    data = msgspec.json.encode(value)
    text = (msgspec.json.format(data, indent=indent) if indent else data).decode()
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() or each == "\n" else _json_escape(each) for each in text)


def _json_escape(character: str) -> str:
    units = character.encode("utf-16-be").hex()
    return "".join(f"\\u{units[place : place + 4]}" for place in range(0, len(units), 4))


def moment(value: datetime) -> str:
    """Return a time in UTC as text that programs read."""
    return value.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def ago(span: timedelta) -> str:
    """Return how long ago something was, in its largest unit: 12s, 5m, 3h, 2d."""
    seconds = int(span.total_seconds())
    return f"{length(seconds)} ago" if seconds >= 0 else f"in {length(-seconds)}"


def length(seconds: float) -> str:
    """Return a duration as people say it."""
    if 0 < seconds < 10:
        return f"{seconds:.2g}s"
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f}{unit}"
    return f"{seconds:.0f}s"
