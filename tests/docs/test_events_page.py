"""The page about events has the types that the code declares, and no others."""

from __future__ import annotations

from pathlib import Path

from holdfast.events.types import TYPES

PAGE = (Path(__file__).parents[2] / "docs" / "events.md").read_text()


def test_the_table_of_types_is_what_is_declared() -> None:
    rows = [
        f"| `{each.name}` | {each.about} | {each.meaning} | {', '.join(f'`{name}`' for name in each.details)} |"
        for each in TYPES
    ]
    table = PAGE.partition("| type | about | when | details |\n|---|---|---|---|\n")[2].partition("\n\n")[0]
    assert table.splitlines() == rows, "write it into docs/events.md"
