"""The client against a real server; where a worker is needed, the test claims and finishes by hand."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, TypeVar

import pytest
import redis

from holdfast import (
    BoundCall,
    Holdfast,
    Invalid,
    Job,
    JobCancelled,
    JobExists,
    JobFailed,
    JobNotFound,
    ResultTimeout,
    StoreUnavailable,
    TooBig,
    WrongState,
)
from holdfast.job import failure
from holdfast.job.outcome import Error, Outcome, Succeed
from holdfast.store import commands
from holdfast.task.task import Task
from tests.support import outages
from tests.support.outages import eventually

T = TypeVar("T")


@dataclass(frozen=True)
class Size:
    width: int
    height: int


@pytest.fixture
def app(server_url: str, namespace: str) -> Iterator[Holdfast]:
    made = Holdfast(server_url, namespace=namespace)
    yield made
    made.close()


@pytest.fixture
def resize(app: Holdfast) -> Task[[str, Size], Size]:
    @app.task(name="resize")
    def resize(path: str, size: Size) -> Size:
        return size if path else Size(0, 0)

    return resize


def run_async(app: Holdfast, work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in a loop of its own, and close the connections that it made there."""

    async def run() -> T:
        try:
            return await work
        finally:
            await app.aclose()

    return asyncio.run(run())


class Hands:
    """Does what a worker does, one job at a time."""

    def __init__(self, app: Holdfast) -> None:
        self._app = app
        self._counter = 0

    def claim(self) -> commands.ClaimedJob:
        self._counter += 1
        request = commands.claim_args(["default"], counter=self._counter, limit=1)
        (job,) = self._app.store.run(commands.claim("node/hands.1", request)).jobs
        return job

    def finish(self, outcome: Outcome) -> str:
        job = self.claim()
        items = [commands.Finish(job.id, job.attempt, outcome)]
        return self._app.store.run(commands.finish("node/hands.1", items)).answers[0]


@pytest.fixture
def hands(app: Holdfast) -> Hands:
    return Hands(app)


def test_a_call_reaches_the_worker_unchanged(resize: Task[[str, Size], Size], hands: Hands) -> None:
    job = resize.enqueue("a.png", Size(2, 3))
    claimed = hands.claim()

    assert (claimed.id, claimed.task) == (job.id, "resize")
    assert resize.signature.decode(claimed.payload) == (["a.png", Size(2, 3)], {})


def test_a_result_has_the_type_that_the_task_returns(
    app: Holdfast, resize: Task[[str, Size], Size], hands: Hands
) -> None:
    job = resize.enqueue("a.png", Size(2, 3))
    hands.finish(Succeed(b'{"width":4,"height":5}'))

    assert job.result(timeout="5s") == Size(4, 5)
    assert run_async(app, job.aresult(timeout=5)) == Size(4, 5)


def test_the_snapshot_of_a_new_job_equals_the_stored_job(app: Holdfast, resize: Task[[str, Size], Size]) -> None:
    job = resize.options(priority=-5, delay="1h", retries=7).enqueue("a", Size(1, 1))
    stored = app.get(job.id)

    assert job.created
    assert not stored.created
    for name in ("id", "state", "queue", "task", "created_at", "since", "priority", "retries", "due_at", "payload"):
        assert getattr(job, name) == getattr(stored, name), name
    assert job.state == "scheduled"
    assert job.due_at is not None
    assert job.due_at - job.created_at == timedelta(hours=1)


def test_a_job_can_be_due_at_a_time_of_the_callers_zone(resize: Task[[str, Size], Size]) -> None:
    soon = datetime.now(UTC).replace(microsecond=0) + timedelta(days=1)
    here = soon.astimezone(timezone(timedelta(hours=9)))
    assert resize.options(at=here).enqueue("a", Size(1, 1)).refresh().due_at == soon
    assert resize.options(at=soon - timedelta(days=2)).enqueue("a", Size(1, 1)).refresh().state == "waiting"
    with pytest.raises(Invalid, match="due time"):
        resize.options(at=soon + timedelta(days=36500)).enqueue("a", Size(1, 1))


