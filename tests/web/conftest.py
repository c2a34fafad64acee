"""Fixtures of tests of the web: an app on a real server, served by a real web server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Protocol

import pytest

from holdfast import Holdfast
from holdfast.web.security.users import LOCAL, Authenticate
from holdfast.web.site import Site
from tests.web.serving import Web, serve


class Serving(Protocol):
    def __call__(
        self, *, auth: Authenticate | None = ..., redact: frozenset[str] = ..., root_path: str = ...
    ) -> Web: ...


@pytest.fixture
def jobs(server_url: str, namespace: str) -> Iterator[Holdfast]:
    app = Holdfast(server_url, namespace=namespace)
    yield app
    app.close()


@pytest.fixture
def serving(jobs: Holdfast) -> Iterator[Serving]:
    """Start web servers for the app, with users and settings of one's own."""
    with ExitStack() as stack:

        def start(
            *, auth: Authenticate | None = lambda _: LOCAL, redact: frozenset[str] = frozenset(), root_path: str = ""
        ) -> Web:
            return stack.enter_context(serve(Site(jobs, auth, redact), root_path))

        yield start


@pytest.fixture
def web(serving: Serving) -> Web:
    """A web server whose user may do everything."""
    return serving()
