"""The testing kit: an app whose jobs run inside the test; and the pytest plugin, in projects of its own."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import holdfast_pytest
from holdfast import (
    Advance,
    Fail,
    Holdfast,
    HoldfastError,
    Invalid,
    LeaseLost,
    Retries,
    Retry,
    Snooze,
    StoreUnavailable,
    current_job,
    every,
)
from holdfast.job import JobOptions
from holdfast.server import keeper
from holdfast.store.store import Address, Store
from holdfast.testing import Workbench, running_job, running_server, use
from tests.support.workers import is_alive, until

NOWHERE = "redis://127.0.0.1:1"
jobs = Holdfast(NOWHERE, namespace="production")
written: list[object] = []


@dataclass(frozen=True)
class Person:
    name: str
    born: datetime


@jobs.task
def say(word: str, *, loudly: bool = False) -> str:
    written.append(word)
    return word.upper() if loudly else word


@jobs.task(queue="mail")
async def asay(word: str) -> str:
    await asyncio.sleep(0)
    written.append(word)
    return current_job().id


@jobs.task
def greet(person: Person, *words: str, **more: int) -> None:
    say.enqueue(f"hello {person.name} {' '.join(words)}{more or ''}".strip())


@jobs.task(queue="vans", retries=5)
def move(queue: str, priority: int) -> None:  # noqa: ARG001 - named like options
    if current_job().attempt == 1:
        raise Snooze("1h")


@jobs.task(retries=1, backoff="1h")
def end(how: str) -> str:
    match how:
        case "raises":
            raise ValueError(how)
        case "retries":
            raise Retry(delay="2h")
        case "fails":
            raise Fail(how, group="hopeless")
        case "snoozes":
            raise Snooze("3h")
        case "exits":
            sys.exit(3)
        case "yields" if current_job().attempt == 1:
            current_job().yield_now()
    return how


@jobs.task(retries=Retries(3, waits=["1m", "10m"], cap="5m", not_on=KeyError))
def flaky(kind: str) -> None:
    raise KeyError(kind) if kind == "key" else OSError(kind)


@jobs.task
def crunch(rows: int) -> list[int]:
    done = []
    for row in current_job().each(range(rows)):
        done.append(row)
        written.append(current_job().directory)
        (current_job().directory / "row").write_text(str(row))
    return done


@jobs.task
def cancel_itself() -> None:
    current_job().save("begun")
    jobs.cancel(current_job().id)
    current_job().save("halfway")
    written.append("not stopped")


@jobs.task
def go_on_for_ever() -> None:
    go_on_for_ever.enqueue()


@jobs.task
def interrupt(pytest_too: bool) -> None:
    if pytest_too:
        pytest.fail("in the middle")
    raise KeyboardInterrupt


@jobs.task
def run_a_loop() -> str:
    return asyncio.run(asyncio.sleep(0, threading.current_thread().name))


@pytest.fixture
def bench(server_url: str) -> Iterator[Workbench]:
    written.clear()
    with use(jobs, server_url) as made:
        yield made


def keys_of(server_url: str, namespace: str) -> list[bytes]:
    store = Store(Address.find(server_url, namespace=namespace))
    found: list[bytes] = store.execute("KEYS", f"hf:{{{namespace}}}:*")
    store.close()
    return found


@jobs.task
def total() -> int:
    return sum(current_job().results(int))


@jobs.task
async def atotal(children: list[int]) -> int:
    calls = [number.options(id=f"{current_job().id}.{child}").bind(child) for child in children]
    await jobs.aenqueue_many(calls)
    return sum(child.decoded_result() for child in await current_job().await_for(calls))


@jobs.task(schedule=every("1h"))
def number(value: int = 1) -> int:
    return value


@jobs.task
def go_on(value: int) -> int:
    raise Advance(number.bind(value + 1))


# Running


def test_waiting_jobs_run_in_order_in_the_test(bench: Workbench) -> None:
    say.enqueue("second")
    say.options(priority=-1).enqueue("first", loudly=True)
    say.options(delay="1h").enqueue("later")
    assert written == []

    done = bench.run_until_empty()

    assert written == ["first", "second"]
    assert [(job.task, job.state, job.decoded_result()) for job in done] == [
        ("tests.testing.test_testing.say", "succeeded", "FIRST"),
        ("tests.testing.test_testing.say", "succeeded", "second"),
    ]
    assert [attempt.pid for attempt in done[0].attempts] == [os.getpid()]
    assert bench.run_one() is None


def test_jobs_enqueued_by_a_task_run_too(bench: Workbench) -> None:
    greet.enqueue(Person("Ann", datetime(1990, 1, 2, tzinfo=UTC)))
    assert [job.task.rpartition(".")[2] for job in bench.run_until_empty()] == ["greet", "say"]
    assert written == ["hello Ann"]


def test_a_coroutine_runs_without_a_loop_around_it(bench: Workbench) -> None:
    job = asay.enqueue("hello")
    assert [done.id for done in bench.run_until_empty()] == [job.id]
    assert job.result() == job.id


def test_waits_of_a_policy_are_exact_and_exceptions_are_excluded(bench: Workbench) -> None:
    job = flaky.enqueue("disk")
    for minutes in (1, 5, 5):
        record = bench.run_one()
        assert record
        assert record.due_at
        assert record.due_at - record.since == timedelta(minutes=minutes)
        bench.advance(timedelta(minutes=minutes))
    assert (bench.run_one() or job).final_reason == "exhausted"

    excluded = flaky.enqueue("key")
    assert (bench.run_one() or excluded).final_reason == "not_retryable"
    policy = Retries(3, waits=["1m", "10m"], cap="5m", not_on=KeyError)
    bench.assert_enqueued(flaky.options(retries=policy), 2)
    bench.assert_enqueued(flaky.options(retries=Retries(waits=["1m", "10m"], cap="5m", not_on=KeyError)), 2)
    with pytest.raises(AssertionError, match=r"retry_policy is Retries\(waits=\['1m', '10m'\], cap='5m', .*, not Ret"):
        bench.assert_enqueued(flaky.options(retries=Retries(3, waits="1m")))


@pytest.mark.parametrize(
    ("how", "state", "outcomes", "due_in"),
    [
        ("returns", "succeeded", ["succeeded"], None),
        ("raises", "scheduled", ["error"], "1h"),
        ("retries", "scheduled", ["error"], "2h"),
        ("fails", "failed", ["error"], None),
        ("snoozes", "scheduled", ["snoozed"], "3h"),
        ("exits", "failed", ["crash"] * 4, None),
        ("yields", "succeeded", ["released", "succeeded"], None),
    ],
)
def test_each_way_to_end_is_recorded_as_a_worker_would(
    bench: Workbench, how: str, state: str, outcomes: list[str], due_in: str | None
) -> None:
    job = end.enqueue(how)
    assert len(bench.run_until_empty()) == len(outcomes)

    ended = job.refresh()
    assert ended.state == state
    assert [attempt.outcome for attempt in ended.attempts] == outcomes
    if due_in is not None:
        bench.advance(due_in)
        assert ended.due_at is not None
        assert ended.due_at <= bench.now
        assert [again.id for again in bench.run_until_empty()] == [job.id]


def test_a_job_of_a_task_that_is_not_known_here_is_released(bench: Workbench) -> None:
    job = say.enqueue("hello")
    task = jobs.tasks.pop(say.name)
    try:
        (released,) = bench.run_until_empty()
    finally:
        jobs.tasks[say.name] = task
    assert released.attempts[0].outcome == "unknown"

    bench.advance("5s")
    bench.run_until_empty()
    assert job.result() == "hello"


def test_a_job_sees_itself_and_its_directory_goes_with_it(bench: Workbench) -> None:
    crunch.options(id="crunch-1", queue="long").enqueue(2)
    (job,) = bench.run_until_empty()
    assert job.decoded_result() == [0, 1]
    assert job.progress
    assert job.progress.fraction == 1.0
    assert not any(directory.exists() for directory in written if isinstance(directory, Path))
    assert contextvars.copy_context().run(current_job).id == "detached"


def test_a_job_that_is_stopped_at_a_deploy_goes_on_where_it_was(bench: Workbench) -> None:
    job = crunch.enqueue(3)
    for _ in range(2):
        stopped = bench.run_one(stopping=True)
        assert stopped is not None
        assert stopped.state == "waiting"
    (done,) = bench.run_until_empty()
    assert done.id == job.id
    assert done.decoded_result() == [2]
    assert [attempt.outcome for attempt in done.attempts] == ["released", "released", "succeeded"]


def test_a_job_that_is_cancelled_stops_where_it_saves(bench: Workbench) -> None:
    cancel_itself.enqueue()
    (job,) = bench.run_until_empty(raise_errors=True)
    assert (job.state, written) == ("cancelled", [])


def test_an_error_can_be_raised_again(bench: Workbench) -> None:
    job = end.enqueue("raises")
    with pytest.raises(ValueError, match="raises") as caught:
        bench.run_until_empty(raise_errors=True)
    assert caught.traceback[-1].name == "end"
    assert job.refresh().state == "scheduled"

    for how in ("retries", "snoozes"):
        end.enqueue(how)
        bench.run_until_empty(raise_errors=True)
    end.enqueue("fails")
    with pytest.raises(Fail):
        bench.run_until_empty(raise_errors=True)


def test_what_is_meant_for_the_test_run_is_always_raised_again(bench: Workbench) -> None:
    job = interrupt.enqueue(pytest_too=False)
    with pytest.raises(KeyboardInterrupt):
        bench.run_until_empty()
    assert job.refresh().attempts[0].outcome == "error"
    interrupt.enqueue(pytest_too=True)
    with pytest.raises(pytest.fail.Exception, match="in the middle"):
        bench.run_until_empty()


def test_a_task_that_goes_on_for_ever_fails_the_test(bench: Workbench) -> None:
    go_on_for_ever.enqueue()
    with pytest.raises(AssertionError, match=r"jobs are still waiting after 5 jobs have run.*go_on_for_ever"):
        bench.run_until_empty(limit=5)
    assert len(bench.jobs()) == 6


def test_as_many_jobs_as_the_limit_are_not_too_many(bench: Workbench) -> None:
    jobs.enqueue_many([say.bind(str(n)) for n in range(5)])
    asay.options(queue="paused").enqueue("waiting")
    jobs.pause("paused")
    assert len(bench.run_until_empty(limit=5)) == 5


def test_only_the_queues_that_are_asked_for_run_in_the_order_given(bench: Workbench) -> None:
    for queue in ("a", "b", "c"):
        say.options(queue=queue).enqueue(queue)
    bench.run_until_empty(limit=2, queues=["c", "a"])
    assert written == ["c", "a"]
    assert bench.run_until_empty(queues=[]) == []
    assert [job.queue for job in bench.run_until_empty()] == ["b"]


def test_a_job_that_lost_its_lease_meanwhile_is_not_passed_over(bench: Workbench) -> None:
    @jobs.task(name="oversleep")
    def oversleep() -> None:
        if current_job().attempt == 1:
            for _ in range(9):  # the store spares a lease at first: it cannot know that its own time was moved
                bench.advance("1h")
                bench.run_one()

    oversleep.enqueue()
    try:
        with pytest.raises(LeaseLost, match="attempt 1"):
            bench.run_until_empty()
    finally:
        del jobs.tasks["oversleep"]
    (job,) = bench.jobs()
    assert [attempt.outcome for attempt in job.attempts] == ["lost", "succeeded"]


# In an event loop


def test_sync_and_async_tasks_run_from_an_event_loop(bench: Workbench) -> None:
    async def story() -> None:
        spoken = await asay.aenqueue("async")
        looped = await run_a_loop.aenqueue()
        waiting = asyncio.create_task(spoken.aresult(timeout="1m"))
        done = await bench.arun_until_empty()
        assert {job.id for job in done} == {spoken.id, looped.id}
        assert await waiting == spoken.id
        assert await looped.aresult() != threading.current_thread().name
        assert current_job().id == "detached"

    asyncio.run(story())
    gc.collect()  # a connection that is left open is a warning, and so an error


def test_errors_are_raised_again_in_an_event_loop_too(bench: Workbench) -> None:
    @jobs.task(name="give-up")
    async def give_up() -> None:
        raise asyncio.CancelledError

    async def story() -> None:
        end.enqueue("raises")
        with pytest.raises(ValueError, match="raises"):
            await bench.arun_until_empty(raise_errors=True)
        give_up.enqueue()
        (job,) = await bench.arun_until_empty()
        assert job.attempts[0].outcome == "error"
        go_on_for_ever.enqueue()
        with pytest.raises(AssertionError, match="after 3 jobs"):
            await bench.arun_until_empty(limit=3)
        jobs.pause("default")
        await asay.aenqueue("the only one")
        assert len(await bench.arun_until_empty(limit=1)) == 1

    try:
        asyncio.run(story())
    finally:
        del jobs.tasks["give-up"]


def test_a_job_ends_with_the_test_that_runs_it(bench: Workbench) -> None:
    begun = asyncio.Event()

    @jobs.task(name="hang")
    async def hang() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            written.append("cancelled")

    async def story() -> None:
        hang.enqueue()
        running = asyncio.create_task(bench.arun_one())
        await begun.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    try:
        asyncio.run(story())
    finally:
        del jobs.tasks["hang"]
    assert written == ["cancelled"]


def test_the_sync_methods_refuse_to_block_an_event_loop(bench: Workbench) -> None:
    async def story() -> None:
        job = say.enqueue("hello")
        with pytest.raises(RuntimeError, match="arun_until_empty"):
            bench.run_until_empty()
        assert job.refresh().state == "waiting"

    asyncio.run(story())


# Jobs that belong together


def test_jobs_come_after_others_and_have_their_results(bench: Workbench) -> None:
    parts = [number.enqueue(1), number.options(delay="1h").enqueue(2)]
    whole = total.options(after=parts).enqueue()

    assert [job.task for job in bench.run_until_empty()] == [number.name]
    bench.advance("1h")
    assert [job.task for job in bench.run_until_empty()] == [number.name, total.name]

    assert whole.result() == 3
    assert [job.id for job in bench.jobs()] == [parts[0].id, parts[1].id, whole.id]


def test_a_job_waits_for_its_children_and_goes_on_as_another_in_an_event_loop(bench: Workbench) -> None:
    async def story() -> None:
        first, second = await atotal.aenqueue([1, 2, 3]), await go_on.aenqueue(4)
        done = await bench.arun_until_empty(raise_errors=True)
        assert [job.state for job in done[:2]] == ["blocked", "waiting"]
        assert (await first.aresult(), await second.aresult()) == (6, 5)

    asyncio.run(story())


@pytest.mark.parametrize("raise_errors", [False, True])
@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("waits for itself", "the store refused to wait for wish: it would wait for itself"),
        (
            "goes on after nobody",
            "to continue as tests.testing.test_testing.say: a job that it would wait for does not exist",
        ),
        ("goes on after itself", "to continue as tests.testing.test_testing.say: it would wait for itself"),
    ],
)
def test_a_wish_that_the_store_refuses_is_a_failure_as_at_a_worker(
    bench: Workbench, how: str, words: str, raise_errors: bool
) -> None:
    job = wish.options(id="wish").enqueue(how)
    if raise_errors:
        with pytest.raises(Invalid, match=words):
            bench.run_until_empty(raise_errors=True)
    else:
        bench.run_until_empty()
    ended = job.refresh()
    assert (ended.state, ended.group) == ("failed", "refused")
    assert ended.failure is not None
    assert words in ended.failure.message


@jobs.task
def wish(how: str) -> None:
    match how:
        case "waits for itself":
            current_job().wait_for(current_job().id)
        case "goes on after nobody":
            raise Advance(say.bind("").options(after="nobody"))
        case "goes on after itself":
            raise Advance(say.bind("").options(after=current_job().id))


def test_the_reason_why_a_job_is_pending_is_shown(bench: Workbench) -> None:
    jobs.set_limit("api", 1, per="1h")
    part = end.options(id="part").enqueue("fails")
    total.options(id="whole", after=part).enqueue()
    for id in ("one", "two"):
        number.options(id=id, limits="api").enqueue()
    bench.run_until_empty()

    with pytest.raises(AssertionError) as caught:
        bench.assert_nothing_pending()

    assert str(caught.value).splitlines() == [
        "2 jobs have not ended:",
        "  blocked: tests.testing.test_testing.total, job whole, waits for part (failed)",
        "  throttled: tests.testing.test_testing.number, job two, waits for limit api",
    ]


def test_schedules_fire_when_they_are_declared_and_time_passes(bench: Workbench) -> None:
    bench.advance("1h")
    assert bench.run_until_empty() == []
    assert bench.declare_schedules() == [number.name]
    bench.advance("1h")
    (job,) = bench.run_until_empty()
    assert job.id.startswith(f"{number.name}@")
    assert [each.id for each in bench.jobs(number)] == [job.id]


def test_a_deadline_passes_with_the_tests_time(bench: Workbench) -> None:
    job = say.options(deadline="1h").enqueue("too late")
    bench.advance("1h")
    assert bench.run_until_empty() == []
    assert (job.refresh().state, job.refresh().group) == ("failed", "deadline")
    bench.assert_nothing_pending()


def test_a_task_called_as_a_function_says_that_it_knows_no_other_jobs() -> None:
    with pytest.raises(HoldfastError, match=r"called as a function, so it has no access to other jobs: .*workbench"):
        total()


# Time


def test_time_begins_as_the_servers_and_is_never_behind_it(bench: Workbench, server_url: str) -> None:
    store = Store(Address.find(server_url))
    seconds, microseconds = store.execute("TIME")
    store.close()
    server_time = datetime.fromtimestamp(int(seconds), UTC) + timedelta(microseconds=int(microseconds))
    assert server_time - timedelta(milliseconds=1) <= bench.now < server_time + timedelta(minutes=10)


@pytest.mark.usefixtures("bench")
def test_a_job_due_now_by_the_clock_of_this_machine_is_waiting() -> None:
    assert say.options(at=datetime.now(UTC)).enqueue("now").state == "waiting"


def test_a_job_that_is_not_kept_is_returned_as_it_ended(bench: Workbench) -> None:
    job = say.options(keep=False).enqueue("once")
    (ended,) = bench.run_until_empty()
    assert (ended.id, ended.state, ended.decoded_result(), written) == (job.id, "succeeded", "once", ["once"])
    assert bench.jobs() == []


def test_a_key_that_is_unique_for_a_time_and_a_debounced_call_follow_the_tests_clock(bench: Workbench) -> None:
    hourly = say.options(unique="k", unique_for="1h")
    assert (hourly.enqueue("one").created, hourly.enqueue("two").created) == (True, False)
    bench.run_until_empty()
    assert not hourly.enqueue("three").created
    bench.advance("1h")
    assert hourly.enqueue("four").created
    for word in ("five", "six"):
        say.options(debounce="5s").enqueue(word)
    bench.advance("5s")
    bench.run_until_empty()
    assert written == ["one", "four", "six"]


def test_time_passes_only_when_the_test_advances_it(bench: Workbench) -> None:
    before = bench.now
    job = say.options(delay="1d").enqueue("tomorrow")
    bench.advance("23h")
    assert bench.run_until_empty() == []
    bench.advance(timedelta(hours=1))
    assert [done.id for done in bench.run_until_empty()] == [job.id]
    assert bench.now >= before + timedelta(days=1)
    with pytest.raises(Invalid, match="duration"):
        bench.advance(-1)


# Looking


def test_enqueued_calls_are_listed_with_their_arguments(bench: Workbench) -> None:
    ann = Person("Ann", datetime(1990, 1, 2, tzinfo=UTC))
    greet.enqueue(ann, "and", "welcome", times=3)
    greet.enqueue(person=ann)
    say.enqueue("hello")
    say.enqueue(word="HELLO", loudly=True)
    assert bench.enqueued(greet) == [
        {"person": ann, "words": ("and", "welcome"), "more": {"times": 3}},
        {"person": ann},
    ]
    assert bench.enqueued(say) == [{"word": "hello"}, {"word": "HELLO", "loudly": True}]
    assert bench.enqueued(asay) == []


def test_jobs_are_listed_in_the_order_of_enqueue(bench: Workbench) -> None:
    calls = [say.bind(str(n)) for n in range(1100)]
    jobs.enqueue_many([*calls, asay.bind("last")])
    bench.run_one()
    assert [job.id for job in bench.jobs(say)] == [call.id for call in calls]
    assert len(bench.jobs()) == 1101


def test_that_nothing_is_pending_can_be_asserted(bench: Workbench) -> None:
    bench.assert_nothing_pending()
    say.enqueue("now")
    bench.run_until_empty()
    bench.assert_nothing_pending()
    say.options(delay="1h", id="later").enqueue("later")
    asay.enqueue("now")
    with pytest.raises(AssertionError, match="2 jobs have not ended") as caught:
        bench.assert_nothing_pending()
    assert "scheduled: tests.testing.test_testing.say, job later, due at " in str(caught.value)
    assert "waiting: tests.testing.test_testing.asay" in str(caught.value)


def test_that_jobs_were_enqueued_can_be_asserted(bench: Workbench) -> None:
    ann = Person("Ann", datetime(1990, 1, 2, tzinfo=UTC))
    greet.enqueue(ann, "and", "welcome", times=3)
    one, two = say.enqueue("hello"), say.options(queue="loud", delay="7d").enqueue("hello", loudly=True)

    assert [job.id for job in bench.assert_enqueued(say)] == [one.id, two.id]
    assert [job.id for job in bench.assert_enqueued(say, 2, word="hello")] == [one.id, two.id]
    assert [job.id for job in bench.assert_enqueued(say, loudly=False)] == [one.id]  # a default, which is not stored
    bench.assert_enqueued(say.options(queue="loud", delay="7d"), 1, word="hello")
    bench.assert_enqueued(greet, person=ann, words=("and", "welcome"), more={"times": 3})
    bench.assert_enqueued(greet, times=3)
    bench.assert_not_enqueued(greet, times=2)
    with pytest.raises(AssertionError, match="hours is not given, not None"):
        bench.assert_enqueued(greet, hours=None)
    bench.assert_not_enqueued(say, word="goodbye")
    bench.assert_not_enqueued(say.options(delay="6d"))
    bench.assert_not_enqueued(asay)
    bench.run_until_empty()
    bench.assert_enqueued(say.options(queue="default"), 1, word="hello")  # jobs that have run count too


def test_each_option_that_a_record_shows_can_be_asserted(bench: Workbench) -> None:
    at, first = (bench.now + timedelta(days=30)).replace(microsecond=0), say.options(id="first").enqueue("first")
    chosen = say.options(
        priority=-3, at=at, retries=7, crashes=1, lost=2, id="x", unique="u", limits=["api"], share="acme"
    )
    chosen.enqueue("hello")
    bench.assert_enqueued(chosen, 1)
    others: list[JobOptions] = [{"priority": -2}, {"retries": 6}, {"unique": "v"}, {"limits": "web"}, {"share": "b"}]
    for other in others:
        bench.assert_not_enqueued(chosen.options(**other))
    for alone in (say.options(after=first), say.options(deadline="2h"), say.options(deadline=at)):
        bench.assert_not_enqueued(alone)
        alone.enqueue("hello")
        bench.assert_enqueued(alone, 1)
    bench.assert_enqueued(say.options(keep=True), 5)


def test_an_option_and_an_argument_may_have_the_same_name(bench: Workbench) -> None:
    move.options(queue="x").enqueue("front", 1)
    bench.assert_enqueued(move.options(queue="x"), 1, queue="front")
    bench.assert_not_enqueued(move.options(queue="x"), queue="x")
    with pytest.raises(AssertionError, match="queue is 'front', not 'WRONG'; queue is 'x', not 'y'"):
        bench.assert_enqueued(move.options(queue="y"), queue="WRONG")


def test_options_that_were_only_declared_are_not_compared(bench: Workbench) -> None:
    move.options(queue="x", retries=1, priority=3).enqueue("front", 1)
    with pytest.raises(AssertionError, match=r"expected 0 jobs of .*move\(\) with priority=3, found 1"):
        bench.assert_not_enqueued(move.options(priority=3))
    bench.assert_enqueued(move.options(priority=3).options(retries=1), 1)
    bench.assert_not_enqueued(move.options(queue="vans"))  # given, though it is the declared one
    bench.assert_not_enqueued(move.options(priority=None))
    bench.assert_enqueued(move.options(delay=None, deadline=None, after=None, share=None), 1)
    bench.assert_enqueued(move.options(at=bench.now).options(delay=0), 1)
    with pytest.raises(Invalid, match="retries=None stands for a default of the store; give the value"):
        bench.assert_enqueued(move.options(retries=None))


def test_a_delay_is_asserted_before_the_job_runs(bench: Workbench) -> None:
    job = move.options(delay="1d").enqueue("front", 1)
    bench.assert_enqueued(move.options(delay="1d"), 1)
    bench.advance("1d")
    bench.run_until_empty()
    assert job.refresh().state == "scheduled"  # snoozed
    for later in (lambda: bench.advance("1h"), bench.run_until_empty):
        for wrong in (move.options(delay="1d"), move.options(at=bench.now)):
            with pytest.raises(Invalid, match=f"job {job.id} has started, and .* due first; assert before you run it"):
                bench.assert_not_enqueued(wrong)
        later()
    bench.assert_not_enqueued(move.options(delay="1d"), queue="back")  # another job at any rate
    second = move.options(delay="1d").enqueue("front", 1)
    assert [each.id for each in bench.assert_enqueued(move.options(delay="1d"))] == [second.id]
    with pytest.raises(Invalid, match="has started"):
        bench.assert_enqueued(move.options(delay="1d"), 1)


def test_a_job_that_began_to_wait_at_once_had_no_delay(bench: Workbench) -> None:
    first = move.enqueue("front", 1)
    bench.assert_not_enqueued(move.options(delay="1h"))
    bench.run_until_empty()
    bench.assert_not_enqueued(move.options(delay="1h"))  # that of the snooze
    move.options(after=first, delay="1h", id="next").enqueue("back", 1)
    with pytest.raises(Invalid, match="job next is blocked, and its record does not show"):
        bench.assert_enqueued(move.options(delay="1h"), queue="back")


def test_what_was_not_enqueued_is_told_with_the_nearest_jobs(bench: Workbench) -> None:
    name = "tests.testing.test_testing.say"
    with pytest.raises(AssertionError, match=rf"^expected at least one job of {name}\(\), found 0. Enqueued: nothing$"):
        bench.assert_enqueued(say)
    asay.enqueue("hello")
    with pytest.raises(AssertionError, match=r"found 0. Enqueued: tests.testing.test_testing.asay \(1\)$"):
        bench.assert_enqueued(say, word="hello")
    say.options(id="far").enqueue("goodbye", loudly=True)
    say.options(id="near", queue="loud").enqueue("hello" * 100)
    with pytest.raises(AssertionError) as caught:
        bench.assert_enqueued(say.options(queue="loud"), 2, word="goodbye", loudly=False)
    first, near, far = str(caught.value).splitlines()
    assert first == (
        f"expected 2 jobs of {name}(word='goodbye', loudly=False) with queue='loud', found 0; the jobs of this task, "
        "nearest first:"
    )
    assert near.startswith("  job near: word is 'hellohello")
    assert near.endswith("..., not 'goodbye'")
    assert far == "  job far: loudly is True, not False; queue is 'default', not 'loud'"
    jobs.enqueue_many([say.bind("x") for _ in range(20)])
    with pytest.raises(AssertionError, match=r"expected 0 jobs of .*found 20(.*\n)*  and 12 more$") as caught:
        bench.assert_not_enqueued(say, word="x")


def test_an_assertion_about_nothing_is_refused(bench: Workbench) -> None:
    with pytest.raises(Invalid, match=r"say has no parameter 'wort'; did you mean word\?"):
        bench.assert_enqueued(say, wort="hello")
    with pytest.raises(Invalid, match=r"say has no parameter 'x'; it takes \(word: .*, loudly: "):
        bench.assert_enqueued(say, x="hello")
    with pytest.raises(Invalid, match=r"say has no parameter 'queue'; options are given by task.options\(queue=...\)"):
        bench.assert_enqueued(say, queue="mail")
    with pytest.raises(Invalid, match=r"count is 'hello'; expected an integer. Name the arguments of the task"):
        bench.assert_enqueued(say, "hello")  # type: ignore[arg-type]
    with pytest.raises(Invalid, match="count is -1; it must be at least 0"):
        bench.assert_enqueued(say, -1)
    with pytest.raises(Invalid, match=r"expected a task, as assert_enqueued\(task, name=value\), got <BoundCall "):
        bench.assert_enqueued(say.bind("hello"))  # type: ignore[arg-type]
    with pytest.raises(Invalid, match=r"does not show timeout; it shows queue, priority, .* and deadline$"):
        bench.assert_enqueued(say.options(timeout="1h"))


# Where tests happen


def test_an_app_is_where_it_was_when_the_test_is_over(server_url: str) -> None:
    before = dict(vars(jobs))
    with use(jobs, server_url):
        assert jobs.address.url == server_url
        say.enqueue("hello")
    assert vars(jobs) == before

    with pytest.raises(StoreUnavailable), use(jobs, NOWHERE):
        pass  # never comes here
    assert vars(jobs) == before


def test_all_that_an_app_knows_of_its_place_is_exchanged(server_url: str) -> None:
    before = dict(vars(jobs))
    with use(jobs, server_url):
        stays = {name for name in before if vars(jobs)[name] is before[name]}
        assert stays == {
            "tasks",
            "declared_schedules",
            "declared_subscriptions",
            "declared_limits",
            "shared_queues",
            "revision",
            "defaults",
            "middleware_stack",
            "carried",
            "scope_of_jobs",
            "extension",
        }


def test_an_app_is_used_for_one_test_at_a_time(bench: Workbench, server_url: str) -> None:
    with (
        pytest.raises(Invalid, match=f"another test is using the app, in namespace {jobs.address.namespace}"),
        use(jobs, server_url),
    ):
        pass  # never comes here
    say.enqueue("still here")
    assert len(bench.run_until_empty()) == 1


def test_other_threads_use_the_app_there_too(bench: Workbench) -> None:
    thread = threading.Thread(target=say.enqueue, args=("from a thread",))
    thread.start()
    thread.join()
    assert [job.decoded_result() for job in bench.run_until_empty()] == ["from a thread"]


def test_each_use_has_a_namespace_of_its_own_and_leaves_no_key(server_url: str) -> None:
    namespaces = []
    for _ in range(2):
        with use(jobs, server_url) as bench:
            assert bench.jobs() == []
            end.enqueue("raises")
            say.options(id="x" * 100).enqueue("y" * 1000)
            bench.run_until_empty()
            namespaces.append(jobs.address.namespace)
            assert keys_of(server_url, namespaces[-1]) != []
    assert len({*namespaces}) == 2
    assert [keys_of(server_url, namespace) for namespace in namespaces] == [[], []]


def test_a_namespace_that_was_given_is_kept(server_url: str, namespace: str) -> None:
    with use(jobs, server_url, namespace=namespace):
        say.enqueue("hello")
    with use(jobs, server_url, namespace=namespace) as bench:
        assert [job.decoded_result() for job in bench.run_until_empty()] == ["hello"]


def test_nothing_is_left_of_a_server() -> None:
    with running_server() as url:
        socket = url.removeprefix("unix://")
        pid = int(keeper.info(socket, "server")["process_id"])
        assert is_alive(pid)
    until(lambda: not is_alive(pid))
    assert not Path(socket).parent.exists()


# Tasks as functions


def test_a_task_called_as_a_function_sees_the_job_of_the_test() -> None:
    written.clear()
    with running_job(checkpoint=1, attempt=2) as job:
        assert crunch(3) == [1, 2]
        assert (current_job().attempt, job.checkpoint(int, 0)) == (2, 3)
    assert len(written) == 2
    assert not any(directory.exists() for directory in written if isinstance(directory, Path))
    assert current_job() is not job
    with running_job(), pytest.raises(ValueError, match="raises"):
        end("raises")


def test_a_task_called_as_a_function_can_be_told_to_stop() -> None:
    with running_job(stopping=True) as job:
        with pytest.raises(BaseException) as caught:  # noqa: PT011 - it is no Exception, on purpose
            crunch(3)
        assert type(caught.value).__name__ == "YieldNow"
        assert job.checkpoint(int, 0) == 1


# The plugin


TASKS = """
    from holdfast import Holdfast, current_job
    jobs = Holdfast()

    @jobs.task
    def add(x: int, y: int) -> int:
        return x + y

    @jobs.task
    async def remember(value: int) -> int:
        before = current_job().checkpoint(int, 0)
        current_job().save(value)
        return before
