"""Handlers of events: each event is handled, whoever dies, and none twice unless somebody did."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from itertools import count
from typing import Any, TypeVar

import msgspec
import pytest
import redis

from holdfast import Event, Holdfast
from holdfast.job.outcome import Error
from holdfast.store import Command, commands
from holdfast.store.commands import Finish
from holdfast.store.store import Address
from holdfast.worker.retrying_store import RetryingStore
from holdfast.worker.supervisor import duties, subscriptions
from holdfast.worker.supervisor.subscriptions import WorkerSubscriptions
from tests.apps import handler_app
from tests.store.lua.test_state_machine import ONE, new
from tests.support.workers import Crew, until

T = TypeVar("T")
counters = count(1)


# Real workers


def handled(crew: Crew, handler: str = "alert") -> Counter[str]:
    return Counter(job for job, *_ in crew.said(handler))


def fail_some(crew: Crew, number: int = 5) -> set[str]:
    return {crew.put(handler_app.refuse, each).id for each in range(number)}


def start(crew: Crew, node: str = "node") -> Any:
    return crew.start("--queues", "work,handlers", app="tests.apps.handler_app", node=node)


def test_each_failure_is_handled_once_and_handlers_call_no_handlers(crew: Crew) -> None:
    worker = start(crew)
    until(lambda: len(crew.app.subscriptions()) == 3)
    ids = fail_some(crew)

    until(lambda: set(handled(crew)) == ids and set(handled(crew, "clumsy")) == ids)
    until(lambda: not crew.app.count(state="pending"))
    assert worker.stop() == 0
    assert set(handled(crew).values()) == {1}
    assert {(group, id.partition("@")[0]) for _, group, id in crew.said("alert")} == {("ValueError", "on:alert")}
    assert crew.said("never") == []
    found = {each.name: each for each in crew.app.subscriptions()}
    assert found["alert"].delivered == sum(job.task == "alert" for job in crew.app.list())
    assert found["of-handlers"].delivered == 0
    assert found["alert"].worker == ""  # given back


def test_events_of_times_without_a_worker_are_handled_later(crew: Crew) -> None:
    first = start(crew)
    until(lambda: len(crew.app.subscriptions()) == 3)
    first.stop()
    ids = fail_some(crew, 3)
    other = crew.start("--queues", "work", app="tests.apps.worker_app", node="other")  # it has no handler, and no task
    until(lambda: crew.events("released"))
    other.stop()
    start(crew)
    until(lambda: set(handled(crew)) == ids)


def test_another_worker_takes_over_from_one_that_was_killed(crew: Crew) -> None:
    workers = [start(crew, f"node{number}") for number in range(2)]
    until(lambda: all(each.worker for each in crew.app.subscriptions()) and len(crew.app.workers()) == 2)
    holder = crew.app.get_subscription("alert").worker
    victim = workers[int(holder.partition("/")[0].removeprefix("node"))]
    ids = fail_some(crew)
    victim.kill()
    ids |= fail_some(crew)

    until(lambda: set(handled(crew)) == ids)
    until(lambda: not crew.app.count(state="pending"))
    assert crew.app.get_subscription("alert").worker not in ("", holder)
    # A handler's job may run again if its worker died; none was enqueued twice.
    parts = Counter(id for _, _, id in crew.said("alert"))
    assert len(parts) == crew.app.get_subscription("alert").delivered


def test_a_paused_subscription_is_delivered_after_it_resumes(crew: Crew) -> None:
    start(crew)
    until(lambda: len(crew.app.subscriptions()) == 3)
    assert crew.app.pause_subscription("alert")
    ids = fail_some(crew, 2)
    until(lambda: set(handled(crew, "clumsy")) == ids)
    assert not handled(crew)
    assert crew.app.resume_subscription("alert")
    until(lambda: set(handled(crew)) == ids)
    assert set(handled(crew).values()) == {1}


def test_an_embedded_worker_delivers_too(server_url: str, namespace: str) -> None:
    jobs, got = Holdfast(server_url, namespace=namespace), []

    @jobs.on("succeeded", queue="default")
    @jobs.task(name="seen", queue="handlers")
    async def seen(event: Event) -> None:
        got.append(event.job)

    @jobs.task(name="work")
    async def work() -> None: ...

    with jobs.worker(queues=["default", "handlers"]):
        until(jobs.subscriptions)
        id = jobs.enqueue(work.bind()).id
        until(lambda: got)
    assert got == [id]
    jobs.close()


# A supervisor that dies in every position


class Killed(Exception):
    """The supervisor was killed here."""


class DyingStore(RetryingStore):
    """A store whose caller dies before its n-th call is sent, or before the reply of that call arrives."""

    def __init__(self, number: int, *, sent: bool) -> None:
        super().__init__()
        self._left = number
        self._sent = sent

    async def run(self, command: Command[T]) -> T:
        self._left -= 1
        if self._left == 0 and not self._sent:
            raise Killed
        reply = await super().run(command)
        if self._left == 0:
            raise Killed
        return reply


def fail_at_once(app: Holdfast, *ids: str) -> None:
    """Have jobs fail in one call, so that they are one event."""
    app.store.run(commands.enqueue([new(id, queue="q") for id in ids]))
    request = commands.claim_args(("q",), counter=next(counters), limit=len(ids))
    app.store.run(commands.claim(ONE, request))
    items = [Finish(id, 1, Error(b"", "ValueError", final=True)) for id in ids]
    app.store.run(commands.finish(ONE, items))


def payloads(app: Holdfast) -> list[dict[str, Any]]:
    """The events that were delivered, in their order."""
    ids = [job.id for job in app.list(queue="handlers")]
    found = app.store.run(commands.get(ids)) if ids else []
    return [msgspec.json.decode(fields["payload"])["event"] for fields in found if fields]


def delivered(app: Holdfast) -> list[str]:
    """The jobs whose failures were delivered, once for each delivery."""
    return sorted(id for event in payloads(app) for id in event.get("jobs", ()))


@pytest.fixture
def app(server_url: str, namespace: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Holdfast]:
    """An app with a handler. Few events are read and delivered at once, so that there are many positions to die in."""
    monkeypatch.setattr(subscriptions, "MAX_JOBS", 2)
    monkeypatch.setattr(subscriptions, "PAGE", 8)
    monkeypatch.setattr(subscriptions, "MIN_READ_INTERVAL", 0.0)
    made = Holdfast(server_url, namespace=namespace)

    @made.on("failed", queue="q")
    @made.task(name="alert", queue="handlers")
    def alert(event: Event) -> None: ...

    yield made
    made.close()


@asynccontextmanager
async def supervising(
    app: Holdfast, store: RetryingStore, worker: str, *, restarting: bool = False
) -> AsyncIterator[asyncio.Task[None]]:
    """Declare and deliver as a supervisor does, which ends as if it was killed."""
    store.connect(Address.find(app.address.url, namespace=app.address.namespace))
    supervisor = WorkerSubscriptions(worker, store)

    async def run() -> None:
        await supervisor.declare(app.declared_subscriptions.values())
        await (duties.run_duty(supervisor.run) if restarting else supervisor.run())

    task = asyncio.create_task(run())
    try:
        yield task
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError, Killed):
            await task
        await store.close()


async def wait_until(condition: Callable[[], bool], *tasks: asyncio.Task[None]) -> None:
    async with asyncio.timeout(30):
        while not condition() and not any(task.done() for task in tasks):
            await asyncio.sleep(0.005)


def deliver_and_die(app: Holdfast, number: int, *, sent: bool) -> bool:
    """Let a supervisor die at its n-th call, and another take over. Return whether the first died."""
    ids = [f"{number}-{sent}-{each}" for each in range(9)]

    async def run() -> bool:
        async with supervising(app, DyingStore(number, sent=sent), "node/one") as dying:
            await wait_until(lambda: bool(app.subscriptions()), dying)
            if app.subscriptions():
                for place in (0, 1, 3, 4, 6, 8):  # events of one job and of several
                    fail_at_once(app, *ids[place : {0: 1, 1: 3, 3: 4, 4: 6, 6: 8, 8: 9}[place]])
            await wait_until(lambda: len(delivered(app)) >= len(ids), dying)
            died = dying.done()
        app.store.run(commands.lease_subscriptions(["alert"], "node/one", 0))  # as if its lease had ended
        async with supervising(app, RetryingStore(), "node/two") as second:
            await wait_until(lambda: bool(app.subscriptions()))
            missing = [id for id in ids if app.get_many([id]) == [None]]
            if missing:
                fail_at_once(app, *missing)
            await wait_until(lambda: len(delivered(app)) >= len(ids))
            assert not second.done()
        return died

    died = asyncio.run(run())
    assert delivered(app) == ids, f"killed at call {number}"
    app.unsubscribe("alert")
    app.cancel_all(queue="handlers")
    app.delete_all(queue="handlers")
    return died


@pytest.mark.parametrize("sent", [False, True], ids=["before the call", "before the reply"])
def test_a_supervisor_that_is_killed_anywhere_loses_and_repeats_nothing(app: Holdfast, sent: bool) -> None:
    """Of each event the jobs are enqueued once: a handler repeats its work only if its own attempt was cut short."""
    for number in count(1):
        if not deliver_and_die(app, number, sent=sent):
            break
    assert number > 6, "there are more positions than that"


def test_two_supervisors_that_both_believe_to_hold_a_subscription_deliver_once(app: Holdfast) -> None:
    ids = [f"j{each}" for each in range(20)]

    async def run() -> None:
        # The same name: each is given the lease of the other.
        async with (
            supervising(app, RetryingStore(), "node/one") as first,
            supervising(app, RetryingStore(), "node/one") as second,
        ):
            await wait_until(lambda: bool(app.subscriptions()))
            for id in ids:
                await asyncio.to_thread(fail_at_once, app, id)
            await wait_until(lambda: len(delivered(app)) >= len(ids), first, second)

    asyncio.run(run())
    assert delivered(app) == sorted(ids)


def test_a_delivery_that_a_full_server_refuses_is_made_later_and_skips_nothing(
    app: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(duties, "RESTART_DELAY", 0.0)
    ids = [f"j{each}" for each in range(5)]
    app.store.run(commands.declare_subscription(**app.declared_subscriptions["alert"]))
    for id in ids:
        fail_at_once(app, id)

    async def run(server: redis.Redis) -> None:
        server.config_set("maxmemory", "1")
        async with supervising(app, RetryingStore(), "node/one", restarting=True) as task:
            await wait_until(lambda: bool(app.get_subscription("alert").worker), task)
            server.config_set("maxmemory", "0")
            await wait_until(lambda: len(delivered(app)) >= len(ids), task)

    with redis.Redis.from_url(app.address.url or "") as server:
        try:
            asyncio.run(run(server))
        finally:
            server.config_set("maxmemory", "0")
    assert delivered(app) == ids


def test_a_handler_is_told_of_a_gap(app: Holdfast) -> None:
    app.store.run(commands.declare_subscription(**app.declared_subscriptions["alert"]))
    fail_at_once(app, "first")
    app.configure({"events": 100})
    for _ in range(300):
        app.pause("q")
        app.resume("q")
    fail_at_once(app, "last")

    async def run() -> None:
        async with supervising(app, RetryingStore(), "node/one") as task:
            await wait_until(lambda: "last" in delivered(app), task)

    asyncio.run(run())
    assert [event["type"] for event in payloads(app)] == ["gap", "failed"]
    assert delivered(app) == ["last"]


def test_a_declaration_of_a_newer_release_is_left_to_it(app: Holdfast, caplog: pytest.LogCaptureFixture) -> None:
    declared = app.declared_subscriptions["alert"]
    newer = declared | {"spec": declared["spec"].replace('"queue":"q"', '"queue":"q","moon":"full"'), "revision": 7}
    assert newer["spec"] != declared["spec"]
    app.store.run(commands.declare_subscription(**newer))

    async def run() -> None:
        async with supervising(app, RetryingStore(), "node/one") as task:
            await wait_until(lambda: "newer release declared it" in caplog.text, task)

    asyncio.run(run())
    assert "the newer declaration stays in effect" in caplog.text
    held = app.store.run(commands.lease_subscriptions(["alert"], "node/two", 1000))
    assert [each.name for each in held] == ["alert"]  # it was given back


@pytest.mark.parametrize("stop", ["unsubscribe", "pause_subscription"])
def test_a_subscription_that_is_removed_or_paused_does_not_disturb_others(
    app: Holdfast, monkeypatch: pytest.MonkeyPatch, stop: str
) -> None:
    monkeypatch.setattr(subscriptions, "LEASE_INTERVAL", 0.1)
    app.on("failed", queue="q", name="other")(app.tasks["alert"])

    async def run() -> None:
        async with supervising(app, RetryingStore(), "node/one") as task:
            await wait_until(lambda: sum(bool(each.worker) for each in app.subscriptions()) == 2, task)
            getattr(app, stop)("other")
            app.pause("elsewhere")  # an event that moves the position which is read, but not yet the one in the store
            await asyncio.sleep(0.5)  # several renewals
            await asyncio.to_thread(fail_at_once, app, "j")
            await wait_until(lambda: "j" in delivered(app), task)
            assert not task.done()

    asyncio.run(run())


@pytest.mark.parametrize(
    "damage",
    [
        {"position": "nonsense"},
        {"batch": "nonsense"},
        {"batch": '{"queue":"no queue","task":"t"}'},
        {"spec": "nonsense"},
        {"revision": "nonsense"},
        {"delivered": "nonsense"},
        {"ends": "nonsense", "holder": "node/none"},
        None,
    ],
    ids=str,
)
def test_a_damaged_subscription_does_not_disturb_others(
    app: Holdfast, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, damage: dict[str, str] | None
) -> None:
    monkeypatch.setattr(subscriptions, "LEASE_INTERVAL", 0.1)
    app.on("failed", queue="q", name="other")(app.tasks["alert"])
    app.configure({"check_rate": 0})  # upkeep would set a key of a wrong type aside

    async def run(server: redis.Redis) -> None:
        async with supervising(app, RetryingStore(), "node/one", restarting=True) as task:
            await wait_until(lambda: sum(bool(each.worker) for each in app.subscriptions()) == 2, task)
            record = f"hf:{{{app.address.namespace}}}:on:other"
            assert server.exists(record)
            if damage:
                server.hset(record, mapping=damage)
            else:
                server.set(record, "nonsense")
            await asyncio.sleep(0.3)
            await asyncio.to_thread(fail_at_once, app, "j")
            await wait_until(lambda: "j" in delivered(app), task)
            assert {each.name for each in app.subscriptions()} == {"alert", "other"}
        assert "a duty of the supervisor failed" not in caplog.text

        # A worker that starts declares it again.
        app.store.run(commands.lease_subscriptions(["alert", "other"], "node/one", 0))
        async with supervising(app, RetryingStore(), "node/one") as task:
            await wait_until(lambda: sum(bool(each.worker) for each in app.subscriptions()) == 2, task)
            await asyncio.to_thread(fail_at_once, app, "k")
            await wait_until(lambda: delivered(app).count("k") == 2, task)
            assert not task.done()

    with redis.Redis.from_url(app.address.url or "") as server:
        asyncio.run(run(server))
