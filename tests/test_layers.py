"""Imports point down: between packages, in the order below, and inside each package, without a cycle.

Imports inside functions and under TYPE_CHECKING count as any other.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import redis

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "holdfast"
# From the bottom up. A package may import those above it in this list, also lazily, and no other.
ORDER = (
    "version",
    "text",
    "hints",
    "errors",
    "constants",
    "names",
    "units",
    "codec",
    "job",
    "events",
    "running",
    "task",
    "server",
    "store",
    "conformance",
    "client",
    "planning",
    "outbox",
    "items",
    "redis_work_queue",
    "doctor",
    "worker",
    "app",
    "holdfast",  # what users import
    "entrypoints",
    "records",
    "testing",
    "holdfast_pytest",
    "demo",
    "metrics",
    "web",
    "cli",
    "__main__",  # python -m holdfast
)
RANK = {package: rank for rank, package in enumerate(ORDER)}
PLUGIN = SOURCE.parent / "holdfast_pytest.py"  # outside of the package, which pytest would import with it
MODULES = [PLUGIN, *sorted(SOURCE.rglob("*.py"))]


def _name(path: Path) -> str:
    return ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts).removesuffix(".__init__")


PATHS = {_name(path): path for path in MODULES}


def _package(module: str) -> str:
    first, _, rest = module.partition(".")
    return rest.partition(".")[0] or first


@cache
def _imports(module: str) -> frozenset[str]:
    """Return the modules of Holdfast that a module imports, also inside functions and for annotations only."""
    tree = ast.parse(PATHS[module].read_text())
    return frozenset(name for node in ast.walk(tree) for name in _named(node)) - {module}


def _named(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "holdfast":
        for alias in node.names:
            whole = f"{node.module}.{alias.name}"
            yield whole if whole in PATHS else node.module or ""
    elif isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names if alias.name in PATHS)


@pytest.mark.parametrize("module", PATHS)
def test_imports_point_down(module: str) -> None:
    own = _package(module)
    assert own in RANK, f"add {own} to ORDER"
    for other in _imports(module):
        assert RANK[_package(other)] <= RANK[own], f"{module} imports {other}, which is above it"


@pytest.mark.parametrize("package", ORDER)
def test_the_modules_of_a_package_have_an_order(package: str) -> None:
    """No two of them need each other: they can be read one after the other."""
    graph = {
        module: {other for other in _imports(module) if _package(other) == package and other != "holdfast"}
        for module in PATHS
        if _package(module) == package and PATHS[module].name != "__init__.py"
    }
    while free := {module for module, others in graph.items() if not others & graph.keys()}:
        graph = {module: others for module, others in graph.items() if module not in free}
    assert not graph, f"these import each other: {', '.join(sorted(graph))}"


@pytest.mark.parametrize("module", [name for name, path in PATHS.items() if path.name == "__init__.py"])
def test_every_package_has_a_docstring(module: str) -> None:
    assert ast.get_docstring(ast.parse(PATHS[module].read_text())), f"{module} has no docstring"


def test_two_modules_import_the_redis_client() -> None:
    knowing = {
        name for name, path in PATHS.items() if "import redis" in path.read_text() or "from redis" in path.read_text()
    }
    assert knowing == {"holdfast.store.redis_client", "holdfast.store.server_errors"}


def test_only_keys_lua_builds_keys() -> None:
    building = {path.name for path in (SOURCE / "store" / "lua").glob("*.lua") if "base .." in path.read_text()}
    assert building == {"keys.lua"}


def test_every_lua_file_is_part_of_the_library() -> None:
    from holdfast.store.library import PARTS

    assert {path.stem for path in (SOURCE / "store" / "lua").glob("*.lua")} == set(PARTS)


def test_lua_files_import_only_what_earlier_files_export() -> None:
    from holdfast.store.library import PARTS

    exported: set[str] = set()
    late: set[str] = set()
    for part in PARTS[1:]:
        text = (SOURCE / "store" / "lua" / f"{part}.lua").read_text()
        for line in re.findall(r"^local [\w, ]+ = (core\..+)$", text, re.M):
            imported = set(re.findall(r"core\.(\w+)", line))
            assert imported <= exported, f"{part}.lua imports {imported - exported}"
        late |= set(re.findall(r"core\.(\w+)", text))
        exported |= {
            name for line in re.findall(r"^(core\..+?) =", text, re.M) for name in re.findall(r"core\.(\w+)", line)
        }
    assert late <= exported, f"nobody exports {late - exported}"


def test_no_module_unpickles_or_imports_what_the_store_says() -> None:
    for path in MODULES:
        text = path.read_text()
        assert "pickle" not in text, path
        assert "import_module" not in text or path.name == "loading.py", path


def test_the_library_has_room_for_sixty_more_local_names(server_url: str) -> None:
    from holdfast.store import library

    extra = "\n".join(f"local extra_{number} = {number}" for number in range(60))
    head, _, source = library.library().partition("\n")
    name = f"room_{library.digest()}"
    text = head.replace(f"holdfast_{library.digest()}", name) + f"\n{extra}\n{source}"
    with redis.Redis.from_url(server_url) as client:
        assert client.function_load(text.replace("'hf_' .. DIGEST", f"'{name}_' .. DIGEST")) == name.encode()
        client.function_delete(name)


def test_every_planted_bug_still_has_its_place_in_the_library() -> None:
    from tests.model import plant

    for bug in plant.BUGS:
        assert plant.source_with(bug), bug.name
