"""The deadline of a command, including retries: connecting, sending, waiting and resending share one time limit.

A socket timeout is not enough: it starts again with each operation, and a name lookup has none at all.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

DEFAULT_SECONDS = 1.8  # so that an enqueue returns within two seconds, even if the network is down
FREE_BYTES = 1 << 20
BYTES_PER_SECOND = 4 << 20  # a large batch may take longer
MAX_EXTENSION = 2  # times the seconds, while a command is still being sent or its reply still arrives, however slowly
RESEND_WINDOW = 300  # seconds: the store remembers its replies for ten minutes


class Deadline:
    """The time left for a command, and the number of requests that were sent and not answered.

    `on_sent` is called once, while the server works on the first request; the time it takes does not count.
    `blocks` is the number of seconds that the command itself may block. `replicas` is the number of replicas that must
    have what the command has written.
    """

    __slots__ = ("_began", "_ends", "blocks", "on_sent", "replicas", "seconds", "unanswered")

    def __init__(
        self,
        seconds: float = DEFAULT_SECONDS,
        *,
        size: int = 0,
        on_sent: Callable[[], None] | None = None,
        blocks: float | None = None,
        replicas: int = 0,
    ) -> None:
        self.blocks = blocks
        self.replicas = replicas
        self.seconds = seconds if size <= FREE_BYTES else seconds + (size - FREE_BYTES) / BYTES_PER_SECOND
        self.unanswered = 0
        self.on_sent = on_sent
        self._began = time.monotonic()
        self._ends = self._began + self.seconds

    @property
    def remaining(self) -> float:
        """The seconds left; negative once the deadline has passed."""
        return self._ends - time.monotonic()

    @property
    def has_passed(self) -> bool:
        return self.remaining <= 0

    @property
    def max_remaining(self) -> float:
        """The seconds left for a transfer that makes progress."""
        return self.remaining + (MAX_EXTENSION - 1) * self.seconds

    @property
    def may_resend(self) -> bool:
        """Whether a request is safe to send again: it was never sent, or the store still remembers its reply.

        `on_sent` may have taken longer than the store remembers.
        """
        return not self.unanswered or time.monotonic() - self._began < RESEND_WINDOW

    @property
    def block_seconds(self) -> float:
        """How long a blocking command may still block; never zero, which would mean without limit."""
        return max(0.01, (self.blocks or 0.0) - (time.monotonic() - self._began))

    def seconds_left(self) -> float:
        """Return the seconds left.

        Raises:
            TimeoutError: the deadline has passed.
        """
        if (left := self.remaining) <= 0:
            raise TimeoutError
        return left

    def extend_to(self, seconds: float) -> None:
        """Allow at least this many seconds in total."""
        more = max(0.0, seconds - self.seconds)
        self.seconds += more
        self._ends += more

    def call_on_sent(self) -> None:
        """Call `on_sent`, unless it was called before."""
        act, self.on_sent = self.on_sent, None
        if act:
            with self.paused():
                act()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Stop the clock, for example while the embedded server starts."""
        began = time.monotonic()
        try:
            yield
        finally:
            self._ends += time.monotonic() - began
