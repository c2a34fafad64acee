"""An unreachable store: calls raise in time, and connections, threads and coroutines do not wait for each other."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from holdfast import Holdfast, Job, StoreUnavailable
from holdfast.store import commands
from holdfast.store.deadline import Deadline
from holdfast.store.store import Address, AsyncStore, Store
from tests.outbox.apps import LONG, app_at, run_async
from tests.support import outages
from tests.support.new_job import NewJob
from tests.support.outages import PATIENCE, Switch, eventually

OUTAGES: dict[str, tuple[Callable[[], AbstractContextManager[str]], bool]] = {
    "refused": (outages.refused, False),
    "unknown name": (outages.unknown_name, False),
    "swallowing": (outages.swallowing, False),
    "silent": (outages.silent, False),
    "loading": (outages.loading, False),
    "dying in mid-reply": (outages.dying_in_mid_reply, True),
    "hanging up": (outages.hanging_up, True),
}


@pytest.mark.parametrize("how", ["sync", "async"])
@pytest.mark.parametrize("outage", OUTAGES)
def test_a_call_that_cannot_be_stored_raises_soon_for_any_network_failure(outage: str, how: str) -> None:
    begin, maybe_done = OUTAGES[outage]
    with begin() as url:
        app, add = app_at(url)
        began = time.monotonic()
        with pytest.raises(StoreUnavailable) as caught:
            add.enqueue(1, 2) if how == "sync" else run_async(app, add.aenqueue(1, 2))
        assert time.monotonic() - began < LONG
        assert caught.value.maybe_done is maybe_done
        app.close()


@pytest.mark.parametrize("is_connected", [True, False])
def test_a_stopped_server_is_not_waited_for(switch: Switch, is_connected: bool) -> None:
    switch.on()
    app, add = app_at(switch.url)
    if is_connected:
        add.enqueue(0, 0)
    call = add.bind(1, 2)
    with switch.stopped(), pytest.raises(StoreUnavailable, match=r"did not answer within 1\.8 s") as caught:
        app.enqueue(call)
    assert caught.value.maybe_done is is_connected
    assert app.enqueue(call).id == call.id
    assert app.count() == 1 + is_connected
    app.close()


def test_a_stopped_server_does_not_hold_up_a_batch_that_fills_the_socket(switch: Switch) -> None:
    switch.on()
    app = Holdfast(switch.url)

    @app.task(name="print")
    def show(text: str) -> str:
        return text

    app.count()
    calls = [show.bind("x" * 10_000) for _ in range(500)]
    with switch.stopped(), pytest.raises(StoreUnavailable, match="did not answer"):
        app.enqueue_many(calls)
    app.enqueue_many(calls)
    assert app.count() == 500
    app.close()


def test_a_lost_reply_is_requested_again_within_the_same_deadline(server_url: str, namespace: str) -> None:
    for choice in ("return", "error", "replace"):
        with outages.losing_a_reply(server_url) as url:
            app, add = app_at(url, namespace=namespace)
            assert add.options(id=choice, on_exists=choice).enqueue(1, 2).created is (choice != "return")
            assert app.count() == ["return", "error", "replace"].index(choice) + 1
            app.close()


def test_all_retries_share_one_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("holdfast.store.deadline.time.monotonic", lambda: now)
    deadline = Deadline(2)
    now += 1.5
    assert deadline.seconds_left() == 0.5
    with deadline.paused():
        now += 60
    assert deadline.seconds_left() == 0.5
    now += 0.5
    with pytest.raises(TimeoutError):
        deadline.seconds_left()


def test_a_reply_that_arrived_while_the_process_was_stopped_is_read(
    server_url: str, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Standing(Deadline):
        """Its time is over when the request was sent."""

        @property
        def has_passed(self) -> bool:
            return self.unanswered > 0

    monkeypatch.setattr("holdfast.store.connection._POLL_INTERVAL", PATIENCE)
    store = Store(Address.find(server_url, namespace=namespace))
    command = commands.enqueue([NewJob(id="a", payload=b"{}", queue="q", task="t")])
    assert store.run(command.within(Standing(PATIENCE))).created == [True]
    store.close()


def test_a_reply_that_arrived_while_the_event_loop_was_blocked_is_read(server_url: str, namespace: str) -> None:
    command = commands.enqueue([NewJob(id="a", payload=b"{}", queue="q", task="t")])

    other = Store(Address.find(server_url, namespace=namespace))

    async def use() -> None:
        store = AsyncStore(Address.find(server_url, namespace=namespace))
        await store.run(commands.count())
        deadline = Deadline(3)
        storing = asyncio.create_task(store.run(command.within(deadline)))
        while not deadline.unanswered:
            await asyncio.sleep(0)
        for _ in range(3):  # until it is written
            await asyncio.sleep(0)
        eventually(lambda: other.run(commands.count()) == 1)
        while not deadline.has_passed:
            pass
        assert (await storing).created == [True]
        await store.close()

    asyncio.run(use())
    other.close()


def test_a_large_batch_has_a_longer_deadline() -> None:
    assert Deadline(size=1000).seconds == Deadline().seconds < 2
    assert Deadline(size=9 << 20).seconds == Deadline().seconds + 2


def test_the_start_of_the_embedded_server_does_not_count_towards_the_deadline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server_url: str
) -> None:
    deadlines: list[Deadline] = []

    def start(_: Path) -> str:
        while True:  # for longer than there is time
            try:
                deadlines[0].seconds_left()
            except TimeoutError:
                return server_url.removeprefix("unix://")

    monkeypatch.setattr("holdfast.server.server.ensure", start)
    address = Address(None, tmp_path, namespace=tmp_path.name, timeout=1.5)
    for number, how in enumerate(("sync", "async")):
        deadlines[:] = [Deadline(1)]
        job = NewJob(id=how, payload=b"{}", queue="q", task="t")
        command = commands.enqueue([job]).within(deadlines[0])
        if how == "sync":
            store = Store(address)
            assert store.run(command).created == [True]
            store.close()
        else:
            asyncio.run(_run_once(AsyncStore(address), command))
        assert (deadlines[0].unanswered, deadlines[0].seconds) == (0, 1.5), number  # no network: more time


async def _run_once(store: AsyncStore, command: commands.Command[Any]) -> None:
    assert (await store.run(command)).created == [True]
    await store.close()


def test_commands_with_a_deadline_reuse_their_connection(switch: Switch) -> None:
    switch.on()
    app, add = app_at(switch.url)
    for number in range(50):
        add.enqueue(number, 0)
    received = app.store.execute("INFO", "stats")["total_connections_received"]
    for number in range(50):
        add.enqueue(number, 0)
    assert app.store.execute("INFO", "stats")["total_connections_received"] == received
    switch.off()
    switch.on()
    assert add.enqueue(0, 0).created
    app.close()


def test_threads_enqueue_concurrently_each_on_its_own_connection(server_url: str, namespace: str) -> None:
    app, add = app_at(server_url, namespace=namespace)
    jobs: list[Job[int]] = []

    def work() -> None:
        jobs.extend([add.enqueue(number, 0) for number in range(50)])

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert app.count() == len({job.id for job in jobs}) == 400
    app.close()


def test_a_thousand_coroutines_enqueue_concurrently_on_a_few_connections(switch: Switch) -> None:
    switch.on()
    app, add = app_at(switch.url)

    async def use() -> int:
        await asyncio.gather(*(add.aenqueue(number, 0) for number in range(1000)))
        return int((await app.async_store.execute("INFO", "stats"))["total_connections_received"])

    assert run_async(app, use()) < 50
    assert app.count() == 1000
    app.close()


def test_concurrent_coroutines_do_not_wait_for_the_timeouts_of_others() -> None:
    with outages.silent() as url:
        app, add = app_at(url)

        async def use() -> list[Any]:
            return await asyncio.gather(*(add.aenqueue(number, 0) for number in range(500)), return_exceptions=True)

        began = time.monotonic()
        assert {type(error) for error in run_async(app, use())} == {StoreUnavailable}
        assert time.monotonic() - began < LONG


def test_a_call_does_not_wait_for_other_commands_to_an_unresponsive_server() -> None:
    with outages.silent() as url:
        app = Holdfast(url, timeout="10m")

        @app.task(name="add")
        def add(x: int, y: int) -> int:
            return x + y

        async def use() -> None:
            asking = [asyncio.create_task(app.acount()) for _ in range(40)]
            await asyncio.wait(asking, timeout=0.1)  # as many as may be are on their way
            async with asyncio.timeout(PATIENCE):
                with pytest.raises(StoreUnavailable, match="did not answer"):
                    await add.aenqueue(1, 2)
            for task in asking:
                task.cancel()
            await asyncio.wait(asking)

        run_async(app, use())
