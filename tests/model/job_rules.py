"""The random commands of the model test, one rule each, for jobs, workers and settings.

What jobs have to do with each other is in `model_compose.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from holdfast.job.outcome import Outcome
from holdfast.names import new_id
from holdfast.store import commands
from holdfast.store.commands import Command, Finish, Lease, Started
from tests.model import strategies
from tests.model.core import worker_of
from tests.model.job import STATES
from tests.model.machine import NAMESPACE, Expected, Machine, normal_renewal
from tests.model.strategies import BACK, DETACHED, EXECUTORS, IDS, LEAPS, QUEUES, STEPS, WORKERS
from tests.support.new_job import NewJob


class Rules(Machine):
    @initialize(
        jobs=st.lists(strategies.new_jobs, min_size=2, max_size=8, unique_by=lambda job: job.id),
        values=st.just({}) | strategies.settings_set,
        has_many=st.sampled_from([False] * 5 + [True]),
    )
    def fill(self, jobs: list[NewJob], values: dict[str, int], has_many: bool) -> None:
        self.send_enqueue(jobs, "return", "none")
        self.send_configure(None, values, [], "none")
        if has_many:
            self.known_ids.add("many")

    @rule(
        jobs=st.sampled_from(
            [strategies.distinct_jobs] * 4 + [st.lists(strategies.new_jobs, min_size=2, max_size=9)]
        ).flatmap(lambda jobs: jobs),
        due=st.none() | st.sampled_from([-1000, 0, 1, 5000]),
        on_exists=st.sampled_from(["return", "return", "replace", "error"]),
        fault=strategies.faults,
    )
    def enqueue(self, jobs: list[NewJob], due: int | None, on_exists: str, fault: str) -> None:
        if due is not None:
            jobs = [msgspec.structs.replace(job, delay=None, at=self.now + due) for job in jobs]
        self.send_enqueue(jobs, on_exists, fault)

    @precondition(lambda self: "many" in self.known_ids)
    @rule(
        count=st.integers(98, 130),
        delay=st.sampled_from([0, 1000]),
        budget=strategies.small,
        limits=st.sampled_from([None, ("api",)]),
    )
    def enqueue_more_than_a_call_advances(
        self, count: int, delay: int, budget: int | None, limits: tuple[str, ...] | None
    ) -> None:
        names = [f"many{number:03}" for number in range(count)]
        self.known_ids.remove("many")
        self.known_ids.update(names)
        one = NewJob(
            id="", payload=b"", queue="mail", task="send", delay=delay, lost=budget, retries=budget, limits=limits
        )
        self.send_enqueue([msgspec.structs.replace(one, id=name) for name in names], "return", "none")

    @precondition(lambda self: len(self.known_ids) < len(IDS) + 6)
    @rule(jobs=st.lists(strategies.new_jobs, min_size=1, max_size=2), fault=strategies.faults)
    def enqueue_fresh(self, jobs: list[NewJob], fault: str) -> None:
        names = [f"fresh{len(self.known_ids) + place}" for place in range(len(jobs))]
        self.known_ids.update(names)
        jobs = [msgspec.structs.replace(job, id=name) for job, name in zip(jobs, names, strict=True)]
        self.send_enqueue(jobs, "return", fault, fresh=True)

    def send_enqueue(self, jobs: Sequence[NewJob], on_exists: str, fault: str, *, fresh: bool = False) -> None:
        command = commands.enqueue(jobs, on_exists=on_exists, fresh=fresh)
        self.send(command, lambda: self.model.enqueue(jobs, on_exists, self.now, fresh=fresh), tuple, fault)

    @precondition(lambda self: bool(self.sent))
    @rule(data=st.data())
    def a_command_with_a_token_comes_again(self, data: st.DataObject) -> None:
        place = data.draw(st.integers(1, min(5, len(self.sent))), label="so many before")
        self.send(*self.sent[-place], "none")

    @rule(data=st.data(), executor=st.sampled_from(EXECUTORS), fault=strategies.faults)
    def claim(self, data: st.DataObject, executor: str, fault: str) -> None:
        self.send_claim(executor, self.next_request(data, executor), fault)

    @precondition(lambda self: bool(self.requests))
    @rule(data=st.data(), older=st.sampled_from([0, 0, 0, 1]))
    def claim_again_as_before(self, data: st.DataObject, older: int) -> None:
        executor = data.draw(st.sampled_from(sorted(self.requests)))
        request = self.requests[executor]
        self.send_claim(executor, {**request, "counter": max(1, request["counter"] - older)}, "none")

    def send_claim(self, executor: str, request: dict[str, Any], fault: str) -> None:
        self.send(
            commands.claim(executor, request),
            lambda: self.model.claim(executor, request, self.now),
            lambda reply: self.read_claim(executor, reply),
            fault,
        )

    def read_claim(self, executor: str, claim: commands.ClaimReply) -> tuple[int, list[commands.ClaimedJob]]:
        assert claim.wake_key.decode() == f"hf:{{{NAMESPACE}}}:wake:{executor}"
        return claim.wait, claim.jobs

    @rule(data=st.data(), worker=st.sampled_from(WORKERS), fault=strategies.faults)
    def renew(self, data: st.DataObject, worker: str, fault: str) -> None:
        executors = [executor for executor in EXECUTORS if worker_of(executor) == worker]
        if not data.draw(st.sampled_from([True, True, False]), label="all executors"):
            executors = executors[:1]
        if data.draw(st.booleans(), label="all held"):
            held = [self.model.lease(job) for executor in executors for job in self.model.held(executor)]
        else:
            held = [Lease(executor, *lease) for executor in executors for lease in self.draw_leases(data, executor)]
        said: dict[str, Any] = {
            "executors": executors,
            "started": [Started(*one, 4711, 25) for one in held[:2] if data.draw(st.booleans(), label="started")],
            "about": data.draw(st.sampled_from([None, "", "a worker"]), label="about"),
            "queues": data.draw(st.none() | strategies.served_lists, label="queues"),
        }
        self.send_renew(worker, held, said, fault)

    def send_renew(self, worker: str, held: list[Lease], said: dict[str, Any], fault: str) -> None:
        self.send(
            commands.renew(worker, held, **said, refills=5),
            lambda: (
                normal_renewal(*self.model.renew(worker, held, self.now, **said)),
                {*self.model.schedules.wanting},
            ),
            lambda reply: (normal_renewal(*reply[2:5]), {*reply.refills}),
            fault,
        )

    @precondition(lambda self: self.is_busy)
    @rule(step=st.sampled_from([450, 9000, 14_000, 25_000]))
    def leases_end_in_silence(self, step: int) -> None:
        """The store is there all the time, and nobody renews."""
        said: dict[str, Any] = {"executors": [], "started": [], "about": None, "queues": None}
        for _ in range(3):
            self.time_passes(step)
            self.send_renew("n1/other", [], said, "none")

    @precondition(lambda self: self.is_busy)
    @rule(data=st.data(), checkpoint=st.none() | strategies.blobs, fault=strategies.faults)
    def save(self, data: st.DataObject, checkpoint: bytes | None, fault: str) -> None:
        executor = self.draw_executor(data)
        held = Lease(executor, *self.draw_leases(data, executor)[0])
        said: dict[str, Any] = {
            "progress": data.draw(st.sampled_from([None, "", "50 %", "x" * 100]), label="progress"),
            "notes": data.draw(strategies.notes, label="notes"),
            "created": self.draw_created(data, held.id),
            "renew": data.draw(st.booleans(), label="renew"),
        }
        command = commands.save(held, checkpoint, **said)
        self.send(command, lambda: self.model.save(held, checkpoint, self.now, **said), bool, fault)

    @precondition(lambda self: self.is_busy)
    @rule(data=st.data(), fields=strategies.fields, fault=strategies.faults)
    def attach_from_inside(self, data: st.DataObject, fields: tuple[dict[str, str], list[str]], fault: str) -> None:
        executor = self.draw_executor(data)
        held = Lease(executor, *self.draw_leases(data, executor)[0])
        said: dict[str, Any] = {"remove": fields[1], "created": self.draw_created(data, held.id)}
        command = commands.attach_held(held, fields[0], **said)
        self.send(command, lambda: self.model.attach_held(held, fields[0], **said), tuple, fault)

    @precondition(lambda self: self.is_busy)
    @rule(data=st.data(), to=st.sampled_from(DETACHED), fault=strategies.faults)
    def detach(self, data: st.DataObject, to: str, fault: str) -> None:
        executor = self.draw_executor(data)
        held = Lease(executor, *self.draw_leases(data, executor)[0])
        created = self.draw_created(data, held.id)
        command = commands.detach(held, to, created=created)
        self.send(command, lambda: self.model.detach(held, to, self.now, created=created), bool, fault)

    @precondition(lambda self: self.is_busy)
    @rule(data=st.data(), outcome=strategies.outcomes)
    def write_without_the_right_to(self, data: st.DataObject, outcome: Outcome) -> None:
        """Another executor, or one that had an attempt before."""
        job = data.draw(st.sampled_from([job for job in self.model.jobs.values() if job.state == "running"]))
        former = [(run.executor, run.number) for run in job.attempts[:-1]] + [(job.run.executor, job.attempt + 1)]
        others = [(executor, job.attempt) for executor in EXECUTORS if executor != job.run.executor]
        executor, attempt = data.draw(st.sampled_from(former * 3 + others), label="who")
        held = Lease(executor, job.id, attempt)
        self.send(commands.save(held, b"x"), lambda: self.model.save(held, b"x", self.now), bool, "none")
        self.send_finish(executor, [Finish(job.id, attempt, outcome)], None, "none")
        said: dict[str, Any] = {"executors": [executor], "started": [], "about": None, "queues": None}
        self.send_renew(worker_of(executor), [held], said, "none")

    def draw_created(self, data: st.DataObject, id: str) -> int | None:
        """When a job was created: as it was, mostly; or not said; or of another job that had its id before."""
        job = self.model.jobs.get(id)
        return data.draw(st.sampled_from([job.created if job else 0] * 3 + [None, 1]), label="created")

    @precondition(lambda self: self.is_busy)
    @rule(data=st.data(), claims=st.booleans(), fault=strategies.faults)
    def finish(self, data: st.DataObject, claims: bool, fault: str) -> None:
        executor = self.draw_executor(data)
        items = [
            Finish(
                *lease,
                data.draw(strategies.outcomes, label="outcome"),
                pid=data.draw(st.sampled_from([None, 88]), label="pid"),
                started=data.draw(st.sampled_from([None, 0, 12]), label="started"),
                created=self.draw_created(data, lease[0]),
                unstarted=data.draw(st.booleans(), label="unstarted"),
            )
            for lease in self.draw_leases(data, executor)
        ]
        request = self.next_request(data, executor) if claims else None
        token = data.draw(st.sampled_from([None, new_id()]), label="token")
        self.send_finish(executor, items, request, fault, token=token)

    def send_finish(
        self,
        executor: str,
        items: list[Finish],
        request: dict[str, Any] | None,
        fault: str,
        *,
        token: str | None = None,
    ) -> None:
        self.send(
            commands.finish(executor, items, request=request, token=token),
            lambda: (
                self.model.finish(executor, items, self.now, token=token),
                self.model.claim(executor, request, self.now) if request else (0, []),
            ),
            lambda reply: (reply.answers, self.read_claim(executor, reply.claim) if request else (0, [])),
            fault,
        )

    @rule(
        data=st.data(), before=st.sampled_from(STEPS), meanwhile=st.sampled_from([0, 1, 400]), fault=strategies.faults
    )
    def work(self, data: st.DataObject, before: int, meanwhile: int, fault: str) -> None:
        """What an executor does all day: claim jobs, save, and end most of them."""
        executor = data.draw(st.sampled_from(EXECUTORS), label="executor")
        self.time_passes(before)
        self.send_claim(executor, self.next_request(data, executor), fault)
        self.time_passes(meanwhile)
        held = [self.model.lease(job) for job in self.model.held(executor)]
        for lease in held[:1] + held[:2]:
            checkpoint = data.draw(strategies.blobs, label="checkpoint")
            expected = partial(self.model.save, lease, checkpoint, self.now)
            self.send(commands.save(lease, checkpoint), expected, bool, "none")
        kept = data.draw(st.sampled_from([0, 0, 1, 2]), label="kept")
        items = [Finish(*lease[1:], data.draw(strategies.outcomes, label="outcome")) for lease in held[kept:9]]
        self.send_finish(executor, items, None, fault)

    @rule(data=st.data(), jobs=st.lists(strategies.new_jobs, min_size=1, max_size=3), outcome=strategies.outcomes)
    def enqueue_and_work(self, data: st.DataObject, jobs: list[NewJob], outcome: Outcome) -> None:
        """Jobs come, and end at once."""
        executor = data.draw(st.sampled_from(EXECUTORS), label="executor")
        self.send_enqueue(jobs, data.draw(st.sampled_from(["return", "replace"]), label="on_exists"), "none")
        self.send_claim(executor, self.next_request(data, executor), "none")
        items = [Finish(job.id, job.attempt, outcome, unstarted=True) for job in self.model.held(executor)]
        self.send_finish(executor, items, None, "none")

    @rule(dead=st.sampled_from([*EXECUTORS, *DETACHED, *WORKERS]), reason=strategies.reasons, fault=strategies.faults)
    def lose(self, dead: str, reason: str, fault: str) -> None:
        who = {"executor": None, "worker": None} | {"executor" if dead in EXECUTORS + DETACHED else "worker": dead}
        order = self.order_of_holds()
        self.send(
            commands.requeue_orphaned(**who, reason=reason),
            lambda: sorted(self.model.lose(**who, reason=reason, now=self.now, order=order)),
            sorted,
            fault,
        )

    @rule(data=st.data(), fault=strategies.faults)
    def cancel_retry_or_delete(self, data: st.DataObject, fault: str) -> None:
        has_ended = any(job.state in STATES[5:] for job in self.model.jobs.values())
        verb = data.draw(st.sampled_from(["cancel"] + ["retry", "retry", "delete"] * has_ended), label="verb")
        ids = self.draw_ids(data, STATES[:5] if verb == "cancel" else STATES[5:])
        reason = data.draw(strategies.reasons, label="reason") if verb == "cancel" else ""
        force = verb == "retry" and data.draw(st.booleans(), label="force")
        queue = data.draw(st.none() | strategies.queue_names, label="to") if verb == "retry" else None
        command, expected = {
            "cancel": (commands.cancel(ids, reason=reason), lambda: self.model.cancel(ids, reason, self.now)),
            "retry": (
                commands.retry(ids, force=force, queue=queue),
                lambda: self.model.retry(ids, self.now, force=force, queue=queue),
            ),
            "delete": (commands.delete(ids), lambda: self.model.delete(ids)),
        }[verb]
        self.send(command, expected, list, fault)

    @rule(data=st.data(), queue=strategies.queue_names, worker=st.sampled_from(WORKERS), fault=strategies.faults)
    def do_something_on_the_side(self, data: st.DataObject, queue: str, worker: str, fault: str) -> None:
        queue = min(self.model.paused, default=queue)
        ids = self.draw_ids(data, STATES)
        words, inbox = (
            data.draw(strategies.words, label="words"),
            data.draw(st.sampled_from(["me", "you"]), label="inbox"),
        )
        fields, gone = data.draw(strategies.fields, label="fields")
        acts: list[tuple[Command[Any], Expected]] = [
            (commands.pause(queue), lambda: self.model.pause(queue)),
            (commands.resume(queue), lambda: self.model.resume(queue)),
            (commands.forget_queue(queue), lambda: self.model.forget(queue)),
            (commands.deregister(worker), lambda: self.model.deregister(worker, self.now)),
            (commands.note(ids[0], words), lambda: self.model.note(ids[0], words, self.now)),
            (commands.attach(ids[0], fields, remove=gone), lambda: dict(self.model.attach(ids[0], fields, gone))),
            (commands.add_waiter(ids, inbox), lambda: self.model.add_waiter(ids, inbox)),
        ]
        command, expected = acts[data.draw(st.integers(0, len(acts) - 1), label="act")]
        self.send(command, expected, lambda reply: getattr(reply, "states", reply), fault)

    @rule(
        queue=st.none() | strategies.queue_names,
        values=strategies.settings_set,
        reset=st.just([]) | st.lists(strategies.setting_names, max_size=3),
        fault=strategies.faults,
    )
    def configure(self, queue: str | None, values: dict[str, int], reset: list[str], fault: str) -> None:
        self.send_configure(queue, values, reset, fault)

    @precondition(lambda self: bool(self.model.settings))
    @rule(data=st.data(), fault=strategies.faults)
    def configure_as_before(self, data: st.DataObject, fault: str) -> None:
        queue, name = data.draw(st.sampled_from(list(self.model.settings)))
        everything = [name for other, name in self.model.settings if other == queue]
        self.send_configure(queue, {}, data.draw(st.sampled_from([[name], everything])), fault)

    def send_configure(self, queue: str | None, values: dict[str, int], reset: list[str], fault: str) -> None:
        self.least_history = min(self.least_history, values.get("history", 100))
        self.send(
            commands.configure(queue, set=values, reset=reset),
            lambda: self.model.configure(queue, values, reset),
            lambda rows: {row.name: (row.value, row.source) for row in rows},
            fault,
        )

    @rule(limit=st.integers(1, 3))
    def list_a_page_now_and_the_next_later(self, limit: int) -> None:
        cursor: str | None = None
        wanted = self.model.listing(QUEUES, None)
        if self.cursor:
            cursor, place = self.cursor
            wanted = self.model.behind(place, QUEUES)
        ids, cursor = self.read_page(limit, cursor, newest=False)
        assert ids == [job.id for job in wanted[:limit]]
        self.cursor = (cursor, self.model.place_of(wanted[limit - 1], QUEUES)) if cursor else None

    @rule(limit=st.integers(1, 3))
    def list_the_newest_now_and_the_next_later(self, limit: int) -> None:
        cursor, behind = self.newest_cursor or (None, {})
        wanted = self.model.newest(QUEUES, None, behind)[:limit]
        ids, cursor = self.read_page(limit, cursor, newest=True)
        assert ids == [job.id for job in wanted]
        self.newest_cursor = (cursor, behind | {job.state: job.order() for job in wanted}) if cursor else None

    def read_page(self, limit: int, cursor: str | None, *, newest: bool) -> tuple[list[str], str | None]:
        """Read on until there are enough: a call may return fewer."""
        ids: list[str] = []
        while True:
            command = commands.list_jobs(queues=QUEUES, limit=limit - len(ids), newest=newest, cursor=cursor)
            jobs, cursor, _ = self.store.run(command)
            ids += [job["id"] for job in jobs]
            if cursor is None or len(ids) == limit:
                return ids, cursor

    @rule(milliseconds=st.sampled_from([*STEPS, *STEPS, *LEAPS, *BACK]))
    def time_passes(self, milliseconds: int) -> None:
        self.clock.now += milliseconds
