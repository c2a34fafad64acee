"""How long a command may take in all: connecting, sending, waiting and every repetition together.

A time-out of a socket is no such bound: it begins again with each operation, and looking up a name has none at all.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

SECONDS = 1.8  # so that a call that stores jobs ends within two seconds, whatever the network does
FREE_BYTES = 1 << 20
BYTES_PER_SECOND = 4 << 20  # a big batch may take longer
MOST = 2  # times the seconds, while a command is going out or its reply is coming, however slowly
REPEAT_WITHIN = 300  # seconds: the store knows for ten minutes what it has answered


class Budget:
    """The time that is left, and how many requests were sent that nobody answered.

    `meanwhile` is something to do, once, while the server works on the first of them. Its time does not count.
    `blocks` is how many of the seconds the command itself may block.
    """

    __slots__ = ("_began", "_ends", "blocks", "meanwhile", "seconds", "unanswered")

    def __init__(
        self,
        seconds: float = SECONDS,
        *,
        size: int = 0,
        meanwhile: Callable[[], None] | None = None,
        blocks: float | None = None,
    ) -> None:
        self.blocks = blocks
        self.seconds = seconds if size <= FREE_BYTES else seconds + (size - FREE_BYTES) / BYTES_PER_SECOND
        self.unanswered = 0
        self.meanwhile = meanwhile
        self._began = time.monotonic()
        self._ends = self._began + self.seconds

    @property
    def remains(self) -> float:
        """How many seconds are left; less than none when it is over."""
        return self._ends - time.monotonic()

    @property
    def is_over(self) -> bool:
        return self.remains <= 0

    @property
    def remains_at_most(self) -> float:
        """How many seconds are left for what is on its way, and moves."""
        return self.remains + (MOST - 1) * self.seconds

    @property
    def may_repeat(self) -> bool:
        """Whether a request can be sent again: nobody may have heard it, or the store still knows what it answered.

        What was done meanwhile may have taken longer than that.
        """
        return not self.unanswered or time.monotonic() - self._began < REPEAT_WITHIN

    @property
    def may_block(self) -> float:
        """How many seconds a command that blocks may still do so; a moment at least, as none would be for ever."""
        return max(0.01, (self.blocks or 0.0) - (time.monotonic() - self._began))

    def left(self) -> float:
        """Return how many seconds are left.

        Raises:
            TimeoutError: none.
        """
        if (left := self.remains) <= 0:
            raise TimeoutError
        return left

    def extend_to(self, seconds: float) -> None:
        """Have so many seconds in all, at least."""
        more = max(0.0, seconds - self.seconds)
        self.seconds += more
        self._ends += more

    def do_meanwhile(self) -> None:
        """Do what there is to do while the server works."""
        act, self.meanwhile = self.meanwhile, None
        if act:
            with self.paused():
                act()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Let time pass that does not count: that in which the embedded server is started."""
        began = time.monotonic()
        try:
            yield
        finally:
            self._ends += time.monotonic() - began
