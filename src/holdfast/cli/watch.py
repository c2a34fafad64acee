"""Following: what a command shows, shown again and again, until Ctrl-C or until there is nothing more to come.

On a terminal the view is drawn anew in place, on the alternate screen. Piped, each record that is new or has changed is
written as a line.
"""

from __future__ import annotations

import select
import signal
import sys
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from holdfast.cli.output import Column, Output
from holdfast.cli.records import Record
from holdfast.cli.session import Decorator
from holdfast.errors import StoreUnavailable

if TYPE_CHECKING:
    from rich.console import RenderableType

EVERY = 1.0  # seconds between two looks
NO_ROWS = 4  # lines of a screen that are not for rows


class View(NamedTuple):
    """What there is to see at one moment; `over` says that nothing more will come."""

    records: Sequence[Record]
    over: bool = False


class Followed(NamedTuple):
    """What is followed: how to look, how to draw it on a terminal, and how to write it as lines.

    Fields that are `volatile` change all the time, so a change of theirs alone is no news.
    """

    look: Callable[[], View]
    draw: Callable[[View], RenderableType]
    columns: Sequence[Column]
    key: str
    volatile: Container[str] = ()


def follow_option(words: str = "Show it again and again, until Ctrl-C.") -> Decorator:
    """Declare the option that makes a command go on."""
    return click.option("-f", "--watch", "--follow", "watch", is_flag=True, help=words)


def follow(output: Output, what: Followed) -> bool:
    """Show something until it is over; false if Ctrl-C came first."""
    try:
        if output.mode == "table":
            _on_the_screen(output, what)
        else:
            _as_lines(output, what)
    except KeyboardInterrupt:
        return False
    return True


def show_list(
    output: Output, look: Callable[[], View], columns: Sequence[Column], kind: str, *,
    watch: bool = False, volatile: Container[str] = (),
) -> None:  # fmt: skip
    """List records, each named by its field `kind`: once, or again and again."""
    nothing = f"no {kind}s"
    if watch:

        def draw(view: View) -> RenderableType:
            return output.table(view.records, columns, nothing)

        follow(output, Followed(look, draw, columns, kind, volatile))
    else:
        output.list(look().records, columns, nothing)


def pause(seconds: float = EVERY) -> None:
    """Sleep. Whoever reads our output may go away: that is noticed at once, not with the next thing to say."""
    reader = select.poll()
    reader.register(sys.stdout.fileno(), 0)
    if reader.poll(seconds * 1000):
        raise BrokenPipeError


def _as_lines(output: Output, what: Followed) -> None:
    known: dict[str, Any] = {}
    while True:
        view = what.look()
        now = {
            each[what.key]: {name: each[name] for name in each if name not in what.volatile} for each in view.records
        }
        for record in view.records:
            if known.get(record[what.key]) != now[record[what.key]]:
                output.stream(record, what.columns)
        known = now
        if view.over:
            return
        pause()


def _on_the_screen(output: Output, what: Followed) -> None:
    """Draw the view in place. A server that is away for a while is waited for: people see that, and decide."""
    from rich.console import Group
    from rich.live import Live
    from rich.text import Text

    with _ended_by_signals(), Live(console=output.console, screen=True, auto_refresh=False) as live:
        while True:
            output.forget_time()
            try:
                view = what.look()
                drawn = what.draw(view)
            except StoreUnavailable as error:
                view, drawn = View([]), Text(str(error), style="red")
            live.update(Group(Text(f"every {EVERY:g} s; Ctrl-C leaves\n", style="dim"), drawn), refresh=True)
            if view.over:
                return
            pause()


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Have SIGTERM end the program as an exit, so that the terminal is left as it was."""

    def leave(number: int, _: object) -> None:
        sys.exit(128 + number)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
