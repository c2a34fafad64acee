"""Fixtures of tests of metrics: an app on a real server, and a workbench that runs its jobs under a moved clock."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from holdfast import Holdfast
from holdfast.testing import Workbench, use


@pytest.fixture
def jobs() -> Holdfast:
    return Holdfast()


@pytest.fixture
def bench(jobs: Holdfast, server_url: str, namespace: str) -> Iterator[Workbench]:
    with use(jobs, server_url, namespace=namespace) as made:
        begin_a_day(made)
        yield made


def begin_a_day(bench: Workbench) -> None:
    """Move on to just after midnight."""
    now = bench.now
    bench.advance(86_400 - (now.hour * 3600 + now.minute * 60 + now.second))
