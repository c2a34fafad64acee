"""The client of examples/node, in JavaScript, passes all cases and vectors, and finds those that are wrong."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from holdfast.conformance import load_vectors
from holdfast.conformance.cases import data_files, load_areas
from holdfast.store.library import library
from tests.support.servers import running_server

NODE = Path(__file__).parents[2] / "examples" / "node"
pytestmark = pytest.mark.skipif(shutil.which("node") is None, reason="there is no node here")


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with running_server() as made:
        yield made


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """What `holdfast conformance --export` writes."""
    for name, content in (*data_files(), ("holdfast.lua", library().encode())):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    return tmp_path


def _run(url: str, data: Path, *cases: str) -> subprocess.CompletedProcess[str]:
    line = ["node", str(NODE / "conformance.mjs"), url, str(data), *cases]
    return subprocess.run(line, capture_output=True, text=True, timeout=120, check=False)


def test_the_client_in_javascript_passes_everything_and_leaves_nothing_behind(url: str, data: Path) -> None:
    done = _run(url, data)
    cases = sum(len(area.cases) for area in load_areas())
    vectors = sum(len(each) for file in load_vectors().values() for each in file.values() if isinstance(each, list))
    assert done.stdout == f"{cases} cases and {vectors} vectors, 0 failed\n", done.stderr
    assert done.returncode == 0
    assert redis.Redis(unix_socket_path=url.removeprefix("unix://")).dbsize() == 0


def test_the_lines_are_counted_honestly() -> None:
    readme = (NODE / "README.md").read_text()
    for path in sorted(NODE.glob("*.mjs")):
        assert f"| [{path.name}]({path.name}) | {len(path.read_text().splitlines())} |" in readme


def _change(path: Path, change: Any) -> None:
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


def test_the_client_in_javascript_finds_what_is_wrong(url: str, data: Path) -> None:
    def wrong_cases(content: Any) -> None:
        cases = {case["name"]: case for case in content["cases"]}
        first, second, third = (cases[name] for name in ("a-job", "same-id", "raw-bytes"))
        first["steps"][0]["reply"][1] = 7
        second["after"]["jobs"]["a"]["state"] = "running"
        third["after"]["counts"]["mail"] = {"waiting": 9}

    def wrong_vectors(content: Any) -> None:
        content["ids"][0]["id"] = "wrong"

    _change(data / "cases" / "enqueue.json", wrong_cases)
    _change(data / "vectors" / "ids.json", wrong_vectors)
    done = _run(url, data, "enqueue")
    assert done.returncode == 1
    assert [line.partition(": ")[0] for line in done.stdout.splitlines()[:-1]] == [
        "enqueue/a-job", "enqueue/same-id", "enqueue/raw-bytes", "ids.ids[0]",
    ]  # fmt: skip
