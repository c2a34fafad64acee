"""The pages of docs/reference/ match the source."""

from __future__ import annotations

import re

import holdfast
import holdfast.testing
from tests.docs import reference

MAKE = "run `make reference` (python -m tests.docs.reference) and commit docs/reference/"


def _stored() -> dict[str, str]:
    return {path.name: path.read_text() for path in reference.FOLDER.glob("*.md")}


def test_the_reference_matches_the_source() -> None:
    stored, made = _stored(), reference.write()
    assert stored.keys() == made.keys(), MAKE
    for name, text in made.items():
        old, new = stored[name].splitlines(), text.splitlines()
        changed = [f"{one!r} is now {two!r}" for one, two in zip(old, new, strict=False) if one != two]
        assert old == new, f"{MAKE}: {name}: {changed[:3]}"


def test_everything_that_users_import_is_in_the_reference() -> None:
    text = "\n".join(_stored().values())
    shown = {
        *re.findall(r"^### `(\w+)`$", text, re.M),
        *re.findall(r"^\| `(\w+)`(?: \(.*?\))? \| `[A-Z]+` \|", text, re.M),
    }
    assert {*holdfast.__all__, *holdfast.testing.__all__} <= shown


def test_every_method_of_the_app_is_shown_once_with_its_async_twin_and_its_result() -> None:
    pages = _stored()
    parts = [pages["app.md"].partition("### `Holdfast`")[2]]
    parts += [page.partition("\n## Methods of the app\n")[2].partition("\n## ")[0] for page in pages.values()]
    app = "\n".join(parts)
    assert not any(name in page for page in pages.values() for name in ("Steps[", "Pages[", "Generator["))
    assert "#### `get`, `aget`\n\n`get(id: str, /) -> Job[Any]`" in app
    public = [
        name
        for name, value in vars(holdfast.Holdfast).items()
        if not name.startswith("_") and hasattr(holdfast.Holdfast, name) and not isinstance(value, property)
    ]
    shown = [name for line in re.findall(r"^#### (.*)$", app, re.M) for name in re.findall(r"`(\w+)`", line)]
    assert sorted(public) == sorted(shown)


def test_every_type_of_the_reference_is_whole() -> None:
    """An option that was written over several lines had `(` as its type."""
    cells = re.findall(r"^\| `\w+` \| `([^`]*)` \|", "\n".join(_stored().values()), re.M)

    assert len(cells) > 200
    assert [cell for cell in cells if any(cell.count(one) != cell.count(two) for one, two in ("()", "[]"))] == []


def test_every_option_is_explained() -> None:
    text = _stored()["tasks.md"].partition("### Options\n")[2].partition("\n### ")[0]
    rows = re.findall(r"^\| `(\w+)` \| `.+` \| *(.*?) *\|$", text, re.M)

    assert "stalled" in dict(rows)
    assert [name for name, words in rows if not words] == []
