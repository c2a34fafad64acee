"""The queue of outcomes to send to the store, and how refused outcomes are replaced or dropped."""

from __future__ import annotations

import logging

import msgspec

from holdfast.store.commands import Finish
from holdfast.worker.runners.endings import refused_outcome

log = logging.getLogger("holdfast.worker")

BATCH = 100  # outcomes in one call

_DROPPED = {"NEWER": "a newer release wrote its record", "DAMAGED": "its record is damaged"}


class FinishQueue:
    """The outcomes that the next calls send."""

    def __init__(self) -> None:
        self._items: list[Finish] = []

    def __bool__(self) -> bool:
        return bool(self._items)

    def add(self, item: Finish) -> None:
        self._items.append(item)

    def take(self) -> list[Finish]:
        """Take the outcomes of the next call."""
        items, self._items = self._items[:BATCH], self._items[BATCH:]
        return items

    def handle_answers(self, items: list[Finish], answers: list[str]) -> list[tuple[str, int]]:
        """Handle the answers of the store. Return the attempts that are over, whose leases have ended."""
        ended: list[tuple[str, int]] = []
        for item, answer in zip(items, answers, strict=True):
            if answer == "OK" or not self._replaced(item, answer):
                ended.append((item.id, item.attempt))
        return ended

    def _replaced(self, item: Finish, answer: str) -> bool:
        """Replace an outcome that was not accepted. Return False if it is dropped."""
        if answer == "LOST":
            log.warning("%s: attempt %d has lost its lease, outcome dropped", item.id, item.attempt)
            return False
        if reason := _DROPPED.get(answer):
            log.error("%s: outcome of attempt %d dropped: %s", item.id, item.attempt, reason)
            return False
        log.error("%s: the store refused the outcome of attempt %d: %s", item.id, item.attempt, answer)
        outcome = refused_outcome(item.outcome, answer)
        if item.outcome == outcome:  # refused again: the lease has to end
            return False
        self.add(msgspec.structs.replace(item, outcome=outcome))
        return True