def test_the_same_id_returns_the_existing_job(app: Holdfast, resize: Task[[str, Size], Size]) -> None:
    first = resize.options(id="order-1").enqueue("a", Size(1, 1))
    second = resize.options(id="order-1").enqueue("b", Size(2, 2))

    assert (first.created, second.created) == (True, False)
    assert second.refresh().payload == first.payload
    assert app.count() == 1
    with pytest.raises(JobExists, match="order-1"):
        resize.options(id="order-1", on_exists="error").enqueue("c", Size(1, 1))
    replaced = resize.options(id="order-1", on_exists="replace").enqueue("d", Size(1, 1))
    assert replaced.created
    assert replaced.refresh().payload != first.payload


def test_a_change_of_one_snapshot_does_not_affect_the_next(app: Holdfast, resize: Task[[str, Size], Size]) -> None:
    first, second = app.enqueue_many([resize.bind("a", Size(1, 1)), resize.bind("b", Size(1, 1))])
    for job in (first, resize.enqueue("c", Size(1, 1))):
        job.fields["asked by"] = "me"
    for job in (second, resize.enqueue("d", Size(1, 1))):
        assert job.fields == {}
        assert [job.limits, job.after, job.waits, job.attempts, job.notes] == [()] * 5  # nothing else can be changed


def test_a_batch_is_stored_in_order_and_a_bound_call_has_its_id_at_once(
    app: Holdfast, resize: Task[[str, Size], Size]
) -> None:
    calls: list[BoundCall[Size]] = [resize.bind(str(n), Size(n, n)) for n in range(2500)]
    jobs = app.enqueue_many(calls)

    assert [job.id for job in jobs] == [call.id for call in calls]
    assert [job.id for job in app.list(state="waiting")] == [call.id for call in calls]
    assert app.enqueue_many([]) == []


@pytest.mark.parametrize("how", ["sync", "async"])
def test_calls_may_be_bound_while_those_before_them_are_stored(
    app: Holdfast, resize: Task[[str, Size], Size], how: str
) -> None:
    def store(calls: Iterator[BoundCall[Size]]) -> list[Job[Any]]:
        return app.enqueue_many(calls) if how == "sync" else run_async(app, app.aenqueue_many(calls))

    jobs = store(resize.bind(str(n), Size(n, n)) for n in range(2500))
    assert [job.id for job in app.list(state="waiting")] == [job.id for job in jobs]

    with pytest.raises(Invalid, match="argument 'size'"):
        store(resize.bind(str(n), Size(n, n) if n < 1500 else 7) for n in range(2500))  # type: ignore[arg-type]
    assert app.count() == 3500
    assert [job.created for job in store(iter([resize.bind("a", Size(1, 1))]))] == [True]


def test_a_batch_with_one_bad_call_stores_nothing(app: Holdfast, resize: Task[[str, Size], Size]) -> None:
    big = resize.bind("x" * 2_000_000, Size(1, 1))
    with pytest.raises(TooBig, match=big.id):
        app.enqueue_many([resize.bind("a", Size(1, 1)), big])
    assert app.count() == 0


def test_a_failed_job_raises_with_the_reason(resize: Task[[str, Size], Size], hands: Hands) -> None:
    job = resize.options(retries=0).enqueue("a", Size(1, 1))
    described = failure.describe(ValueError("no such file"))
    hands.finish(Error(failure.encode(described), described.group))

    with pytest.raises(JobFailed, match="ValueError: no such file"):
        job.result(timeout="5s")
    stored = job.refresh()
    assert stored.group == "ValueError"
    assert stored.failure == described


def test_a_cancelled_job_raises_and_can_be_retried_or_deleted(app: Holdfast, resize: Task[[str, Size], Size]) -> None:
    job = resize.enqueue("a", Size(1, 1))
    with pytest.raises(WrongState, match="cancel it first"):
        job.delete()
    assert job.cancel(reason="not needed") == "cancelled"
    with pytest.raises(JobCancelled):
        job.result()
    with pytest.raises(WrongState, match="already ended"):
        job.cancel()
    assert [note.text for note in job.refresh().notes] == ["not needed"]

    job.retry()
    assert job.refresh().state == "waiting"
    job.cancel()
    job.delete()
    with pytest.raises(JobNotFound, match=job.id):
        job.refresh()
    with pytest.raises(JobNotFound):
        app.cancel(job.id)


