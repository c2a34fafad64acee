"""Publish a run: its results as `results/published.*`, and the main tables in docs/performance.md.

The picture of the README has the main panels, `published.all.svg` has all of them.
"""

from __future__ import annotations

import re
from pathlib import Path

from bench import plot, table
from bench.environments import ROOT
from bench.results import FOLDER, Results

PAGE = ROOT / "docs" / "performance.md"
MARKS = re.compile(r"(<!-- published -->\n).*(<!-- end of published -->)", re.DOTALL)


def publish(found: Results, folder: Path = FOLDER, page: Path = PAGE) -> list[Path]:
    """Returns what was written."""
    data, text, picture, pictures = (folder / f"published.{end}" for end in ("json", "md", "svg", "all.svg"))
    found.save(data)
    text.write_text(table.report(found))
    picture.write_text(plot.draw(found, plot.MAIN))
    pictures.write_text(plot.draw(found))
    body = re.sub(r"^##", "###", table.summary(found), flags=re.MULTILINE)
    before = page.read_text()
    after, count = MARKS.subn(lambda marks: f"{marks[1]}{body}\n{marks[2]}", before)
    if count != 1:
        raise SystemExit(f"{page} has no place for it: {MARKS.pattern}")
    page.write_text(after)
    return [data, text, picture, pictures, page]
