"""Explain against claim, in random states in which much holds jobs back."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from holdfast import errors
from holdfast.job.outcome import Error, Outcome, Release, Snoozed, Succeed
from holdfast.store import commands
from holdfast.store.store import Store
from tests.conftest import TestClock
from tests.store.lua.test_state_machine import ONE, TWO, end, put, take
from tests.support.explanations import Comparison

QUEUES = ("q", "p")
LIMITS = ("gpu", "gpu:0", "gpu:1", "api", "disk", "unknown")
STEPS, EVERY = 100, 4
MET = {"ready", "limit", "paused", "not-due", "blocked", "running", "ended"}


class Life:
    """Random commands that fill limits and queues."""

    def __init__(self, store: Store, clock: TestClock, seed: int) -> None:
        self.store, self.clock, self.chance = store, clock, random.Random(seed)
        self.ids: list[str] = []

    def step(self) -> None:
        steps = (
            self.put,
            self.put,
            self.put,
            self.take,
            self.take,
            self.end,
            self.end,
            self.change,
            self.wait,
            self.act,
        )
        try:
            self.chance.choice(steps)()
        except errors.HoldfastError:
            return  # refused: nothing was changed

    def put(self) -> None:
        chance, first = self.chance, len(self.ids)
        ids = [f"j{number}" for number in range(first, first + chance.randint(1, 4))]
        options = {
            "queue": chance.choice(QUEUES),
            "priority": chance.choice([0, 0, 0, 5, -5]),
            "limits": tuple(chance.sample(LIMITS, chance.choice([0, 0, 1, 1, 2, 3]))) or None,
            "delay": chance.choice([None, None, None, None, 1000, 20_000]),
            "deadline": chance.choice([None, None, None, None, 5000]),
            "after": [chance.choice(self.ids)] if self.ids and chance.random() < 0.2 else None,
            "share": chance.choice([None, None, "s1", "s2"]),
        }
        put(self.store, *ids, **{name: value for name, value in options.items() if value is not None})
        self.ids += ids

    def take(self) -> None:
        take(
            self.store, self.chance.choice([ONE, TWO]), *self.chance.sample(QUEUES, 2), limit=self.chance.randint(1, 3)
        )

    def end(self) -> None:
        outcomes: list[Outcome] = [
            Succeed(b"1"),
            Succeed(b"1"),
            Error(b"{}", "E"),
            Error(b"{}", "E", final=True),
            Release("stop"),
            Snoozed(3000),
        ]
        running = [row for row in self.store.run(commands.get(self.ids[-60:])) if row and row["state"] == "running"]
        if running:
            row = self.chance.choice(running)
            end(self.store, row["id"], self.chance.choice(outcomes), row["executor"])

    def change(self) -> None:
        chance, queue = self.chance, self.chance.choice(QUEUES)
        name = chance.choice(["gpu", "api", "disk"])
        self.store.run(
            chance.choice(
                [
                    commands.pause(queue),
                    commands.resume(queue),
                    commands.resume(queue),
                    commands.configure(queue, set={"concurrency": chance.choice([0, 0, 1, 2, 4])}),
                    commands.set_limit(name, chance.randint(1, 3), per=chance.choice([0, 0, 5000])),
                    commands.set_limit(name, chance.randint(1, 3), per=chance.choice([0, 0, 5000])),
                ]
            )
        )

    def wait(self) -> None:
        self.clock.advance(self.chance.choice([0.1, 1, 3, 10, 25]))

    def act(self) -> None:
        if self.ids:
            id, other = self.chance.choice(self.ids), self.chance.choice(QUEUES)
            self.store.run(
                self.chance.choice([commands.cancel([id]), commands.retry([id]), commands.move([id], queue=other)])
            )


@pytest.fixture
def comparison(server_url: str, namespace: str, clock: TestClock) -> Iterator[Comparison]:
    made = Comparison(server_url, namespace, clock)
    yield made
    made.client.close()


@pytest.mark.parametrize("seed", range(4))
def test_ready_jobs_are_handed_out_and_no_others(
    store: Store, clock: TestClock, comparison: Comparison, seed: int
) -> None:
    life = Life(store, clock, seed)
    for step in range(STEPS):
        life.step()
        if step % EVERY == 0:
            comparison.compare(life.ids)
    assert {*comparison.seen} >= MET, MET - {*comparison.seen}
    assert comparison.seen["exactly"] > STEPS / EVERY
