"""What a worker is told: one frozen value, the same in the supervisor and in its executors."""

from __future__ import annotations

import os
from typing import Literal

import msgspec

from holdfast.worker.queue_order import Order

SyncRunner = Literal["fork", "spawn", "process", "thread"]


def _default_queues() -> dict[str, int]:
    return {"default": 1}


class Pool(msgspec.Struct, frozen=True, kw_only=True):
    """Executors that serve the same queues, and what each of them may do.

    `queues` are names and weights; `runner` is for sync tasks that name none. An executor is replaced after so many
    jobs, at this age in milliseconds, or above so many bytes of memory. `max_jobs` is for all executors together.
    """

    name: str = "default"
    queues: dict[str, int] = msgspec.field(default_factory=_default_queues)
    order: Order = "strict"
    executors: int = 1
    processes: int = os.cpu_count() or 2
    concurrency: int = 100
    runner: SyncRunner = "fork"
    max_jobs: int | None = None
    max_jobs_per_executor: int | None = None
    max_age: int | None = None
    max_memory: int | None = None


class WorkerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """`app` is `module` or `module:name`. Times are in milliseconds; without a `lease`, each queue has its own."""

    app: str
    pools: tuple[Pool, ...] = (Pool(),)
    lease: int | None = None
    stop_within: int = 25_000
    node: str = ""
    directory: str = ""
    log_level: str = "INFO"
    burst: bool = False
    show_output: bool = True
    reload: bool = False
    accept_data_loss: bool = False
    allow_exec: bool = False  # run any program that is enqueued

    @property
    def queues(self) -> list[str]:
        """The names of all queues that are served, each once."""
        return list(dict.fromkeys(queue for pool in self.pools for queue in pool.queues))

    @property
    def executors(self) -> int:
        """How many claim at once, in all pools."""
        return sum(pool.executors for pool in self.pools)


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """What an executor's process is told when it starts: its name, and the descriptors that it inherits."""

    name: str
    parent: int
    settings: WorkerSettings
    pool: Pool
    control: int
    pulse: int
