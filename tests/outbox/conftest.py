"""Each test of the outbox has a directory for it, and a server that can be switched on and off."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import outages
from tests.support.outages import Switch


@pytest.fixture(autouse=True)
def outbox_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOLDFAST_OUTBOX", str(tmp_path / "outbox"))
    return tmp_path / "outbox"


@pytest.fixture
def switch() -> Iterator[Switch]:
    with outages.switch() as made:
        yield made
