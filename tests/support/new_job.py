"""A job as tests store it: each field by its name, as the store is told it."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.store.commands import omit_none

_ITS_OWN = ("id", "payload")


class NewJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job to be stored. What is None is left to the store."""

    id: str
    payload: bytes
    queue: str
    task: str
    priority: int | None = None
    delay: int | None = None
    at: int | None = None
    retries: int | None = None
    crashes: int | None = None
    lost: int | None = None
    timeouts: int | None = None
    stalls: int | None = None
    out_of_memory: int | None = None
    backoff: int | None = None
    timeout: int | None = None
    codec: str | None = None
    unique: str | None = None
    unique_for: str | int | None = None
    keep: bool | int | None = None
    at_most_once: bool | None = None
    after: tuple[str, ...] | None = None
    on_failed: str | None = None
    limits: tuple[str, ...] | None = None
    fields: dict[str, str] | None = None
    tags: tuple[str, ...] | None = None
    scope: str | None = None
    in_batch: str | None = None  # named `batch` in the store
    share: str | None = None
    deadline: int | None = None
    deadline_at: int | None = None
    run: str | None = None

    @property
    def batch(self) -> dict[str, Any]:
        values = msgspec.structs.asdict(self)
        values["batch"] = values.pop("in_batch")
        return omit_none(**{name: value for name, value in values.items() if name not in _ITS_OWN})
