"""Fixtures for tests that call the function library: a plain client, and a check of all keys after each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis

from holdfast.store.store import Store
from tests.model import invariants
from tests.support.store_check import nothing_found


@pytest.fixture
def client(server_url: str) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(server_url) as made:
        yield made


@pytest.fixture(autouse=True)
def check_all_keys(client: redis.Redis, namespace: str, store: Store) -> Iterator[None]:
    """Check after the test that all keys are consistent: each job is in the one index of its state, and so on."""
    yield
    invariants.check(client, namespace)
    nothing_found(store)
    keys = list(client.scan_iter(f"hf:{{{namespace}}}:*", count=10_000))
    for first in range(0, len(keys), 1000):
        client.delete(*keys[first : first + 1000])