def test_result_times_out_with_a_hint_if_no_worker_serves_the_queue_or_it_is_paused(
    app: Holdfast, resize: Task[[str, Size], Size]
) -> None:
    job = resize.options(queue="other").enqueue("a", Size(1, 1))
    nobody = "it is still waiting: no worker is running"

    with pytest.raises(ResultTimeout, match=nobody):
        job.result(timeout="50ms")
    with pytest.raises(ResultTimeout, match=nobody):
        run_async(app, job.aresult(timeout="50ms"))
    app.pause("other")
    with pytest.raises(ResultTimeout, match="it is still waiting: queue other is paused; also, no worker is running"):
        job.result(timeout="50ms")
    app.resume("other")
    app.store.run(commands.renew("node/worker", [], queues=["other"]))
    with pytest.raises(ResultTimeout, match=r"it is still waiting: it is about to start"):
        job.result(timeout="50ms")


def test_result_times_out_with_the_error_of_a_job_that_will_be_retried(
    resize: Task[[str, Size], Size], hands: Hands
) -> None:
    job = resize.options(backoff="1h").enqueue("a", Size(1, 1))
    described = failure.describe(ValueError("too\nsmall"))
    hands.finish(Error(failure.encode(described), described.group))
    due = job.refresh().due_at
    assert due
    with pytest.raises(ResultTimeout) as late:
        job.result(timeout="50ms")
    assert "it is still scheduled: attempt 1 ended as error: ValueError: too" in str(late.value)
    assert f"; retry 1 of 3 is due in 1h, at {due:%H:%M:%S} UTC" in str(late.value)
    assert "\n" not in str(late.value)


def test_waiting_for_a_result_ends_in_time(app: Holdfast, resize: Task[[str, Size], Size]) -> None:
    job = resize.enqueue("a", Size(1, 1))
    with pytest.raises(ResultTimeout, match="it is still waiting"):
        job.result(timeout="50ms")
    with pytest.raises(ResultTimeout):
        run_async(app, job.aresult(timeout="50ms"))
    assert job.refresh().state == "waiting"


