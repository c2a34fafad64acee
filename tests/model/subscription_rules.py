"""Random commands about subscriptions, and reading events in pages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from holdfast.events.event import Event
from holdfast.store import commands
from holdfast.store.commands import Command
from tests.model import strategies
from tests.model.events import announced
from tests.model.job_rules import Rules
from tests.model.machine import same

NAMES = ["alert", "tasks:on_failed"]
WORKERS = ["node/a", "node/b"]

batches = st.fixed_dictionaries(
    {"queue": strategies.queue_names, "task": st.just("alert")},
    optional={"priority": st.sampled_from([-1, 1]), "keep": st.just(False)},
)


class Subscribing(Rules):
    @rule(
        name=st.sampled_from(NAMES),
        batch=batches,
        revision=st.sampled_from([0, 1, 1, 2]),
        start=st.sampled_from(["now", "now", "start"]),
        fault=strategies.faults,
    )
    def declare_a_subscription(self, name: str, batch: dict[str, Any], revision: int, start: str, fault: str) -> None:
        declared: dict[str, Any] = {"spec": f"of {name}", "batch": batch, "revision": revision}
        position = start if start == "start" else self.last_event
        self.send(
            commands.declare_subscription(name, start=start, **declared),
            lambda: self.model.subscriptions.declare(name, declared, position, self.now),
            bool,
            fault,
        )

    @precondition(lambda self: bool(self.model.subscriptions.all))
    @rule(data=st.data(), fault=strategies.faults)
    def steer_a_subscription(self, data: st.DataObject, fault: str) -> None:
        subscriptions = self.model.subscriptions
        name = data.draw(st.sampled_from([*subscriptions.all] * 5 + NAMES), label="name")
        worker, lease = data.draw(st.sampled_from(WORKERS)), data.draw(st.sampled_from([0, 1000, 15_000]))
        acts: list[tuple[Command[Any], Callable[[], Any]]] = [
            (
                commands.lease_subscriptions(NAMES, worker, lease),
                lambda: subscriptions.lease(NAMES, worker, lease, self.now),
            ),
            (commands.pause_subscription(name), lambda: subscriptions.pause(name, paused=True)),
            (commands.resume_subscription(name), lambda: subscriptions.pause(name, paused=False)),
            (commands.unsubscribe(name), lambda: subscriptions.remove(name)),
        ]
        command, expected = acts[data.draw(st.sampled_from([0, 0, 0, 1, 2, 2, 3]), label="act")]
        self.send(command, expected, lambda reply: reply, fault)

    @precondition(lambda self: bool(self.model.subscriptions.all))
    @rule(data=st.data(), numbers=st.lists(st.integers(1, 4), max_size=3, unique=True), fault=strategies.faults)
    def deliver(self, data: st.DataObject, numbers: list[int], fault: str) -> None:
        """As a worker does that has read to the last event, or one that somebody has overtaken."""
        subscriptions = self.model.subscriptions
        name = data.draw(st.sampled_from([*subscriptions.all] * 5 + NAMES), label="name")
        known = subscriptions.all[name].position if name in subscriptions.all else "0-0"
        expected = data.draw(st.sampled_from([known, known, known, known, "1-0"]), label="expected")
        position, jobs = self.last_event, [(f"on:{name}@{number}-0", b"{}") for number in numbers]
        self.send(
            commands.deliver(name, "node/a", expected, position, jobs),
            lambda: subscriptions.deliver(name, expected, position, jobs, self.now),
            tuple,
            fault,
        )

    @precondition(lambda self: len(self.past) > 1)
    @rule(data=st.data(), limit=st.sampled_from([1, 2, 7]))
    def read_events_again(self, data: st.DataObject, limit: int) -> None:
        """From anywhere, in pages, all or of some types; from what is there, so without a gap."""
        at = data.draw(st.integers(max(0, len(self.past) - 12), len(self.past) - 2), label="after")
        types = data.draw(st.lists(st.sampled_from(["enqueued", "claimed", "failed"]), unique=True), label="types")
        position, more, found = self.past[at].id, True, list[Event]()
        while more:
            page = self.store.run(commands.events(position, limit=limit, types=types))
            found, position, more = [*found, *page.events], page.position or position, page.has_more
        wanted = [event for event in self.past[at + 1 :] if not types or event.type in types]
        assert announced(found) == announced(wanted), f"after {self.past[at].id}: {found}, not {wanted}"
        same("read to", {"position": position}, {"position": self.past[-1].id})
