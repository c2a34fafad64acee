"""The client methods, one module per noun; `Holdfast` exposes them."""

from holdfast.client import (
    config,
    enqueue,
    jobs,
    limits,
    logs,
    operations,
    queries,
    queues,
    results,
    running_jobs,
    schedules,
    upkeep,
    workers,
)

__all__ = [
    "config",
    "enqueue",
    "jobs",
    "limits",
    "logs",
    "operations",
    "queries",
    "queues",
    "results",
    "running_jobs",
    "schedules",
    "upkeep",
    "workers",
]
