"""The model of tags, scopes and tracked jobs: the rules of `marks.lua` and `marking.lua`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from holdfast import errors
from holdfast.store.commands import CountsReply, Lease
from tests.model.mark_invariants import paths_of

if TYPE_CHECKING:
    from tests.model.core import Core
    from tests.model.job import Job


@dataclass
class FoundBy:
    """What a job is found by besides its queue and state."""

    tags: dict[str, int] = field(default_factory=dict)  # and when it got each
    scope: str = ""
    batch: str = ""
    ends: str = ""  # the batch at whose end it runs
    tracked: int | None = None  # since when

    def describe(self) -> dict[str, Any]:
        if not self.text():
            return {}
        return {
            "tags": [*self.tags],
            "scope": self.scope,
            "batch": self.batch or self.ends,
            "tracked": int(self.tracked is not None),
        }

    def text(self) -> str:
        lines = [f"#{tag}" for tag in self.tags]
        lines += [self.scope] if self.scope else []
        lines += [f"={self.batch}"] if self.batch else []
        lines += [f"${self.ends}"] if self.ends else []
        lines += ["!"] if self.tracked is not None else []
        return "\n".join(lines)

    def add(self, tags: Iterable[str], now: int) -> bool:
        new = {tag: now for tag in tags if tag not in self.tags}
        self.tags |= new
        return bool(new)

    def remove(self, tags: Iterable[str]) -> bool:
        before = len(self.tags)
        self.tags = {tag: at for tag, at in self.tags.items() if tag not in tags}
        return len(self.tags) < before

    def replace(self, tags: Iterable[str], now: int) -> None:
        """Those that stay keep their time, and come where they are said now."""
        self.tags = {tag: self.tags.get(tag, now) for tag in tags}


class Marks:
    def __init__(self, model: Core) -> None:
        self.model = model
        self.deleted: set[str] = set()  # tracked jobs that are gone

    # What other verbs do

    def begin(self, job: Job, now: int, old: Job | None) -> None:
        job.found_by = FoundBy(dict.fromkeys(job.new.tags or (), now), job.new.scope or "", job.new.in_batch or "")
        if old and old.found_by.tracked is not None:
            job.found_by.tracked = now
            self.deleted.discard(job.id)

    def removed(self, job: Job) -> None:
        if job.found_by.tracked is not None:
            self.deleted.add(job.id)

    def advance(self, job: Job, batch: dict[str, Any], now: int) -> None:
        if batch.get("keep_tags"):
            job.found_by.add(batch.get("tags", ()), now)
        elif "tags" in batch:
            job.found_by.replace(batch["tags"], now)
        job.found_by.scope = batch.get("scope", job.found_by.scope)

    # Verbs

    def tag(self, id: str, tags: Sequence[str], now: int) -> str:
        job = self.model.jobs.get(id)
        return "NOTFOUND" if not job else "OK" if job.found_by.add(tags, now) else "SAME"

    def untag(self, id: str, tags: Sequence[str]) -> str:
        job = self.model.jobs.get(id)
        return "NOTFOUND" if not job else "OK" if job.found_by.remove(tags) else "SAME"

    def tag_held(
        self, held: Lease, tags: Sequence[str], remove: Sequence[str], created: int | None, now: int
    ) -> tuple[bool, list[str]]:
        job = self.model.holder(*held, created)
        if not job:
            raise errors.LeaseLost
        kept = {tag: at for tag, at in job.found_by.tags.items() if tag not in remove}
        job.found_by.tags = kept | {tag: job.found_by.tags.get(tag, now) for tag in tags if tag not in kept}
        self.model.event("saved", job)
        return job.cancelling, [*job.found_by.tags]

    def track(self, id: str, now: int) -> str:
        job = self.model.jobs.get(id)
        if not job:
            return "NOTFOUND"
        if job.found_by.tracked is not None:
            return "SAME"
        job.found_by.tracked = now
        self.deleted.discard(id)
        self.model.event("tracked", job)
        return "OK"

    def untrack(self, id: str) -> str:
        job = self.model.jobs.get(id)
        if not job:
            was_tracked = id in self.deleted
            self.deleted.discard(id)
            return "OK" if was_tracked else "NOTFOUND"
        if job.found_by.tracked is None:
            return "SAME"
        job.found_by.tracked = None
        self.model.event("untracked", job)
        return "OK"

    # Indexes

    def by_tag(self) -> dict[str, dict[str, float]]:
        found: dict[str, dict[str, float]] = {}
        for job in self.model.jobs.values():
            for tag, at in job.found_by.tags.items():
                found.setdefault(tag, {})[job.id] = at
        return found

    def by_scope(self) -> dict[str, dict[str, float]]:
        found: dict[str, dict[str, float]] = {}
        for job in self.model.jobs.values():
            for path in paths_of(job.found_by.scope):
                found.setdefault(path, {})[job.id] = job.created
        return found

    def tracked(self) -> dict[str, float]:
        return {job.id: at for job in self.model.jobs.values() if (at := job.found_by.tracked) is not None}

    def scopes(self, scope: str | None) -> CountsReply:
        inside = {path: len(jobs) for path, jobs in self.by_scope().items() if path.rpartition("/")[0] == (scope or "")}
        return CountsReply(len(inside), inside)
