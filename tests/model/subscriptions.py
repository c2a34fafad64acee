"""The model of subscriptions: the rules at the head of `subscriptions.lua`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from holdfast import errors
from holdfast.constants import MAX_LEASE
from tests.support.new_job import NewJob

if TYPE_CHECKING:
    from tests.model.model import Model


@dataclass
class Subscription:
    """What was declared, where it stands, who reads for it, and what it has delivered."""

    declared: dict[str, Any]
    position: str
    since: int
    is_paused: bool | None = None
    holder: str | None = None
    ends: int = 0
    delivered: int | None = None
    job: str = ""
    at: int = 0

    def describe(self) -> dict[str, Any]:
        fields: dict[str, Any] = {**self.declared, "position": self.position, "since": self.since}
        if self.is_paused is not None:
            fields["paused"] = int(self.is_paused)
        if self.holder:
            fields |= {"holder": self.holder, "ends": self.ends}
        if self.delivered is not None:
            fields |= {"delivered": self.delivered, "job": self.job, "at": self.at}
        return {name: str(value) if isinstance(value, int) else value for name, value in fields.items()}


class Subscriptions:
    def __init__(self, model: Model) -> None:
        self.model = model
        self.all: dict[str, Subscription] = {}

    def find(self, name: str) -> Subscription:
        if name not in self.all:
            raise errors.SubscriptionNotFound
        return self.all[name]

    def declare(self, name: str, declared: dict[str, Any], position: str, now: int) -> bool:
        """What was there before keeps its position."""
        old = self.all.get(name)
        if old and old.declared["revision"] > declared["revision"]:
            raise errors.WrongState
        if old and old.declared == declared:
            return False
        if old:
            old.declared = declared
        else:
            self.all[name] = Subscription(declared, position, now)
        self.model.events.about("configured", name, {"what": "subscription", "option": "declared"})
        return True

    def lease(self, names: Sequence[str], worker: str, lease: int, now: int) -> list[tuple[str, str, str, bool]]:
        got = []
        for name in names:
            one = self.all.get(name)
            if not one or (one.holder != worker and now < one.ends <= now + max(lease, MAX_LEASE)):
                continue
            if lease:
                one.holder, one.ends = worker, now + lease
                got.append((name, one.position, one.declared["spec"], bool(one.is_paused)))
            elif one.holder == worker:
                one.holder, one.ends = None, 0
        return got

    def deliver(
        self, name: str, expected: str, position: str, jobs: Sequence[tuple[str, bytes]], now: int
    ) -> tuple[str, bool]:
        """All of it, or nothing."""
        one = self.find(name)
        if one.position != expected or one.is_paused:
            return one.position, False
        if jobs:
            new = [NewJob(id=id, payload=payload, **one.declared["batch"]) for id, payload in jobs]
            _, stored, _ = self.model.enqueue(new, "return", now)
            one.delivered = (one.delivered or 0) + sum(map(bool, stored))
            one.job, one.at = jobs[-1][0], now
        one.position = position
        return position, True

    def pause(self, name: str, *, paused: bool) -> bool:
        one = self.find(name)
        if bool(one.is_paused) == paused:
            return False
        one.is_paused = paused
        self.model.events.about("paused" if paused else "resumed", name, {"what": "subscription"})
        return True

    def remove(self, name: str) -> bool:
        if self.all.pop(name, None) is None:
            return False
        self.model.events.about("configured", name, {"what": "subscription", "option": "removed"})
        return True
