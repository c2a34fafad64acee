"""Bulk actions, as a model and as random commands: the rules at the head of `bulk.lua`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import rule

from holdfast.store import commands
from holdfast.store.commands import BulkReply
from tests.model.failures import clean
from tests.model.job import FINAL, STATES, Job
from tests.model.model import Model, Place
from tests.model.schedule_rules import Schedules
from tests.model.strategies import LONG_GROUP, QUEUES

ARGUMENTS: dict[str, dict[str, Any]] = {
    "cancel": {"reason": "because"},
    "retry": {},
    "delete": {},
    "move": {"queue": "mail", "priority": 1},
    "release": {"delay": 2000, "reason": ""},
    "fail": {"group": "bad", "reason": "because"},
    "tag": {"tags": ["b", "new"]},
    "untag": {"tags": ["a", "none"]},
    "track": {},
    "untrack": {},
    "count": {},
}


@dataclass
class Act:
    """One walk over jobs of some states, page by page."""

    model: Model
    action: str
    states: tuple[str, ...]
    task: str | None
    group: str | None
    limit: int
    since: int | None = None
    place: Place | None = None  # where the last page ended

    def page(self, now: int) -> BulkReply:
        """Act on the next jobs; the cursor is only whether there may be more."""
        model, since = self.model, min(now if self.since is None else self.since, now)
        jobs = model.listing(QUEUES, self.states)
        if self.place:
            behind = model.behind(self.place, QUEUES)
            jobs = [job for job in jobs if job in behind]
        page = jobs[: self.limit]
        place = model.place_of(page[-1], QUEUES) if page else None
        answers: Counter[str] = Counter()
        for job in page:
            if self._is_meant(job, since):
                answers[self._do(job.id, now)] += 1
                model.settle(now)
        model.was_idle = not answers or self.action == "count"
        self.since, self.place = since, place
        return BulkReply([] if len(page) == self.limit else None, since, len(page), dict(answers))

    def _is_meant(self, job: Job, since: int) -> bool:
        """What was done to those before may have ended it, or removed it."""
        is_there = self.model.jobs.get(job.id) is job and job.since <= since
        return is_there and self.task in (None, job.new.task) and (self.group is None or clean(self.group) == job.group)

    def _do(self, id: str, now: int) -> str:
        model, arguments = self.model, ARGUMENTS[self.action]
        actions: dict[str, Callable[[], str]] = {
            "cancel": lambda: model._cancel(id, now=now, **arguments),
            "retry": lambda: model._retry(id, now),
            "delete": lambda: model._delete(id),
            "tag": lambda: model.marks.tag(id, now=now, **arguments),
            "untag": lambda: model.marks.untag(id, **arguments),
            "track": lambda: model.marks.track(id, now),
            "untrack": lambda: model.marks.untrack(id),
            "count": lambda: "OK",
        }
        if self.action in actions:
            return actions[self.action]()
        job = model.jobs[id]
        return "STATE" if job.state in FINAL else str(getattr(model.operators, self.action)(job, now=now, **arguments))


class Acts(Schedules):
    @rule(
        action=st.sampled_from(sorted(ARGUMENTS)),
        states=st.sampled_from([STATES, STATES[:5], STATES[5:], ("waiting", "failed")]),
        task=st.sampled_from([None, None, "send"]),
        group=st.sampled_from([None, None, "bad", LONG_GROUP]),
        limit=st.integers(1, 5),
    )
    def act(self, action: str, states: tuple[str, ...], task: str | None, group: str | None, limit: int) -> None:
        act = Act(self.model, action, states, task, group, limit)
        cursor: list[str] | None = None
        for _ in range(4):
            replies: list[BulkReply] = []
            command = commands.bulk(
                action,
                queues=QUEUES,
                states=states,
                task=task,
                group=group,
                since=act.since,
                cursor=cursor,
                limit=limit,
                arguments=ARGUMENTS[action],
            )
            self.send(command, self.page_of(act), partial(normal, replies), "repeated" if limit == 2 else "none")
            cursor = replies[0].cursor
            if cursor is None:
                break

    def page_of(self, act: Act) -> Callable[[], BulkReply]:
        """A page that comes again begins where it began."""
        since, place = act.since, act.place

        def page() -> BulkReply:
            act.since, act.place = since, place
            return act.page(self.now)

        return page


def normal(replies: list[BulkReply], reply: BulkReply) -> BulkReply:
    replies.append(reply)
    return reply._replace(cursor=[] if reply.cursor else None)