"""
RUN_COROUTINES = """
    import asyncio, inspect, pytest

    @pytest.hookimpl(tryfirst=True)
    def pytest_pyfunc_call(pyfuncitem):
        if inspect.iscoroutinefunction(pyfuncitem.obj):
            names = pyfuncitem._fixtureinfo.argnames
            asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
            return True
"""
TESTS = """
    import asyncio, os, pytest
    from tasks import add, jobs, remember

    @pytest.mark.parametrize("n", range(3))
    def test_sync(holdfast_app, holdfast_server, n):
        with open("servers", "a") as file:
            file.write(f"{os.environ.get('PYTEST_XDIST_WORKER')} {holdfast_server}\\n")
        assert holdfast_app.app is jobs and holdfast_app.jobs() == []
        job = add.enqueue(n, 1)
        assert [done.id for done in holdfast_app.run_until_empty()] == [job.id]
        assert job.result() == n + 1
        holdfast_app.assert_nothing_pending()

    @pytest.mark.parametrize("n", range(3))
    async def test_async(holdfast_app, n):
        job = await remember.aenqueue(n)
        added = await add.aenqueue(n, 1)
        assert len(await holdfast_app.arun_until_empty()) == 2
        assert (await job.aresult(), await added.aresult()) == (0, n + 1)

    @pytest.mark.parametrize("n", [1, 2])
    def test_saves_of_an_earlier_test_are_forgotten(n):
        assert asyncio.run(remember(n)) == 0
        remember.function(n).close()
