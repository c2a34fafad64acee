"""Random graphs of jobs: their shapes, and a world of executors and operators that mistreat them.

    world = World(store, clock, client, random.Random(seed))
    world.enqueue(shape("layers", world.chance))
    world.mistreat(steps)
    world.drain()

Executors are simulated: they are the store's commands, sent with the test's time. They crash, fall silent, lose leases
and replies; operators cancel, retry, move, release, fail and rewire meanwhile. `graph_watch` looks at each call.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any, TypeVar

import redis

from holdfast import commands, errors
from holdfast.commands import Claim, Claimed, Command, Finish, Finished, Held, NewJob
from holdfast.names import new_id
from holdfast.outcome import Advanced, Cancelled, Crash, Error, Outcome, Release, Snoozed, Succeed, Unknown, Waits
from holdfast.store import Store
from tests import invariants
from tests.conftest import TestClock
from tests.graph_watch import FINAL, Seen, Watch

T = TypeVar("T")
SIZE = 200
QUEUES = ["mail", "video", "shared", "narrow"]
LIMITS = [("gpu",), ("gpu", "tenant:a"), ("tenant:a",), ("tenant:b",), ("api",), ("api", "gpu")]
PATIENCE = 3000  # rounds of a drain
Edges = list[list[int]]  # for each job, in order, the places of those that it waits for


# Shapes


def layers(chance: random.Random) -> Edges:
    """Map and reduce, five times: one splits, thirty-two work, six gather, one ends, and the next begins there."""
    edges: Edges = []
    while len(edges) + 40 <= SIZE:
        first = len(edges)
        edges.append([first - 1] if first else [])
        edges += [[first]] * 32
        maps = range(first + 1, first + 33)
        edges += [chance.sample(maps, 8) for _ in range(6)]
        edges.append(list(range(first + 33, first + 39)))
    return edges


def chains(_: random.Random) -> Edges:
    return [[place - 1] if place % 10 else [] for place in range(SIZE)]


def diamonds(_: random.Random) -> Edges:
    edges: Edges = []
    for first in range(0, SIZE, 4):
        above = [first - 1] if first % 20 else []
        edges += [above, [first], [first], [first + 2, first + 1]]
    return edges


def fans(_: random.Random) -> Edges:
    """One releases all, all release one."""
    wide = SIZE // 2 - 2
    half: Edges = [[], *([0] for _ in range(wide)), list(range(1, wide + 1))]
    return half + [[place + len(half) for place in places] for places in half]


def tangle(chance: random.Random) -> Edges:
    """Any may wait for any that comes before it."""
    return [chance.sample(range(place), min(place, chance.choice([0, 1, 1, 2, 5]))) for place in range(SIZE)]


SHAPES: dict[str, Callable[[random.Random], Edges]] = {
    "layers": layers,
    "chains": chains,
    "diamonds": diamonds,
    "fans": fans,
    "tangle": tangle,
}


def plan(shape: str, chance: random.Random) -> list[NewJob]:
    """Jobs of a graph, each with options of its own."""
    return [
        _new(f"j{place}", tuple(f"j{other}" for other in others), chance)
        for place, others in enumerate(SHAPES[shape](chance))
    ]


def _new(id: str, after: tuple[str, ...], chance: random.Random) -> NewJob:
    queue = chance.choice(QUEUES)
    return NewJob(
        id=id,
        payload=b"[]",
        queue=queue,
        task="task",
        priority=chance.choice([None, None, -1, 3]),
        delay=chance.choice([None, None, None, 2000]),
        retries=chance.choice([0, 1, 2]),
        crashes=chance.choice([0, 1, None]),
        lost=chance.choice([1, None]),
        backoff=chance.choice([0, 1000]),
        unkept=chance.random() < 0.03 or None,
        once=chance.random() < 0.03 or None,
        deadline=60_000 if chance.random() < 0.05 else None,
        after=after or None,
        on_failed=chance.choice([None, "block", "cancel", "run"]) if after else None,
        limits=chance.choice(LIMITS) if chance.random() < 0.4 else None,
        share=chance.choice("xyz") if queue == "shared" and chance.random() < 0.8 else None,
    )


# Those who take part


@dataclass
class Executor:
    """What an executor knows: the jobs of the claims whose reply it heard."""

    name: str
    counter: int = 0
    held: dict[str, Claimed] = field(default_factory=dict)
    unheard: Command[Any] | None = None  # its last call, of which it has had no reply

    @property
    def worker(self) -> str:
        return self.name.rpartition(".")[0]

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
        self._numbers, self._last_event = count(), "-"
        for _ in range(3):
            self._hire()
        self._define()

    def _is_there(self, id: str) -> bool:
        return bool(self.client.exists(f"hf:{{{self.namespace}}}:j:{id}"))

    def _knows(self, id: str, other: str) -> bool:
        """Whether a job waits for, or waited for, another."""
        return bool(self.client.hexists(f"hf:{{{self.namespace}}}:a:{id}", other))

    def _hire(self) -> None:
        worker = f"node/w{next(self._numbers)}"
        self.executors += [Executor(f"{worker}.{number}") for number in range(2)]

    def _define(self) -> None:
        for name, slots, per in (("gpu", 2, 0), ("tenant", 1, 0), ("api", 5, 1000)):
            self.set_limit(name, slots, per)
        self.watch.concurrency["narrow"] = 3
        self.say(commands.configure("narrow", set={"concurrency": 3}))
        self.say(commands.weigh("shared", "x", 3))

    # Calls

    def say(self, command: Command[T]) -> T:
        """Carry a command out, now and then twice, and have the watch look at it."""
        reply = self._carry_out(command)
        if self.has_faults and self.chance.random() < 0.15:
            again = self._carry_out(command, again=True)
            if command.verb in ("claim", "finish", "cancel", "retry", "move", "release", "fail", "depend"):
                assert _same(reply, again), f"{command.verb} {command.args}: {reply}, and when repeated {again}"
            elif command.verb not in ("enqueue", "limit", "unlimit", "pause", "resume", "delete"):
                reply = again
        return reply

    def _carry_out(self, command: Command[T], *, again: bool = False) -> T:
        try:
            reply = self.store.run(command)
        except errors.HoldfastError as error:
            self.log.append(f"{self.clock.now} {command.verb} {command.args} -> {error}")
            assert self._read_events() == [], "what was refused had an effect"
            raise
        self.log.append(f"{self.clock.now} {command.verb} {command.args} -> {reply}")
        if not again:
            self._prepare(command, reply)
        events = self._read_events()
        self.log.append(f"    {events}")
        self.watch.happened(command, events)
        return reply

    def _prepare(self, command: Command[Any], reply: Any) -> None:
        """Tell the watch what was asked."""
        args = command.args
        if command.verb == "depend":
            self.watch.depend(args)
        elif command.verb == "move" and "queue" in args:
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
            self.say(commands.limit(name, slots, per=per or None))
        else:
            self.watch.limits.pop(name, None)
            self.say(commands.unlimit(name))

    def enqueue(self, jobs: list[NewJob]) -> None:
        """Store jobs. Those to wait for that are gone already, because they are not kept, are left out."""
        here = {job.id for job in jobs} | set(self.watch.jobs)
        jobs = [_changed(job, tuple(id for id in job.after or () if id in here)) for job in jobs]
        for job in jobs:
            self.watch.add(job)
        for job in jobs:
            self.watch.jobs[job.id].stand()
        self.say(commands.enqueue(jobs))

    # What executors do

    def work(self, executor: Executor) -> None:
        """An executor's turn: ask again for a reply that it did not hear; end something; claim."""
        if executor.unheard is not None:
            return self._hear(executor, executor.unheard, self.say(executor.unheard))
        room = 4 - len(executor.held)
        wants = room > 0 and self.chance.random() < 0.8
        request = executor.request(self._queues(), self.chance.randint(1, room)) if wants else None
        ending = [self._item(job) for job in list(executor.held.values()) if self.chance.random() < 0.5]
        while (
            sum(isinstance(item.outcome, Waits | Advanced) for item in ending) > 1
        ):  # each could make the other a cycle
            ending.pop()
        if ending:
            return self._finish(executor, ending, request)
        if request:
            return self._send(executor, commands.claim(executor.name, request))
        return None

    def _queues(self) -> list[str]:
        return self.chance.sample(QUEUES, self.chance.randint(1, len(QUEUES)))

    def _finish(self, executor: Executor, items: list[Finish], request: dict[str, Any] | None = None) -> None:
        token = new_id() if self.chance.random() < 0.5 else None
        command = commands.finish(executor.name, items, request=request, token=token)
        self._send(executor, command, [self._wanted(executor, item) for item in items])

    def _wanted(self, executor: Executor, item: Finish) -> str:
        """The right answer to an outcome."""
        if not self.watch.holds(executor.name, item.id, item.attempt):
            return "LOST"
        others: tuple[str, ...] = ()
        if isinstance(item.outcome, Waits):
            others = item.outcome.after
        elif isinstance(item.outcome, Advanced):
            others = tuple(item.outcome.batch.get("after", ()))
        return "CYCLE" if any(self._reaches(id, item.id) for id in others) else "OK"

    def _send(self, executor: Executor, command: Command[Any], wanted: list[str] | None = None) -> None:
        reply = self.say(command)
        if wanted is not None:
            for item, answer, right in zip(command.args["items"], reply.answers, wanted, strict=True):
                # What an operator did to an attempt may be what its executor says too: then all is well.
                is_lucky = right == "LOST" and item["outcome"] in ("error", "release") and "token" not in command.args
                assert answer == right or (is_lucky and answer == "OK"), f"{item}: {answer}, not {right}"
            self._note_completions(command, reply)
        if self.has_faults and self.chance.random() < 0.1:
            executor.unheard = command
        else:
            self._hear(executor, command, reply)

    def _note_completions(self, command: Command[Any], reply: Finished) -> None:
        for item, answer in zip(command.args["items"], reply.answers, strict=True):
            if item["outcome"] == "succeed" and answer == "OK":
                self.watch.completed(item["id"], item["attempt"])

    def _hear(self, executor: Executor, command: Command[Any], reply: Claim | Finished) -> None:
        executor.unheard = None
        if isinstance(reply, Finished):
            for item, answer in zip(command.args["items"], reply.answers, strict=True):
                held = executor.held.get(item["id"])
                if held and held.attempt == item["attempt"] and answer != "CYCLE":
                    del executor.held[item["id"]]
            reply = reply.claim
        executor.held |= {job.id: job for job in reply.jobs}

    def _item(self, job: Claimed) -> Finish:
        said = self.chance.random() < 0.7
        return Finish(job.id, job.attempt, self._outcome(job), created=job.created if said else None)

    def _outcome(self, job: Claimed) -> Outcome:
        if not self.has_faults:
            return Succeed(b"1")
        return self.chance.choices(
            [
                Succeed(b"1"),
                Error(b"", "g"),
                Error(b"", "g", final=True),
                Crash(b""),
                Release("", self.chance.choice([0, 500])),
                Snoozed(self.chance.choice([0, 500])),
                Unknown(),
                Cancelled(),
                self._waits(job),
                self._advances(job),
            ],
            [60, 8, 8, 6, 4, 3, 2, 3, 4, 4],
        )[0]

    def _others(self, job: Claimed) -> tuple[str, ...]:
        """Some jobs that have not ended, rather such as run; now and then one that waits for this one."""
        running = [other.id for other in self.watch.running() if other.id != job.id]
        pending = [other.id for other in self.watch.jobs.values() if other.state not in FINAL and other.id != job.id]
        found = (running if running and self.chance.random() < 0.7 else pending) or [job.id]
        return tuple(self.chance.sample(found, min(len(found), 3)))

    def _waits(self, job: Claimed) -> Outcome:
        return Waits(self._others(job))

    def _advances(self, job: Claimed) -> Outcome:
        batch: dict[str, Any] = {
            "queue": self.chance.choice(QUEUES),
            "delay": self.chance.choice([None, 1000]),
            "retries": 1,
        }
        batch |= {
            "limits": self.chance.choice([None, *map(list, LIMITS)]),
            "deadline": self.chance.choice([None, 60_000]),
        }
        if self.chance.random() < 0.5:
            batch |= {"after": list(self._others(job)), "on_failed": self.chance.choice(["block", "cancel", "run"])}
        return Advanced("task", {name: value for name, value in batch.items() if value is not None}, b"[1]")

    def _reaches(self, start: str, goal: str) -> bool:
        """Whether a job waits for another, directly or not; those that have ended count, for they may begin anew."""
        seen, left = {start}, [start]
        while left:
            job = self.watch.jobs.get(left.pop())
            new = (set(job.after) | set(job.waits)) - seen if job else set()
            seen |= new
            left += new
        return goal in seen

    def renew(self, worker: str) -> None:
        """A supervisor's turn: it hears what is lost, what to cancel, and of what it did not know."""
        mine = [executor for executor in self.executors if executor.worker == worker]
        held = [Held(executor.name, job.id, job.attempt) for executor in mine for job in executor.held.values()]
        told = self.say(commands.renew(worker, held, executors=[executor.name for executor in mine]))
        assert sorted(told.lost) == sorted(each for each in held if not self.watch.holds(*each)), told
        by_name = {executor.name: executor for executor in mine}
        for name, id, attempt in told.lost:
            if by_name[name].held[id].attempt == attempt:
                del by_name[name].held[id]
        self._stop(by_name, told.cancelled, Cancelled())
        self._stop(by_name, [each for each in told.unnamed if self.chance.random() < 0.5], Release("unknown"))

    def _stop(self, executors: dict[str, Executor], held: list[Held], outcome: Outcome) -> None:
        for name, id, attempt in held:
            if executors[name].unheard is None and self.watch.holds(name, id, attempt):
                self._finish(executors[name], [Finish(id, attempt, outcome)])

    def _kill_executor(self) -> None:
        executor = self.chance.choice(self.executors)
        self.executors.remove(executor)
        self._lose(executor=executor.name)
        self.executors.append(Executor(f"{executor.worker}.{next(self._numbers) + 10}"))

    def _kill_worker(self) -> None:
        """Its sibling finds it dead; or its node is gone too, and nobody says so."""
        worker = self.chance.choice(self.executors).worker
        self.executors = [executor for executor in self.executors if executor.worker != worker]
        self._hire()
        if self.chance.random() < 0.6:
            self._lose(worker=worker)

    def _lose(self, **whom: str) -> None:
        while self.say(commands.lose(**whom, reason="died")):
            pass

    def _fall_silent(self) -> None:
        worker = self.chance.choice(self.executors).worker
        self.silent ^= {worker}

    # What operators do

    def _some(self, *states: str) -> list[str]:
        """One to three jobs, rather of these states."""
        found = [job.id for job in self.watch.jobs.values() if job.state in states] or list(self.watch.jobs)
        return self.chance.sample(found, min(len(found), self.chance.choice([1, 1, 1, 3])))

    def _cancel(self) -> None:
        ids = self._some("pending", "blocked", "running")
        self.say(commands.cancel(ids, dependents=self.chance.random() < 0.3))

    def _retry(self) -> None:
        self.say(commands.retry(self._some("failed", "cancelled", "succeeded")))

    def _retry_failed(self) -> None:
        self.say(commands.retry(self._some("failed")))

    def _move(self) -> None:
        queue = self.chance.choice([None, *QUEUES])
        priority = self.chance.choice([-3, 0, 7]) if queue is None or self.chance.random() < 0.5 else None
        self.say(commands.move(self._some("pending", "blocked", "running"), queue=queue, priority=priority))

    def _release(self) -> None:
        self.say(commands.release(self._some("running"), delay=self.chance.choice([None, 1000]), reason="operator"))

    def _fail(self) -> None:
        self.say(commands.fail(self._some("running", "pending", "blocked"), reason="operator"))

    def _rewire(self) -> None:
        """Have a job wait for others: the refusals must be right."""
        [id, *_] = self._some("pending", "blocked")
        job = self.watch.jobs[id]
        add = [] if self.chance.random() < 0.4 else self._some("pending", "blocked", "succeeded", "failed")
        rest = [other for other in job.after if other not in add]
        remove = self.chance.sample(rest, min(len(rest), self.chance.choice([0, 1, 2])))
        policy = self.chance.choice([None, None, "block", "cancel", "run"])
        command = commands.depend(id, add=add, remove=remove, on_failed=policy)
        is_cycle = any(self._reaches(other, id) for other in {*add, *job.after, *job.waits} - set(remove))
        try:
            self.say(command)
        except errors.WrongState:
            assert job.state not in ("pending", "blocked"), f"{id} is {job.state}"
        except errors.DependencyCycle:
            assert is_cycle, f"{id} would not wait for itself by {add}"
        else:
            assert not is_cycle, f"{id} waits for itself by {add}"

    def _delete(self) -> None:
        self.say(commands.delete(self._some("succeeded", "cancelled")))

    def resume_one(self) -> None:
        queue = min(self.watch.paused)
        self.watch.paused.discard(queue)
        self.say(commands.resume(queue))

    def _pause(self) -> None:
        queue = self.chance.choice(QUEUES)
        if self.watch.paused and self.chance.random() < 0.6:
            self.resume_one()
        else:
            self.watch.paused.add(queue)
            self.say(commands.pause(queue))

    def _relimit(self) -> None:
        if self.chance.random() < 0.3:
            self.set_limit("api", self.chance.choice([0, 2, 5]), 1000)
        else:
            self.set_limit(self.chance.choice(["gpu", "tenant"]), self.chance.choice([0, 1, 2, 4]))

    def _tick(self) -> None:
        """Time goes on; those who are not silent renew."""
        for worker in sorted({executor.worker for executor in self.executors} - self.silent):
            self.renew(worker)
        self.clock.advance(self.chance.choice([0.05, 0.3, 1, 4, 9]))

    def mistreat(self, steps: int, *, check_every: int = 120) -> None:
        acts: dict[Callable[[], None], int] = {
            self._tick: 12,
            self._kill_executor: 2,
            self._kill_worker: 1,
            self._fall_silent: 2,
            self._cancel: 3,
            self._retry: 2,
            self._retry_failed: 4,
            self._move: 3,
            self._release: 2,
            self._fail: 1,
            self._rewire: 5,
            self._delete: 1,
            self._pause: 1,
            self._relimit: 2,
        }
        for step in range(steps):
            if self.chance.random() < 0.6:
                self.work(self.chance.choice(self.executors))
            else:
                self.chance.choices(list(acts), list(acts.values()))[0]()
            if step % check_every == 0:
                self.check()

    # What must be so

    def records(self) -> Iterator[dict[str, Any]]:
        cursor = None
        while True:
            page = self.store.run(commands.list_jobs(limit=1000, cursor=cursor))
            yield from page.jobs
            cursor = page.cursor
            if cursor is None:
                return

    def check(self) -> None:
        """All keys fit together, all jobs are as the watch thinks, and lists and counts agree."""
        invariants.check(self.client, self.namespace)
        records = list(self.records())
        twice = [id for id, number in Counter(record["id"] for record in records).items() if number > 1]
        assert not twice, f"{twice} are in two lists"
        self.watch.compare(records)
        assert self._dependents() == self.watch.dependents()
        for record in self.store.run(commands.get(list(self.watch.jobs))):
            assert record is not None
            self.watch.compare_after(record)
        for name, _, _, *numbers in self.store.run(commands.queues()):
            here = [record["state"] for record in records if record["queue"] == name]
            assert numbers[:8] == [here.count(state) for state in STATES], (name, numbers)

    def _dependents(self) -> dict[str, set[str]]:
        """The sets of those that wait for a job, by job."""
        base = f"hf:{{{self.namespace}}}:d:"
        keys = list(self.client.scan_iter(f"{base}*", count=10_000))
        return {key.decode().removeprefix(base): {id.decode() for id in self.client.zrange(key, 0, -1)} for key in keys}

    def explain(self, record: dict[str, Any]) -> str:
        """Why a job has not ended, after all that could be claimed was; fails if nothing explains it."""
        job = self.watch.jobs[record["id"]]
        match record["state"]:
            case "running":
                assert any(job.id in executor.held for executor in self.executors), f"nobody runs {job.id}"
                return f"runs on {job.executor}"
            case "waiting":
                running = sum(other.queue == job.queue for other in self.watch.running())
                is_full = running >= self.watch.concurrency.get(job.queue, SIZE)
                assert job.queue in self.watch.paused or is_full, f"{job.id} waits, and nothing explains why"
                return f"its queue {job.queue} is {'full' if is_full else 'paused'}"
            case "throttled":
                return self._explain_throttled(record, job)
            case "blocked":
                return self._explain_blocked(job)
        raise AssertionError(f"{job.id} is {record['state']}, and nothing explains why")

    def _explain_throttled(self, record: dict[str, Any], job: Seen) -> str:
        full = record["throttled_by"]
        slots, _ = self.watch.limits[full.partition(":")[0]]
        holders = [other.id for other in self.watch.running() if full in other.limits]
        queued = [other for other in self.watch.jobs.values() if full in other.limits and other.state == "pending"]
        is_next = any(other.queue in self.watch.paused for other in queued)
        assert full in job.limits
        assert len(holders) >= slots or is_next, f"{job.id} is throttled by {full}, of which {holders} have slots"
        return f"{full} has no free slot: {holders}"

    def _explain_blocked(self, job: Seen) -> str:
        assert job.missing, f"{job.id} is blocked by nothing"
        for id in job.missing:
            letter = job.after.get(id, job.waits.get(id))
            if letter == "-":
                assert self.watch.jobs[id].state not in FINAL, f"{job.id} was not told of {id}"
            else:
                # One that was cancelled with what it waits for, and retried by a user, waits again.
                assert job.policy == "block" or (job.policy == "cancel" and job.retries), f"{job.id}: {job}"
        return f"waits for {job.missing}"

    def roots(self, id: str) -> set[str]:
        """Those at which a blocked job's waiting begins. One that is not kept is gone once it was cancelled."""
        job = self.watch.jobs.get(id)
        if job is None or job.state != "blocked":
            return {id}
        return {root for other in job.missing for root in self.roots(other)}

    # The end

    def drain(self, busy: tuple[Executor, ...] = ()) -> None:
        """Let everybody work, without faults, until nothing is left to claim and no timer to come."""
        self.has_faults = False
        self.silent.clear()
        free = [executor for executor in self.executors if executor not in busy]
        for _ in range(PATIENCE):
            for worker in sorted({executor.worker for executor in self.executors}):
                self.renew(worker)
            got = [self._work_off(executor) for executor in free]
            if not any(got) and not self._advance_to_the_next_timer(busy):
                return
        raise AssertionError("it does not come to an end")

    def _work_off(self, executor: Executor) -> bool:
        if executor.unheard is not None:
            self._hear(executor, executor.unheard, self.say(executor.unheard))
        ending = [self._item(job) for job in executor.held.values()]
        self._finish(executor, ending, executor.request(QUEUES, 20))
        return bool(ending or executor.held)

    def _advance_to_the_next_timer(self, busy: tuple[Executor, ...]) -> bool:
        held = {id for executor in busy for id in executor.held}
        timers = self.client.zrange(f"hf:{{{self.namespace}}}:timers", 0, -1, withscores=True)
        due = [when for id, when in timers if id.decode() not in held]
        if due:
            # Those that hold something for ever renew at the latest when a quarter of a lease is over.
            self.clock.now = max(self.clock.now + 1, min(int(min(due)), self.clock.now + 7_000))
        return bool(due)

    def succeed_all(self) -> None:
        """Retry what has failed or was cancelled, until everything has succeeded."""
        for _ in range(SIZE):
            left = [job.id for job in self.watch.jobs.values() if job.state in ("failed", "cancelled")]
            if left:
                self.say(commands.retry(left))
            elif not self._forget_gone():
                break
            self.drain()
        states = {job.state for job in self.watch.jobs.values()}
        assert states <= {"succeeded"}, states

    def _forget_gone(self) -> bool:
        """Have no job wait for one that is gone: it was cancelled and not kept, so nobody can retry it."""
        waiting = [job for job in self.watch.jobs.values() if job.state == "blocked"]
        gone = {job.id: [id for id in job.missing if id not in self.watch.jobs] for job in waiting}
        for id, others in gone.items():
            if others:
                self.say(commands.depend(id, remove=others))
        return any(gone.values())

    def delete_all(self) -> list[str]:
        """Delete all jobs. Returns what is left: the names of keys."""
        ids = list(self.watch.jobs)
        assert set(self.say(commands.delete(ids))) <= {"OK"}
        for _ in range(10):  # what is known of shares goes with time
            self._tick()
            self.clock.advance(2)
        base = f"hf:{{{self.namespace}}}:"
        keys = [key.decode() for key in self.client.scan_iter(f"{base}*", count=10_000)]
        shares = [field.decode() for key in keys if key.startswith(f"{base}fair:") for field in self.client.hkeys(key)]
        return sorted([key.removeprefix(base) for key in keys] + [field for field in shares if field.startswith("k")])


STATES = ("scheduled", "waiting", "blocked", "throttled", "running", "succeeded", "failed", "cancelled")


def _same(one: Any, other: Any) -> bool:
    """Whether two replies say the same of jobs: how long to wait for more may differ."""
    if isinstance(one, Claim):
        return bool(one.jobs == other.jobs)
    if isinstance(one, Finished):  # what is not kept is not known of the second time
        pairs = zip(one.answers, other.answers, strict=True)
        return all(b in (a, "LOST") for a, b in pairs) and _same(one.claim, other.claim)
    return bool(one == other)


def _changed(job: NewJob, after: tuple[str, ...]) -> NewJob:
    parts = {name: getattr(job, name) for name in NewJob.__struct_fields__}
    return NewJob(**{**parts, "after": after or None, "on_failed": job.on_failed if after else None})
