"""The documents run: each is followed as a reader would, in an empty directory, on an embedded server of its own.

A comment before a block says what to do with it: `file: NAME` writes it, `run: python` and `run: shell` run it, and
`run: in background` starts it, to be ended with the test.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.server import server

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(
    r"(?:<!-- (?P<what>[a-z]+): (?P<how>[^>]+?) -->\n)?```(?P<language>\w+)\n(?P<text>.*?)```", re.DOTALL
)
ELSEWHERE = ("stranger", "repository")  # blocks that other tests follow


@pytest.fixture
def folder() -> Iterator[Path]:
    """An empty directory with a short path, and no server left in it afterwards."""
    made = Path(tempfile.mkdtemp(prefix="hfd-"))
    yield made
    server.stop(made / ".holdfast")
    shutil.rmtree(made)


class Reader:
    """Follows a document, one block at a time."""

    def __init__(self, folder: Path, python: Path = Path(sys.executable)) -> None:
        self._folder = folder
        self._python = str(python)
        self._background: list[subprocess.Popen[bytes]] = []
        bin_directory = str(python.parent)
        keep = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
        self._environment = {**keep, "PATH": f"{bin_directory}:{keep['PATH']}"}

    def follow(self, what: str, how: str, text: str) -> None:
        if what in ELSEWHERE:
            return
        if what == "file":
            (self._folder / how).write_text(text)
        elif how == "in background":
            self._background.append(self._start(text))
        elif how == "python":
            self._run([self._python, "-W", "error", "-c", text])
        else:
            assert how == "shell", f"what is {how!r}?"
            self._run(["bash", "-euxo", "pipefail", "-c", text])

    def _start(self, text: str) -> subprocess.Popen[bytes]:
        with (self._folder / "background.log").open("wb") as log:
            return subprocess.Popen(
                ["bash", "-c", f"exec {text}"], cwd=self._folder, env=self._environment, stdout=log, stderr=log
            )

    def _run(self, line: list[str]) -> None:
        done = subprocess.run(
            line, cwd=self._folder, env=self._environment, capture_output=True, text=True, timeout=120, check=False
        )
        log = self._folder / "background.log"
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}\n{log.read_text() if log.exists() else ''}"

    def end(self) -> None:
        for process in self._background:
            process.send_signal(signal.SIGTERM)
        for process in self._background:
            assert process.wait(60) in (0, -signal.SIGKILL)  # which a document may have sent


GUIDES = (
    *("guide", "testing", "outages", "worker", "duplicates", "items", "configuration", "record", "fleet"),
    *(
        "dependencies",
        "pipelines",
        "schedules",
        "limits",
        "long",
        "middleware",
        "programs",
        "failures",
        "statistics",
        "batches",
    ),
    *("celery", "rq", "layout", "troubleshooting", "extending", "transactions", "metrics", "web-security"),
)


@pytest.mark.parametrize("document", ["README.md", *(f"docs/{guide}.md" for guide in GUIDES)])
def test_the_examples_of_a_document_work_when_pasted(document: str, folder: Path) -> None:
    reader = Reader(folder)
    followed = 0
    try:
        for block in BLOCK.finditer((ROOT / document).read_text()):
            if block["what"]:
                reader.follow(block["what"], block["how"], block["text"])
                followed += 1
    finally:
        reader.end()
    assert followed > 3


def test_every_python_block_of_the_documents_is_run() -> None:
    for path in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")):
        for block in BLOCK.finditer(path.read_text()):
            assert block["what"] or block["language"] != "python", f"{path.name}: {block['text'][:80]}"


PAGES = [
    *(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "examples").rglob("*.md")),
]


def _anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub gives the headings of a page."""
    titles = re.findall(r"^#+ (.+)$", BLOCK.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_between_the_documents_lead_somewhere(page: Path) -> None:
    for target, anchor in re.findall(r"\]\(([^)#:\s]*)(?:#([^)]+))?\)", page.read_text()):
        linked = (page.parent / target).resolve() if target else page
        assert linked.exists(), f"{page.name} links to {target}"
        assert not anchor or anchor in _anchors(linked), f"{page.name} links to {target}#{anchor}"


@pytest.mark.parametrize("index", ["README.md", "docs/README.md"])
def test_every_document_is_in_the_index(index: str) -> None:
    linked = {(ROOT / index).parent / target for target in re.findall(r"\]\(([^)#:]+)", (ROOT / index).read_text())}
    documents = {*(ROOT / "docs").glob("*.md"), *(ROOT / "examples").glob("*/README.md")} - {ROOT / index}
    missing = documents - {path.resolve() for path in linked}
    assert {path.name for path in missing} <= ({"README.md"} if index == "README.md" else set())


@pytest.mark.parametrize(
    ("document", "least"), [("guarantees.md", 15), ("comparison.md", 8), ("upgrade.md", 5), ("web-security.md", 14)]
)
def test_every_promise_names_an_existing_test(document: str, least: int) -> None:
    promises = (ROOT / "docs" / document).read_text()
    names = re.findall(r"`([\w/]*test_\w+\.py)::(test_\w+|Test\w+|\w+)`", promises)
    assert len(names) > least
    for file, name in names:
        assert re.search(rf"(def|class) {name}\b", (ROOT / "tests" / file).read_text()), f"{file} has no {name}"
