"""The client methods, one module per noun; `Holdfast` exposes them."""

from holdfast.client import (
    bulk,
    config,
    enqueue,
    failures,
    jobs,
    limits,
    logs,
    queues,
    results,
    running_jobs,
    schedules,
    statistics,
    tags,
    upkeep,
    workers,
)

__all__ = [
    "bulk",
    "config",
    "enqueue",
    "failures",
    "jobs",
    "limits",
    "logs",
    "queues",
    "results",
    "running_jobs",
    "schedules",
    "statistics",
    "tags",
    "upkeep",
    "workers",
]
