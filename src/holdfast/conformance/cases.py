"""The data: cases, one JSON file per area, and vectors of encodings. docs/conformance.md describes their format."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

from holdfast.errors import Invalid
from holdfast.text import did_you_mean


@dataclass(frozen=True)
class Case:
    """Calls in an empty namespace, their replies, and what is stored afterwards."""

    area: str
    name: str
    shows: str
    steps: Sequence[Mapping[str, Any]]
    after: Mapping[str, Any] = field(default_factory=dict)
    needs: str = ""  # `no cluster`, `few keys`: otherwise the case is skipped

    @property
    def path(self) -> str:
        return f"{self.area}/{self.name}"


@dataclass(frozen=True)
class Area:
    """A file of cases."""

    name: str
    about: str
    cases: Sequence[Case]


@cache
def load_areas() -> tuple[Area, ...]:
    """Read all files of cases, in the order of their names."""
    return tuple(read_area(name, content) for name, content in _contents("cases"))


def read_area(name: str, content: Mapping[str, Any]) -> Area:
    return Area(name, content["about"], [Case(name, **each) for each in content["cases"]])


@cache
def load_vectors() -> dict[str, dict[str, Any]]:
    """Read all files of vectors, by name."""
    return dict(_contents("vectors"))


def data_files() -> Iterator[tuple[str, bytes]]:
    """Return all files of data: relative path, content."""
    for folder in ("cases", "vectors"):
        for each in _files(folder):
            yield f"{folder}/{each.name}", each.read_bytes()


def find_cases(names: Iterable[str] = ()) -> list[Case]:
    """Return the cases that are named as `area` or `area/case`; without names, all.

    Raises:
        Invalid: there is no such area or case.
    """
    cases = [case for area in load_areas() for case in area.cases]
    known = {case.area for case in cases} | {case.path for case in cases}
    wanted = list(names)
    for name in wanted:
        if name not in known:
            raise Invalid(f"no conformance case or area is named {name!r}{did_you_mean(name, sorted(known))}")
    return [case for case in cases if not wanted or case.area in wanted or case.path in wanted]


def _contents(folder: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for each in _files(folder):
        yield each.name.removesuffix(".json"), json.loads(each.read_text("utf-8"))


def _files(folder: str) -> list[Traversable]:
    found = (files("holdfast.conformance") / folder).iterdir()
    return sorted((each for each in found if each.name.endswith(".json")), key=lambda each: each.name)