"""
OWN_FIXTURES = """
    import pathlib, pytest, tasks

    @pytest.fixture
    def holdfast_target():
        return tasks.jobs

    @pytest.fixture(scope="session")
    def holdfast_server():
        return pathlib.Path("url").read_text()
"""
TEST_OF_OWN_FIXTURES = """
    from tasks import add, jobs

    def test_it(holdfast_app):
        add.enqueue(1, y=2)
        assert holdfast_app.enqueued(add) == [{"x": 1, "y": 2}]
        print(jobs.address)
"""


class Project:
    """A user's project: files, and pytest run on them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, files: dict[str, str]) -> None:
        for name, text in files.items():
            (self.folder / name).write_text(textwrap.dedent(text))

    def test(self, *arguments: str) -> str:
        """Run its tests with warnings as errors, where the app's own address would lead nowhere."""
        environment = {**os.environ, "HOLDFAST_URL": NOWHERE, "PYTEST_ADDOPTS": "-p no:cacheprovider"}
        environment.pop("PYTEST_XDIST_WORKER", None)
        done = subprocess.run(
            [sys.executable, "-W", "error", "-m", "pytest", *arguments],
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        return done.stdout + done.stderr


@pytest.fixture
def project(tmp_path: Path) -> Project:
    made = Project(tmp_path)
    made.write({"pyproject.toml": '[tool.pytest.ini_options]\nholdfast_app = "tasks:jobs"\n', "tasks.py": TASKS})
    return made


def test_sync_and_async_tests_of_a_project_use_the_fixtures(project: Project) -> None:
    project.write({"conftest.py": RUN_COROUTINES, "test_tasks.py": TESTS})
    assert "8 passed" in project.test()
    (server,) = {*(project.folder / "servers").read_text().splitlines()}
    assert not Path(server.partition("unix://")[2]).parent.exists()


def test_each_worker_of_xdist_has_a_server_of_its_own(project: Project) -> None:
    project.write({"conftest.py": RUN_COROUTINES, "test_tasks.py": TESTS})
    assert "16 passed" in project.test("-n", "2", "--dist", "each")
    lines = {*(project.folder / "servers").read_text().splitlines()}
    assert {line.partition(" ")[0] for line in lines} == {"gw0", "gw1"}
    servers = {line.partition("unix://")[2] for line in lines}
    assert len(servers) == 2
    assert not any(Path(server).parent.exists() for server in servers)


def test_a_project_without_an_app_setting_gets_a_hint(project: Project) -> None:
    project.write({"pyproject.toml": "", "test_tasks.py": "def test_it(holdfast_app): ..."})
    output = project.test()
    assert "1 error" in output
    assert holdfast_pytest.MISSING.splitlines()[0] in output
    assert "Traceback" not in output


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("nothing:jobs", "holdfast_app = nothing:jobs: No module named 'nothing'"),
        ("tasks:nobody", "holdfast_app = tasks:nobody: tasks has no Holdfast app named nobody"),
        ("tasks.jobs", "holdfast_app = tasks.jobs: tasks.jobs is not a module; try tasks:jobs"),
    ],
)
def test_a_project_whose_app_is_not_found_gets_a_hint(project: Project, path: str, words: str) -> None:
    project.write(
        {
            "pyproject.toml": f'[tool.pytest.ini_options]\nholdfast_app = "{path}"\n',
            "test_tasks.py": "def test_it(holdfast_app): ...",
        }
    )
    output = project.test()
    assert "1 error" in output
    assert words in output
    assert "importlib" not in output


