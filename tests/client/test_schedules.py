"""Client methods for schedules: declared and created, missed and overlapping times; in sync and async form."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any, cast
from zoneinfo import ZoneInfo

import pytest

from holdfast import Holdfast, Invalid, ScheduleNotFound, WrongState, cron, every
from holdfast.client.schedules import Schedule
from holdfast.client.timing import Cron, Every, Timing
from holdfast.store import commands
from holdfast.store.store import Address, Store
from holdfast.testing import Workbench, use
from tests.apps import schedule_app
from tests.conftest import TestClock
from tests.support.sync_and_async import FACES, Ask
from tests.support.workers import Crew, until

jobs = Holdfast("redis://127.0.0.1:1", revision=3)
ran: list[str] = []
BERLIN = ZoneInfo("Europe/Berlin")


@jobs.task
def say(word: str = "hello") -> str:
    ran.append(word)
    return word


@jobs.task(schedule=cron("0 2 * * *", tz="Europe/Berlin", missed="skip", late="10m"), queue="reports", retries=1)
def nightly() -> None:
    ran.append("nightly")


@jobs.task(name="poll", schedule=every("30s", overlap="skip"))
def poll(box: str = "inbox") -> None:
    ran.append(box)


@pytest.fixture
def bench(server_url: str) -> Iterator[Workbench]:
    ran.clear()
    with use(jobs, server_url) as made:
        yield made


@pytest.fixture(params=FACES)
def ask(request: pytest.FixtureRequest, bench: Workbench) -> Ask:
    return FACES[request.param](bench.app)


def move_time_on(bench: Workbench, duration: str) -> None:
    """Let time pass, and what is due be enqueued, but not run."""
    bench.advance(duration)
    assert bench.run_one(queues=["elsewhere"]) is None


def fired(name: str) -> list[datetime]:
    """The times for which there are jobs."""
    ids = sorted(job.id for job in jobs.list() if job.id.startswith(f"{name}@"))
    return [datetime.fromtimestamp(int(id.partition("@")[2]) / 1000, UTC) for id in ids]


# By call


def test_a_schedule_is_created_and_changed_by_call_and_an_equal_one_changes_nothing(ask: Ask) -> None:
    assert ask("schedule", "mine", say.bind(), every="10s", offset="3s") is True
    assert ask("schedule", "mine", say.bind(), every="10s", offset="3s") is False
    assert ask("schedule", "mine", say.bind("other"), every="10s", offset="3s") is True
    assert ask("get_schedule", "mine").when == Every(10_000, 3_000)
    assert ask("schedule", "mine", say.bind(), cron="0 2 * * *", tz="Europe/Berlin", missed="skip") is True
    assert ask("schedule", "mine", say.bind(), cron="0 2 * * *", tz="Europe/Berlin", missed="skip") is False

    found = ask("get_schedule", "mine")
    assert found.when == Cron("0 2 * * *", "Europe/Berlin")
    assert (found.task, found.queue, found.missed, found.overlap) == (say.name, "default", "skip", "allow")
    assert (found.paused, found.fired, found.skipped, found.last_at, found.last_job) == (False, 0, 0, None, "")
    assert ask("schedule", "also", say.bind(), every="1h") is True
    assert [each.name for each in ask("schedules")] == ["also", "mine"]


def test_each_time_of_an_interval_fires_once_and_its_job_is_the_call(bench: Workbench, ask: Ask) -> None:
    call = say.bind("tick").options(queue="beats", priority=-7, limits="beat", share="me", retries=2, deadline="5m")
    ask("schedule", "beat", call, every="1h", offset="3s")
    for _ in range(4):
        bench.advance("1h")
        bench.run_until_empty()

    times = fired("beat")
    assert len(times) == 4
    assert {later - earlier for earlier, later in pairwise(times)} == {timedelta(hours=1)}
    assert all((time.minute, time.second, time.microsecond) == (0, 3, 0) for time in times)
    assert ran == ["tick"] * 4
    job = jobs.get(f"beat@{int(times[0].timestamp() * 1000)}")
    assert (job.queue, job.priority, job.limits, job.share, job.retries) == ("beats", -7, ("beat",), "me", 2)
    assert job.deadline is not None
    assert job.deadline - job.created_at == timedelta(minutes=5)
    found = ask("get_schedule", "beat")
    assert (found.fired, found.skipped, found.last_at, found.last_job[:5]) == (4, 0, times[-1], "beat@")


def test_a_cron_fires_at_its_time_in_its_zone_for_years(bench: Workbench) -> None:
    """Also when the store has no more times: it is told further ones."""
    jobs.schedule("weekly", say.bind(), cron="30 2 * * sun", tz="Europe/Berlin")
    times = []
    for _ in range(110):
        bench.advance("7d")
        bench.run_until_empty()
        times.append(fired("weekly")[-1].astimezone(BERLIN))

    assert {(later.date() - earlier.date()).days for earlier, later in pairwise(times)} == {7}
    assert {time.weekday() for time in times} == {6}
    ordinary = [time for time in times if (time.hour, time.minute) == (2, 30)]
    leapt_over = [time for time in times if (time.hour, time.minute) == (3, 0)]
    assert len(ordinary) + len(leapt_over) == 110
    assert 2 <= len(leapt_over) <= 3


# What was missed


@pytest.mark.parametrize(
    ("policy", "number"),
    [
        ({}, 1),
        ({"missed": "one"}, 1),
        ({"missed": "all"}, 10),
        ({"missed": "all", "backlog": 4}, 4),
        ({"missed": "skip"}, 0),
        ({"missed": "skip", "late": "1h"}, 1),
    ],
)
@pytest.mark.parametrize("when", [{"every": "1h"}, {"cron": "0 * * * *"}], ids=["every", "cron"])
def test_missed_times_are_caught_up_on_as_declared(
    bench: Workbench, when: dict[str, Any], policy: dict[str, Any], number: int
) -> None:
    jobs.schedule("hourly", say.bind(), **when, **policy)
    past = bench.now.replace(minute=0, second=0, microsecond=0) + timedelta(hours=10, minutes=30)
    bench.advance(past - bench.now)

    bench.run_until_empty()

    assert fired("hourly") == [past - timedelta(minutes=30, hours=back) for back in reversed(range(number))]
    assert len(ran) == number
    found = jobs.get_schedule("hourly")
    assert (found.fired, found.fired + found.skipped) == (number, 10)
    bench.advance("30m")
    bench.run_until_empty()
    assert len(fired("hourly")) == number + 1  # and it goes on


def test_an_outage_of_months_is_made_up_for_once(bench: Workbench) -> None:
    jobs.schedule("minutely", say.bind(), cron="* * * * *", tz="Europe/Berlin")
    move_time_on(bench, "90d")
    bench.run_until_empty()

    assert ran == ["hello"]
    (time,) = fired("minutely")
    assert timedelta(0) <= bench.now - time < timedelta(minutes=2)
    bench.advance("1m")
    bench.run_until_empty()
    assert ran == ["hello"] * 2


def test_a_backlog_of_hundreds_comes_in_steps_and_in_order(bench: Workbench) -> None:
    jobs.schedule("minutely", say.bind(), every="1m", missed="all", backlog=250)
    bench.advance("1d")
    assert len(bench.run_until_empty()) == 250
    times = fired("minutely")
    assert {later - earlier for earlier, later in pairwise(times)} == {timedelta(minutes=1)}
    assert bench.now - times[-1] < timedelta(minutes=1)


# Overlap


def test_a_firing_is_left_out_while_the_last_job_has_not_ended(bench: Workbench, ask: Ask) -> None:
    ask("schedule", "careful", say.bind(), every="1h", overlap="skip")
    ask("schedule", "careless", say.bind(), every="1h")
    for _ in range(3):
        move_time_on(bench, "1h")

    assert (len(fired("careful")), len(fired("careless"))) == (1, 3)
    assert (ask("get_schedule", "careful").skipped, ask("get_schedule", "careless").skipped) == (2, 0)
    bench.run_until_empty()
    move_time_on(bench, "1h")
    assert (len(fired("careful")), len(fired("careless"))) == (2, 4)


# Jitter


def test_jitter_is_the_same_wherever_the_same_time_fires_and_within_its_bounds(server_url: str) -> None:
    delays = []
    for _ in range(2):
        with use(jobs, server_url) as bench:
            jobs.schedule("spread", say.bind(), cron="0 0 * * *", jitter="1h")
            delays.append([delay_of_next(bench, "spread") for _ in range(10)])

    one, other = delays
    assert one == other
    assert len(set(one)) > 7
    assert all(timedelta(0) <= delay <= timedelta(hours=1) for delay in one)


def delay_of_next(bench: Workbench, name: str) -> timedelta:
    """How much later than its time the next firing is due."""
    (time,) = jobs.get_schedule(name).next(1)
    bench.advance(time - bench.now)
    assert bench.run_one(queues=["elsewhere"]) is None
    job = jobs.get(f"{name}@{int(time.timestamp() * 1000)}")
    return (job.due_at or time) - time


# Steering


def test_a_schedule_is_paused_and_resumed_and_nothing_is_made_up_for(bench: Workbench, ask: Ask) -> None:
    ask("schedule", "hourly", say.bind(), cron="0 * * * *", missed="all")
    assert ask("pause_schedule", "hourly") is True
    assert ask("pause_schedule", "hourly") is False
    bench.advance("10h")
    bench.run_until_empty()
    assert ran == []
    assert ask("get_schedule", "hourly").paused
    assert ask("get_schedule", "hourly").next(3) == []
    assert ask("schedule", "hourly", say.bind(), cron="0 * * * *", missed="one") is True
    assert ask("get_schedule", "hourly").paused  # whoever declares it

    assert ask("resume_schedule", "hourly") is True
    assert ask("resume_schedule", "hourly") is False
    bench.run_until_empty()
    assert ran == []
    bench.advance("1h")
    bench.run_until_empty()
    assert ran == ["hello"]


def test_trigger_works_while_the_schedule_is_paused(bench: Workbench, ask: Ask) -> None:
    ask("schedule", "yearly", say.bind("happy new year"), cron="0 0 1 1 *")
    ask("pause_schedule", "yearly")

    id = ask("trigger", "yearly")

    assert id.startswith("yearly@")
    bench.run_until_empty()
    assert jobs.get(id).result() == "happy new year"
    assert ask("get_schedule", "yearly").last_job == id


def test_a_schedule_is_removed_and_its_jobs_stay(bench: Workbench, ask: Ask) -> None:
    ask("schedule", "hourly", say.bind(), every="1h")
    move_time_on(bench, "1h")

    assert ask("unschedule", "hourly") is True
    assert ask("unschedule", "hourly") is False

    assert ask("schedules") == []
    bench.advance("5h")
    bench.run_until_empty()
    assert ran == ["hello"]


@pytest.mark.parametrize("verb", ["get_schedule", "pause_schedule", "resume_schedule", "trigger"])
def test_a_schedule_that_is_not_there_is_named(ask: Ask, verb: str) -> None:
    with pytest.raises(ScheduleNotFound, match="schedule nobody does not exist"):
        ask(verb, "nobody")


# The next firings


def test_the_next_ten_firings_are_computed_without_and_with_a_store(bench: Workbench) -> None:
    timing = cron("30 2 * * *", tz="Europe/Berlin")
    after = datetime(2026, 3, 27, 12, tzinfo=UTC)
    local = [f"{moment.astimezone(BERLIN):%d %H:%M}" for moment in timing.next(3, after=after)]
    assert local == ["28 02:30", "29 03:00", "30 02:30"]  # on the 29th the clock leaps from 2 to 3

    jobs.schedule("nights", say.bind(), cron="30 2 * * *", tz="Europe/Berlin")
    known = jobs.get_schedule("nights")
    assert known.next(3, after=after) == timing.next(3, after=after)
    assert len(known.next()) == 10
    bench.advance("100d")
    expected = jobs.get_schedule("nights").next(3)
    assert expected[0] > bench.now  # by the clock of the store
    for moment in expected:
        bench.advance(moment - bench.now)
        bench.run_until_empty()
    assert fired("nights") == expected


def test_the_next_firings_of_an_interval() -> None:
    moments = every("6h", offset="1h").next(3, after=datetime(2026, 1, 1, 2, tzinfo=UTC))
    assert [moment.hour for moment in moments] == [7, 13, 19]
    assert datetime.now(UTC) - timedelta(hours=1) < every("6h").next(1)[0]


# Declared on tasks


def test_the_workbench_declares_what_tasks_declare_as_workers_do(bench: Workbench) -> None:
    bench.advance("1h")
    assert bench.run_until_empty() == []
    assert jobs.schedules() == []

    assert bench.declare_schedules() == [nightly.name, "poll"]

    known = {each.name: each for each in jobs.schedules()}
    assert known[nightly.name].when == Cron("0 2 * * *", "Europe/Berlin")
    assert (known[nightly.name].queue, known[nightly.name].missed) == ("reports", "skip")
    assert (known["poll"].when, known["poll"].overlap) == (Every(30_000), "skip")
    bench.advance(known[nightly.name].next(1)[0] - bench.now)
    bench.run_until_empty()
    assert sorted(ran) == ["inbox", "nightly"]
    assert jobs.get(jobs.get_schedule(nightly.name).last_job).retries == 1


def test_an_older_release_does_not_overwrite_what_a_newer_one_declared(bench: Workbench) -> None:
    bench.declare_schedules()
    older = {**jobs.declared_schedules["poll"], "revision": 2}
    with pytest.raises(WrongState, match="schedule poll was declared by a newer release, revision 3"):
        jobs.store.run(commands.declare_schedule(**older))
    assert jobs.get_schedule("poll").when == Every(30_000)


def test_an_operator_overrides_a_declared_schedule_and_returns_to_it(bench: Workbench) -> None:
    bench.declare_schedules()
    assert not jobs.get_schedule("poll").is_overridden
    assert jobs.get_schedule("poll").is_declared

    assert jobs.schedule("poll", poll.bind("outbox"), cron="0 2 * * *")
    bench.declare_schedules()  # a worker starts

    found = jobs.get_schedule("poll")
    assert (found.when, found.is_overridden, found.declared_when) == (Cron("0 2 * * *"), True, Every(30_000))
    assert jobs.reset_schedule("poll")
    assert not jobs.reset_schedule("poll")
    found = jobs.get_schedule("poll")
    assert (found.when, found.is_overridden, found.declared_when) == (Every(30_000), False, Every(30_000))
    jobs.schedule("mine", poll.bind("outbox"), every="5s")
    found = jobs.get_schedule("mine")
    assert (found.is_declared, found.is_overridden, found.declared_when) == (False, False, None)


def test_a_worker_of_an_older_release_leaves_the_newer_schedule_alone(crew: Crew) -> None:
    name = schedule_app.report.name

    def period() -> int | None:
        found: list[Schedule] = [each for each in crew.app.schedules() if each.name == name]
        return found[0].when.interval if found and isinstance(found[0].when, Every) else None

    crew.start(app="tests.apps.schedule_app", HOLDFAST_REVISION="2", PERIOD="20s")
    until(lambda: period() == 20_000)
    old = crew.start(app="tests.apps.schedule_app", HOLDFAST_REVISION="1", PERIOD="30s")
    until(lambda: "declared by a newer release, revision 2; the newer declaration stays in effect" in old.log)
    assert period() == 20_000
    crew.start(app="tests.apps.schedule_app", HOLDFAST_REVISION="3", PERIOD="40s")
    until(lambda: period() == 40_000)


def test_of_ten_workers_that_claim_at_once_one_has_the_job_of_a_firing(address: Address, clock: TestClock) -> None:
    stores = [Store(address, clock=clock) for _ in range(10)]
    stores[0].run(commands.schedule("beat", {"queue": "q", "task": "t"}, b"[]", every=1000))

    def claim(number: int) -> list[str]:
        request = commands.claim_args(["q"], counter=clock.now, limit=10)
        return [job.id for job in stores[number].run(commands.claim(f"node/w{number}.0", request)).jobs]

    with ThreadPoolExecutor(10) as pool:
        for _ in range(30):
            clock.advance(1)
            ids = [id for found in pool.map(claim, range(10)) for id in found]
            assert ids == [f"beat@{clock.now}"]
    for store in stores:
        store.close()


# What is refused, when it is declared


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: cron("61 * * * *"), r"cron is '61 \* \* \* \*': Bad minute; it must be like '30 2 \* \* mon-fri'"),
        (lambda: cron("* * *"), "Wrong number of fields"),
        (lambda: cron("0 0 31 2 *"), "day-of-month"),
        (lambda: cron("* * * * *", tz="Mars"), "unknown time zone 'Mars'; expected a name like Europe/Berlin"),
        (
            lambda: cron("* * * * *", missed=cast(Any, "none")),
            "missed is 'none'; it must be one of 'one', 'all', 'skip'",
        ),
        (lambda: every("0.5s"), "every is '0.5s'; it must be from 1s"),
        (lambda: every("often"), "every is 'often'; it must be a timedelta"),
        (lambda: every("1m", offset="soon"), "offset is 'soon'"),
        (lambda: every("1m", overlap=cast(Any, "wait")), "overlap is 'wait'; it must be one of 'allow', 'skip'"),
        (lambda: every("1m", backlog=0), "backlog is 0; it must be an int from 1 to 1000"),
        (lambda: every("1m", jitter="2d"), "jitter is '2d'; it must be from 0s to 1d"),
        (lambda: every("1m", late=-1), "late is -1; it must be from 0s"),
        (
            lambda: declare("* * * * *"),
            r"schedule is '\* \* \* \* \*'; it must be holdfast.cron\(...\) or holdfast.every\(...\)",
        ),
        (lambda: declare(every("1m"), delay=5), "a scheduled call cannot have the option delay"),
        (lambda: declare(every("1m"), deadline=datetime(2030, 1, 1, tzinfo=UTC)), "must be a duration, not a time"),
        (
            lambda: declare(every("1m", jitter="10s"), deadline="5s"),
            r"deadline \(5s\) must be longer than jitter \(10s\)",
        ),
        (lambda: declare(every("1m"), needs_arguments), "missing a required argument: 'x'"),
    ],
)
def test_a_bad_schedule_is_refused_where_it_is_written(make: Callable[[], object], words: str) -> None:
    with pytest.raises(Invalid, match=words):
        make()


def needs_arguments(x: int) -> None: ...


def nothing() -> None: ...


def declare(timing: Timing | str, function: Callable[..., None] = nothing, **options: Any) -> None:
    Holdfast("redis://127.0.0.1:1").task(name="x", schedule=cast(Any, timing), **options)(function)


def test_a_schedule_of_a_program_that_is_not_known_here_hides_no_other(bench: Workbench) -> None:
    bench.app.store.run(commands.schedule("theirs", {"queue": "q", "task": "t"}, b"{}", spec="lunar", times=[2**46]))
    bench.app.store.run(commands.schedule("also", {"queue": "q", "task": "t"}, b"{}", spec='{"kind": "cron", "x": 1}'))

    assert [(found.name, found.when, found.next()) for found in bench.app.schedules()] == [
        ("also", None, []),
        ("theirs", None, []),
    ]
