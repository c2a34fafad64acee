"""The client methods, one module per noun; `Holdfast` exposes them."""

from holdfast.client import (
    batches,
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
    tags,
    upkeep,
    workers,
)

__all__ = [
    "batches",
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
    "tags",
    "upkeep",
    "workers",
]
