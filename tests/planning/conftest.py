"""A shop: an app under the test's clock, and workers that the test moves on."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from holdfast import Holdfast
from holdfast.store.store import Address, Store
from tests.conftest import TestClock
from tests.planning.drain import Shop

NewShop = Callable[[], Shop]


@pytest.fixture
def new_shop(server_url: str) -> Iterator[NewShop]:
    with ExitStack() as stack:

        def make() -> Shop:
            namespace, clock = "t" + secrets.token_hex(6), TestClock()
            store = Store(Address.find(server_url, namespace=namespace), clock=clock)
            jobs = Holdfast(server_url, namespace=namespace)
            jobs.store.close()
            jobs.store = store
            stack.callback(jobs.close)
            return Shop(jobs, store, clock)

        yield make


@pytest.fixture
def shop(new_shop: NewShop) -> Shop:
    return new_shop()