def test_a_project_may_bring_its_own_app_and_server(project: Project, server_url: str) -> None:
    project.write({"pyproject.toml": "", "conftest.py": OWN_FIXTURES, "test_tasks.py": TEST_OF_OWN_FIXTURES})
    (project.folder / "url").write_text(server_url)
    output = project.test("-s")
    assert "1 passed" in output
    assert server_url in output


def test_tests_run_on_a_server_named_on_the_command_line(project: Project, server_url: str) -> None:
    project.write({"conftest.py": RUN_COROUTINES, "test_tasks.py": TESTS})
    assert "8 passed" in project.test("--holdfast-url", server_url)
    assert {*(project.folder / "servers").read_text().splitlines()} == {f"None {server_url}"}
    assert "16 passed" in project.test("-n", "2", "--dist", "each", f"--holdfast-url={server_url}")
    assert {line.partition(" ")[2] for line in (project.folder / "servers").read_text().splitlines()} == {server_url}
    store = Store(Address.find(server_url))
    assert store.execute("KEYS", "hf:{test-*") == []
    store.close()


@pytest.mark.parametrize(
    ("url", "words"),
    [
        (NOWHERE, "--holdfast-url: "),
        ("", "--holdfast-url is empty"),
        ("http://example.org", "it must begin with redis://"),
    ],
)
def test_a_server_that_is_not_there_is_an_error_and_no_other_is_used(project: Project, url: str, words: str) -> None:
    project.write({"conftest.py": RUN_COROUTINES, "test_tasks.py": TESTS})
    output = project.test("--holdfast-url", url, "-k", "test_sync")
    assert words in output
    assert "3 errors" in output
    assert "Traceback" not in output
    assert "During handling" not in output


def test_the_plugin_imports_nothing_before_it_is_used() -> None:
    load = f"""
        import importlib.util, sys
        import pytest
        before = set(sys.modules)
        spec = importlib.util.spec_from_file_location("plugin", {holdfast_pytest.__file__!r})
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        module.pytest_runtest_setup()
        assert set(sys.modules) == before, set(sys.modules) - before
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(load)], check=True)
