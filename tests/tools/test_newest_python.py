"""Which Python `make newest` uses: the newest that works."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tools.newest_python import newest


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    return tmp_path


def _put(path: Path, script: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def test_the_newest_python_that_works_is_found(folder: Path) -> None:
    _put(folder / "python3.99", "exit 127")  # as a command of pyenv whose version is not chosen
    wanted = _put(folder / "pyenv" / "versions" / "3.98.0" / "bin" / "python3.98", "echo 3 98")
    _put(folder / "python3.97", "echo 3 97")
    _put(folder / "python3.96-config", "echo 3 96")

    assert newest(than=11) == wanted
    assert newest(than=98) is None


def test_a_python_whose_version_differs_from_its_name_is_skipped(folder: Path) -> None:
    _put(folder / "python3.99", "echo 3 11")

    assert newest(than=90) is None
