"""Keys that are pressed while a command refreshes its view on a terminal."""

from __future__ import annotations

import os
import select
import signal
import sys
import termios
import tty
from functools import partial
from types import TracebackType
from typing import Self

NAMES = {
    "q": "quit",
    "p": "pause",
    " ": "pause",
    "\x1b[A": "up",
    "\x1bOA": "up",
    "k": "up",
    "\x1b[B": "down",
    "\x1bOB": "down",
    "j": "down",
}


class Keys:
    """Reads single keys, without echo, until the end of the block. Ctrl-C still interrupts.

    Without a terminal as standard input there are no keys.
    """

    def __enter__(self) -> Self:
        self._input = sys.stdin.fileno() if sys.stdin.isatty() else None
        if self._input is not None:
            self._before = termios.tcgetattr(self._input)
            read_keys_singly = partial(tty.setcbreak, self._input, termios.TCSADRAIN)
            read_keys_singly()
            # While a program is stopped, the shell changes the terminal.
            self._on_continue = signal.signal(signal.SIGCONT, lambda *_: read_keys_singly())
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        if self._input is not None:
            signal.signal(signal.SIGCONT, self._on_continue)
            termios.tcsetattr(self._input, termios.TCSADRAIN, self._before)

    def wait(self, seconds: float) -> list[str]:
        """Wait for keys, at most so long, and return their names; those without a meaning are left out.

        Raises:
            BrokenPipeError: the terminal was closed.
        """
        poll = select.poll()
        poll.register(sys.stdout.fileno(), 0)
        if self._input is not None:
            poll.register(self._input, select.POLLIN)
        for descriptor, event in poll.poll(seconds * 1000):
            if descriptor != self._input or not event & select.POLLIN:
                raise BrokenPipeError
            return read_keys(os.read(descriptor, 1024).decode(errors="replace"))
        return []


def read_keys(text: str) -> list[str]:
    """Return the names of keys, of which some are sequences of several characters."""
    found = []
    while text:
        size = next((size for size in (3, 1) if text[:size] in NAMES), 1)
        found.append(NAMES.get(text[:size], ""))
        text = text[size:]
    return [name for name in found if name]
