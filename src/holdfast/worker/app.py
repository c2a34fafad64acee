"""The part of an app that a worker uses: its tasks, schedules and limits, and the address of its store."""

from __future__ import annotations

from typing import Any, Protocol

from holdfast.job.limit import Limit
from holdfast.redis_work_queue.shared_queue import SharedQueue
from holdfast.store import Address
from holdfast.task import task
from holdfast.task.task import Task


class App(task.App, Protocol):
    """An app whose jobs a worker runs; `Holdfast` is one."""

    @property
    def address(self) -> Address: ...
    @property
    def tasks(self) -> dict[str, Task[..., Any]]: ...
    @property
    def declared_schedules(self) -> dict[str, dict[str, Any]]: ...
    @property
    def declared_subscriptions(self) -> dict[str, dict[str, Any]]: ...
    @property
    def declared_limits(self) -> dict[str, Limit]: ...
    @property
    def revision(self) -> int: ...
    @property
    def shared_queues(self) -> dict[str, SharedQueue]: ...
