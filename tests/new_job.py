"""A job as tests store it: each field by its name, as the store is told it."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import asdict, force_setattr

from holdfast.commands import Storable, given

_ITS_OWN = ("id", "payload", "batch")


class NewJob(Storable, frozen=True, kw_only=True):
    """A job to be stored. What is None is left to the store; `batch` is made of the rest."""

    batch: dict[str, Any] = msgspec.field(default_factory=dict)
    queue: str
    task: str
    priority: int | None = None
    delay: int | None = None
    due: int | None = None
    retries: int | None = None
    crashes: int | None = None
    lost: int | None = None
    backoff: int | None = None
    timeout: int | None = None
    codec: str | None = None
    unique: str | None = None
    unique_for: str | int | None = None
    unkept: bool | None = None
    once: bool | None = None
    after: tuple[str, ...] | None = None
    on_failed: str | None = None
    limits: tuple[str, ...] | None = None
    share: str | None = None
    deadline: int | None = None
    start_by: int | None = None
    run: str | None = None

    def __post_init__(self) -> None:
        told = {name: value for name, value in asdict(self).items() if name not in _ITS_OWN}
        force_setattr(self, "batch", given(**told))
