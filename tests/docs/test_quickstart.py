"""A newcomer's first five minutes: a new virtual environment, the built wheel, an empty folder, the README pasted."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.server import server
from tests.docs.test_docs import BLOCK, Reader

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def _run(*line: str | Path, folder: Path) -> str:
    done = subprocess.run(line, cwd=folder, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from this tree."""
    place = tmp_path_factory.mktemp("wheel")
    _run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", place, ROOT, folder=place)
    (made,) = place.glob("*.whl")
    return made


@pytest.fixture
def empty() -> Iterator[Path]:
    """A folder with nothing in it, outside of the project, whose path is short; no server is left in it afterwards."""
    made = Path(tempfile.mkdtemp(prefix="hfs-"))
    yield made
    server.stop(made / ".holdfast")
    shutil.rmtree(made)


def _install(empty: Path, wheel: Path) -> Path:
    """Follow the README's installation, with the wheel in place of the clone. Returns the interpreter."""
    (block,) = (block for block in BLOCK.finditer(README) if block["what"] == "stranger")
    assert "pip install ./holdfast\n" in block["text"]
    lines = block["text"].replace("./holdfast", str(wheel)).replace("pip install", "pip install --quiet")
    _run("bash", "-euo", "pipefail", "-c", lines, folder=empty)
    return empty / "venv" / "bin" / "python"


def _paste(python: Path, text: str, folder: Path) -> None:
    """Paste lines into an interactive interpreter, which wants a blank line after a block."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("HOLDFAST_", "PYTHON"))}
    done = subprocess.run(
        [python, "-q", "-i"],
        input=text,
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Error" not in done.stderr, f"{text}\n{done.stderr}"


@pytest.mark.timeout(400)
def test_the_readme_works_line_by_line_in_an_empty_folder(empty: Path, wheel: Path) -> None:
    python = _install(empty, wheel)
    assert _run(python, "-c", "import holdfast; print(holdfast.__file__)", folder=empty).startswith(str(empty))
    reader, followed = Reader(empty, python), []
    try:
        for block in BLOCK.finditer(README):
            assert block["what"], f"nobody follows {block['text']}"
            if block["how"] == "python":
                _paste(python, block["text"], empty)
            else:
                reader.follow(block["what"], block["how"], block["text"])
            followed.append(block["how"])
    finally:
        reader.end()
    assert followed.count("in background") == 2
    shown = _run(python.parent / "holdfast", "show", "killed", folder=empty)
    assert re.search(r"\b(lost|crash)\b", shown), shown
    assert "succeeded" in shown


def test_the_wheel_has_all_that_it_needs_and_nothing_of_the_tests(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    lua = {path.name for path in (ROOT / "src" / "holdfast" / "store" / "lua").glob("*.lua")}
    assert lua == {Path(name).name for name in names if name.endswith(".lua")}
    assert {"holdfast/py.typed", "holdfast_pytest.py"} <= {*names}
    assert {name.partition("/")[0] for name in names if ".dist-info" not in name} == {"holdfast", "holdfast_pytest.py"}


def test_the_commands_of_the_repository_are_targets_of_make() -> None:
    targets = {*re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.M)}
    said = {*re.findall(r"(?:^|`)make ([a-z]+)", README.partition("## This repository")[2], re.M)}
    assert said
    assert said <= targets
