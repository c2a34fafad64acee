"""How a worker is to run a job, beside where: limits of time, memory and silence. The store carries it as text."""

from __future__ import annotations

from typing import Any

import msgspec

NEED_A_PROCESS = ("memory", "exclusive")  # what cannot be kept where nothing can be measured or killed by itself


class Run(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Times are in milliseconds, memory in bytes; None: no limit. Names are short, as they are stored with each job."""

    soft: int | None = None  # after so long an attempt is told to stop, as at a deploy
    memory: int | None = None  # of all processes of the job
    stalled: int | None = None  # so long without a word or a line
    exclusive: bool = False  # it is killed before its lease can lapse
    carry: dict[str, Any] | None = None  # values of context variables, by name: see `carry`

    @property
    def needing(self) -> list[str]:
        """The limits that only a job with a process of its own can have."""
        return [name for name in NEED_A_PROCESS if getattr(self, name)]

    @property
    def needs_process(self) -> bool:
        return self is not PLAIN and bool(self.needing)

    def encode(self) -> str | None:
        """As the store keeps it; None if there is nothing to say."""
        return None if self == PLAIN else msgspec.json.encode(self).decode()

    @classmethod
    def decode(cls, text: bytes) -> Run:
        """What a newer release says besides is not known here, and ignored; what cannot be read is UNREADABLE."""
        try:
            return msgspec.json.decode(text, type=cls) if text else PLAIN
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return UNREADABLE


PLAIN = Run()
UNREADABLE = Run()  # known by being this one: a job whose limits nobody knows is not run
