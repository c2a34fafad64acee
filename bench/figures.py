"""The figures that measures return."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Figure:
    """One number of a measure."""

    key: str
    title: str
    unit: str
    is_higher_better: bool = True
    digits: int = 0


@dataclass
class Taken:
    """What one round of a measure gave for one peer."""

    figures: dict[str, float]
    details: dict[str, Any] = field(default_factory=dict)
