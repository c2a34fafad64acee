"""Deploys: when the first worker of each release started, according to the workers that are still known."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple

from holdfast.records.table import Record
from holdfast.web.pages.charts import Mark


class Deploy(NamedTuple):
    at: datetime
    revision: int

    @property
    def label(self) -> str:
        return f"r{self.revision}"


def find_deploys(summary: Record) -> list[Deploy]:
    """Return the deploys in a summary of workers, the oldest first."""
    return sorted(Deploy(each["since"], each["revision"]) for each in summary["releases"] if each["since"])


def marks_of(deploys: Iterable[Deploy]) -> list[Mark]:
    return [Mark(each.at, each.label) for each in deploys]
