"""A failover behind one address: every client of the old primary finds the new one."""

from __future__ import annotations

import asyncio
import os
import secrets
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
import redis

from holdfast import Holdfast, Invalid, StoreUnavailable
from holdfast.store import commands
from holdfast.store.deadline import Deadline
from holdfast.store.store import Address, AsyncStore, Store
from tests.apps import worker_app
from tests.support import failover_load, outages
from tests.support.failover import Pair, Server, pair
from tests.support.new_job import NewJob
from tests.support.outages import PATIENCE, eventually
from tests.support.workers import Crew, Worker, new_crew, until

HERE = os.getpid()
SLOW_TO_LOAD = ("--key-load-delay", "100")  # microseconds for each command of its append-only file


@pytest.fixture
def two() -> Iterator[Pair]:
    with pair() as made:
        yield made


@pytest.fixture
def crew(two: Pair, tmp_path: Any) -> Iterator[Crew]:
    """Workers that use the address."""
    with new_crew(two.url, tmp_path) as made:
        yield made


@pytest.fixture(params=["sync", "async"])
def store(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def use(store: str, url: str, commands: Callable[[Callable[..., Any]], None], timeout: float = 5.0) -> None:
    """Have either store, in this thread, execute commands: by a function that is given its methods by name."""
    address = Address.find(url, timeout=timeout)
    if store == "sync":
        made = Store(address)
        commands(lambda name, *args, **more: getattr(made, name)(*args, **more))
        made.close()
        return
    with asyncio.Runner() as runner:
        other = AsyncStore(address)
        commands(lambda name, *args, **more: runner.run(getattr(other, name)(*args, **more)))
        runner.run(other.close())


def enqueue(id: str, deadline: Deadline | None = None) -> commands.Command[commands.EnqueueReply]:
    job = NewJob(id=id, payload=b"{}", queue="q", task="t")
    return commands.enqueue([job]).within(deadline or Deadline(PATIENCE))


def is_left(two: Pair, old: Server, pid: int = HERE) -> bool:
    return two.endpoint.open(old.path, pid) == 0


# A client


def test_a_client_follows_every_failover(two: Pair, store: str) -> None:
    def work(call: Callable[..., Any]) -> None:
        call("run", enqueue("a"))
        for id in ("b", "c"):
            old = two.primary
            assert two.endpoint.open(old.path, HERE) == 1
            two.fail_over()
            assert call("run", enqueue(id)).created == [True]
            eventually(partial(is_left, two, old))
            assert two.endpoint.open(two.primary.path, HERE) == 1
            two.settle()
        assert call("run", commands.count()) == 3

    use(store, two.url, work)


def test_all_idle_connections_are_closed_and_one_is_made(two: Pair) -> None:
    async def work() -> None:
        store, old = AsyncStore(Address.find(two.url)), two.primary
        await asyncio.gather(*(store.run(enqueue(str(number))) for number in range(5)))
        eventually(lambda: two.endpoint.open(old.path, HERE) == 5)
        two.fail_over()
        assert (await store.run(enqueue("a"))).created == [True]
        while not is_left(two, old):
            await asyncio.sleep(0.01)  # between looks at a condition
        assert two.endpoint.open(two.primary.path, HERE) == 1
        await store.close()

    asyncio.run(work())


def test_all_idle_connections_of_threads_are_closed_and_one_is_made(two: Pair) -> None:
    store, old, at_once = Store(Address.find(two.url)), two.primary, threading.Barrier(5, timeout=PATIENCE)

    def work() -> None:
        store.execute("PING", deadline=Deadline(PATIENCE, on_sent=lambda: print(at_once.wait())))

    threads = [threading.Thread(target=work) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert two.endpoint.open(old.path, HERE) == 5
    two.fail_over()
    assert store.run(enqueue("a")).created == [True]
    eventually(lambda: is_left(two, old))
    assert two.endpoint.open(two.primary.path, HERE) == 1
    store.close()


def test_a_command_that_is_on_its_way_during_the_failover_ends_on_the_new_primary(two: Pair) -> None:
    async def work() -> None:
        store, old = AsyncStore(Address.find(two.url)), two.primary
        await asyncio.gather(*(store.run(enqueue(str(number))) for number in range(20)))
        sending = asyncio.create_task(_enqueue_until_told(store, is_told))
        await asyncio.to_thread(two.fail_over)
        await store.run(enqueue("last"))
        is_told.set()
        ids = await sending
        assert await store.run(commands.count()) == 21 + len(ids)
        while not is_left(two, old):
            await asyncio.sleep(0.01)  # between looks at a condition
        await store.close()

    is_told = asyncio.Event()
    asyncio.run(work())


async def _enqueue_until_told(store: AsyncStore, is_told: asyncio.Event) -> list[str]:
    """Ten at once, without a pause."""
    ids: list[str] = []
    while not is_told.is_set():
        some = [f"more-{len(ids) + number}" for number in range(10)]
        await asyncio.gather(*(store.run(enqueue(id)) for id in some))
        ids += some
    return ids


def _pop_in_thread(store: str, url: str, popped: list[Any], **more: Any) -> threading.Thread:
    def work(call: Callable[..., Any]) -> None:
        popped.append(call("execute", "BLPOP", "list", PATIENCE, blocks=PATIENCE))

    thread = threading.Thread(target=use, args=(store, url, work), kwargs=more)
    thread.start()
    return thread


def _is_blocked(client: redis.Redis) -> bool:
    return any(each["cmd"] == "blpop" for each in client.client_list())


def test_a_pop_that_blocks_follows_a_failover(two: Pair, store: str) -> None:
    popped: list[Any] = []
    thread = _pop_in_thread(store, two.url, popped)
    eventually(lambda: _is_blocked(two.primary.client))
    two.fail_over()
    eventually(lambda: _is_blocked(two.primary.client))
    two.primary.client.rpush("list", "x")
    thread.join()
    assert popped == [(b"list", b"x")]


def test_a_pop_that_blocks_is_woken_if_the_old_server_does_not(store: str) -> None:
    """As one does not that still takes itself for the primary, or stands still."""
    answers = {b"BLPOP": [b""], b"GET": [b"-READONLY You can't write against a read only replica.\r\n"]}
    asked: list[bytes] = []

    def answer(command: list[bytes]) -> bytes:
        asked.append(command[0])
        return answers[command[0]].pop() if answers.get(command[0]) else b"*2\r\n$1\r\na\r\n$1\r\nb\r\n"

    got: list[Any] = []
    with outages.answering(answer) as url:
        if store == "sync":
            _pop_and_get(url, asked, got)
        else:
            asyncio.run(_apop_and_get(url, asked, got))
    assert got == [[b"a", b"b"], (b"a", b"b")]
    assert asked.count(b"BLPOP") == 2


def _pop_and_get(url: str, asked: list[bytes], got: list[Any]) -> None:
    store = Store(Address.find(url))
    popping = threading.Thread(target=lambda: got.append(store.execute("BLPOP", "a", PATIENCE, blocks=PATIENCE)))
    popping.start()
    eventually(lambda: b"BLPOP" in asked)
    first = store.execute("GET", "x")
    popping.join()
    got.insert(0, first)
    store.close()


async def _apop_and_get(url: str, asked: list[bytes], got: list[Any]) -> None:
    store = AsyncStore(Address.find(url))
    popping = asyncio.create_task(store.execute("BLPOP", "a", PATIENCE, blocks=PATIENCE))
    while b"BLPOP" not in asked:
        await asyncio.sleep(0.01)  # between looks at a condition
    got.append(await store.execute("GET", "x"))
    got.append(await popping)
    await store.close()


def test_idle_connections_to_a_server_that_has_fallen_silent_cost_one_call_its_time(two: Pair) -> None:
    """It is gone without a word, as with its machine: nothing closes the connections."""
    store = Store(Address.find(two.url))
    threads = [threading.Thread(target=store.execute, args=("BLPOP", "none", 1), kwargs={"blocks": 1}) for _ in "123"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert two.endpoint.open(two.primary.path, HERE) > 1
    two.primary.client.client_pause(600_000)
    two.endpoint.target = two.replica.path

    with pytest.raises(StoreUnavailable, match="did not answer"):
        store.execute("PING", deadline=Deadline(0.5))
    assert store.execute("PING", deadline=Deadline(PATIENCE))
    eventually(lambda: is_left(two, two.primary))
    store.close()


# Until the time is over


def test_a_replica_is_asked_until_the_time_is_over_and_nothing_was_done(two: Pair, store: str) -> None:
    def work(call: Callable[..., Any]) -> None:
        two.endpoint.target = two.replica.path
        with pytest.raises(StoreUnavailable, match="is a replica and accepts no writes") as caught:
            call("run", enqueue("a", Deadline(2)))
        assert not caught.value.maybe_done
        assert two.endpoint.accepted > 3  # each on a connection of its own
        eventually(lambda: is_left(two, two.replica))

    use(store, two.url, work)


@contextmanager
def refusing(url: str, times: int, reply: bytes) -> Iterator[tuple[str, list[bytes]]]:
    """Passes commands on to a server, but refuses the first of the functions that are called."""
    refused: list[bytes] = []

    def answer(command: list[bytes]) -> bytes:
        if command[0] == b"FCALL" and len(refused) < times:
            refused.append(command[1])
            return reply
        return outages._passed_on(url, command)

    with outages.answering(answer) as address:
        yield address, refused


REFUSALS = {
    "READONLY": "READONLY You can't write against a read only replica.",
    "MASTERDOWN": "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
    "LOADING": "LOADING Valkey is loading the dataset in memory",
    "CLUSTERDOWN": "CLUSTERDOWN Hash slot not served",
    "non local key": "ERR Script attempted to access a non local key in a cluster node script: x, on @user_function:1.",
    "Function not found": "ERR Function not found",
}


@pytest.mark.parametrize("refusal", REFUSALS.values(), ids=REFUSALS)
def test_temporary_errors_are_retried(server_url: str, store: str, refusal: str) -> None:
    def work(call: Callable[..., Any]) -> None:
        assert call("run", enqueue(secrets.token_hex(6))).created == [True]

    with refusing(server_url, 8, f"-{refusal}\r\n".encode()) as (url, refused):
        use(store, url, work)
        assert len(refused) == 8


@pytest.mark.parametrize("words", ["UNBLOCKED", *REFUSALS.values()], ids=["UNBLOCKED", *REFUSALS])
def test_an_error_text_quoted_by_our_functions_is_not_a_failover(server_url: str, store: str, words: str) -> None:
    """A refusal of theirs has the names that somebody chose in it."""

    def work(call: Callable[..., Any]) -> None:
        call("execute", "PING")
        with pytest.raises(Invalid, match="not a queue"):
            call("run", enqueue("a"))

    with refusing(server_url, 1, f"-INVALID '{words}' is not a queue\r\n".encode()) as (url, refused):
        use(store, url, work)
        assert len(refused) == 1


@pytest.mark.parametrize(("name", "maybe_done"), [("READONLY", False), ("LOADING", False), ("non local key", True)])
def test_maybe_done_is_right_for_each_error(server_url: str, store: str, name: str, maybe_done: bool) -> None:
    def work(call: Callable[..., Any]) -> None:
        with pytest.raises(StoreUnavailable) as caught:
            call("run", enqueue("a", Deadline(0.5)))
        assert caught.value.maybe_done is maybe_done

    with refusing(server_url, 1000, f"-{REFUSALS[name]}\r\n".encode()) as (url, _):
        use(store, url, work)


def test_an_unanswered_library_load_does_not_make_the_command_maybe_done(store: str) -> None:
    def answer(command: list[bytes]) -> bytes | None:
        return {b"FCALL": b"-ERR Function not found\r\n", b"FUNCTION": None}.get(command[0], b"+OK\r\n")

    def work(call: Callable[..., Any]) -> None:
        with pytest.raises(StoreUnavailable) as caught:
            call("run", enqueue("a", Deadline(0.5)))
        assert not caught.value.maybe_done

    with outages.answering(answer) as url:
        use(store, url, work)


def test_a_wrong_password_is_tried_once(store: str) -> None:
    asked: list[bytes] = []

    def answer(command: list[bytes]) -> bytes:
        asked.append(command[0])
        return b"-WRONGPASS invalid username-password pair or user is disabled.\r\n"

    def work(call: Callable[..., Any]) -> None:
        with pytest.raises(StoreUnavailable, match="invalid username-password pair"):
            call("run", enqueue("a"))

    with outages.answering(answer) as url:
        use(store, url.replace("redis://", "redis://:wrong@"), work)
    assert asked.count(b"AUTH") == 1


def test_a_pop_that_is_sent_again_blocks_for_the_rest_of_its_time(store: str) -> None:
    asked: list[float] = []

    def answer(command: list[bytes]) -> bytes | None:
        if command[0] != b"BLPOP":
            return b"+OK\r\n"
        asked.append(float(command[-1]))
        return b"*-1\r\n" if len(asked) > 3 else b"-UNBLOCKED force unblock from blocking operation\r\n"

    def work(call: Callable[..., Any]) -> None:
        assert call("execute", "BLPOP", "list", 30, blocks=30) is None

    with outages.answering(answer) as url:
        use(store, url, work)
    assert asked == sorted(asked, reverse=True)
    assert 30 == asked[0] > asked[3] > 0


def test_restarts_of_the_server_are_not_seen_by_a_client(store: str) -> None:
    """It refuses connections, then it loads its data, then it answers: all within the time that a call has."""

    def work(call: Callable[..., Any]) -> None:
        call("run", enqueue("first"))
        for number in range(3):
            restarting = threading.Thread(target=switch.restart)
            restarting.start()
            for part in range(5):
                call("run", enqueue(f"{number}-{part}"))
            restarting.join()
        assert call("run", commands.count()) == 16
        assert call("execute", "INFO", "errorstats")["errorstat_LOADING"]["count"] > 0

    with outages.switch(*SLOW_TO_LOAD) as switch:
        switch.on()
        with redis.Redis.from_url(switch.url) as client, client.pipeline(transaction=False) as pipeline:
            for number in range(5000):
                pipeline.set("filler", number)
            pipeline.execute()
        use(store, switch.url, work)


# A worker


def _idle(two: Pair, worker: Worker) -> None:
    """Wait until a worker waits for work: its executor and its supervisor block."""
    until(lambda: sum(each["cmd"] == "blpop" for each in two.primary.client.client_list()) == 2)
    for pid in (worker.pid, worker.executor):
        until(partial(_has_two_connections, two, pid))


def _has_two_connections(two: Pair, pid: int) -> bool:
    return two.endpoint.open(two.primary.path, pid) > 1


def test_executor_and_supervisor_follow_every_failover(two: Pair, crew: Crew) -> None:
    worker = crew.start("--lease", "2s")
    assert crew.ended(crew.put(worker_app.add, 1, 2)).state == "succeeded"
    pids = (worker.pid, worker.executor)
    _idle(two, worker)
    before = [two.endpoint.open(two.primary.path, pid) for pid in pids]
    for number in range(2):
        old = two.primary
        two.fail_over()
        assert crew.ended(crew.put(worker_app.add, number, 2)).state == "succeeded"
        for pid in pids:
            until(partial(is_left, two, old, pid))
        _idle(two, worker)
        two.settle()
    after = [two.endpoint.open(two.primary.path, pid) for pid in pids]
    assert max(*before, *after) <= 3, (before, after)
    assert "Traceback" not in worker.log


def test_a_job_that_runs_during_the_failover_keeps_its_lease_and_ends_once(two: Pair, crew: Crew) -> None:
    worker = crew.start("--lease", "2s")
    job = crew.put(worker_app.hold, "x")
    crew.pids("x", "runs")
    old = two.primary
    two.fail_over()
    until(lambda: is_left(two, old, worker.pid))  # it has renewed
    crew.open("x")
    assert crew.ended(job).state == "succeeded"
    assert crew.outcomes(job) == ["succeeded"]


def test_a_cancellation_after_a_failover_reaches_the_job(two: Pair, crew: Crew) -> None:
    crew.start("--lease", "60s")  # so that no renewal notifies it
    job = crew.put(worker_app.hold, "x")
    crew.pids("x", "runs")
    two.fail_over()
    until(lambda: _is_blocked(two.primary.client))
    crew.app.cancel(job.id)
    assert crew.ended(job).state == "cancelled"


# Items


def test_items_follow_a_failover(two: Pair) -> None:
    app = Holdfast(two.url)
    with app.items("q") as items:
        items.put(b"a", id="a")
        item = items.claim(lease="2s")
        assert item
        old = two.primary
        two.fail_over()
        eventually(lambda: is_left(two, old))  # its lease is renewed
        assert item.complete()
        claimed: list[Any] = []
        claiming = threading.Thread(target=lambda: claimed.append(items.claim(wait="60s", lease="20s")))
        claiming.start()
        eventually(lambda: _is_blocked(two.primary.client))
        two.settle()
        two.fail_over()
        items.put(b"b", id="b")
        claiming.join()
        assert claimed[0].payload == b"b"
        assert claimed[0].complete()
    app.close()


# Under load


@pytest.mark.timeout(300)
def test_failovers_under_load_lose_no_job_and_interrupt_no_client() -> None:
    report = failover_load.run(
        2
    )  # `python -m tests.support.failover_load` has more of them, and prints how long they took
    assert {str(number) for number in range(report.enqueued)} <= set(report.runs)
    assert "Traceback" not in report.log
