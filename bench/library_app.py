"""The app of `bench.libraries`: it imports what LIBRARIES names, and if there is a USED computes with torch at once."""

from __future__ import annotations

import importlib
import os
from typing import Any

from holdfast import Holdfast

LIBRARIES = os.environ.get("LIBRARIES", "").split()
SIDE = 1500  # of the matrices: large enough for several threads

for each in LIBRARIES:
    importlib.import_module(each)

jobs = Holdfast()


def _multiply(library: Any) -> float:
    if library.__name__ == "torch":
        matrix = library.ones(SIDE, SIDE)
        return float((matrix @ matrix)[0, 0])
    matrix = importlib.import_module("numpy").ones((SIDE, SIDE))
    if library.__name__ == "scipy.linalg":
        return float(library.blas.dgemm(1.0, matrix, matrix)[0, 0])
    return float((matrix @ matrix)[0, 0])


if "USED" in os.environ:
    _multiply(importlib.import_module("torch"))


@jobs.task(runner="fork")
def nothing() -> None: ...


@jobs.task(runner="process")
def nothing_kept() -> None: ...


@jobs.task(runner="fork")
def multiply() -> tuple[bool, int, int]:
    """Returns whether the product is right, and how many threads this process had before and after it."""
    before = len(os.listdir("/proc/self/task"))
    product = _multiply(importlib.import_module(LIBRARIES[0]))
    return product == SIDE, before, len(os.listdir("/proc/self/task"))
