"""docs/internals.md names packages, files, functions and messages that exist, and walks as the code does."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from holdfast import Holdfast
from holdfast.testing import running_server
from holdfast.worker import messages
from tests.test_layers import ORDER

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "holdfast"
PAGE = (ROOT / "docs" / "internals.md").read_text()
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text()
DECISIONS = "".join(path.read_text() for path in sorted((ROOT / "docs" / "decisions").glob("*.md")))
BLOCKS = re.findall(r"^```text\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
STEP = re.compile(r"^\| \d+ \| `([\w/]+\.py)` \| `([\w.]+)` \|", re.MULTILINE)


def _section(title: str) -> str:
    return PAGE.partition(f"## {title}")[2].partition("\n## ")[0]


def _functions(path: Path) -> set[str]:
    """Return the functions and methods that a module defines, as `Class.method`."""
    found: set[str] = set()

    def visit(node: ast.AST, prefix: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                found.add(prefix + child.name)
                visit(child, f"{prefix}{child.name}.")

    visit(ast.parse(path.read_text()), "")
    return found


def test_the_packages_are_in_the_order_that_is_enforced() -> None:
    assert tuple(re.findall(r"^(\w+) ", BLOCKS[0], re.MULTILINE)) == ORDER[::-1]


def test_the_diagram_of_a_worker_has_every_message() -> None:
    known = {kind.__name__ for kind in messages.Message.__subclasses__()}
    assert (
        set(re.findall(r"\b[A-Z]\w+[a-z]\b", " ".join(re.findall(r"(?:──▶|◀──)  (.*(?:\n│ {8}.*)?)", BLOCKS[1]))))
        == known
    )


def test_every_file_that_is_named_exists() -> None:
    names = set(re.findall(r"`((?:\w+/)*\w+\.(?:py|lua))`", PAGE + CONTRIBUTING + DECISIONS))
    paths = [f"/{path.relative_to(ROOT)}" for top in ("src", "tests") for path in (ROOT / top).rglob("*.*")]
    assert len(names) > 60
    assert [name for name in sorted(names) if not any(path.endswith(f"/{name}") for path in paths)] == []


@pytest.mark.parametrize("title", ["From `enqueue` to the socket and back", "From claim to finish"])
def test_every_function_of_a_walk_exists(title: str) -> None:
    steps = STEP.findall(_section(title))
    assert len(steps) > 8
    assert [step for step in steps if step[1] not in _functions(SOURCE / step[0])] == []


def test_an_enqueue_walks_as_it_is_described() -> None:
    calls: list[tuple[str, str]] = []

    def note(frame: FrameType, event: str, _: Any) -> None:
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.is_relative_to(SOURCE):
            calls.append((str(path.relative_to(SOURCE)), frame.f_code.co_qualname.replace(".<locals>", "")))

    with running_server() as url:
        jobs = Holdfast(url)
        task = jobs.task(_add)
        task.enqueue(1, 2)  # connects, and loads the library
        sys.setprofile(note)
        try:
            task.enqueue(3, 4)
        finally:
            sys.setprofile(None)
        jobs.close()
    walked = iter(calls)
    assert [
        step for step in STEP.findall(_section("From `enqueue` to the socket and back")) if step not in walked
    ] == []


def _add(x: int, y: int) -> int:
    return x + y
