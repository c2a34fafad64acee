"""docs/rest.md and docs/rest/: the examples work, and the reference is that of the specification."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from holdfast import Holdfast
from holdfast.web.problems import STATUS
from holdfast.web.routes import RESOURCES
from holdfast.web.security.users import LOCAL
from holdfast.web.site import Site
from tests.docs import rest_reference
from tests.docs.test_docs import BLOCK
from tests.web.examples import EXAMPLES, make_world, write_lua
from tests.web.serving import serve

PAGE = Path(__file__).parents[2] / "docs" / "rest.md"
MAKE = "run `make reference` and commit docs/rest/"
CURL = 'curl() { command curl --fail-with-body -sS "$@"; }\n'


def test_the_reference_matches_the_specification() -> None:
    stored = {path.name: path.read_text() for path in rest_reference.FOLDER.glob("*.md")}
    made = rest_reference.write()
    assert stored.keys() == made.keys(), MAKE
    for name, text in made.items():
        old, new = stored[name].splitlines(), text.splitlines()
        changed = [f"{one!r} is now {two!r}" for one, two in zip(old, new, strict=False) if one != two]
        assert old == new, f"{MAKE}: {name}: {changed[:3]}"


def test_every_request_is_on_one_page_with_an_example() -> None:
    pages = rest_reference.write()
    del pages["README.md"]
    for route in RESOURCES:
        heading = f"\n## `{rest_reference.title(route)}`\n"
        [text] = [text for text in pages.values() if heading in text]
        assert "```sh\ncurl " in text.partition(heading)[2].partition("\n## ")[0]


def test_every_error_is_explained() -> None:
    codes = set(re.findall(r"`([A-Z]+)`", PAGE.read_text().partition("## Errors")[2].partition("\n## ")[0]))
    assert {getattr(kind, "code", "ERROR") for kind in STATUS} - codes <= {
        "ERROR",
        "FAILED",
        "CANCELLED",
    }  # of results in Python


@pytest.mark.skipif(not shutil.which("curl"), reason="curl is not installed")
def test_the_examples_of_the_reference_work_when_pasted(server_url: str, namespace: str, tmp_path: Path) -> None:
    app = Holdfast(server_url, namespace=namespace, extend=write_lua(tmp_path))
    names = make_world(app)
    lines = ['curl() { command curl -sS -o /dev/null -w "%{http_code}\\n" "$@"; }']
    for example in EXAMPLES:
        token = next((names[each] for each in names if f"<{each}>" in str(example.json)), "")
        lines.append(f"TOKEN={token} && {rest_reference.curl(example)}")
    with serve(Site(app, lambda _: LOCAL)) as web:
        script = "\n".join(lines).replace("http://127.0.0.1:8420", web.url)
        done = subprocess.run(
            ["bash", "-eu", "-c", script], capture_output=True, text=True,
            env={**os.environ, "API": f"{web.url}/api/v1", "no_proxy": "*"}, timeout=120, check=False,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    wanted = [f"{example.status} {example.method} {example.path}" for example in EXAMPLES]
    assert [
        f"{status} {text.partition(' ')[2]}" for status, text in zip(done.stdout.split(), wanted, strict=True)
    ] == wanted
    app.close()


@pytest.mark.skipif(not shutil.which("curl"), reason="curl is not installed")
def test_the_examples_of_the_page_work_when_pasted(server_url: str, namespace: str, tmp_path: Path) -> None:
    app = Holdfast(server_url, namespace=namespace)
    blocks = [block["text"] for block in BLOCK.finditer(PAGE.read_text()) if block["what"] == "rest"]
    assert len(blocks) > 6
    with serve(Site(app, lambda _: LOCAL)) as web:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", CURL + "\n".join(blocks)], cwd=tmp_path, capture_output=True, text=True,
            env={**os.environ, "API": f"{web.url}/api/v1", "no_proxy": "*"}, timeout=120, check=False,
        )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert '{"next":null}' in done.stdout
    assert "304\n" in done.stdout
    assert '"ended":"completed"' in done.stdout
    assert (app.count(task="ship"), app.get("mail-7").state) == (1, "cancelled")
    app.close()
