"""A rule that is planted in the gate changes what explain says and what claims do, in the same way."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from holdfast.store import commands, library
from holdfast.store.store import Store
from tests.conftest import TestClock
from tests.model import plant
from tests.model.plant import Bug
from tests.model.test_model import forget_library
from tests.store.lua.test_explain_and_claim import EVERY, STEPS, Life, comparison
from tests.store.lua.test_state_machine import put, take
from tests.support.explanations import Comparison

__all__ = ["comparison"]

PLANTED = [
    Bug("a limit keeps one slot free", "gate", "limit, 1 + (used", "limit, 2 + (used"),
    Bug("a queue runs one job less", "gate", "concurrency - redis.call(", "concurrency - 1 - redis.call("),
    Bug("queue q is paused", "gate", "gate.is_paused(queue) return", "gate.is_paused(queue) return queue == 'q' or"),
    Bug(
        "jobs of priority 5 are late",
        "gate",
        "if job.flags == 0 then return nil end",
        "if job.flags == 0 or job.priority == 5 then return job.priority == 5 and 'deadline' or nil end",
    ),
]
CODES = ["limit", "concurrency", "paused", "deadline"]


@pytest.fixture(params=range(len(PLANTED)), ids=CODES)
def code(request: pytest.FixtureRequest) -> Iterator[str]:
    """Plant a rule in the gate; the code is what explain then says of a job that is ready without it."""
    usual, source = library._source, plant.source_with(PLANTED[request.param])
    library._source = lambda: source  # type: ignore[assignment]
    forget_library()
    yield CODES[request.param]
    library._source = usual
    forget_library()


def put_one_that_is_ready(store: Store) -> list[str]:
    """Store a job that each of the planted rules holds back. Return the codes of its reasons."""
    store.run(commands.set_limit("gpu", 1))
    store.run(commands.configure("q", set={"concurrency": 1}))
    put(store, "a", limits=("gpu",), priority=5)
    [found] = store.run(commands.explain(["a"]))
    assert found
    return [name for name, _ in found["reasons"]]


def test_a_job_that_no_rule_holds_back(store: Store) -> None:
    assert put_one_that_is_ready(store) == ["no-worker"]
    assert take(store) == ["a"]


def test_a_rule_planted_in_the_gate_changes_explain_and_claim(code: str, store: Store) -> None:
    assert put_one_that_is_ready(store)[0] == code
    assert take(store) == []


def test_with_a_planted_rule_they_still_agree(
    code: str, store: Store, clock: TestClock, comparison: Comparison
) -> None:
    life = Life(store, clock, CODES.index(code))
    store.run(commands.configure("p", set={"concurrency": 2}))
    for step in range(STEPS // 2):
        life.step()
        if step % EVERY == 0:
            comparison.compare(life.ids)
    assert code in comparison.seen