def test_many_threads_wait_for_results_without_taking_each_others(
    app: Holdfast, resize: Task[[str, Size], Size], hands: Hands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.client.results.RECHECK_INTERVAL", 600.0)  # so that only being told ends the wait
    jobs = [resize.enqueue(str(n), Size(n, n)) for n in range(12)]
    with ThreadPoolExecutor(12) as pool:
        waiting = [pool.submit(job.result, "60s") for job in jobs]
        _wait_for_waiters(app, jobs)
        for n in range(12):
            hands.finish(Succeed(b'{"width":%d,"height":0}' % n))
        assert [future.result() for future in waiting] == [Size(n, 0) for n in range(12)]


def test_many_coroutines_wait_on_one_connection(
    app: Holdfast, resize: Task[[str, Size], Size], hands: Hands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.client.results.RECHECK_INTERVAL", 600.0)

    async def wait() -> list[Size]:
        jobs = [await resize.aenqueue(str(n), Size(n, n)) for n in range(30)]
        waiting = asyncio.gather(*(job.aresult("60s") for job in jobs))
        await asyncio.sleep(0)
        await asyncio.to_thread(_wait_for_waiters, app, jobs)
        clients = str(await app.async_store.execute("CLIENT", "LIST"))
        assert clients.count("cmd=blpop") <= 1
        for n in range(30):
            await asyncio.to_thread(hands.finish, Succeed(b'{"width":%d,"height":0}' % n))
        return await waiting

    assert run_async(app, wait()) == [Size(n, 0) for n in range(30)]


def _wait_for_waiters(app: Holdfast, jobs: list[Any]) -> None:
    """Return when all jobs know of somebody who waits."""
    keys = [f"hf:{{{app.address.namespace}}}:j:{job.id}" for job in jobs]
    while not all(app.store.execute("HEXISTS", key, "w") for key in keys):
        threading.Event().wait(0.01)


def test_sync_and_async_are_equals() -> None:
    public = [name for name in vars(Holdfast) if not name.startswith("_") and hasattr(Holdfast, name)]
    plain = {name for name in public if callable(getattr(Holdfast, name)) and f"a{name}" in public}
    other = {name for name in public if callable(getattr(Holdfast, name))} - plain - {f"a{name}" for name in plain}
    assert other == {
        "task",
        "middleware",
        "on",
        "batch",
        "carry",
        "program",
        "items",
        "type",
        "key",
        "worker",
    }  # which have nothing to wait for


def test_the_async_methods_do_what_the_sync_ones_do(app: Holdfast, resize: Task[[str, Size], Size]) -> None:
    async def use() -> None:
        job = await resize.aenqueue("a", Size(1, 1))
        (other,) = await app.aenqueue_many([resize.bind("b", Size(1, 1))])
        assert (await app.aget(job.id)).state == (await job.arefresh()).state == "waiting"
        assert [found.id if found else None for found in await app.aget_many([other.id, "none"])] == [other.id, None]
        assert [found.id async for found in app.alist(queue="default")] == [job.id, other.id]
        assert [found.id async for found in app.alist(newest=True, limit=1)] == [other.id]
        assert await app.acount(state="pending") == 2
        assert await app.apause("default")
        assert (await app.aqueues())[0].paused
        assert await app.aresume("default")
        assert await job.acancel() == "cancelled"
        await job.aretry()
        await app.acancel(job.id)
        await job.adelete()
        assert await app.aworkers() == []
        types = [event.type for event in await app.aevents()]
        assert types[:2] == ["enqueued", "enqueued"]
        assert types[-1] == "deleted"
        assert [event.type for event in await app.aevents("0-0", limit=1)] == ["enqueued"]

    run_async(app, use())
    assert run_async(app, app.acount()) == 1  # another event loop gets connections of its own


def test_listing_and_counting_agree(app: Holdfast, resize: Task[[str, Size], Size]) -> None:
    for queue in ("b", "a"):
        for n in range(150):
            resize.options(queue=queue, delay="1h" if n % 3 else None).enqueue("x", Size(n, n))

    assert app.count() == len(list(app.list())) == 300
    assert app.count(queue="a") == len(list(app.list(queue="a"))) == 150
    assert app.count(state="waiting") == len(list(app.list(state="waiting"))) == 100
    assert app.count(state="pending") == 300
    assert [queue.name for queue in app.queues()] == ["a", "b"]
    assert app.queues()[0].pending == 150
    newest = list(app.list(queue="a", state="scheduled", newest=True))
    assert [job.id for job in newest] == [job.id for job in app.list(queue="a", state="scheduled")][::-1]
    with pytest.raises(Invalid, match="unknown state"):
        app.count(state="asleep")
    assert app.count(queue="nobody") == 0


def test_an_unreachable_server_is_reported(namespace: str) -> None:
    app = Holdfast("redis://:secret@127.0.0.1:1", namespace=namespace, timeout="1s")
    with pytest.raises(StoreUnavailable, match="cannot be reached") as caught:
        app.count()
    assert "secret" not in str(caught.value)
    assert repr(app) == f"<Holdfast redis://127.0.0.1:1, namespace {namespace}>"
    with pytest.raises(StoreUnavailable, match="cannot be reached"):
        run_async(app, app.acount())


@pytest.mark.parametrize("url", ["http://x", "localhost:6379", "redis:/x", ""])
def test_a_url_of_another_kind_is_refused(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_URL", "nonsense")
    with pytest.raises(Invalid, match="must begin with"):
        Holdfast(url)


def test_two_tasks_cannot_have_one_name(app: Holdfast) -> None:
    @app.task(name="same")
    def one() -> None: ...

    with pytest.raises(Invalid, match="already"):

        @app.task(name="same")
        def two() -> None: ...


def test_making_an_app_and_declaring_tasks_does_no_input_or_output(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.socket.connect", lambda *_: pytest.fail("connected"))
    monkeypatch.setattr("holdfast.server.server.ensure", lambda *_: pytest.fail("started a server"))
    app = Holdfast()

    @app.task(name="nothing")
    def nothing() -> None: ...

    nothing.bind()


def test_calls_that_disagree_on_what_to_do_about_existing_jobs_are_refused(
    app: Holdfast, resize: Task[[str, Size], Size]
) -> None:
    one = resize.bind("a", Size(1, 1))
    with pytest.raises(Invalid, match="the same on_exists"):
        app.enqueue_many([one, resize.bind("b", Size(1, 1)).options(on_exists="replace")])
    assert app.count() == 0


def test_a_job_that_is_deleted_while_its_id_is_looked_up_is_stored_again(
    app: Holdfast, resize: Task[[str, Size], Size], monkeypatch: pytest.MonkeyPatch
) -> None:
    resize.options(id="a").enqueue("a", Size(1, 1)).cancel()
    run = app.store.run

    def run_as_another_deletes(command: commands.Command[Any]) -> Any:
        if command.function == "get":
            run(commands.delete(["a"]))
        return run(command)

    monkeypatch.setattr(app.store, "run", run_as_another_deletes)
    job = resize.options(id="a").enqueue("b", Size(2, 2))
    monkeypatch.undo()

    assert job.created
    assert app.get("a").state == "waiting"


def test_results_that_are_awaited_one_by_one_share_a_connection(app: Holdfast, resize: Task[[str, Size], Size]) -> None:
    hands = Hands(app)

    async def wait() -> int:
        before = int((await app.async_store.execute("INFO", "stats"))["total_connections_received"])
        for number in range(10):
            job = await resize.aenqueue(str(number), Size(1, 1))
            waiting = asyncio.create_task(job.aresult("60s"))
            await asyncio.to_thread(_wait_for_waiters, app, [job])
            await asyncio.to_thread(hands.finish, Succeed(b'{"width":1,"height":1}'))
            await waiting
        return int((await app.async_store.execute("INFO", "stats"))["total_connections_received"]) - before

    assert run_async(app, wait()) < 8


def test_event_loops_in_threads_keep_connections_of_their_own(app: Holdfast) -> None:
    async def use() -> int:
        for _ in range(20):
            await app.acount()
        connections = len(app.async_store._loops)
        await app.aclose()
        return connections

    with ThreadPoolExecutor(2) as pool:
        assert max(pool.map(lambda _: asyncio.run(use()), range(2))) <= 2
    assert len(app.async_store._loops) == 0


def test_a_task_of_the_same_name_in_another_module_is_refused(app: Holdfast) -> None:
    def send() -> None: ...

    app.task(name="send")(send)
    app.task(name="send")(send)
    send.__module__ = "__main__"
    app.task(name="send")(send)

    def other() -> None: ...

    other.__qualname__, other.__module__ = send.__qualname__, "elsewhere"
    app.tasks["send"].function.__module__ = "here"
    with pytest.raises(Invalid, match="already"):
        app.task(name="send")(other)


@pytest.mark.parametrize("how", ["sync", "async"])
def test_an_unreferenced_app_is_collected_and_its_connections_are_closed(how: str) -> None:
    def use(url: str) -> weakref.ref[Holdfast]:
        app = Holdfast(url)

        @app.task(name="add")
        def add(x: int) -> int:
            return x

        call = add.bind(1)
        job = app.enqueue(call) if how == "sync" else asyncio.run(app.aenqueue(call))
        app.last = (call, job)  # type: ignore[attr-defined]  # programs may do so
        return weakref.ref(app)

    with outages.switch() as switch:
        switch.on()
        apps = [use(switch.url) for _ in range(3)]
        gc.collect()
        assert [app() for app in apps] == [None] * 3
        with redis.Redis.from_url(switch.url) as client:
            eventually(lambda: len(client.client_list()) == 1)
