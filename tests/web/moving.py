"""A store of another time: what tests do some time ago."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from holdfast import Holdfast
from holdfast.store import Store


@contextmanager
def ago(jobs: Holdfast, seconds: float) -> Iterator[None]:
    """Let an app call the store as if it were some time ago."""
    before, jobs.store = jobs.store, Store(jobs.address, clock=lambda: round((time.time() - seconds) * 1000))
    try:
        yield
    finally:
        jobs.store.close()
        jobs.store = before
