"""A store with simulated executors, a watch, and faults: calls that run twice, or again later."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any, TypeVar

import redis

from holdfast import errors
from holdfast.store import commands
from holdfast.store.commands import ClaimedJob, ClaimReply, Command, FinishReply, OperationReply
from holdfast.store.store import Store
from tests.conftest import TestClock
from tests.model.graph_watch import Watch
from tests.support.new_job import NewJob

T = TypeVar("T")


@dataclass
class Executor:
    """What an executor knows: the jobs of the claims whose reply it heard."""

    name: str
    counter: int = 0
    held: dict[str, ClaimedJob] = field(default_factory=dict)
    unheard: Command[Any] | None = None  # its last call, of which it has had no reply

    @property
    def worker(self) -> str:
        return self.name.rpartition(".")[0]

    def hear(self, command: Command[Any], reply: ClaimReply | FinishReply) -> None:
        """Hear the reply to a call. What is refused as a cycle is held still."""
        self.unheard = None
        if isinstance(reply, FinishReply):
            for item, answer in zip(command.args["items"], reply.answers, strict=True):
                held = self.held.get(item["id"])
                if held and held.attempt == item["attempt"] and answer != "CYCLE":
                    del self.held[item["id"]]
            reply = reply.claim
        self.held |= {job.id: job for job in reply.jobs}

    def request(self, queues: list[str], limit: int) -> dict[str, Any]:
        self.counter += 1
        return commands.claim_args(queues, counter=self.counter, limit=limit)


class World:
    """A store with executors, operators and faults; every call passes through `say`."""

    def __init__(self, store: Store, clock: TestClock, client: redis.Redis, chance: random.Random) -> None:
        self.store, self.clock, self.client, self.chance = store, clock, client, chance
        self.namespace = store.address.namespace
        self.watch = Watch(clock, self._is_there, self._knows)
        self.log: list[str] = []
        self.has_faults = True
        self.executors: list[Executor] = []
        self.silent: set[str] = set()  # workers that do not renew
        self.said: list[tuple[Command[Any], Any]] = []  # by operators, with the replies
        self.numbers, self._last_event = count(), "-"
        for _ in range(3):
            self.hire()
        self._define()

    def _is_there(self, id: str) -> bool:
        return bool(self.client.exists(f"hf:{{{self.namespace}}}:j:{id}"))

    def _knows(self, id: str, other: str) -> bool:
        """Whether a job waits for, or waited for, another."""
        return bool(self.client.hexists(f"hf:{{{self.namespace}}}:a:{id}", other))

    def hire(self) -> None:
        worker = f"node/w{next(self.numbers)}"
        self.executors += [Executor(f"{worker}.{number}") for number in range(2)]

    def _define(self) -> None:
        for name, slots, per in (("gpu", 2, 0), ("tenant", 1, 0), ("api", 5, 1000)):
            self.set_limit(name, slots, per)
        self.watch.concurrency["narrow"] = 3
        self.say(commands.configure("narrow", set={"concurrency": 3}))
        self.say(commands.set_share_weight("shared", "x", 3))

    # Calls

    def say(self, command: Command[T]) -> T:
        """Carry a command out, now and then twice, and have the watch look at it."""
        reply = self._carry_out(command)
        if self.has_faults and self.chance.random() < 0.15:
            again = self._carry_out(command, again=True)
            if command.function in (
                "claim",
                "finish",
                "cancel",
                "retry",
                "move",
                "release",
                "fail",
                "depend",
                "continue_operation",
            ):
                assert _same(reply, again), f"{command.function} {command.args}: {reply}, and when repeated {again}"
            elif command.function not in ("enqueue", "set_limit", "remove_limit", "pause", "resume", "delete"):
                reply = again
        return reply

    def order(self, command: Command[Any]) -> None:
        """Carry out what an operator says. The reply may be lost, and the call come again later: see `repeat_order`."""
        self.said.append((command, self.say(command)))

    def repeat_order(self) -> None:
        """A call of an operator comes again, late: it gets the same answer, and nothing happens."""
        if self.said:
            command, reply = self.chance.choice(self.said[-20:])
            if not isinstance(reply, list) or not set(reply) <= {"STATE", "NOTFOUND", "EXISTS", "BLOCKED", "CYCLE"}:
                assert self._carry_out(command, again=True) == reply, f"{command}: not {reply}"
                assert self.log[-1].strip() == "[]", f"{command} was carried out twice"

    def _carry_out(self, command: Command[T], *, again: bool = False) -> T:
        try:
            reply = self.store.run(command)
        except errors.HoldfastError as error:
            self.log.append(f"{self.clock.now} {command.function} {command.args} -> {error}")
            assert self._read_events() == [], "what was refused had an effect"
            raise
        args = command.args
        self.log.append(f"{self.clock.now} {command.function} {args} -> {reply}")
        if not again:
            self._prepare(command, reply)
        events = self._read_events()
        verb = command.function
        if isinstance(reply, OperationReply):
            verb, to = reply.action, json.loads(reply.arguments).get("queue")
            moved = [id for kind, ids, _ in events for id in ids if kind == "moved" and to]
            self.watch.note_moves(moved, ["moved"] * len(moved), to)
        self.log.append(f"    {events}")
        self.watch.happened(command, events, verb)
        return reply

    def _prepare(self, command: Command[Any], reply: Any) -> None:
        """Tell the watch what was asked."""
        args = command.args
        if command.function == "depend":
            self.watch.depend(args)
        elif command.function == "move" and "queue" in args:
            self.watch.note_moves(args["ids"], reply, args["queue"])

    def _read_events(self) -> list[tuple[str, list[str], str]]:
        base = f"hf:{{{self.namespace}}}:events"
        found = self.client.xrange(base, self._last_event if self._last_event == "-" else f"({self._last_event}", "+")
        if found:
            self._last_event = found[-1][0].decode()
        return [(row[b"type"].decode(), row[b"jobs"].decode().split(), row[b"who"].decode()) for _, row in found]

    def set_limit(self, name: str, slots: int, per: int = 0) -> None:
        if slots:
            self.watch.limits[name] = slots, per
            self.say(commands.set_limit(name, slots, per=per or None))
        else:
            self.watch.limits.pop(name, None)
            self.say(commands.remove_limit(name))

    def enqueue(self, jobs: list[NewJob]) -> None:
        """Store jobs. Those to wait for that are gone already, because they are not kept, are left out."""
        here = {job.id for job in jobs} | set(self.watch.jobs)
        jobs = [_changed(job, tuple(id for id in job.after or () if id in here)) for job in jobs]
        for job in jobs:
            self.watch.add(job)
        for job in jobs:
            self.watch.jobs[job.id].stand()
        self.say(commands.enqueue(jobs))

    def records(self) -> Iterator[dict[str, Any]]:
        cursor = None
        while True:
            page = self.store.run(commands.list_jobs(limit=1000, cursor=cursor))
            yield from page.jobs
            cursor = page.cursor
            if cursor is None:
                return


def _same(one: Any, other: Any) -> bool:
    """Whether two replies say the same of jobs: how long to wait for more may differ."""
    if isinstance(one, ClaimReply):
        return bool(one.jobs == other.jobs)
    if isinstance(one, FinishReply):  # what is not kept is not known of the second time
        pairs = zip(one.answers, other.answers, strict=True)
        return all(b in (a, "LOST") for a, b in pairs) and _same(one.claim, other.claim)
    return bool(one == other)


def _changed(job: NewJob, after: tuple[str, ...]) -> NewJob:
    parts = {name: getattr(job, name) for name in NewJob.__struct_fields__}
    return NewJob(**{**parts, "after": after or None, "on_failed": job.on_failed if after else None})
