"""The events that are kept are bounded in bytes, too."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis

from holdfast.store import commands, library
from holdfast.store.store import Store
from tests.conftest import TestClock
from tests.model.test_model import forget_library
from tests.store.lua.test_state_machine import new

MOST = 100_000


@pytest.fixture
def small() -> Iterator[None]:
    usual = library._source
    text = usual()
    assert text.count("MAX_EVENT_BYTES = 268435456") == 1
    text = text.replace("MAX_EVENT_BYTES = 268435456", f"MAX_EVENT_BYTES = {MOST}")
    library._source = lambda: text  # type: ignore[assignment]
    forget_library()
    yield
    library._source = usual
    forget_library()


def key(store: Store) -> str:
    return store.address.key.replace(":meta", ":events")


def fill(store: Store, number: int) -> None:
    """Store events of several jobs with long tags."""
    for call in range(number):
        jobs = [new(f"{call}-{each}", tags=(f"{each}-{'x' * 50}",)) for each in range(30)]
        store.run(commands.enqueue(jobs))


@pytest.mark.usefixtures("small")
def test_half_of_the_events_are_deleted_when_they_take_too_much_memory(
    store: Store, client: redis.Redis, clock: TestClock
) -> None:
    store.run(commands.renew("node/one", []))
    store.run(commands.pause("q"))
    first = store.run(commands.events("start", limit=1)).position
    fill(store, 60)
    before = int(client.xlen(key(store)))
    assert client.memory_usage(key(store)) > MOST

    clock.advance(2)
    store.run(commands.renew("node/one", []))
    assert client.xlen(key(store)) == before  # not looked up in the same minute

    clock.advance(60)
    store.run(commands.renew("node/one", []))
    assert before // 2 <= client.xlen(key(store)) <= before // 2 + 10
    assert client.memory_usage(key(store)) < MOST
    assert store.run(commands.events(first)).events[0].type == "gap"

    left = client.xlen(key(store))
    clock.advance(120)
    store.run(commands.renew("node/one", []))
    assert client.xlen(key(store)) == left
