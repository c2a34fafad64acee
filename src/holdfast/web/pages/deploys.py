"""Deploys: when the first worker of each release started, as far as workers that are still known tell."""

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


def find_deploys(workers: Iterable[Record]) -> list[Deploy]:
    """Return the deploys that workers tell of, the oldest first."""
    first: dict[int, datetime] = {}
    for worker in workers:
        revision, started = worker["about"].get("revision"), worker["started_at"]
        if type(revision) is int and started is not None:
            first[revision] = min(started, first.get(revision, started))
    return sorted(Deploy(at, revision) for revision, at in first.items())


def marks_of(deploys: Iterable[Deploy]) -> list[Mark]:
    return [Mark(each.at, each.label) for each in deploys]
