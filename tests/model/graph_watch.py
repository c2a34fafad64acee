"""A watch over a graph of jobs: what must be true at each claim and at each end, told by the events of each call.

It knows who waits for whom, which limits hold and which queues are paused, from what was asked of the store; and what
ran and how it ended, from the events. Of all else it knows nothing: it looks at neither keys nor records, except in
`compare`. Replies that the harness lets nobody hear are heard here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from holdfast.store.commands import Command
from tests.support.new_job import NewJob

FINAL = {"succeeded": "S", "failed": "F", "cancelled": "C"}
WORD_OF = {"-": "pending", "S": "succeeded", "F": "failed", "C": "cancelled"}
COME_BACK = ("lost", "released", "crashed", "retried", "advanced")
Event = tuple[str, list[str], str]


@dataclass
class Seen:
    """A job, as the watch knows it. `state` is one of pending, blocked, running, and the final ones."""

    id: str
    queue: str
    limits: tuple[str, ...]
    policy: str
    kept: bool
    state: str = "pending"
    attempt: int = 0
    executor: str = ""
    after: dict[str, str] = field(default_factory=dict)  # job -> letter, as in dependencies.lua
    waits: dict[str, str] = field(default_factory=dict)  # the same, of others, that it began to wait for while it ran
    however: set[str] = field(default_factory=set)  # of `after`: those that it began to wait for again while it ran
    deadline: int | None = None
    retries: int = 0  # by a user
    completions: set[int] = field(default_factory=set)  # attempts whose success was accepted

    def is_content(self, id: str) -> bool:
        """Whether a job that it waits for is as it must be."""
        if id in self.waits:
            return self.waits[id] != "-"
        letter = self.after[id]
        return letter == "S" or (letter != "-" and (self.policy == "run" or id in self.however))

    @property
    def missing(self) -> list[str]:
        """The jobs that it waits for and that are not as they must be."""
        return [id for id in (*self.after, *self.waits) if not self.is_content(id)]

    def hear(self, id: str, letter: str) -> None:
        """A job has ended, or begun again. Who was content with it before is not asked again."""
        if not self.is_content(id):
            (self.waits if id in self.waits else self.after)[id] = letter

    def stand(self) -> None:
        """It is not running: it waits for others, or to be claimed."""
        self.state, self.executor = "blocked" if self.missing else "pending", ""


class Watch:
    def __init__(
        self, clock: Callable[[], int], is_there: Callable[[str], bool], knows: Callable[[str, str], bool]
    ) -> None:
        self.jobs: dict[str, Seen] = {}
        self.now, self.is_there, self.knows = clock, is_there, knows
        self.limits: dict[str, tuple[int, int]] = {}
        self.concurrency: dict[str, int] = {}
        self.paused: set[str] = set()
        self._ended_before: set[str] = set()

    def letter(self, id: str) -> str:
        return FINAL.get(self.jobs[id].state, "-")

    def holds(self, executor: str, id: str, attempt: int) -> bool:
        """Whether an attempt has the right to write."""
        job = self.jobs.get(id)
        return job is not None and (job.state, job.executor, job.attempt) == ("running", executor, attempt)

    def running(self) -> list[Seen]:
        return [job for job in self.jobs.values() if job.state == "running"]

    def reaches(self, start: str, goal: str) -> bool:
        """Whether a job waits for another, directly or not. Only blocked ones wait, and for what they miss."""
        seen, left = {start}, [start]
        while left:
            job = self.jobs.get(left.pop())
            new = set(job.missing) - seen if job and job.state == "blocked" else set()
            seen |= new
            left += new
        return goal in seen

    # What was asked of the store.

    def add(self, new: NewJob) -> None:
        job = Seen(new.id, new.queue, new.limits or (), new.on_failed or "block", new.keep is not False)
        job.deadline = self.now() + new.deadline if new.deadline else None
        job.after = {id: self.letter(id) if id in self.jobs else "-" for id in new.after or ()}
        self.jobs[new.id] = job

    def depend(self, args: dict[str, Any]) -> None:
        """Links are changed, and all that it waits for is looked at anew."""
        job = self.jobs[args["id"]]
        job.policy = args.get("on_failed", job.policy)
        for id in (*args.get("remove", ()), *args.get("add", ())):
            job.after.pop(id, None)
            job.waits.pop(id, None)
            job.however.discard(id)
        job.after |= dict.fromkeys(args.get("add", ()), "-")
        self._look_again(job)
        if job.state in ("pending", "blocked"):
            job.stand()

    def _look_again(self, job: Seen) -> None:
        """Those that it waits for are as they are now; one that is gone, as it was known last, if it had ended then."""
        for links in (job.after, job.waits):
            for id, letter in list(links.items()):
                if id in self.jobs:
                    links[id] = self.letter(id)
                elif letter == "-" or not self.knows(job.id, id):  # both ended in one call: it may not have heard of it
                    del links[id]

    def note_wait(self, item: dict[str, Any], ended: dict[str, str]) -> None:
        """An attempt ended by waiting for others: those that have not ended yet, and that there are."""
        job = self.jobs[item["id"]]
        new = {id: "-" for id in item["after"] if id in self.jobs and ended.get(id, self.letter(id)) == "-"}
        job.waits = {id: letter for id, letter in new.items() if id not in job.after}
        job.however |= {id for id in new if id in job.after}
        job.after |= {id: "-" for id in new if id in job.after}

    def note_advance(self, item: dict[str, Any], ended: dict[str, str]) -> None:
        """An attempt ended by going on as another call."""
        job, batch = self.jobs[item["id"]], item["next"]
        job.queue, job.limits = batch.get("queue", job.queue), tuple(batch.get("limits", ()))
        job.policy, job.waits, job.however = batch.get("on_failed", "block"), {}, set()
        job.after = {id: ended.get(id, self.letter(id)) for id in batch.get("after", ())}
        job.deadline = self.now() + batch["deadline"] if "deadline" in batch else None
        job.completions.clear()

    def note_moves(self, ids: Sequence[str], answers: Sequence[str], queue: str) -> None:
        for id, answer in zip(ids, answers, strict=True):
            if answer not in ("STATE", "NOTFOUND"):
                self.jobs[id].queue = queue

    # What happened.

    def happened(self, command: Command[Any], events: Sequence[Event], verb: str) -> None:
        """Check the events of one call. Their order in it is not said, so: back, ended, begun again, claimed."""
        is_retry = verb == "retry"
        self._ended_before = {job.id for job in self.jobs.values() if job.state in FINAL}
        self._note_stages(command, events)
        for kind in COME_BACK if not is_retry else ():
            for id in _named(events, kind):
                self._came_back(id, kind)
        for kind in FINAL:
            for id in _named(events, kind):
                self._ended(id, kind)
        for id in _named(events, "retried") if is_retry else ():
            self._begun_again(id)
        for id in _named(events, "unblocked"):
            if id in self.jobs:
                self._forget_removed(self.jobs[id])
                missing = self.jobs[id].missing
                assert not missing, f"{id} was released, but waits for {missing}"
        for id in _named(events, "deleted"):
            assert self.jobs[id].state in FINAL, f"{id} was {self.jobs[id].state} and is deleted"
            del self.jobs[id]
        for kind, ids, who in events:
            for id in ids if kind == "claimed" else ():
                self._claimed(id, who)

    def _forget_removed(self, job: Seen) -> None:
        """The ends of jobs that were removed count; the watch does not know them."""
        for links in (job.after, job.waits):
            for id in [id for id in links if id not in self.jobs]:
                del links[id]

    def _note_stages(self, command: Command[Any], events: Sequence[Event]) -> None:
        """What attempts asked for when they ended holds if the job has not ended with them."""
        ended = {id: letter for kind, letter in FINAL.items() for id in _named(events, kind)}
        before: dict[str, str] = {}  # those that ended by an item before
        for item in command.args["items"] if command.function == "finish" else ():
            id = item["id"]
            if item["outcome"] == "wait" and id in _named(events, "released") and id not in ended:
                self.note_wait(item, before)
            if item["outcome"] == "advance" and id in _named(events, "advanced"):
                self.note_advance(item, before)
            before |= {id: ended[id]} if id in ended else {}

    def _came_back(self, id: str, kind: str) -> None:
        job = self.jobs[id]
        assert job.state == "running", f"{id} {kind}, and was {job.state}"
        job.stand()

    def _ended(self, id: str, state: str) -> None:
        job = self.jobs[id]
        assert job.state not in FINAL, f"{id} {state}, but it had {job.state}"
        assert state != "succeeded" or job.state == "running", f"{id} succeeded, but it was {job.state}"
        job.state, job.executor = state, ""
        is_kept = job.kept or state == "failed" or (state == "cancelled" and self.is_there(id))
        if is_kept or state == "succeeded":  # else nobody waited for it any more
            self._tell(id, FINAL[state])
        if not is_kept:
            del self.jobs[id]

    def _tell(self, id: str, letter: str) -> None:
        """Those that have ended hear nothing: they look again when they are retried."""
        for other in self.jobs.values():
            if other.id not in self._ended_before and (id in other.after or id in other.waits):
                other.hear(id, letter)
                if other.state in ("blocked", "pending"):
                    other.stand()

    def _begun_again(self, id: str) -> None:
        job = self.jobs[id]
        assert job.state in FINAL, f"{id} is tried again, but was {job.state}"
        job.retries, job.waits, job.deadline = job.retries + 1, {}, None
        self._look_again(job)
        job.stand()
        self._ended_before.discard(id)
        self._tell(id, "-")

    def _claimed(self, id: str, executor: str) -> None:
        job = self.jobs[id]
        assert job.state == "pending", f"{id} starts, but is {job.state}; it waits for {job.missing}"
        assert job.queue not in self.paused, f"{id} starts, but {job.queue} is paused"
        assert job.deadline is None or self.now() < job.deadline, f"{id} starts after its deadline"
        job.state, job.executor, job.attempt = "running", executor, job.attempt + 1
        running = self.running()
        most = self.concurrency.get(job.queue)
        count = sum(other.queue == job.queue for other in running)
        assert most is None or count <= most, f"{id} is one too many in {job.queue}"
        for full in job.limits:
            slots, per = self.limits.get(full.partition(":")[0], (0, 0))
            count = sum(full in other.limits for other in running)
            assert not slots or per or count <= slots, f"{id} is one too many of {full}"

    def completed(self, id: str, attempt: int) -> None:
        """An executor heard that its success was accepted. It may hear that again."""
        job = self.jobs.get(id)
        if job:
            job.completions.add(attempt)
            assert len(job.completions) <= 1 + job.retries, f"{id} ran to completion twice: {job.completions}"

    # What the store says.

    def compare(self, found: Iterable[dict[str, Any]]) -> None:
        """All jobs are as the watch thinks. Whom a job waits for is compared while it does."""
        records = {record["id"]: record for record in found}
        assert set(records) == set(self.jobs), set(records) ^ set(self.jobs)
        for id, job in self.jobs.items():
            record = records[id]
            state = "pending" if record["state"] in ("scheduled", "waiting", "throttled") else record["state"]
            assert (state, record["queue"], record["attempt"]) == (job.state, job.queue, job.attempt), (record, job)
            assert record["executor"] == job.executor or state != "running", (record, job)
            assert state != "blocked" or record["waits_for"] == len(job.missing), (record, job)

    def compare_after(self, record: dict[str, Any]) -> None:
        """A job waits for what it was told to, in that order, and knows how these ended; what is gone it may forget."""
        job = self.jobs[record["id"]]
        found = [(id.decode(), word.decode()) for id, word, *_ in record["after"] if id.decode() in self.jobs]
        wanted = [(id, WORD_OF[letter]) for id, letter in job.after.items() if id in self.jobs]
        assert [id for id, _ in found] == [id for id, _ in wanted], (record["id"], found, wanted)
        assert found == wanted or job.state != "blocked", (record["id"], found, wanted)

    def dependents(self) -> dict[str, set[str]]:
        """Those that wait for a job, by job."""
        found: dict[str, set[str]] = {}
        for job in self.jobs.values():
            for id in job.missing if job.state == "blocked" else ():
                found.setdefault(id, set()).add(job.id)
        return {id: waiting for id, waiting in found.items() if id in self.jobs}

    def all_dependents(self, ids: Iterable[str]) -> set[str]:
        """Those that wait for jobs, directly or not."""
        found, left, direct = set(ids), list(ids), self.dependents()
        while left:
            new = direct.get(left.pop(), set()) - found
            found |= new
            left += new
        return found - set(ids)


def _named(events: Sequence[Event], kind: str) -> list[str]:
    return [id for name, ids, _ in events for id in ids if name == kind]
