"""Progress of what takes long: a bar on the standard error, if that is a terminal, and gone when it is done."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")

AT_ONCE = 1000  # of anything that is sent in one call


@contextmanager
def meter(what: str, total: int | None = None, *, least: int = AT_ONCE + 1) -> Iterator[Callable[[int], None]]:
    """Show how far something is; yields what is to be called with the number of things done since the last call.

    Fewer than `least` things are not worth a bar.
    """
    if not sys.stderr.isatty() or (total is not None and total < least):
        yield lambda _: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from holdfast.cli.output import new_console

    looks = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    console, shared = new_console(stderr=True), sys.stdout.isatty()  # only then the bar has to give way to the output
    with Progress(*looks, console=console, transient=True, redirect_stdout=shared) as progress:
        task = progress.add_task(what, total=total)
        yield lambda count: progress.advance(task, count)


def in_parts(items: Sequence[T]) -> Iterator[Sequence[T]]:
    """Yield items in parts that fit into one call."""
    for first in range(0, len(items), AT_ONCE):
        yield items[first : first + AT_ONCE]
