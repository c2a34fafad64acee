"""The results of a run: one row per round, measure and peer, saved as JSON."""

from __future__ import annotations

import json
import statistics
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bench.noise import MUCH

FOLDER = Path(__file__).parent / "results"


@dataclass
class Row:
    """One round; its figures, or why there are none."""

    measure: str
    peer: str
    round: int
    figures: dict[str, float] = field(default_factory=dict)
    details: dict[str, Any] = field(default_factory=dict)
    noise: dict[str, float] = field(default_factory=dict)
    error: str = ""

    @property
    def load(self) -> float:
        """The share of the machine that others had."""
        return self.noise.get("steal", 0.0) + self.noise.get("other", 0.0)

    @property
    def is_noisy(self) -> bool:
        return self.load > MUCH


@dataclass(frozen=True)
class Cell:
    """A figure over all calm rounds: median, least and most, of how many; and how many of those were not calm."""

    median: float
    least: float
    most: float
    rounds: int
    noisy: int
    is_capped: bool

    @property
    def is_noisy(self) -> bool:
        """Whether every round was disturbed."""
        return self.noisy == self.rounds


@dataclass
class Results:
    """A run: when, where, with what, and its rows."""

    about: dict[str, Any]
    rows: list[Row] = field(default_factory=list)

    def cell(self, measure: str, peer: str, figure: str) -> Cell | None:
        """The figure of a peer, from the rounds that were not disturbed, if there are any."""
        rows = [row for row in self.rows if (row.measure, row.peer) == (measure, peer) and figure in row.figures]
        if not rows:
            return None
        calm = [row for row in rows if not row.is_noisy] or rows
        values = [row.figures[figure] for row in calm]
        is_capped = all(row.details.get("capped", {}).get(figure) for row in calm)
        noisy = sum(row.is_noisy for row in calm)
        return Cell(statistics.median(values), min(values), max(values), len(values), noisy, is_capped)

    def errors(self) -> list[tuple[str, str, str]]:
        """Measure, peer and words of what failed, each once."""
        return list(dict.fromkeys((row.measure, row.peer, row.error) for row in self.rows if row.error))

    def measures(self) -> list[str]:
        return list(dict.fromkeys(row.measure for row in self.rows if row.figures))

    def details(self, measure: str, peer: str) -> dict[str, Any]:
        """Those of the calmest round."""
        rows = [row for row in self.rows if (row.measure, row.peer) == (measure, peer) and row.details]
        return min(rows, key=lambda row: row.load).details if rows else {}

    def save(self, path: Path) -> None:
        """Write JSON with one line per row: small, and a change of one row is one line of a diff."""
        path.parent.mkdir(parents=True, exist_ok=True)
        rows = ",\n".join(_compact(asdict(row)) for row in self.rows)
        scratch = path.with_suffix(".tmp")
        scratch.write_text(f'{{"about": {_compact(self.about)}, "rows": [\n{rows}\n]}}\n')
        scratch.rename(path)


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def read(path: Path) -> Results:
    saved = json.loads(path.read_text())
    return Results(saved["about"], [Row(**row) for row in saved["rows"]])
