"""Client methods for events and handlers: iterators that filter, resume, and go on after an outage."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Any

import pytest
import redis

from holdfast import Event, Holdfast, Invalid, SubscriptionNotFound
from holdfast.client import events as reading
from holdfast.constants import MAX_ID
from holdfast.store import commands
from holdfast.testing import Workbench, use
from tests.support.relay import Relay
from tests.support.sync_and_async import FACES, Ask
from tests.support.workers import Crew, until

Take = Callable[..., list[Event]]
jobs = Holdfast("redis://127.0.0.1:1", revision=3)


@jobs.task(queue="mail")
def send(number: int) -> int:
    if number < 0:
        raise ValueError(number)
    return number


@pytest.fixture
def bench(server_url: str) -> Iterator[Workbench]:
    with use(jobs, server_url) as made:
        yield made


@pytest.fixture(params=FACES)
def ask(request: pytest.FixtureRequest, bench: Workbench) -> Ask:
    return FACES[request.param](bench.app)


def take_sync(app: Holdfast, count: int, **conditions: Any) -> list[Event]:
    return [*islice(app.subscribe(**conditions), count)]


def take_async(app: Holdfast, count: int, **conditions: Any) -> list[Event]:
    async def run() -> list[Event]:
        found: list[Event] = []
        try:
            async for event in app.asubscribe(**conditions):
                found.append(event)
                if len(found) == count:
                    break
        finally:
            await app.aclose()
        return found

    return asyncio.run(run())


@pytest.fixture(params=[take_sync, take_async], ids=["sync", "async"])
def take(request: pytest.FixtureRequest, bench: Workbench) -> Take:
    return lambda count, **conditions: request.param(bench.app, count, **conditions)


# Reading


def test_what_happened_is_iterated_over_from_the_start(bench: Workbench, take: Take) -> None:
    job = send.enqueue(1)
    bench.run_until_empty()
    found = take(3, after="start")
    assert [event.type for event in found] == ["enqueued", "claimed", "succeeded"]
    assert {(event.job, event.queue) for event in found} == {(job.id, "mail")}
    assert found[0].at <= found[-1].at


def test_a_subscription_goes_on_after_an_event(take: Take) -> None:
    for number in range(5):
        send.enqueue(number)
    everything = take(5, after="start")
    for place in range(4):
        assert take(4 - place, after=everything[place].id) == everything[place + 1 :]


def test_conditions_select_jobs_within_an_event(bench: Workbench, take: Take) -> None:
    first, other, last = jobs.enqueue_many([send.bind(1), send.bind(2).options(queue="web"), send.bind(3)])
    assert [event.jobs for event in take(1, after="start", queue="mail")] == [(first.id, last.id)]
    assert [event.jobs for event in take(1, after="start", job=other.id)] == [(other.id,)]
    bench.run_until_empty()
    assert [event.type for event in take(2, after="start", types="claimed", worker="workbench")] == ["claimed"] * 2


@pytest.mark.usefixtures("bench")
def test_events_that_come_while_a_reader_waits_are_delivered() -> None:
    following = jobs.subscribe(types=["enqueued"])
    with ThreadPoolExecutor(1) as pool:
        ids = pool.submit(lambda: [send.enqueue(number).id for number in range(3)])
        found = [event.job for event in islice(following, 3)]
        assert found == ids.result()


@pytest.mark.usefixtures("bench")
def test_a_subscription_begins_when_it_is_made() -> None:
    send.enqueue(1)
    following = jobs.subscribe()
    later = send.enqueue(2)
    assert next(following).job == later.id


def test_a_gap_is_an_event(take: Take) -> None:
    job = send.enqueue(1)
    [known] = take(1, after="start")
    jobs.configure({"events": 100})
    for _ in range(300):
        jobs.pause("mail")
        jobs.resume("mail")
    job.cancel()
    gap, cancelled = take(2, after=known.id, job=job.id)
    assert gap.is_gap
    assert gap.detail == {"after": known.id}
    assert cancelled.type == "cancelled"
    assert take(1, after=gap.id, job=job.id) == [cancelled]


def test_the_events_of_a_page_can_be_filtered(ask: Ask) -> None:
    job = send.enqueue(1)
    jobs.cancel(job.id)
    assert [event.type for event in ask("events", types=["cancelled"])] == ["cancelled"]
    assert [event.type for event in ask("events", "start", queue="mail")] == ["enqueued", "cancelled"]
    assert ask("events", "start", queue="web") == []
    assert [event.type for event in ask("events", limit=1)] == ["cancelled"]


@pytest.mark.usefixtures("bench")
def test_nonsense_is_refused_before_anything_is_sent() -> None:
    with pytest.raises(Invalid, match="did you mean"):
        jobs.subscribe(types=["suceeded"])
    with pytest.raises(Invalid, match="after"):
        jobs.subscribe(after=7)  # type: ignore[arg-type]
    with pytest.raises(Invalid, match="after"):
        next(jobs.subscribe(after="yesterday"))


def test_a_reader_goes_on_after_an_outage(crew: Crew, relay: Relay, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "RETRY_INTERVAL", 0.01)
    monkeypatch.setattr(reading, "MAX_WAIT", 0.5)
    app = Holdfast(relay.url, namespace=crew.namespace, timeout="200ms")
    following = app.subscribe(types=["paused", "resumed"])
    crew.app.pause("q")
    assert next(following).type == "paused"
    relay.cut()
    crew.app.resume("q")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(next, following)
        with pytest.raises(TimeoutError):
            waiting.result(0.5)  # nothing comes through
        relay.mend()
        assert waiting.result(30).type == "resumed"
    app.close()


@pytest.mark.usefixtures("bench")
def test_a_reader_goes_on_after_its_connection_broke(server_url: str) -> None:
    following = jobs.subscribe(types=["paused", "resumed"])
    jobs.pause("mail")
    assert next(following).type == "paused"
    with redis.Redis.from_url(server_url) as client, ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(next, following)
        blocked = until(
            lambda: [each for each in client.client_list() if each["cmd"] == "xread" and "b" in each["flags"]]
        )
        for each in blocked:
            client.client_kill_filter(_id=each["id"])
        gone = {each["id"] for each in blocked}
        until(
            lambda: (
                any(each["cmd"] == "xread" and each["id"] not in gone for each in client.client_list())
                or waiting.done()
            )
        )
        jobs.resume("mail")
        assert waiting.result(30).type == "resumed"


@pytest.mark.usefixtures("bench")
def test_a_busy_stream_is_read_in_few_calls(server_url: str) -> None:
    """What one reader costs the server is bounded by time, not by the number of events."""
    following = jobs.subscribe(types=["paused"])
    with redis.Redis.from_url(server_url) as client:
        for _ in range(500):
            jobs.pause("mail")
            jobs.resume("mail")
        before = client.info("commandstats")["cmdstat_fcall"]["calls"]
        assert len([*islice(following, 500)]) == 500
        assert client.info("commandstats")["cmdstat_fcall"]["calls"] - before <= 2


# Handlers


def declared(app: Holdfast, name: str) -> dict[str, Any]:
    return app.declared_subscriptions[name]


def test_a_handler_is_declared_with_its_conditions_and_options() -> None:
    app = Holdfast(revision=3)

    @app.on("failed", "cancelled", queue="mail", start="start")
    @app.task(name="alert", queue="alerts", retries=5)
    def alert(event: Event) -> None: ...

    made = declared(app, "alert")
    assert made["batch"] == {"queue": "alerts", "task": "alert", "retries": 5}
    assert made["spec"] == '{"filter":{"types":["failed","cancelled"],"queue":"mail"},"parameter":"event"}'
    assert (made["revision"], made["start"]) == (3, "start")
    assert app.tasks["alert"] is alert


def test_a_plain_function_becomes_a_task_with_the_default_options() -> None:
    app = Holdfast(defaults={"queue": "quiet"})
    task = app.on("failed")(one_argument)
    assert app.tasks[task.name] is task
    assert declared(app, task.name)["batch"]["queue"] == "quiet"


def test_a_task_may_handle_several_subscriptions_of_different_names() -> None:
    app = Holdfast()

    @app.on("failed", queue="mail", name="mail-failed")
    @app.on("lost")
    @app.task(name="alert")
    async def alert(event: Event) -> None: ...

    assert {*app.declared_subscriptions} == {"mail-failed", "alert"}
    with pytest.raises(Invalid, match="already named alert"):
        app.on("failed")(alert)


def one_argument(event: Event) -> None: ...
def no_argument() -> None: ...
def two_arguments(event: Event, other: int) -> None: ...
def any_arguments(*events: Event) -> None: ...
def wrong_type(event: int) -> None: ...


@pytest.mark.parametrize("function", [no_argument, two_arguments, any_arguments, wrong_type])
def test_a_handler_must_take_one_event(function: Callable[..., Any]) -> None:
    with pytest.raises(Invalid, match="cannot handle events"):
        Holdfast().on("failed")(function)


def test_wrong_declarations_are_refused() -> None:
    app = Holdfast()

    @app.task(name="alert", unique="only")
    def alert(event: Event) -> None: ...

    with pytest.raises(Invalid, match="unique"):
        app.on("failed")(alert)
    with pytest.raises(Invalid, match="at least one type"):
        app.on()(no_argument)
    with pytest.raises(Invalid, match="start"):
        app.on("failed", start="tomorrow")(one_argument)  # type: ignore[arg-type]
    with pytest.raises(Invalid, match="did you mean"):
        app.on("fail")
    with pytest.raises(Invalid, match=r"^subscription is .* characters"):
        app.on("failed", name="x" * MAX_ID)(one_argument)


def test_subscriptions_are_listed_paused_resumed_and_removed(ask: Ask) -> None:
    app = Holdfast()

    @app.on("failed", queue="mail")
    @app.task(name="alert", queue="alerts")
    def alert(event: Event) -> None: ...

    jobs.store.run(commands.declare_subscription(**declared(app, "alert")))
    [found] = ask("subscriptions")
    assert (found.name, found.task, found.queue, found.paused) == ("alert", "alert", "alerts", False)
    assert found.filter.types == ("failed",)
    assert (found.lag, found.delivered, found.worker, found.last_at) == (0.0, 0, "", None)
    assert ask("pause_subscription", "alert")
    assert ask("get_subscription", "alert").paused
    assert ask("resume_subscription", "alert")
    assert ask("unsubscribe", "alert")
    assert not ask("unsubscribe", "alert")
    with pytest.raises(SubscriptionNotFound):
        ask("get_subscription", "alert")
    with pytest.raises(SubscriptionNotFound):
        ask("pause_subscription", "alert")


def test_a_test_delivers_events_to_handlers(bench: Workbench) -> None:
    got: list[Event] = []
    try:

        @jobs.on("failed", queue="mail")
        @jobs.task(name="alert", queue="alerts")
        def alert(event: Event) -> None:
            got.append(event)

        bad, good = send.options(retries=0).enqueue(-1), send.enqueue(1)
        bench.run_until_empty()
        [id] = bench.deliver_events()
        bench.run_until_empty()
        assert id.startswith("on:alert@")
        assert [(event.jobs, event.detail["group"]) for event in got] == [((bad.id,), "ValueError")]
        assert good.id not in got[0].jobs
        assert bench.deliver_events() == []
    finally:
        jobs.declared_subscriptions.clear()
        jobs.tasks.pop("alert", None)


async def consume(events: AsyncIterator[Event]) -> None:
    async for _ in events:
        pass


@pytest.mark.usefixtures("bench")
def test_an_async_subscription_ends_with_its_task() -> None:
    async def run() -> None:
        reading = asyncio.create_task(consume(jobs.asubscribe()))
        await jobs.acount()
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        assert await jobs.acount() == 0
        await jobs.aclose()

    asyncio.run(run())
