"""Invariants of statistics: records have whole fields, totals are the sums of their tasks, lines can be read.

The layout is that of `statistics.lua` and `folding.lua`.
"""

from __future__ import annotations

import struct
from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.model.invariants import Snapshot

MAX_TASKS = 200
DAY_SIZE, CELL_SIZE, BUCKET_SIZE, MAX_LINES = 55, 34, 5, 4096
CELL = (4, 7, 4, 7, 4, 4, 4)


def check(snapshot: Snapshot) -> None:
    for name, fields in snapshot.others("sd").items():
        assert len(fields) <= MAX_TASKS + 2, f"sd:{name} has {len(fields)} fields"
        _check_totals(f"sd:{name}", {task: _read_day(packed) for task, packed in fields.items()})
    for name, fields in snapshot.others("sg").items():
        for letter in "wr":
            counts = {field[1:]: _read_buckets(packed) for field, packed in fields.items() if field[0] == letter}
            _check_totals(f"sg:{name} {letter}", counts)
    for family in ("sh", "sm"):
        for name, fields in snapshot.others(family).items():
            units = {field[:2] for field in fields if field[0] != "i"}
            for unit in units:
                of_unit = {field[2:]: packed for field, packed in fields.items() if field[:2] == unit}
                _check_totals(f"{family}:{name} {unit}", {task: _read_cell(each) for task, each in of_unit.items()})
    for name, text in snapshot.others("sl").items():
        assert len(text) < MAX_LINES, f"sl:{name} has {len(text)} bytes"
        assert _end_of_lines(text) == len(text), f"sl:{name} ends in the middle of a line"


def _check_totals(name: str, values: dict[str, Counter[int]]) -> None:
    total: Counter[int] = Counter()
    for task, numbers in values.items():
        if task:
            total.update(numbers)
    assert +values.get("", Counter()) == +total, f"the total of {name} is not the sum of its tasks"


def _read_day(packed: bytes) -> Counter[int]:
    assert len(packed) == DAY_SIZE, f"{len(packed)} bytes of a day"
    counts = [int.from_bytes(packed[at : at + size]) for at, size in ((0, 5), (21, 5), (42, 5), (47, 4), (51, 4))]
    sums = [round(struct.unpack(">d", packed[at : at + 8])[0]) for at in (5, 26)]
    return Counter(dict(enumerate(counts + sums)))


def _read_cell(packed: bytes) -> Counter[int]:
    assert 0 < len(packed) <= CELL_SIZE, f"{len(packed)} bytes of an hour or a minute"
    whole, numbers, at = packed.ljust(CELL_SIZE, b"\0"), [], 0
    for size in CELL:
        numbers.append(int.from_bytes(whole[at : at + size]))
        at += size
    return Counter(dict(enumerate(numbers)))


def _read_buckets(packed: bytes) -> Counter[int]:
    assert len(packed) % BUCKET_SIZE == 0, f"{len(packed)} bytes of buckets"
    return Counter(
        {packed[at]: int.from_bytes(packed[at + 1 : at + BUCKET_SIZE]) for at in range(0, len(packed), BUCKET_SIZE)}
    )


def _end_of_lines(text: bytes) -> int:
    at = 0
    while at < len(text):
        at += 16 + int.from_bytes(text[at + 4 : at + 7])
    return at
