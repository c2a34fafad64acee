"""Failures in the model: how errors are counted, and under which names failed jobs are listed.

The rules at the heads of `fingerprints.lua` and `failures.lua`. Numbers, names and times are worked out from the jobs;
only where a job is listed, and what was seen of each fingerprint, is remembered.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.job import failure
from holdfast.job.failure import Failure

if TYPE_CHECKING:
    from tests.model.core import Core
    from tests.model.job import Job

KINDS = "gpt"
KIND_OF = {"group": "g", "fingerprint": "p", "task": "t"}
OTHER = "other"
EXAMPLE_AGE = 60_000


def clean(group: str) -> str:
    """A group as records have it: at most 64 bytes, without control characters."""
    text = "".join("?" if ord(letter) < 32 or ord(letter) == 127 else letter for letter in group)
    return text.encode()[:64].decode(errors="ignore") or "error"


def parts(error: bytes) -> tuple[Failure | None, bytes]:
    """A failure, if the bytes of an error are one, and what is kept of them with the attempt."""
    described = failure.decode(error)
    if described.type == "Unreadable":
        return None, error
    return described, failure.describe_attempt(described)


class Example(NamedTuple):
    job: str
    attempt: int
    description: bytes
    traceback: str
    task: str


@dataclass
class Fingerprint:
    type: str
    place: str
    first: int
    last: int = 0
    errors: int = 0
    at: int = 0
    examples: set[Example] = field(default_factory=set)  # any of these: errors of one moment have no order
    tasks: set[str] = field(default_factory=set)  # likewise, of the first


class Failures:
    def __init__(self, core: Core) -> None:
        self.core = core
        self.seen: dict[str, Fingerprint] = {}
        self.order: dict[str, int] = {}  # by when their examples were taken

    def count(self, job: Job, group: str, now: int, error: bytes | None = None) -> str:
        """An error, or a failure without one. Returns its fingerprint."""
        described, description = parts(error) if error is not None else (None, b"")
        kind, place = (described.type, described.place) if described else ("", "")
        name = described.fingerprint if described else ""
        if not name:
            text = "\n".join([group, kind, place, job.new.task])
            name = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()[:16]
        known = self.seen.setdefault(name, Fingerprint(kind or group, place, now))
        example = Example(job.id, job.attempt, description, described.traceback if described else "", job.new.task)
        if not known.errors:
            known.tasks = {job.new.task}
        elif known.first == now:
            known.tasks.add(job.new.task)
        known.last, known.errors = now, known.errors + 1
        if known.errors == 1 or not known.at <= now < known.at + EXAMPLE_AGE:
            known.at, known.examples, self.order[name] = now, {example}, now
            self._forget_oldest()
        elif known.at == now:
            known.examples.add(example)
        return name

    def _forget_oldest(self) -> None:
        if len(self.order) > self.core.steps.fingerprints:
            oldest = min(self.order, key=lambda name: (self.order[name], name))
            del self.order[oldest]
            self.seen.pop(oldest, None)

    # Names

    def list_job(self, job: Job) -> None:
        """List a job that has failed."""
        most = {"g": self.core.steps.groups, "p": self.core.steps.fingerprints, "t": self.core.steps.tasks}
        own = {"g": job.group, "p": job.fingerprint, "t": job.new.task}
        for kind, name in own.items():
            names = self.names(kind, but=job)
            job.listed[kind] = name if name in names or len(names) < most[kind] else OTHER

    def failed(self) -> list[Job]:
        return [job for job in self.core.jobs.values() if job.state == "failed"]

    def names(self, kind: str, *, but: Job | None = None) -> dict[str, dict[str, int]]:
        """Names that have failed jobs, with these and when each failed."""
        names: dict[str, dict[str, int]] = {}
        for job in self.failed():
            if job is not but:
                names.setdefault(job.listed[kind], {})[job.id] = job.since
        return names

    def capped(self) -> set[str]:
        """Kinds of which some jobs are listed under `other`."""
        own = {"g": "group", "p": "fingerprint"}
        return {
            kind
            for kind in KINDS
            for job in self.failed()
            if job.listed[kind] == OTHER != (getattr(job, own[kind]) if kind in own else job.new.task)
        }

    def rows(self, by: str, queue: str | None = None) -> dict[str, tuple[int, int, int, set[str]]]:
        """Of each name: how many jobs, when the first and the last failed, and which may be named as the last one."""
        found: dict[str, dict[str, int]] = {}
        for job in self.failed():
            if by == "queue":
                name = job.new.queue
            elif queue is not None:
                name = {"group": job.group, "fingerprint": job.fingerprint, "task": job.new.task}[by]
            else:
                name = job.listed[KIND_OF[by]]
            if queue in (None, job.new.queue):
                found.setdefault(name, {})[job.id] = job.since
        rows: dict[str, tuple[int, int, int, set[str]]] = {}
        for name, jobs in found.items():
            last = max(jobs.values())
            rows[name] = len(jobs), min(jobs.values()), last, {id for id, since in jobs.items() if since == last}
        return rows

    def check_record(self, name: str, found: dict[str, bytes]) -> None:
        """Fail if what is stored of a fingerprint is not what was seen."""
        known = self.seen[name]
        texts: dict[str, Any] = {key: value.decode() for key, value in found.items() if key != "description"}
        numbers = {key: int(texts.pop(key)) for key in ("first", "last", "errors", "at", "attempt", "revision")}
        assert numbers["revision"] == 0
        wanted = {"first": known.first, "last": known.last, "errors": known.errors, "at": known.at}
        assert {key: numbers[key] for key in wanted} == wanted, f"{name}: {numbers}, not {wanted}"
        assert (texts["type"], texts["place"]) == (known.type[:200], known.place), name
        assert texts["task"] in known.tasks, f"{name}: {texts['task']}, not {known.tasks}"
        examples = {(each.job, each.attempt, each.description, each.traceback) for each in known.examples}
        example = texts["job"], numbers["attempt"], found["description"], texts["traceback"]
        assert example in examples, f"{name}: example {example}, not {examples}"
