"""Imports point down: model, then commands, then store and server, then client and worker, then what people see."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
import redis

SOURCE = Path(__file__).parent.parent / "src" / "holdfast"
LAYERS = [
    {
        "errors",
        "limits",
        "durations",
        "sizes",
        "names",
        "phrases",
        "failure",
        "codec",
        "signature",
        "outcome",
        "returned",
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
        "verdict",
    },
    {"budget", "calling"},
    {"functions", "commands"},
    {"server", "server_binary", "server_home", "keeper"},
    {"line", "pool"},
    {"turns", "address", "conversation", "store"},
    {"facts", "judgements", "doctor"},
    {
        "fleet",
        "setting",
        "seat",
        "item",
        "item_outcomes",
        "item_token",
        "detached",
        "items",
        "heartbeat",
        "holding",
        "verbs",
        "logs",
        "steering",
        "finding",
        "limiting",
        "overseeing",
        "awaiting",
        "acting",
        "load",
        "upkeep",
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
    from holdfast.functions import PARTS

    assert {path.stem for path in (SOURCE / "lua").glob("*.lua")} == set(PARTS)


def test_lua_files_import_only_what_earlier_files_export() -> None:
    from holdfast.functions import PARTS

    exported: set[str] = set()
    late: set[str] = set()
    for part in PARTS[1:]:
        text = (SOURCE / "lua" / f"{part}.lua").read_text()
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
    from holdfast import functions

    extra = "\n".join(f"local extra_{number} = {number}" for number in range(60))
    head, _, source = functions.library().partition("\n")
    name = f"room_{functions.digest()}"
    text = head.replace(f"holdfast_{functions.digest()}", name) + f"\n{extra}\n{source}"
    with redis.Redis.from_url(server_url) as client:
        assert client.function_load(text.replace("'hf_' .. DIGEST", f"'{name}_' .. DIGEST")) == name.encode()
        client.function_delete(name)


def test_every_planted_bug_still_has_its_place_in_the_library() -> None:
    from tests import plant

    for bug in plant.BUGS:
        assert plant.source_with(bug), bug.name
