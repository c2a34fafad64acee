"""Every case is true of every server that runs the library, and leaves nothing behind."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from holdfast.conformance import Run, find_cases, open_connection
from holdfast.conformance.connection import Connection
from holdfast.store import Address
from holdfast.store.library import library
from tests.model.test_model import BACKENDS, backend_server

CASES = find_cases()


class Server:
    """A backend, and a run of cases on it."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.run = Run(connection.send, library())


@pytest.fixture(scope="module", params=[name for name in BACKENDS if name != "small"])
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A server with the library: Valkey, Valkey as a cluster of one node, Redis 7."""
    with ExitStack() as stack:
        url = stack.enter_context(backend_server(request.param))
        yield Server(stack.enter_context(open_connection(Address.find(url))))


@pytest.mark.parametrize("area", sorted({case.area for case in CASES}))
def test_the_cases_of_an_area_are_true(server: Server, area: str) -> None:
    results = [server.run.run(case) for case in CASES if case.area == area]
    assert not [f"{each.case.path}: {each.why}" for each in results if each.status == "failed"]
    assert any(each.passed for each in results) or all(each.case.needs for each in results)


def test_a_run_leaves_nothing_behind(server: Server) -> None:
    server.run.run(CASES[0])
    assert server.connection.send("DBSIZE") > 0
    server.run.clean_up(server.connection.send)
    assert server.connection.send("DBSIZE") == 0
