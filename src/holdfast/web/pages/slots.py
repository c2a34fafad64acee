"""Slots of workers: how many jobs they can run at once."""

from __future__ import annotations

from holdfast.records.table import Record


def slots_of(worker: Record) -> int | None:
    """Return how many jobs a worker can run at once; None if it does not say."""
    pools = worker["about"].get("pools")
    if not isinstance(pools, list):
        return None
    counts = [each.get("processes") or each.get("concurrency") for each in pools if isinstance(each, dict)]
    return sum(count for count in counts if type(count) is int)
