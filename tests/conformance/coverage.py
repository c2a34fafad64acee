"""What the cases have to cover, read from docs/protocol.md, and what they do cover.

A fact is `function`, `function(argument)` or `function: CODE`. `python -m tests.conformance.coverage` prints those that
no case covers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from holdfast.conformance import find_cases

ROOT = Path(__file__).parents[2]
LUA = ROOT / "src" / "holdfast" / "store" / "lua"
REGISTERED = re.compile(r"^register(?:_action)?\('(\w+)'", re.M)


@cache
def sections() -> dict[str, str]:
    """The section of docs/protocol.md of each function."""
    text = (ROOT / "docs" / "protocol.md").read_text()
    part = text.partition("\n## Functions\n")[2].partition("\n## ")[0]
    found = re.split(r"^### `(\w+)`$", part, flags=re.M)[1:]
    return dict(zip(found[::2], found[1::2], strict=True))


@cache
def sources() -> dict[str, str]:
    """The Lua file of each function, without comments."""
    files = {path: re.sub(r"--.*", "", path.read_text()) for path in LUA.glob("*.lua")}
    return {name: text for text in files.values() for name in REGISTERED.findall(text)}


def required() -> set[str]:
    """All functions, their documented arguments, and the codes that they are documented to refuse or answer with."""
    facts = set(sections())
    for name, section in sections().items():
        facts |= {f"{name}({argument})" for argument in _arguments(name, section)}
        facts |= {f"{name}: {code}" for code in re.findall(r"`([A-Z]{4,})`", _codes(section))}
    return facts


def covered() -> set[str]:
    """What the steps of all cases call, pass, and get as a refusal or an answer."""
    return {fact for case in find_cases() for step in case.steps if "call" in step for fact in _facts(step)}


def _arguments(name: str, section: str) -> set[str]:
    """The arguments in the tables, and in the sentence `Takes ...`, as far as Lua knows them by this name."""
    tables = re.findall(r"^\| argument \|.*\n\|[-|]+\|\n((?:\|.*\n)+)", section, re.M)
    rows = re.findall(r"^\| (?:· )?(`[^|]*`) \|", "".join(tables), re.M)
    sentences = re.findall(r"\bTakes? (.*?)(?:\.\s|: )", section, re.S)
    words = set(re.findall(r"`(\w+)`", " ".join((*rows, *sentences))))
    return {word for word in words if re.search(rf"[.'\[]{word}\b|\b{word} =", sources().get(name, ""))}


def _codes(section: str) -> str:
    """The section without what it says about other calls, and about the server."""
    return re.sub(r"And `OOM`, by the server\.", "", section)


def _facts(step: Mapping[str, Any]) -> Iterator[str]:
    name = step["call"]
    yield name
    for argument in _names(step.get("args", {})):
        yield f"{name}({argument})"
    if "error" in step:
        yield f"{name}: {step['error']}"
    for text in _texts(step.get("reply")):
        yield f"{name}: {text}"


def _names(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        yield from value
    for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _names(each)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    for each in value if isinstance(value, list) else ():
        yield from _texts(each)


if __name__ == "__main__":
    print("\n".join(sorted(required() - covered())))
