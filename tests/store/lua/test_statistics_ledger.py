"""Statistics against a ledger that the test keeps itself: 100,000 jobs over several days, queues and tasks."""

from __future__ import annotations

import math
import random
from statistics import variance

import pytest

from holdfast.client.statistics import stats
from holdfast.job.outcome import Crash, Error, Outcome, Release, Snoozed, Succeed
from holdfast.store import commands
from holdfast.store.commands import ClaimedJob, Finish, Period
from holdfast.store.driver import drive
from holdfast.store.store import Address, AsyncStore, Store
from holdfast.units import utc
from tests.conftest import TestClock
from tests.store.lua.test_state_machine import ONE, ask
from tests.support.new_job import NewJob
from tests.support.servers import running_server
from tests.support.statistics_ledger import DAY, HOUR, Entry, Ledger, check_stats, histogram

JOBS = 100_000
QUEUES = ("mail", "video", "reports")
TASKS = ("send", "encode", "app.tasks.report", "clean")
BATCH = 800
LEASE = 3_600_000
OUTCOMES: list[Outcome] = [
    Succeed(b"1"),
    Error(b"", "g", delay=0),
    Error(b"", "g", final=True),
    Crash(b""),
    Release(),
    Snoozed(0),
]


class Holder:
    """An object with client methods."""

    def __init__(self, store: Store) -> None:
        self.store = store

    @property
    def async_store(self) -> AsyncStore:
        raise NotImplementedError


