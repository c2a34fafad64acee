"""An entry of the outbox: one enqueue command that waits to be sent."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from holdfast import errors
from holdfast.store import Command

FORMAT = 2  # of the JSON; entries of another format are set aside


class Entry(msgspec.Struct, frozen=True, omit_defaults=True):
    """An enqueue command, and when it was written, in milliseconds of this machine's clock."""

    at: int
    args: dict[str, Any]
    ids: list[str]
    blobs: tuple[bytes, ...]
    format: int = 1  # of the first release, which did not write it

    @classmethod
    def of(cls, command: Command[Any], now: int) -> Entry:
        """Convert delay and deadline to absolute times; drop `fresh`: by the time of sending, the ids may exist."""
        batches = [_with_times(batch, now) for batch in command.args["batches"]]
        args = {name: value for name, value in command.args.items() if name != "fresh"}
        ids, *payloads = command.blobs
        return cls(now, {**args, "batches": batches}, ids.decode().split(" "), tuple(payloads), FORMAT)

    @property
    def command(self) -> Command[None]:
        return Command("enqueue", self.args, lambda _: None, (" ".join(self.ids).encode(), *self.blobs))

    @property
    def calls(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """The id of each call, and the fields that it shares with others."""
        ids = iter(self.ids)
        for batch in self.args["batches"]:
            for _ in range(batch.get("count", 1)):
                yield next(ids), batch


def _with_times(batch: dict[str, Any], now: int) -> dict[str, Any]:
    """Replace durations by points in time."""
    names = {"delay": "at", "deadline": "deadline_at"}
    return {names.get(name, name): now + value if name in names else value for name, value in batch.items()}


class Refused(msgspec.Struct, frozen=True):
    """An entry that the store refused when it was sent, and its error."""

    at: int
    code: str
    reason: str
    entry: Entry

    @property
    def error(self) -> errors.HoldfastError:
        return errors.BY_CODE.get(self.code, errors.HoldfastError)(self.reason)
