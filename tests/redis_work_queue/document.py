"""A client of redis-work-queue, written from its document alone, with a command for each of its steps."""

from __future__ import annotations

import uuid
from typing import Any

import redis


class WorkQueue:
    """A queue, as section "Technical details" of the document describes it."""

    def __init__(self, db: redis.Redis, prefix: str) -> None:
        self.db: Any = db
        self.session = uuid.uuid4().hex
        self.prefix = prefix
        self.queue, self.processing = f"{prefix}:queue", f"{prefix}:processing"

    def item(self, id: str) -> str:
        return f"{self.prefix}:item:{id}"

    def lease_key(self, id: str) -> str:
        return f"{self.prefix}:lease:{id}"

    def add(self, id: str, data: bytes) -> None:
        if not self.db.exists(self.item(id)):
            self.db.set(self.item(id), data)
            self.db.lpush(self.queue, id)

    def lease(self, seconds: int, timeout: float) -> tuple[str, bytes] | None:
        found = self.db.brpoplpush(self.queue, self.processing, timeout)
        if found is None:
            return None
        id = found.decode()
        data = self.db.get(self.item(id))
        if data is None:
            return None
        self.db.setex(self.lease_key(id), seconds, self.session)
        return id, data

    def complete(self, id: str) -> bool:
        deleted = self.db.delete(self.item(id))
        self.db.delete(self.lease_key(id))
        self.db.lrem(self.processing, 0, id)
        return bool(deleted == 1)

    def light_clean(self) -> None:
        self._clean([id.decode() for id in self.db.lrange(self.processing, 0, -1)])

    def deep_clean(self) -> None:
        start = len(self.item(""))
        self._clean([key.decode()[start:] for key in self.db.keys(self.item("*"))])

    def _clean(self, ids: list[str]) -> None:
        for id in ids:
            if (
                self.db.exists(self.item(id))
                and self.db.lpos(self.queue, id) is None
                and not self.db.exists(self.lease_key(id))
            ):
                self.db.lrem(self.processing, 0, id)
                self.db.lpush(self.queue, id)
