"""Handlers: what a subscription delivers, as jobs of a task that takes an event.

A handler gets an event with up to `MAX_JOBS` jobs; one that names more is delivered in parts. The id of a handler's job
consists of the subscription, the event and the number of the part.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from holdfast.events.event import Event
from holdfast.events.filter import EventFilter
from holdfast.names import HANDLER_PREFIX

MAX_JOBS = 100  # in the event that one job of a handler gets


class HandlerSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What a worker needs to deliver events: which ones, and the parameter of the handler that takes them."""

    filter: EventFilter
    parameter: str

    def encode(self) -> str:
        return msgspec.json.encode(self).decode()

    @classmethod
    def decode(cls, text: str) -> HandlerSpec:
        """Read the text that a release stored.

        Raises:
            MsgspecError: a newer release wrote it, with conditions that are unknown here.
        """
        return msgspec.json.decode(text, type=cls)

    def jobs(self, subscription: str, event: Event) -> Iterator[tuple[str, bytes]]:
        """Yield the id and the payload of each job that the handler gets for an event."""
        selected = self.filter.select(event, handlers=False)
        if selected is None:
            return
        id = f"{HANDLER_PREFIX}{subscription}@{event.id.lstrip('=')}{'-gap' if event.is_gap else ''}"
        for number, part in enumerate(_parts(selected)):
            payload: dict[str, Any] = {self.parameter: part}
            yield (f"{id}.{number}" if number else id), msgspec.json.encode(payload)


def _parts(event: Event) -> Iterator[Event]:
    if len(event.jobs) <= MAX_JOBS:
        yield event
        return
    for first in range(0, len(event.jobs), MAX_JOBS):
        yield event.select(range(first, min(first + MAX_JOBS, len(event.jobs))))