class World:
    """A store under its own clock, and the ledger of all that is done to it."""

    def __init__(self, url: str) -> None:
        self.clock = TestClock(1_700_000_000_000)
        self.store = Store(Address.find(url, namespace="ledger"), clock=self.clock)
        self.ledger = Ledger()
        self.dice = random.Random(17)
        self.since: dict[str, int] = {}  # when each waiting job could first be claimed
        self.held: list[tuple[ClaimedJob, int]] = []  # and when each was claimed
        self.enqueued = 0
        self.days: set[int] = set()
        self.charged: dict[str, dict[type, int]] = {}  # errors and crashes of each job

    def enqueue(self, count: int) -> None:
        jobs = []
        for number in range(count):
            id = f"j{self.enqueued + number}"
            queue, task = self.dice.choice(QUEUES), self.dice.choice(TASKS)
            jobs.append(NewJob(id=id, payload=b"[]", queue=queue, task=task, retries=2, crashes=1, keep=False))
            self.since[id] = self.clock.now
            self.ledger.arrived(queue, self.clock.now)
        self.enqueued += count
        jobs.sort(key=lambda job: (job.queue, job.task))
        self.store.run(commands.enqueue(jobs))

    def finish_and_claim(self, finished: list[tuple[ClaimedJob, int]], limit: int) -> None:
        items = [Finish(job.id, job.attempt, self._end(job, claimed), created=job.created) for job, claimed in finished]
        request = ask(*self.dice.sample(QUEUES, 3), limit=limit, lease=LEASE) if limit else None
        reply = self.store.run(commands.finish(ONE, items, request=request))
        assert {*reply.answers} <= {"OK"}
        now = self.clock.now
        for job in reply.claim.jobs if limit else ():
            self.ledger.claimed(job.queue, job.task, now - self.since.pop(job.id), now)
            self.held.append((job, now))
        self.days.add(now // DAY)

    def _end(self, job: ClaimedJob, claimed: int) -> Outcome:
        """Draw an outcome, and write down what follows from it."""
        now, name, ledger = self.clock.now, (job.queue, job.task), self.ledger
        outcome = self.dice.choices(OUTCOMES, [80, 10, 2, 3, 3, 2])[0]
        ledger.ended(*name, now - claimed, now, is_run=isinstance(outcome, Succeed))
        if isinstance(outcome, Succeed):
            return outcome
        charged = self.charged.setdefault(job.id, {Error: 0, Crash: 0})
        if isinstance(outcome, Error | Crash):
            charged[type(outcome)] += 1
            if (isinstance(outcome, Error) and outcome.final) or charged[Error] > 2 or charged[Crash] > 1:
                ledger.failed(*name, now)
                return outcome
            ledger.retried(*name, now)
        ledger.arrived(job.queue, now)
        self.since[job.id] = now
        return outcome

    def run(self, jobs: int) -> None:
        while self.enqueued < jobs or self.since or self.held:
            if self.enqueued < jobs:
                self.enqueue(min(BATCH, jobs - self.enqueued))
            self._pass_time()
            self.dice.shuffle(self.held)
            count = self.dice.randint(0, min(len(self.held), BATCH))
            count = len(self.held) if self.enqueued == jobs else count
            finished, self.held = self.held[:count][:1000], self.held[min(count, 1000) :]
            self.finish_and_claim(finished, self.dice.randint(400, 1000))
            self._pass_time()
            finished, self.held = self.held[:1000], self.held[1000:] if len(self.held) > 2000 else []
            self.finish_and_claim(finished, 0)

    def _pass_time(self) -> None:
        """Mostly a little, sometimes much; never so much that a lease ends."""
        longest = self.dice.choice([5, 900, 30_000, 600_000, LEASE - 1])
        oldest = min((claimed for _, claimed in self.held), default=self.clock.now)
        self.clock.now += max(0, min(self.dice.randint(0, longest), oldest + LEASE - 1 - self.clock.now))


@pytest.mark.timeout(600)
def test_a_hundred_thousand_jobs_over_days_equal_the_ledger() -> None:
    """One test, because all checks share the jobs. Half-way the server forgets everything that only Lua knows."""
    with running_server() as url:
        world = World(url)
        world.run(JOBS // 2)
        world.store.execute("FUNCTION", "FLUSH")
        world.run(JOBS)
        assert len(world.days) >= 3
        check_days(world)
        check_periods(world)
        check_quantiles(world)
        check_hours(world)
        check_ages(world)
        world.store.close()


def day_of(number: int) -> Period:
    return Period(number * DAY, (number + 1) * DAY)


def check_days(world: World) -> None:
    for day in world.days:
        for queue in QUEUES:
            assert sorted(world.store.run(commands.stats_tasks(queue, day_of(day))).tasks) == sorted(TASKS)
            for task in (None, *TASKS):
                found = world.store.run(commands.stats(queue, day_of(day), task))
                check_stats(found, world.ledger.total(queue, task, since=day * DAY, until=(day + 1) * DAY))
                assert (found.since, found.until) == (day * DAY, (day + 1) * DAY)
                assert (found.failed is None) == (task is not None)


def check_periods(world: World) -> None:
    """All days together, of a queue and of all; failed jobs are kept, so as many are still failed as ever failed."""
    period, stores = Period(min(world.days) * DAY), Holder(world.store)
    for queue in QUEUES:
        found = world.store.run(commands.stats(queue, period))
        check_stats(found, world.ledger.total(queue))
        assert found.failed == found.failures > 0
    every = drive(stats(stores, since=utc(min(world.days) * DAY)), world.store.run)
    wanted = world.ledger.total()
    assert (every.ended, every.failures, every.failed, every.retries) == (
        wanted.ended, wanted.failures, wanted.failures, wanted.retries,
    )  # fmt: skip
    for merged, times in ((every.wait, wanted.waits), (every.run, wanted.runs)):
        assert (merged.count, round(merged.total * 1000)) == (len(times), sum(times))
        assert math.isclose(merged.variance or 0, variance(time / 1000 for time in times), rel_tol=1e-9)
        assert [bucket.count for bucket in merged.histogram] == [count for _, _, count in histogram(times)]


def check_quantiles(world: World) -> None:
    """The exact value lies between the bounds that are stated, and the estimate too."""
    for queue in QUEUES:
        wanted = world.ledger.total(queue)
        found = drive(stats(Holder(world.store), queue, since=utc(min(world.days) * DAY)), world.store.run)
        for times, exact in ((found.wait, sorted(wanted.waits)), (found.run, sorted(wanted.runs))):
            for fraction in (0, 0.01, 0.5, 0.9, 0.95, 0.99, 0.999, 1):
                quantile = times.quantile(fraction)
                assert quantile is not None
                assert quantile.upper is not None
                value = exact[max(0, math.ceil(fraction * len(exact)) - 1)] / 1000
                assert quantile.lower <= value < quantile.upper
                assert quantile.lower <= quantile.value <= quantile.upper
                assert quantile.upper - quantile.lower <= max(quantile.lower, 0.001) + 1e-9


def check_hours(world: World) -> None:
    first, last = min(world.days) * DAY, world.clock.now
    for queue in QUEUES:
        for task in (None, TASKS[0]):
            reply = world.store.run(commands.stats_series(queue, "hour", Period(first), task))
            rows = {row.number: row for row in reply.rows}
            assert (reply.unit, reply.next) == (HOUR, None)
            for hour in range(first // HOUR, last // HOUR + 1):
                wanted = world.ledger.total(queue, task, since=hour * HOUR, until=(hour + 1) * HOUR)
                arrivals = world.ledger.arrivals_of(queue, hour * HOUR, (hour + 1) * HOUR)
                row = rows.get(hour)
                if row is None:
                    assert wanted.counts == (0, 0, 0, 0, 0)
                    assert task or not arrivals
                    continue
                assert (row.ended, row.failures, row.retries, row.waits, row.runs) == wanted.counts
                assert (row.waited, row.ran) == (sum(wanted.waits), sum(wanted.runs))
                assert row.arrivals == (None if task else arrivals)


def check_ages(world: World) -> None:
    """Histograms of a day go a week after its end, summaries and hours after 30 days; the keys expire by themselves."""
    day, queue = max(world.days), QUEUES[0]
    wanted = world.ledger.total(queue, since=day * DAY, until=(day + 1) * DAY)
    for age, is_kept, has_histogram in (
        (7 * DAY, True, False),
        (30 * DAY - DAY, True, False),
        (31 * DAY, False, False),
    ):
        world.clock.now = (day + 1) * DAY + age
        found = world.store.run(commands.stats(queue, day_of(day)))
        check_stats(found, wanted if is_kept else Entry(), has_histogram=has_histogram)
    lives = {"sl": (30, 32), "sd": (29, 31), "sh": (29, 31), "sg": (6, 8), "sm": (0, 1)}  # folded up to a day later
    for key in world.store.execute("KEYS", "hf:{ledger}:s[a-z]:*"):
        family = key.decode().split(":")[2]
        least, most = (limit * DAY for limit in lives[family])
        assert least - 600_000 < world.store.execute("PTTL", key) <= most
