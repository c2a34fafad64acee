"""The published runs of the model test: a table in `docs/model.md`, to which `make model` appends a row.

Only runs of a commit are published: one with uncommitted changes could not be repeated.
"""

from __future__ import annotations

import re
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "model.md"
TOTAL = re.compile(r"\*\*[\d,]+ steps\*\* in \d+ runs")
ROW = re.compile(r"^\| (\S+) \| `(\w+)` \| (\w+) \| (\d+) \| ([\d,]+) \| (\S+) \| (.*) \|$", re.MULTILINE)


class Run(NamedTuple):
    """One run: its first seed (each round of 200 examples takes the next), and what it found, `none` at best."""

    day: str
    commit: str
    backend: str
    seed: int
    steps: int
    minutes: float
    found: str

    def row(self) -> str:
        return (
            f"| {self.day} | `{self.commit}` | {self.backend} | {self.seed} | {self.steps:,} | {self.minutes:.1f} "
            f"| {self.found} |"
        )


def commit() -> str | None:
    """The commit that is tested; None if files other than the page itself differ from it."""
    changes = _git("status", "--porcelain", "--", ".", f":!{PAGE.relative_to(ROOT)}")
    return None if changes else _git("rev-parse", "--short=10", "HEAD") or None


def today() -> str:
    return f"{datetime.now(UTC):%Y-%m-%d}"


def read(text: str) -> list[Run]:
    rows = [match.groups() for match in ROW.finditer(text)]
    return [
        Run(day, commit, backend, int(seed), int(steps.replace(",", "")), float(minutes), found)
        for day, commit, backend, seed, steps, minutes, found in rows
    ]


def summary(runs: list[Run]) -> str:
    return f"**{sum(run.steps for run in runs):,} steps** in {len(runs)} runs"


def append(run: Run, page: Path = PAGE) -> None:
    """Add a row, and update the total."""
    text = page.read_text("utf-8").rstrip("\n") + f"\n{run.row()}\n"
    page.write_text(TOTAL.sub(summary(read(text)), text, count=1), "utf-8")


def one_line(error: BaseException) -> str:
    """The first line of an error, safe in a cell of a table."""
    line = (str(error).splitlines() or [type(error).__name__])[0]
    return re.sub(r"[|`<>\s]+", " ", line).strip()[:120] or type(error).__name__


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, timeout=20, check=False)
    return done.stdout.strip()
