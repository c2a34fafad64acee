"""The client methods, one module per noun; `Holdfast` exposes them."""

from holdfast.client import (
    bulk,
    config,
    enqueue,
    jobs,
    limits,
    logs,
    queues,
    results,
    running_jobs,
    schedules,
    statistics,
    upkeep,
    workers,
)

__all__ = [
    "bulk",
    "config",
    "enqueue",
    "jobs",
    "limits",
    "logs",
    "queues",
    "results",
    "running_jobs",
    "schedules",
    "statistics",
    "upkeep",
    "workers",
]
