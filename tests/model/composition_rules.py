"""Random commands that relate jobs to each other: dependencies, limits, shares, moves."""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from holdfast.store import commands
from holdfast.store.commands import Finish
from tests.model import strategies
from tests.model.failure_rules import Failing
from tests.model.job import STATES
from tests.model.strategies import EXECUTORS, IDS, QUEUES
from tests.support.new_job import NewJob


class Composition(Failing):
    def draw_some(self, data: st.DataObject, states: tuple[str, ...], *, most: int = 3) -> list[str]:
        """Draw ids without repetition, mostly; of jobs in these states, mostly."""
        fitting = [job.id for job in self.model.jobs.values() if job.state in states] or IDS
        one = st.sampled_from([fitting] * 14 + [IDS]).flatmap(st.sampled_from)
        return data.draw(st.lists(one, max_size=most, unique=True) | st.lists(one, max_size=most), label="ids")

    @rule(
        data=st.data(),
        jobs=st.lists(strategies.new_jobs, min_size=1, max_size=4, unique_by=lambda job: job.id),
        on_exists=st.sampled_from(["return", "return", "return", "replace"]),
        fault=strategies.faults,
    )
    def enqueue_linked(self, data: st.DataObject, jobs: list[NewJob], on_exists: str, fault: str) -> None:
        """Jobs that wait for each other, and for others."""
        linked = [msgspec.structs.replace(job, **self.draw_links(data, jobs[:place])) for place, job in enumerate(jobs)]
        self.send_enqueue(linked[:: data.draw(st.sampled_from([1, -1]), label="order")], on_exists, fault)

    def draw_links(self, data: st.DataObject, before: list[NewJob]) -> dict[str, Any]:
        """Draw those that a job waits for: mostly such that are there and do not wait for it, seldom any."""
        known = [*self.model.jobs, *[job.id for job in before] * 3] or IDS
        one = st.sampled_from([known] * 9 + [IDS]).flatmap(st.sampled_from)
        after = data.draw(st.lists(one, max_size=3, unique=True), label="after")
        deadline_at = data.draw(st.sampled_from([None] * 8 + [-1, 0, 40_000]), label="start by")
        return {
            "after": tuple(after) or None,
            "on_failed": data.draw(st.none() | strategies.policies, label="on_failed"),
            "deadline_at": None if deadline_at is None else self.now + deadline_at,
        }

    @rule(data=st.data(), on_failed=st.none() | strategies.policies, fault=strategies.faults)
    def depend(self, data: st.DataObject, on_failed: str | None, fault: str) -> None:
        [id, *_] = self.draw_ids(data, STATES[:4])
        add, remove = self.draw_some(data, STATES), self.draw_some(data, STATES, most=2)
        self.send(
            commands.depend(id, add=add, remove=remove, on_failed=on_failed),
            lambda: self.model.dependencies.depend(id, add, remove, on_failed, self.now),
            tuple,
            fault,
        )

    def awaited(self) -> list[str]:
        """Those that others wait for; mostly such that have ended, and hold them up."""
        awaited = [job for job in self.model.jobs.values() if self.model.dependencies.line(job.id)]
        return [job.id for job in awaited for _ in range(5 if job.state in STATES[5:] else 1)]

    @rule(data=st.data(), reason=strategies.reasons, fault=strategies.faults)
    def cancel_with_dependents(self, data: st.DataObject, reason: str, fault: str) -> None:
        ids = data.draw(st.sampled_from(self.awaited() or IDS).map(lambda id: [id]), label="id")
        if data.draw(st.booleans(), label="others too"):
            ids += self.draw_ids(data, STATES)
        how = data.draw(st.sampled_from(["dependents", "unless_awaited"]), label="how")
        ids += self.draw_some(data, ("blocked",)) if how == "unless_awaited" else []
        command = commands.cancel(ids, reason=reason, **{how: True})
        self.send(command, lambda: self.model.cancel(ids, reason, self.now, **{how: True}), list, fault)

    @rule(
        name=st.sampled_from(["api", "api", "db"]),
        slots=st.sampled_from([0, 1, 1, 2, 5]),
        per=st.sampled_from([0, 0, 60_000, 600_000]),
        ttl=st.sampled_from([None, None, 1000, 90_000]),
        fault=strategies.faults,
    )
    def limit_or_unlimit(self, name: str, slots: int, per: int, ttl: int | None, fault: str) -> None:
        self.send_limit(name, slots, per, fault, ttl)

    @rule(
        name=st.sampled_from(["api", "api", "db"]),
        slots=st.sampled_from([0, 1, 1, 2, 5]),
        per=st.sampled_from([0, 0, 60_000]),
        revision=st.sampled_from([0, 1, 1, 2]),
        fault=strategies.faults,
    )
    def declare_or_reset_limit(self, name: str, slots: int, per: int, revision: int, fault: str) -> None:
        limits = self.model.limits
        if slots:
            command = commands.declare_limit(name, slots, per=per, revision=revision)
            self.send(command, lambda: limits.declare(name, slots, per, revision, self.now), str, fault)
        else:
            self.send(commands.reset_limit(name), lambda: limits.reset(name, self.now), bool, fault)

    @rule(data=st.data(), fault=strategies.faults)
    def release_slot(self, data: st.DataObject, fault: str) -> None:
        """Of a job that holds it, mostly."""
        limits = self.model.limits
        held = [(full, id) for full, ids in sorted(limits.holders.items()) for id in sorted(ids)]
        never = [(full, id) for full in strategies.LIMITS for id in IDS[:2]]
        full, id = data.draw(st.sampled_from([pool for pool in [held] * 9 + [never] if pool]).flatmap(st.sampled_from))
        self.send(commands.release_slot(full, id), lambda: limits.release_slot(full, id, self.now), bool, fault)

    @precondition(lambda self: bool(self.model.limits.expiries()))
    @rule(late=st.sampled_from([0, 1, 999]), executor=st.sampled_from(EXECUTORS))
    def a_limit_expires(self, late: int, executor: str) -> None:
        self.time_passes(max(0, min(self.model.limits.expiries().values()) - self.now) + late)
        counter = self.requests.get(executor, {"counter": 0})["counter"] + 1
        self.requests[executor] = commands.claim_args(QUEUES, counter=counter, limit=2)
        self.send_claim(executor, self.requests[executor], "none")

    def send_limit(self, name: str, slots: int, per: int, fault: str, ttl: int | None = None) -> None:
        if slots:
            command = commands.set_limit(name, slots, per=per, ttl=ttl)
            self.send(command, lambda: self.model.limits.limit(name, slots, per, ttl, self.now), bool, fault)
        else:
            self.send(commands.remove_limit(name), lambda: self.model.limits.unlimit(name, self.now), bool, fault)

    @rule(
        queue=strategies.queue_names,
        share=st.sampled_from(strategies.SHARES),
        weight=st.sampled_from([1, 2, 3, 100]),
        fault=strategies.faults,
    )
    def weigh(self, queue: str, share: str, weight: int, fault: str) -> None:
        command = commands.set_share_weight(queue, share, weight)
        self.send(command, lambda: self.model.shares.weigh(queue, share, weight), lambda reply: reply, fault)

    @rule(
        data=st.data(),
        queue=st.none() | strategies.queue_names,
        priority=st.sampled_from([None, -1, 0, 1]),
        tags=st.sampled_from([None, None, []]) | strategies.tags,
        fault=strategies.faults,
    )
    def move(
        self, data: st.DataObject, queue: str | None, priority: int | None, tags: list[str] | None, fault: str
    ) -> None:
        ids = self.draw_ids(data, STATES[:5])
        if queue or priority is not None:
            command = commands.move(ids, queue=queue, priority=priority, tags=tags)
            operators = self.model.operators
            move = partial(operators.move, queue=queue, priority=priority, tags=tags)
            self.send(command, lambda: operators.each(ids, move, self.now), list, fault)

    @rule(data=st.data(), delay=st.sampled_from([0, 2000]), reason=strategies.reasons, fault=strategies.faults)
    def release_or_fail(self, data: st.DataObject, delay: int, reason: str, fault: str) -> None:
        operators, is_release = self.model.operators, data.draw(st.booleans(), label="release")
        ids = self.draw_ids(data, STATES[4:5] if is_release else STATES[:5])
        if is_release:
            command = commands.release(ids, delay=delay, reason=reason)
            change = partial(operators.release, delay=delay, reason=reason)
        else:
            group = data.draw(st.sampled_from([None, "bad"]), label="group")
            command = commands.fail(ids, group=group, reason=reason)
            change = partial(operators.fail, group=group, reason=reason)
        self.send(command, lambda: operators.each(ids, change, self.now), list, fault)

    @rule(data=st.data(), jobs=st.lists(strategies.plain_jobs, min_size=3, max_size=5, unique_by=lambda job: job.id))
    def link_and_work(self, data: st.DataObject, jobs: list[NewJob]) -> None:
        """Some jobs, and the last ones wait for them; most end."""
        first = tuple(job.id for job in jobs[:2])
        links = {"after": first, "on_failed": data.draw(strategies.policies, label="on_failed")}
        self.send_enqueue([*jobs[:2], *(msgspec.structs.replace(job, **links) for job in jobs[2:])], "return", "none")
        self.work_off(data)

    @rule(
        data=st.data(),
        jobs=st.lists(strategies.plain_jobs, min_size=2, max_size=4, unique_by=lambda job: job.id),
        full=st.sampled_from(strategies.LIMITS),
    )
    def limit_and_work(self, data: st.DataObject, jobs: list[NewJob], full: str) -> None:
        """Some jobs that cannot all run at once, because of a limit or because of their queue."""
        if data.draw(st.sampled_from([True, True, False]), label="by a limit"):
            jobs = [msgspec.structs.replace(job, limits=(full,)) for job in jobs]
            self.send_limit(full.partition(":")[0], 1, data.draw(st.sampled_from([0, 0, 60_000]), label="per"), "none")
        else:
            self.send_configure(None, {"concurrency": data.draw(st.integers(0, 2), label="concurrency")}, [], "none")
        self.send_enqueue(jobs, "return", "none")
        self.work_off(data)

    @rule(
        data=st.data(),
        jobs=st.lists(strategies.plain_jobs, min_size=3, max_size=4, unique_by=lambda job: job.id),
        full=st.sampled_from(strategies.LIMITS),
    )
    def release_a_slot_and_work(self, data: st.DataObject, jobs: list[NewJob], full: str) -> None:
        """Some jobs of which one runs; it loses its slot, and the next has it."""
        self.send_limit(full.partition(":")[0], 1, 0, "none")
        self.send_enqueue([msgspec.structs.replace(job, limits=(full,)) for job in jobs], "return", "none")
        executor = data.draw(st.sampled_from(EXECUTORS), label="executor")
        counter = self.requests.get(executor, {"counter": 0})["counter"] + 1
        self.requests[executor] = commands.claim_args(QUEUES, counter=counter, limit=5)
        self.send_claim(executor, self.requests[executor], "none")
        for id in sorted(self.model.limits.holders.get(full, ())):
            release = partial(self.model.limits.release_slot, full, id, self.now)
            self.send(commands.release_slot(full, id), release, bool, "none")
        self.work_off(data)

    def work_off(self, data: st.DataObject) -> None:
        """An executor claims what there is, and ends it."""
        executor = data.draw(st.sampled_from(EXECUTORS), label="executor")
        for _ in range(data.draw(st.integers(1, 3), label="rounds")):
            counter = self.requests.get(executor, {"counter": 0})["counter"] + 1
            self.requests[executor] = commands.claim_args(QUEUES, counter=counter, limit=5)
            self.send_claim(executor, self.requests[executor], "none")
            items = [
                Finish(job.id, job.attempt, data.draw(strategies.endings)) for job in self.model.held(executor)[:3]
            ]
            self.send_finish(executor, items, None, "none")
