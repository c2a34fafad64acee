"""docs/reference.md is what the source says now."""

from __future__ import annotations

import re

import holdfast
import holdfast.testing
from tests.docs import reference

MAKE = "run `make reference` (python -m tests.docs.reference) and commit docs/reference.md"


def test_the_reference_is_what_the_source_says_now() -> None:
    kept, made = reference.PATH.read_text().splitlines(), reference.write().splitlines()
    changed = [f"{old!r} is now {new!r}" for old, new in zip(kept, made, strict=False) if old != new]
    assert kept == made, f"{MAKE}: {changed[:3]}"


def test_everything_that_users_import_is_in_the_reference() -> None:
    text = reference.PATH.read_text()
    told = {
        *re.findall(r"^### `(\w+)`$", text, re.M),
        *re.findall(r"^\| `(\w+)`(?: \(.*?\))? \| `[A-Z]+` \|", text, re.M),
    }
    assert {*holdfast.__all__, *holdfast.testing.__all__} <= told


def test_every_verb_of_the_app_is_shown_with_its_async_equal_and_what_it_returns() -> None:
    text = reference.PATH.read_text()
    app = text.partition("### `Holdfast`")[2].partition("\n## ")[0]
    assert "Steps[" not in text
    assert "#### `get`, `aget`\n\n`get(id: str, /) -> Job[Any]`" in app
    public = {name for name in vars(holdfast.Holdfast) if not name.startswith("_")}
    shown = {name for line in re.findall(r"^#### (.*)$", app, re.M) for name in re.findall(r"`(\w+)`", line)}
    assert public == shown


def test_every_type_of_the_reference_is_whole() -> None:
    """An option that was written over several lines had `(` as its type."""
    cells = re.findall(r"^\| `\w+` \| `([^`]*)` \|", reference.PATH.read_text(), re.M)

    assert len(cells) > 200
    assert [cell for cell in cells if any(cell.count(one) != cell.count(two) for one, two in ("()", "[]"))] == []


def test_every_option_is_explained() -> None:
    text = reference.PATH.read_text().partition("### Options\n")[2].partition("\n### ")[0]
    rows = re.findall(r"^\| `(\w+)` \| `.+` \| *(.*?) *\|$", text, re.M)

    assert "stalled" in dict(rows)
    assert [name for name, words in rows if not words] == []
