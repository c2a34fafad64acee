"""Imports point down: model, then commands, then store and server, then client and worker, then what people see."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "holdfast"
LAYERS = [
    {
        "errors",
        "limits",
        "durations",
        "sizes",
        "names",
        "failure",
        "codec",
        "signature",
        "outcome",
        "task",
        "options",
        "run",
        "carry",
        "middleware",
        "program",
        "running",
        "current",
        "link",
        "progress",
        "each",
        "relations",
        "once",
        "usage",
        "job",
    },
    {"budget", "calling"},
    {"functions", "commands"},
    {"server", "keeper"},
    {"line"},
    {"turns", "conversation", "store"},
    {"facts", "judgements", "doctor"},
    {
        "fleet",
        "setting",
        "seat",
        "item",
        "items",
        "upkeep",
        "verbs",
        "logs",
        "steering",
        "finding",
        "limiting",
        "overseeing",
        "awaiting",
        "acting",
        "load",
        "looking",
        "schedule",
        "scheduling",
        "kept",
        "spool",
        "sender",
        "inline",
        "unreachable",
        "storing",
        "results",
        "client",
    },
    {"worker"},
    {"testing", "holdfast_pytest"},
    {"demo", "demo_screen", "demo_tasks", "demo_workers", "ledger"},
    {"cli"},
]
UPWARDS = {("client", "worker")}  # by one method, when it is called: a worker inside the program
LEVEL = {module: level for level, layer in enumerate(LAYERS) for module in layer}
PLUGIN = SOURCE.parent / "holdfast_pytest.py"  # outside of the package, which pytest would import with it
MODULES = [PLUGIN, *sorted(path for path in SOURCE.rglob("*.py") if path != SOURCE / "__init__.py")]


def _noun(path: Path) -> str:
    return path.relative_to(SOURCE if path != PLUGIN else SOURCE.parent).parts[0].removesuffix(".py")


def _imports(path: Path) -> set[str]:
    """The nouns of Holdfast that a module imports at run time, also inside functions."""
    found, tree = set(), ast.parse(path.read_text())
    for part in tree.body:
        if isinstance(part, ast.If) and ast.unparse(part.test) == "TYPE_CHECKING":
            part.body.clear()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "holdfast":
            found |= {alias.name for alias in node.names if alias.name in LEVEL}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("holdfast."):
            found.add((node.module or "").split(".")[1])
        elif isinstance(node, ast.Import):
            found |= {alias.name.split(".")[1] for alias in node.names if alias.name.startswith("holdfast.")}
    return found


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE.parent)))
def test_imports_point_down(path: Path) -> None:
    noun = _noun(path)
    assert noun in LEVEL, f"say in which layer {noun} belongs"
    for other in _imports(path):
        assert LEVEL[other] <= LEVEL[noun] or (noun, other) in UPWARDS, f"{noun} imports {other}, which stands above it"


def test_one_module_knows_the_redis_client() -> None:
    knowing = {
        _noun(path) for path in MODULES if "import redis" in path.read_text() or "from redis" in path.read_text()
    }
    assert knowing == {"conversation"}


def test_only_keys_lua_builds_keys() -> None:
    building = {path.name for path in (SOURCE / "lua").glob("*.lua") if "base .." in path.read_text()}
    assert building == {"keys.lua"}


def test_every_lua_file_is_part_of_the_library() -> None:
    from holdfast.functions import PARTS, VERBS

    assert {path.stem for path in (SOURCE / "lua").glob("*.lua")} == {*PARTS, *VERBS}


def test_no_module_unpickles_or_imports_what_the_store_says() -> None:
    for path in MODULES:
        text = path.read_text()
        assert "pickle" not in text, path
        assert "import_module" not in text or path.name == "loading.py", path


def test_the_library_is_well_below_what_a_chunk_of_lua_may_hold() -> None:
    from holdfast.functions import PARTS

    texts = [
        re.sub(r"^do$.*^end$", "", (SOURCE / "lua" / f"{part}.lua").read_text(), flags=re.M | re.S) for part in PARTS
    ]
    names = [
        name
        for text in texts
        for line in re.findall(r"^local (?!function)([\w, ]+)", text, re.M)
        for name in line.split(",")
    ]
    functions = [name for text in texts for name in re.findall(r"^local function (\w+)", text, re.M)]
    assert len(names) + len(functions) < 165, "Lua allows 200 local names, and the verbs have up to 32 of their own"
