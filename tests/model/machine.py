"""A store, its model, and the comparison of both after each command. The commands are in `job_rules.py`."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import msgspec
import redis
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine

from holdfast import errors
from holdfast.events.event import Event
from holdfast.store import commands
from holdfast.store.commands import Command, Lease
from holdfast.store.store import Address, Store
from tests.conftest import TestClock
from tests.model import invariants, operation_invariants, overdue, statistics, strategies
from tests.model.events import announced
from tests.model.job import Order, Steps
from tests.model.load import SLOT
from tests.model.model import Model, Place
from tests.model.strategies import DETACHED, EXECUTORS, IDS, LEASES, QUEUES
from tests.support.store_check import nothing_found

NAMESPACE = "model"
UNUSED_AGE = 600_000  # of sets of queues, as in queue_sets.lua
START = 1_700_000_000_000
FINAL_ORDER = "local states = {} for state in pairs({ succeeded = true, failed = true, cancelled = true }) do \
states[#states + 1] = state end return states"  # as in record.lua

Expected = Callable[[], Any]
Read = Callable[[Any], Any]


class Machine(RuleBasedStateMachine):
    """A store, its model, and the programs that use them."""

    steps = 0  # of all machines
    url = ""
    steps_of_a_call = Steps()

    def __init__(self) -> None:
        super().__init__()
        self.client = redis.Redis.from_url(self.url)
        self.client.flushall()
        self.clock = TestClock(START)
        self.store = Store(Address.find(self.url, namespace=NAMESPACE), clock=self.clock)
        self.model = Model([state.decode() for state in self.client.eval(FINAL_ORDER, 0)], self.steps_of_a_call)
        self.requests: dict[str, dict[str, Any]] = {}  # executor -> its last claim
        self.known_ids = set(IDS)
        self.sent: list[tuple[Command[Any], Expected, Read]] = []  # what may be repeated at any time
        self.last_event = "0-0"
        self.past: list[Event] = []  # that have been compared
        self.compared = 0
        self.latest = 0  # time of a call
        self.statistics = statistics.Comparison(self.store, self.model.ledger)
        self.least_history = 100
        self.cursor: tuple[str, Place] | None = None  # of a listing, and what it means
        self.newest_cursor: tuple[str, dict[str, Order]] | None = None  # the same of the newest first

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
            assert lost or got == wanted, f"{command.function} says {got}, not {wanted}"
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
        busy = [executor for executor in EXECUTORS + DETACHED if self.model.held(executor)]
        return data.draw(st.sampled_from(busy * 9 + EXECUTORS), label="executor")

    def order_of_holds(self) -> list[str]:
        """Executors, then the jobs that they hold, as the store visits them: hashes have no order of their own."""
        held = [*self.client.scan_iter(f"hf:{{{NAMESPACE}}}:x:*")]
        workers = [*self.client.scan_iter(f"hf:{{{NAMESPACE}}}:w:*")]
        executors = [
            f"{key.decode().split(':', 3)[3]}.{field.decode()}" for key in workers for field in self.client.hkeys(key)
        ]
        return executors + [id.decode() for key in held for id in self.client.hkeys(key)]

    def draw_ids(self, data: st.DataObject, states: Sequence[str]) -> list[str]:
        """Draw ids, mostly of jobs in these states."""
        fitting = [job.id for job in self.model.jobs.values() if job.state in states]
        one = st.sampled_from([pool for pool in [fitting] * 5 + [IDS] if pool]).flatmap(st.sampled_from)
        return data.draw(st.lists(one, min_size=1, max_size=3), label="ids")

    def next_request(self, data: st.DataObject, executor: str) -> dict[str, Any]:
        counter = self.requests.get(executor, {"counter": 0})["counter"] + 1
        request = commands.claim_args(
            data.draw(st.just(QUEUES) | st.just(QUEUES[::-1]) | strategies.queue_lists, label="queues"),
            counter=counter,
            limit=data.draw(st.sampled_from([1, 2, 3, 5, 5, 150]), label="limit"),
            lease=data.draw(st.none() | st.sampled_from(LEASES), label="lease"),
            pid=data.draw(st.sampled_from([None, 77]), label="pid"),
            idle=data.draw(st.booleans(), label="idle"),
        )
        if data.draw(st.sampled_from([False, False, True]), label="of a pool"):
            request = {name: value for name, value in request.items() if name != "queues"}
            request["pool"] = data.draw(st.sampled_from(strategies.POOLS), label="pool")
        else:
            request |= data.draw(strategies.shares_or_weights(len(request["queues"])), label="shares or weights")
        self.requests[executor] = request
        return request

    # Comparing

    def compare(self) -> None:
        """The whole state of the store is that of the model, and its keys fit together."""
        Machine.steps += 1
        self.latest = max(self.latest, self.now)
        self.compare_jobs()
        self.compare_keys(self.read_keys())
        self.compare_events()
        self.compared += 1
        if self.compared % 5 == 0:
            nothing_found(self.store)
        if self.compared % 3 == 0:
            self.compare_rows()

    def read_keys(self) -> invariants.Snapshot:
        """All keys, which fit together."""
        least = self.least_history
        return invariants.check(self.client, NAMESPACE, now=self.model.latest, least_history=least)

    def compare_jobs(self) -> None:
        names = sorted({*self.known_ids, *self.model.jobs})
        found = [job for job in self.store.run(commands.get(names)) if job]
        arrivals = {job["id"]: job.pop("arrival") for job in found}
        for job in found:
            job["fields"] = commands.read_pairs(job["fields"])
            self.compare_examples(job)
        wanted = [self.model.jobs[name] for name in names if name in self.model.jobs]
        same("jobs", {job["id"]: job for job in found}, {job.id: job.describe(self.now) for job in wanted})
        same("arrivals", arrivals, {job.id: job.arrival for job in wanted})

    def compare_examples(self, job: dict[str, Any]) -> None:
        """The examples of its errors are those of fingerprints that are known, each once."""
        seen = self.model.failures.seen
        wanted = dict.fromkeys(row[-1].decode() for row in job["attempts"] if row[-1].decode() in seen)
        rows = job.pop("examples")
        assert [name.decode() for name, *_ in rows] == [*wanted], f"{job['id']}: examples {rows}, not {[*wanted]}"
        for name, place, id, attempt, traceback in rows:
            known = seen[name.decode()]
            examples = {(each.job, each.attempt, each.traceback) for each in known.examples}
            assert place.decode() == known.place
            assert (id.decode(), attempt, traceback.decode()) in examples, f"{job['id']}: {rows}"

    def compare_rows(self) -> None:
        """What is said of queues, workers and limits."""
        rows, wanted_rows = self.store.run(commands.queues()).queues, self.model.queue_rows(self.now)
        # The clock went back behind a heartbeat, or to where a worker was live: the worker or its set may have been
        # removed by its age before that.
        is_behind = any(seen > self.now or seen <= self.latest - UNUSED_AGE for seen in self.model.workers.values())
        if is_behind:
            rows = [row._replace(workers=0) for row in rows]
            wanted_rows = [row._replace(workers=0) for row in wanted_rows]
        assert rows == wanted_rows, f"queues are {rows}, not {wanted_rows}"
        limits, wanted_limits = self.store.run(commands.limits()).limits, self.model.limits.rows()
        assert limits == wanted_limits, f"limits are {limits}, not {wanted_limits}"
        self.compare_usage()
        load = {row.queue: row for row in self.store.run(commands.load()).samples}
        wanted_load = {row.queue: row for row in self.model.load_rows(self.now)}
        if is_behind:
            load, wanted_load = (
                {name: row._replace(workers=0) for name, row in found.items()} for found in (load, wanted_load)
            )
        if self.latest // SLOT != self.now // SLOT:  # the clock went back: old slots may be gone
            load, wanted_load = (
                {name: row._replace(period=0, arrived=0, ended=0, run_time=0) for name, row in rows.items()}
                for rows in (load, wanted_load)
            )
        same("load", load, wanted_load)
        due = self.store.run(commands.overdue())
        assert due.timers == overdue.count(self.model, self.now), f"{due.timers} timers are overdue"
        same("overdue", due.by_queue, dict(overdue.by_queue(self.model, self.now)))
        self.compare_workers()
        self.compare_schedules()
        self.compare_subscriptions()
        self.compare_statistics()

    def compare_statistics(self) -> None:
        failed: dict[str, list[int]] = {}
        for job in self.model.jobs.values():
            if job.state == "failed":
                failed.setdefault(job.new.queue, []).append(job.since)
        self.statistics.latest = self.latest
        self.statistics.compare(QUEUES, failed, self.now)

    def compare_usage(self) -> None:
        """Who holds and who is parked, per key, in pages of one or two."""
        turn = self.compared // 3  # one name at a time, as each takes many calls
        for name in [strategies.LIMIT_NAMES[turn % len(strategies.LIMIT_NAMES)]]:
            keys: list[commands.LimitKey] = []
            while page := self.store.run(commands.limit_keys(name, after=keys[-1].limit if keys else None, limit=2)):
                keys += page
            assert keys == self.model.limits.keys(name), f"{name} is used by {keys}"
            for full in [key.limit for key in keys] + [name]:
                held = self.read_all(partial(commands.limit_holders, full, limit=1))
                assert held == sorted(self.model.limits.holders.get(full, ())), f"{held} hold {full}"
                parked = self.read_all(partial(commands.limit_parked, full, limit=1))
                wanted = sorted(
                    self.model.limits.parked(full), key=lambda job: job.new.queue
                )  # which keeps their order
                assert parked == [job.id for job in wanted], f"{parked} are parked by {full}"

    def read_all(self, page: Callable[..., Command[commands.ListReply]]) -> list[str]:
        found, cursor = [], None
        while True:
            part = self.store.run(page(cursor=cursor))
            found += [fields["id"] for fields in part.jobs]
            cursor = part.cursor
            if cursor is None:
                return found

    def compare_keys(self, snapshot: invariants.Snapshot) -> None:
        """What no command tells: order in the indexes, attempts kept, how often leases were spared, messages, keys."""
        kept = {id: sum(name[0] == "a" for name in record.fields) for id, record in snapshot.jobs.items()}
        same("attempts", kept, {id: len(job.attempts) for id, job in self.model.jobs.items()})
        for (queue, state), members in snapshot.indexes.items():
            wanted = [job.id for job in self.model.index(queue, state)]
            assert [id for id, _ in members] == wanted, f"{queue} {state}: {members}, not {wanted}"
        spared = {id: marks.count("s") for held in snapshot.held.values() for id, marks in held.items()}
        same("spared", spared, {id: job.spared for id, job in self.model.jobs.items() if job.state == "running"})
        assert snapshot.paused == self.model.paused
        config = {
            f"{queue}/{name}" if queue else name: str(value).encode()
            for (queue, name), value in self.model.settings.items()
        }
        same("settings", snapshot.config, config)
        self.compare_unique_keys(snapshot)
        assert snapshot.refill == self.model.schedules.wanting, f"times are wanted for {snapshot.refill}"
        same("ready", snapshot.others("ready"), self.model.pools.stored())
        same("timers", snapshot.timers, self.model.timers())
        expiring = {job.id: job.expires for job in self.model.jobs.values() if job.expires}
        same("expiring", snapshot.expiring, expiring)
        marks = self.model.marks
        same("jobs by tag", snapshot.others("tag"), marks.by_tag())
        same("jobs by scope", snapshot.others("scope"), marks.by_scope())
        same("tracked jobs", snapshot.tracked, marks.tracked())
        assert set(snapshot.untracked) == marks.deleted, f"deleted are {snapshot.untracked}"
        same("lines", {id: set(line) for id, line in snapshot.others("d").items()}, self.model.dependencies.all_lines())
        outcomes = {id: " SFC"[int(score) % 4] for id, score in snapshot.outcomes.items()}
        same("outcomes", outcomes, self.model.dependencies.outcomes)
        shares = {queue: {k: int(v) for k, v in fields.items()} for queue, fields in snapshot.others("fair").items()}
        same("shares", shares, self.model.shares.fields())
        same("ends of shares", snapshot.others("shares"), self.model.shares.stored_ends())
        same("inboxes", normal_inboxes(snapshot.inboxes), normal_inboxes(self.model.inboxes))
        holders = {name: set(members) for name, members in snapshot.others("lh").items()}
        same("holders", holders, self.model.limits.stored_holders())
        same("operations", operation_invariants.rows(snapshot), self.model.operations.stored())
        if self.client.dbsize() != snapshot.size:  # a key may have expired since it was read, or not be removed yet
            base = f"hf:{{{NAMESPACE}}}:".encode()
            outside = [name for name in self.client.scan_iter(count=1000) if not name.startswith(base)]
            assert outside == [], "keys of no namespace"

    def compare_unique_keys(self, snapshot: invariants.Snapshot) -> None:
        wanted = {
            name: (span[0] if isinstance(span, str) else "t", job.id) for name, (span, job) in self.model.keys.items()
        }
        same("unique keys", {name: (key.letter, key.id) for name, key in snapshot.uniques.items()}, wanted)

    def compare_workers(self) -> None:
        found, wanted = self.store.run(commands.workers()).workers, self.model.worker_rows(self.now)
        same("workers", _by_name(found), _by_name(wanted))

    def compare_schedules(self) -> None:
        found = {row.pop("name"): row for row in self.store.run(commands.schedules())}
        for row in found.values():
            for part in ("batch", "default:batch"):
                if part in row:
                    row[part] = json.loads(row[part])
            assert int(row.pop("now")) == self.now
        same("schedules", found, {name: one.describe() for name, one in self.model.schedules.all.items()})

    def compare_events(self) -> None:
        """One entry per type, naming all its jobs, with the queue and the details of each."""
        page = self.store.run(commands.events(self.last_event, limit=1000))
        found, wanted = announced(page.events), [*self.model.events]
        self.model.events.clear()
        self.last_event = page.position or self.last_event
        self.past += page.events
        types = [event.type for event in page.events]
        is_once = self.model.operations.published or len(types) == len(set(types))
        assert is_once, f"a type of event twice: {page.events}"
        self.model.operations.published = False  # the events of its step are apart from those of the call
        assert sorted(found) == sorted(wanted), f"events are {sorted(found)}, not {sorted(wanted)}"

    def compare_subscriptions(self) -> None:
        found = {row.pop("name"): row for row in self.store.run(commands.subscriptions())}
        for row in found.values():
            row["batch"] = json.loads(row["batch"])
            assert (int(row.pop("now")), row.pop("last_event")) == (self.now, self.last_event)
        same("subscriptions", found, {name: one.describe() for name, one in self.model.subscriptions.all.items()})


def _by_name(workers: Sequence[commands.Worker]) -> dict[str, Any]:
    """Workers by name, with the jobs that each holds in one order."""
    rows = {worker.name: msgspec.structs.asdict(worker) for worker in workers}
    return {name: {**row, "held": sorted(map(msgspec.structs.astuple, row["held"]))} for name, row in rows.items()}


def same(what: str, found: dict[Any, Any], wanted: dict[Any, Any]) -> None:
    """Fail if two tables differ, and say where: what is found, what is wanted."""
    if found != wanted:
        raise AssertionError(f"{what}: {differences(found, wanted)}")


def differences(found: Any, wanted: Any) -> Any:
    if not isinstance(found, dict) or not isinstance(wanted, dict):
        return found, wanted
    return {
        key: differences(found.get(key), wanted.get(key))
        for key in {**found, **wanted}
        if found.get(key) != wanted.get(key)
    }


def outcome_of(call: Callable[[], Any]) -> Any:
    """What a call returns, or the class of the error that it is refused with."""
    try:
        return call()
    except errors.HoldfastError as error:
        return type(error)


def normal_renewal(cancelled: list[Lease], lost: list[Lease], unreported: list[Lease]) -> tuple[list[Lease], ...]:
    return cancelled, lost, sorted(unreported)


def normal_inboxes(inboxes: dict[str, list[str]]) -> dict[str, list[str]]:
    """In which order `lose` ends an executor's jobs is not said."""
    return {name: sorted(messages) for name, messages in inboxes.items()}
