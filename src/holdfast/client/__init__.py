"""The client methods, one module per noun; `Holdfast` exposes them."""

from holdfast.client import (
    bulk,
    config,
    enqueue,
    events,
    jobs,
    limits,
    logs,
    queues,
    results,
    running_jobs,
    schedules,
    subscriptions,
    upkeep,
    workers,
)

__all__ = [
    "bulk",
    "config",
    "enqueue",
    "events",
    "jobs",
    "limits",
    "logs",
    "queues",
    "results",
    "running_jobs",
    "schedules",
    "subscriptions",
    "upkeep",
    "workers",
]
