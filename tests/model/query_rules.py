"""Random queries: `list` and `count` with filters, against a predicate in plain Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import rule

from holdfast.store import commands
from holdfast.store.commands import Command
from tests.model.core import worker_of
from tests.model.filters import Filter, absolute, matches, sets
from tests.model.job import STATES
from tests.model.schedule_rules import Schedules
from tests.model.strategies import BATCHES, IDS, LONG_GROUP, QUEUES, SCOPES, TAGS, WORKERS

START = 1_700_000_000_000
FIELDS = ["id", "state", "queue", "task", "priority", "created", "since", "attempt", "cancelling", "group", "worker"]

times = st.sampled_from([-1, -400, -1000, -5000, -3_600_000, START, START + 1000, START + 60_000])
state_lists = st.sampled_from([list(STATES), list(STATES[:5]), list(STATES[5:]), ["waiting", "failed"], ["failed"], []])
filters: st.SearchStrategy[Filter] = st.fixed_dictionaries(
    {},
    optional={
        "states": state_lists | st.lists(st.sampled_from(STATES), min_size=1, max_size=3),
        "queues": st.lists(st.sampled_from([*QUEUES, "nowhere"]), max_size=3),
        "task": st.sampled_from(["send", "transcode.all", "other"]),
        "group": st.sampled_from(["bad", LONG_GROUP, "operator"]),
        "fingerprint": st.sampled_from(["0123456789abcdef", "fedcba9876543210"]),
        "tag": st.sampled_from(TAGS),
        "scope": st.sampled_from(SCOPES),
        "batch": st.sampled_from(BATCHES),
        "waits_for": st.sampled_from(IDS),
        "since": times,
        "until": times,
        "id_prefix": st.sampled_from(["", "a", "user:", "z" * 128, "A"]),
    },
)
workers = st.sampled_from(WORKERS)
MORE: list[Filter] = [{}, {}, {}, {"stalled": True}, {"stalled": True}, {"stalled": False}]  # not of operations


class Queries(Schedules):
    @rule(
        filter=filters,
        more=st.sampled_from(MORE) | st.builds(lambda worker: {"worker": worker}, workers),
        limit=st.integers(1, 7),
        newest=st.booleans(),
    )
    def find(self, filter: Filter, more: Filter, limit: int, newest: bool) -> None:
        """All jobs that match, each once, and in the order of the indexes; and how many they are."""
        given = {**filter, **more}
        model = self.model
        listing = model.newest if newest else model.listing
        queues, states = filter.get("queues"), filter.get("states")
        jobs = [] if [] in (queues, states) else listing(_distinct(queues), _distinct(states))
        wanted = [job.id for job in jobs if matches(model, job, given, self.now)]
        orders = [wanted]
        for members in sets(model, absolute({**filter, **more}, self.now)).values():
            own = [job.id for job in members if job.id in wanted]
            orders.append(own[::-1] if newest else own)

        found = self.walk(lambda cursor: commands.list_jobs(limit=limit, newest=newest, cursor=cursor, **given))
        ids = [fields["id"] for fields in found]
        rows = self.walk(lambda cursor: commands.list_rows(FIELDS, limit=limit, newest=newest, cursor=cursor, **given))
        assert ids == [row[0] for row in rows]
        if "worker" in more:
            ids, orders = sorted(ids), [sorted(wanted)]
        assert ids in orders, f"{given} finds {ids}, not any of {orders}"
        self.check_rows(rows)
        assert self.count(given) == len(wanted)

    def walk(self, page: Callable[[str | None], Command[Any]]) -> list[Any]:
        found: list[Any] = []
        cursor: str | None = None
        while True:
            reply = self.store.run(page(cursor))
            part = reply[0]
            assert len(part) <= reply.looked_at
            found += part
            cursor = reply.cursor
            if cursor is None:
                return found

    def count(self, given: Filter) -> int:
        total, cursor = 0, None
        while True:
            step = self.store.run(commands.count_step(cursor=cursor, **given))
            total, cursor = total + step.found, step.cursor
            if cursor is None:
                return total

    def check_rows(self, rows: list[list[Any]]) -> None:
        for row in rows:
            job = self.model.jobs[row[0]]
            new = job.new
            known = [job.id, job.state, new.queue, new.task, job.priority, job.created, job.since, job.attempt]
            assert row == [
                *known,
                int(job.cancelling),
                job.group,
                worker_of(job.run.executor) if job.attempt else "",
            ]


def _distinct(names: list[str] | None) -> list[str] | None:
    return None if names is None else list(dict.fromkeys(names))
