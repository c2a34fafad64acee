"""Watching: a command shows its output again and again, until Ctrl-C or until nothing more can change.

On a terminal the view is redrawn in place, on the alternate screen. In a pipe, and on a dumb terminal, each record that
is new or has changed is written as a line.
"""

from __future__ import annotations

import os
import select
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from holdfast.cli.options import Decorator
from holdfast.cli.output import Output
from holdfast.errors import StoreUnavailable
from holdfast.records.table import Record, Table

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.live import Live

INTERVAL = 1.0  # seconds between two views
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGTSTP)
HEADER_LINES = 4  # lines of a screen that are not rows


class View(NamedTuple):
    """The records at one moment; `final` if they cannot change any more."""

    records: Sequence[Record]
    final: bool = False


class Watched(NamedTuple):
    """How to load a view, draw it on a terminal, and write its records as lines."""

    load: Callable[[], View]
    draw: Callable[[View], RenderableType]
    table: Table


def watch_option(help: str) -> Decorator:
    """Declare -w/--watch, which redraws a view."""
    return click.option("-w", "--watch", "watching", is_flag=True, help=help)


def follow_option(help: str) -> Decorator:
    """Declare -f/--follow, which appends what is new."""
    return click.option("-f", "--follow", "following", is_flag=True, help=help)


def watch(output: Output, watched: Watched) -> bool:
    """Show a view until it is final. Return False if Ctrl-C came first."""
    try:
        if output.can_redraw:
            _redraw(output, watched)
        else:
            _write_changes(output, watched)
    except KeyboardInterrupt:
        return False
    return True


def show_list(output: Output, load: Callable[[], Sequence[Record]], table: Table, *, watching: bool = False) -> None:
    """List records, once or until Ctrl-C."""
    if not watching:
        output.list(load(), table)
        return

    def draw(view: View) -> RenderableType:
        return output.table(view.records, table)

    watch(output, Watched(lambda: View(load()), draw, table))


def sleep(seconds: float = INTERVAL) -> None:
    """Sleep, and notice at once if the reader of the output closes it.

    Raises:
        BrokenPipeError: the reader closed it.
    """
    reader = select.poll()
    reader.register(sys.stdout.fileno(), 0)
    if reader.poll(seconds * 1000):
        raise BrokenPipeError


def _write_changes(output: Output, watched: Watched) -> None:
    key, volatile = watched.table.key, watched.table.volatile
    known: dict[str, Any] = {}
    while True:
        view = watched.load()
        current = {
            record[key]: {name: record[name] for name in record if name not in volatile} for record in view.records
        }
        for record in view.records:
            if known.get(record[key]) != current[record[key]]:
                output.stream(record, watched.table)
        known = current
        if view.final:
            return
        sleep()


def _redraw(output: Output, watched: Watched) -> None:
    """Draw the view in place. While the server is unreachable, its error is shown instead."""
    from rich.console import Group
    from rich.text import Text

    with live_screen(output) as live:
        while True:
            output.refresh_time()
            try:
                view = watched.load()
                drawn = watched.draw(view)
            except StoreUnavailable as error:
                view, drawn = View([]), Text(str(error), style="red")
            show(live, Group(Text(f"refreshed every {INTERVAL:g} s; Ctrl-C to exit\n", style="dim"), drawn))
            if view.final:
                return
            sleep()


@contextmanager
def live_screen(output: Output) -> Iterator[Live]:
    """Draw on the alternate screen; the terminal is restored at the end, also on SIGTERM, and while it is stopped."""
    from rich.live import Live

    with _exit_on_sigterm(), Live(console=output.console, screen=True, auto_refresh=False) as live, _stoppable(live):
        yield live


def show(live: Live, view: RenderableType) -> None:
    """Draw a view. Signals wait until it is whole: an exception in the middle could leave the terminal as it is."""
    waiting: list[int] = []
    before = {number: signal.signal(number, lambda number, _: waiting.append(number)) for number in _SIGNALS}
    try:
        live.update(view, refresh=True)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for received in waiting:
            signal.raise_signal(received)


@contextmanager
def _stoppable(live: Live) -> Iterator[None]:
    """On Ctrl-Z, show the screen of the shell until the program continues."""

    def stop(_: int, __: object) -> None:
        live.console.set_alt_screen(False)
        live.console.show_cursor(True)
        os.kill(os.getpid(), signal.SIGSTOP)
        live.console.set_alt_screen(True)
        live.console.show_cursor(False)
        live.refresh()

    before = signal.signal(signal.SIGTSTP, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTSTP, before)


@contextmanager
def _exit_on_sigterm() -> Iterator[None]:
    """Exit normally on SIGTERM, so that the terminal is restored."""

    def leave(number: int, _: object) -> None:
        sys.exit(128 + number)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
