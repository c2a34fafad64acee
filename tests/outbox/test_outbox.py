"""When the store cannot be reached: raise in time, run inline, or keep on disk and send later, in order and once."""

from __future__ import annotations

import asyncio
import json
import logging
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest

from holdfast import (
    BoundCall,
    Fail,
    Holdfast,
    Invalid,
    Job,
    JobExists,
    JobFailed,
    JobNotFound,
    ResultTimeout,
    Snooze,
    StoreFull,
    StoreUnavailable,
    TooBig,
    current_job,
)
from holdfast.cli import exit_codes
from holdfast.cli.outbox import OUTBOX
from holdfast.client.enqueue import Chunk
from holdfast.outbox.entry import FORMAT, Entry
from holdfast.outbox.outbox import DAMAGED, SEND_LOCK, Outbox
from holdfast.server import server
from holdfast.store import commands
from holdfast.store.deadline import Deadline
from holdfast.store.store import Address, AsyncStore, Store
from holdfast.task.task import Task
from tests.support import outages
from tests.support.new_job import NewJob
from tests.support.outages import PATIENCE, Switch, eventually
from tests.support.shells import Shell
from tests.support.workers import Crew

T = TypeVar("T")
LONG = 10  # seconds: each of these cases took longer when only the operations of a socket had a time-out


@pytest.fixture(autouse=True)
def outbox_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOLDFAST_OUTBOX", str(tmp_path / "outbox"))
    return tmp_path / "outbox"


@pytest.fixture
def switch() -> Iterator[Switch]:
    with outages.switch() as made:
        yield made


def app_at(url: str, choice: Any = None, namespace: str = "default") -> tuple[Holdfast, Task[[int, int], int]]:
    app = Holdfast(url, namespace=namespace, when_unreachable=choice)

    @app.task(name="add")
    def add(x: int, y: int) -> int:
        return x + y

    return app, add


def run_async(app: Holdfast, work: Coroutine[Any, Any, T]) -> T:
    async def run() -> T:
        try:
            return await work
        finally:
            await app.aclose()

    return asyncio.run(run())


# Raise

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
def test_a_call_that_cannot_be_stored_raises_soon_whatever_the_network_does(outage: str, how: str) -> None:
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
def test_a_server_that_is_stopped_is_not_waited_for(switch: Switch, is_connected: bool) -> None:
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


def test_a_reply_that_was_lost_is_asked_for_again_within_the_same_time(server_url: str, namespace: str) -> None:
    for choice in ("return", "error", "replace"):
        with outages.losing_a_reply(server_url) as url:
            app, add = app_at(url, namespace=namespace)
            assert add.options(id=choice, on_exists=choice).enqueue(1, 2).created is (choice != "return")
            assert app.count() == ["return", "error", "replace"].index(choice) + 1
            app.close()


def test_all_repetitions_share_one_budget(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_reply_that_came_while_the_process_stood_still_is_heard(
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


def test_a_reply_that_came_while_the_event_loop_stood_still_is_heard(server_url: str, namespace: str) -> None:
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


def test_a_big_batch_may_take_longer() -> None:
    assert Deadline(size=1000).seconds == Deadline().seconds < 2
    assert Deadline(size=9 << 20).seconds == Deadline().seconds + 2


def test_the_time_in_which_the_embedded_server_starts_does_not_count(
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


def test_commands_with_a_budget_use_their_connection_again(switch: Switch) -> None:
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


def test_threads_enqueue_at_once_each_on_a_connection_of_its_own(server_url: str, namespace: str) -> None:
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


def test_a_thousand_coroutines_enqueue_at_once_on_some_connections(switch: Switch) -> None:
    switch.on()
    app, add = app_at(switch.url)

    async def use() -> int:
        await asyncio.gather(*(add.aenqueue(number, 0) for number in range(1000)))
        return int((await app.async_store.execute("INFO", "stats"))["total_connections_received"])

    assert run_async(app, use()) < 50
    assert app.count() == 1000
    app.close()


def test_coroutines_that_enqueue_at_once_do_not_wait_for_each_others_time_outs() -> None:
    with outages.silent() as url:
        app, add = app_at(url)

        async def use() -> list[Any]:
            return await asyncio.gather(*(add.aenqueue(number, 0) for number in range(500)), return_exceptions=True)

        began = time.monotonic()
        assert {type(error) for error in run_async(app, use())} == {StoreUnavailable}
        assert time.monotonic() - began < LONG


def test_a_call_does_not_wait_for_what_else_is_asked_of_a_silent_server() -> None:
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


# The choice


def test_the_choice_is_of_the_call_else_of_the_task_else_of_the_app(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_WHEN_UNREACHABLE", "inline")
    with outages.refused() as url:
        app, add = app_at(url)
        assert add.enqueue(1, 2).ran_inline
        with pytest.raises(StoreUnavailable):
            add.options(when_unreachable="raise").enqueue(1, 2)
        with pytest.raises(StoreUnavailable):
            app.enqueue(add.bind(1, 2).options(when_unreachable="raise"))
        with pytest.raises(StoreUnavailable):
            app_at(url, "raise")[1].enqueue(1, 2)
        with pytest.raises(Invalid, match="the same when_unreachable"):
            app.enqueue_many([add.bind(1, 2), add.bind(1, 2).options(when_unreachable="outbox")])
    assert app.enqueue_many([]) == []


def test_a_choice_that_there_is_not_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Invalid, match="'raise', 'inline', 'outbox'"):
        Holdfast(when_unreachable="ignore")  # type: ignore[arg-type]
    monkeypatch.setenv("HOLDFAST_WHEN_UNREACHABLE", "hope")
    with pytest.raises(Invalid, match="'raise', 'inline', 'outbox'"):
        Holdfast()


def test_only_storing_is_concerned() -> None:
    with outages.refused() as url:
        app, _ = app_at(url, "outbox")
        with pytest.raises(StoreUnavailable):
            app.count()


# Inline


@pytest.fixture
def inline() -> Iterator[Holdfast]:
    with outages.refused() as url:
        yield Holdfast(url, when_unreachable="inline")


def test_a_call_that_runs_inline_is_a_job_that_has_ended(inline: Holdfast, caplog: pytest.LogCaptureFixture) -> None:
    seen: list[Any] = []

    @inline.task(name="double")
    def double(x: int) -> dict[str, int]:
        job = current_job()
        job.save(x, progress=0.5)
        job.report(1.0)
        seen.append((job.id, job.task, job.queue, job.attempt, job.checkpoint(int, 0), job.directory.is_dir()))
        return {"twice": 2 * x}

    job = double.options(queue="sums").enqueue(4)
    assert (job.state, job.created, job.ran_inline, job.in_outbox) == ("succeeded", True, True, False)
    assert job.result() == run_async(inline, job.aresult()) == {"twice": 8}
    assert seen == [(job.id, "double", "sums", 1, 4, True)]
    assert current_job().id == "detached"
    assert [attempt.outcome for attempt in job.attempts] == ["succeeded"]
    double.enqueue(5)
    assert [record.levelname for record in caplog.records if "inline" in record.message] == ["WARNING"]


def test_a_call_that_fails_inline_says_why(inline: Holdfast) -> None:
    @inline.task(name="fail")
    def fail(how: str) -> object:
        if how == "result":
            return object()
        if how == "exit":
            sys.exit(3)
        if how == "later":
            raise Snooze("1h")
        raise Fail("no", group="none") if how == "fail" else ValueError(how)

    groups = {"value": "ValueError", "fail": "none", "exit": "crashed", "later": "cannot-continue"}
    for how, group in groups.items():
        job = fail.enqueue(how)
        assert (job.state, job.group) == ("failed", group)
        assert job.failure
        with pytest.raises(JobFailed, match=group):
            job.result()
    assert fail.enqueue("result").state == "failed"


def test_what_is_meant_for_the_process_leaves_a_call_that_runs_inline(inline: Holdfast) -> None:
    @inline.task(name="stop")
    def stop() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stop.enqueue()


def test_async_and_plain_tasks_run_inline_from_both_sides(inline: Holdfast) -> None:
    @inline.task(name="later")
    async def later(x: int) -> tuple[int, int]:
        await asyncio.sleep(0)
        return x, threading.get_ident()

    @inline.task(name="plain")
    def plain(x: int) -> tuple[int, int]:
        return x, threading.get_ident()

    here = threading.get_ident()
    assert later.enqueue(1).result() == plain.enqueue(1).result() == (1, here)

    async def use() -> None:
        assert (await later.aenqueue(2)).decoded_result() == (2, here)
        x, thread = (await plain.aenqueue(2)).decoded_result()
        assert (x, thread == here) == (2, False)
        assert plain.enqueue(3).decoded_result() == (3, here)
        with pytest.raises(StoreUnavailable, match="use aenqueue"):
            later.enqueue(3)

    run_async(inline, use())


def test_an_inline_call_that_is_cancelled_ends(inline: Holdfast) -> None:
    began = asyncio.Event()

    @inline.task(name="forever")
    async def forever() -> None:
        began.set()
        await asyncio.Event().wait()

    async def use() -> None:
        task = asyncio.create_task(forever.aenqueue())
        await began.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run_async(inline, use())


def test_a_batch_runs_inline_in_order_or_not_at_all(inline: Holdfast) -> None:
    ran: list[int] = []

    @inline.task(name="note")
    def note(x: int) -> None:
        ran.append(x)

    assert [job.state for job in inline.enqueue_many([note.bind(x) for x in range(3)])] == ["succeeded"] * 3
    assert ran == [0, 1, 2]
    with pytest.raises(StoreUnavailable, match="cannot run inline either: it is due later"):
        inline.enqueue_many([note.bind(7), note.bind(8).options(delay="1h")])
    with pytest.raises(StoreUnavailable, match="cannot run inline either: it depends on other jobs"):
        inline.enqueue_many([note.bind(7), note.bind(8).options(after="another")])
    with pytest.raises(StoreUnavailable, match="only the store can tell whether the limit api:acme allows it"):
        note.options(limits="api:acme").enqueue(9)
    assert ran == [0, 1, 2]


def test_calls_of_which_some_were_stored_may_be_done(switch: Switch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.client.enqueue.MAX_BATCH", 2)
    switch.on()
    with outages.restarting_before(switch.url, b"enqueue", after=1) as url:
        app, add = app_at(url)
        with pytest.raises(StoreUnavailable) as caught:
            app.enqueue_many([add.bind(number, 0) for number in range(3)])
        assert app.count() == 2
        assert caught.value.maybe_done
        app.close()


@pytest.mark.parametrize("stored", [0, 2])
def test_calls_may_be_done_also_if_it_was_their_generator_that_could_not_reach_a_store(
    switch: Switch, monkeypatch: pytest.MonkeyPatch, stored: int
) -> None:
    monkeypatch.setattr("holdfast.client.enqueue.MAX_BATCH", 2)
    switch.on()
    app, add = app_at(switch.url)

    def calls() -> Iterator[BoundCall[int]]:
        yield from (add.bind(number, 0) for number in range(stored))
        error = StoreUnavailable("another store cannot be reached")
        error.maybe_done = False
        raise error

    with pytest.raises(StoreUnavailable, match="another store") as caught:
        app.enqueue_many(calls())
    assert caught.value.maybe_done is (stored > 0)
    assert app.count() == stored
    app.close()


def test_what_may_have_been_stored_runs_inline_unless_it_must_not_run_twice() -> None:
    with outages.hanging_up() as url:
        app, add = app_at(url, "inline")
        assert add.enqueue(1, 2).result() == 3
        with pytest.raises(StoreUnavailable, match="must not run twice") as caught:
            add.options(at_most_once=True).enqueue(1, 2)
        assert caught.value.maybe_done
        app.close()
    with outages.refused() as url:
        app, add = app_at(url, "inline")
        assert add.options(at_most_once=True).enqueue(1, 2).result() == 3


@pytest.mark.parametrize("how", ["sync", "async"])
def test_a_batch_that_was_stored_may_be_done_though_the_store_went_before_all_was_known(
    switch: Switch, how: str
) -> None:
    switch.on()
    direct, add = app_at(switch.url)
    there = add.options(id="there").enqueue(0, 0)
    with outages.restarting_before(switch.url, b"get") as url:
        app, add = app_at(url)
        calls = [add.options(id=there.id).bind(0, 0), add.bind(1, 2)]
        with pytest.raises(StoreUnavailable) as caught:
            app.enqueue_many(calls) if how == "sync" else run_async(app, app.aenqueue_many(calls))
        assert direct.get(calls[1].id).state == "waiting"
        assert caught.value.maybe_done

        inline, add = app_at(url, "inline")
        with pytest.raises(StoreUnavailable, match="must not run twice"):
            add.options(id=there.id, at_most_once=True).enqueue(0, 0)
        app.close()
        inline.close()
    direct.close()


# Outbox


def test_calls_are_kept_in_order_and_sent_when_the_store_is_back(switch: Switch, caplog: Any) -> None:
    caplog.set_level(logging.INFO)
    app, add = app_at(switch.url, "outbox")
    jobs = [add.enqueue(number, 0) for number in range(20)]
    jobs += run_async(app, _add_all(add, range(20, 30)))
    jobs += app.enqueue_many([add.bind(number, 0) for number in range(30, 1500)])
    assert all(job.in_outbox and job.created and job.state == "waiting" for job in jobs)
    assert len({job.id for job in jobs}) == 1500

    switch.on()
    eventually(lambda: not app.outage_policy.outbox.has_entries)
    jobs.append(add.enqueue(1500, 0))
    assert not jobs[-1].in_outbox
    assert [job.id for job in app.list(state="waiting")] == [job.id for job in jobs]
    assert [record.levelname for record in caplog.records if "written to the outbox" in record.message] == ["WARNING"]
    eventually(lambda: "holdfast-send" not in {thread.name for thread in threading.enumerate()})
    app.close()


async def _add_all(add: Task[[int, int], int], numbers: range) -> list[Job[int]]:
    return [await add.aenqueue(number, 0) for number in numbers]


def test_a_call_that_timed_out_and_was_stored_all_the_same_is_stored_once(switch: Switch) -> None:
    switch.on()
    app, add = app_at(switch.url, "outbox")
    add.enqueue(0, 0)
    with switch.stopped():
        kept = [add.options(id="a").enqueue(1, 1), add.options(id="b", on_exists="error").enqueue(2, 2)]
        kept.append(add.options(id="c", keep=False).enqueue(3, 3))
        assert all(job.in_outbox for job in kept)
    eventually(lambda: not app.outage_policy.outbox.has_entries)
    assert list(app.outage_policy.outbox.refused()) == []
    assert app.count() == 4
    assert set(enqueued(app).values()) == {1}
    app.close()


def enqueued(app: Holdfast) -> Counter[str]:
    """How often each id was stored."""
    found: Counter[str] = Counter()
    after = "0"
    while events := app.events(after, limit=1000):
        found.update(id for event in events if event.type == "enqueued" for id in event.jobs)
        after = events[-1].id
    return found


def test_a_delay_counts_from_when_the_call_was_kept(switch: Switch) -> None:
    app, add = app_at(switch.url, "outbox")
    before = time.time()
    job = add.options(delay="1h", queue="q", priority=-3, retries=7).enqueue(1, 2)
    short = add.options(delay="1ms").enqueue(1, 2)
    assert job.state == "scheduled"
    assert job.due_at
    assert before + 3590 < job.due_at.timestamp() < time.time() + 3610

    switch.on()
    eventually(lambda: not app.outage_policy.outbox.has_entries)
    stored = app.get(job.id)
    assert (stored.due_at, stored.queue, stored.priority, stored.retries) == (job.due_at, "q", -3, 7)
    assert app.get(short.id).state == "waiting"
    app.close()


def test_a_graph_is_kept_as_it_is_and_a_deadline_counts_from_when_the_call_was_kept(switch: Switch) -> None:
    app, add = app_at(switch.url, "outbox")
    first = add.options(id="first", deadline="1h").bind(1, 2)
    one, two = app.enqueue_many([first, add.options(after=first, limits="api", delay="1m").bind(3, 4)])
    late = add.options(deadline="1ms").enqueue(1, 2)
    assert (one.state, two.state, two.due_at) == ("waiting", "blocked", None)

    switch.on()
    eventually(lambda: not app.outage_policy.outbox.has_entries)
    assert app.get("first").deadline == one.deadline
    stored = app.get(two.id)
    assert (stored.state, [each.id for each in stored.after], stored.limits) == ("blocked", ["first"], ("api",))
    app.store.run(commands.claim("node/worker.0", commands.claim_args(["elsewhere"], counter=1, limit=1)))
    assert (app.get(late.id).state, app.get(late.id).group) == ("failed", "deadline")
    app.close()


def test_another_process_sends_what_one_that_was_killed_has_kept(switch: Switch, outbox_folder: Path) -> None:
    code = f"""
import os, signal
from holdfast import Holdfast
app = Holdfast({switch.url!r}, when_unreachable="outbox")
@app.task(name="add")
def add(x: int, y: int) -> int: ...
print(*[add.enqueue(number, 0).id for number in range(5)], flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    line = [sys.executable, "-c", code]
    done = subprocess.run(line, capture_output=True, text=True, env=outages.environment(outbox_folder), check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    switch.on()

    app, add = app_at(switch.url, "outbox")
    last = add.enqueue(5, 0)
    assert not last.in_outbox  # a program that ends now leaves nothing behind
    assert [job.id for job in app.list()] == [*done.stdout.split(), last.id]
    app.close()


def test_calls_line_up_behind_those_that_another_process_is_sending(switch: Switch, caplog: Any) -> None:
    switch.on()
    one, first = app_at(switch.url, "outbox")
    add_to_outbox(one, call := first.bind(1, 1))
    two, second = app_at(switch.url, "outbox")
    with one.outage_policy.outbox._locked(SEND_LOCK):
        jobs = [second.enqueue(2, 2), run_async(two, second.aenqueue(3, 3))]
    assert all(job.in_outbox for job in jobs)
    assert [record.levelname for record in caplog.records if "line up" in record.message] == ["WARNING"]
    eventually(lambda: not two.outage_policy.outbox.has_entries)
    assert [job.id for job in two.list()] == [call.id, *(job.id for job in jobs)]
    one.close()
    two.close()


def test_an_embedded_server_that_cannot_be_started_cannot_be_reached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HOLDFAST_OUTBOX")
    monkeypatch.delenv("HOLDFAST_URL", raising=False)
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HOLDFAST_SERVER_BIN", "/no/such/server")
    app = Holdfast(when_unreachable="outbox")

    @app.task(name="nothing")
    def nothing() -> None: ...

    assert nothing.enqueue().in_outbox
    assert nothing.options(when_unreachable="inline").enqueue().ran_inline
    assert app.outage_policy.outbox.folder.parent == tmp_path / "home" / "outbox"
    assert len(list(app.outage_policy.outbox.entries())) == 1

    monkeypatch.delenv("HOLDFAST_SERVER_BIN")
    try:
        app.send_outbox()
        assert app.count() == 1
    finally:
        app.close()
        server.stop(tmp_path / "home")


def test_what_is_kept_is_sent_when_asked_for(switch: Switch) -> None:
    with outages.refused() as url:
        other, add = app_at(url, "outbox")
        add.enqueue(0, 0)
        with pytest.raises(StoreUnavailable):
            other.send_outbox()
    app, add = app_at(switch.url, "outbox")
    app.outage_policy.sender.start = lambda: None  # type: ignore[method-assign]
    app.enqueue_many([add.bind(number, 0) for number in range(7)])
    add.enqueue(7, 0)
    with pytest.raises(StoreUnavailable, match="cannot be reached"):
        run_async(app, app.asend_outbox())
    switch.on()
    assert app.send_outbox() == 8
    assert run_async(app, app.asend_outbox()) == 0
    assert app.count() == 8
    assert len(list(other.outage_policy.outbox.entries())) == 1  # of another store
    assert other.outage_policy.outbox.folder.stat().st_mode & 0o777 == 0o700
    app.close()


def test_who_dies_between_sending_and_marking_has_it_sent_again_and_stored_once(switch: Switch) -> None:
    app, add = app_at(switch.url, "outbox")
    app.outage_policy.sender.start = lambda: None  # type: ignore[method-assign]
    plain = add.options(retries=0).enqueue(1, 1)
    calls = [add.options(id="careful", on_exists="error"), add.options(id="new", on_exists="replace")]
    calls += [add.options(keep=False), add.options(unique="key")]
    jobs = [plain, *(task.enqueue(2, 2) for task in calls)]
    file = app.outage_policy.outbox.folder / "calls"
    unmarked = file.read_bytes()
    switch.on()
    for _ in range(3):
        assert app.send_outbox() == 5
        for job in app.get_many([job.id for job in jobs]):
            if job and job.state == "waiting":
                job.cancel()  # it has come to its end meanwhile, and is gone if it is not kept
        file.write_bytes(unmarked)
    assert set(enqueued(app).values()) == {1}
    assert list(app.outage_policy.outbox.refused()) == []
    app.close()


def test_what_is_sent_is_marked_only_when_the_store_has_answered(switch: Switch) -> None:
    app, add = app_at(switch.url, "outbox")
    app.outage_policy.sender.start = lambda: None  # type: ignore[method-assign]
    jobs = [add.enqueue(number, 0) for number in range(5)]
    sent: list[str] = []

    def deliver(kept: Entry) -> None:
        if len(sent) == 3:
            raise KeyboardInterrupt
        sent.extend(kept.ids)

    with pytest.raises(KeyboardInterrupt):
        app.outage_policy.outbox.send(deliver)
    assert [kept.ids for kept in app.outage_policy.outbox.entries()] == [[job.id] for job in jobs[3:]]
    switch.on()
    assert app.send_outbox() == 2
    assert [job.id for job in app.list()] == [job.id for job in jobs[3:]]
    app.close()


def test_the_result_of_a_kept_job_is_waited_for_until_it_was_sent_and_done(switch: Switch) -> None:
    app, add = app_at(switch.url, "outbox")
    job = add.enqueue(1, 2)
    with pytest.raises(ResultTimeout, match="still in the outbox"):
        job.result(timeout="50ms")
    with pytest.raises(ResultTimeout, match="still in the outbox"):
        run_async(app, job.aresult(timeout="50ms"))
    switch.on()
    with pytest.raises(ResultTimeout, match="still waiting"):
        job.result(timeout="5s")
    app.cancel(job.id)
    app.delete(job.id)
    with pytest.raises(JobNotFound):
        job.result(timeout="5s")
    app.close()


def test_a_call_that_the_store_refuses_later_does_not_hold_up_the_others(switch: Switch, caplog: Any) -> None:
    switch.on()
    app, add = app_at(switch.url, "outbox")
    add.options(id="taken").enqueue(0, 0)
    switch.off()
    refused = add.options(id="taken", on_exists="error").enqueue(1, 1)
    fine = add.enqueue(2, 2)
    with pytest.raises(TooBig):
        app.enqueue(msgspec.structs.replace(add.bind(1, 1), payload=b'"%b"' % (b"x" * (1 << 20))))

    switch.on()
    eventually(lambda: not app.outage_policy.outbox.has_entries)
    assert app.get(fine.id).state == "waiting"
    assert [(each.code, each.entry.ids) for each in app.outage_policy.outbox.refused()] == [("EXISTS", ["taken"])]
    assert [record.levelname for record in caplog.records if "refused calls from the outbox" in record.message] == [
        "ERROR"
    ]
    with pytest.raises(JobExists, match="taken"):
        refused.result(timeout="5s")
    with (app.outage_policy.outbox.folder / "refused").open("ab") as file:
        file.write(b"{ what a power cut left")
    switch.off()
    add.options(id="taken", on_exists="error").enqueue(3, 3)
    switch.on()
    eventually(lambda: not app.outage_policy.outbox.has_entries)
    assert len(list(app.outage_policy.outbox.refused())) == 2
    app.close()


def test_what_a_full_store_refuses_stays_and_is_tried_again(switch: Switch) -> None:
    app, add = app_at(switch.url, "outbox")
    app.outage_policy.sender.start = lambda: None  # type: ignore[method-assign]
    add.enqueue(1, 1)
    switch.on()
    app.store.execute("CONFIG", "SET", "maxmemory", 1)
    with pytest.raises(StoreFull):
        app.send_outbox()
    with pytest.raises(StoreFull):
        app_at(switch.url, "outbox", namespace="other")[1].enqueue(1, 1)  # it was reached
    app.store.execute("CONFIG", "SET", "maxmemory", 0)
    assert app.send_outbox() == 1
    app.close()


def test_there_is_a_bound_to_what_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    with outages.refused() as url:
        app, add = app_at(url, "outbox")
        monkeypatch.setattr("holdfast.outbox.outbox.MAX_CALLS", 30)
        app.enqueue_many([add.bind(number, 0) for number in range(28)])
        add.enqueue(28, 0)
        with pytest.raises(StoreUnavailable, match=r"29 calls .*limit 30 in 64 MiB"):
            app.enqueue_many([add.bind(29, 0), add.bind(30, 0)])
        add.enqueue(29, 0)
        monkeypatch.undo()
        monkeypatch.setattr("holdfast.outbox.outbox.MAX_BYTES", app.outage_policy.outbox.size)
        with pytest.raises(StoreUnavailable, match="limit 10,000 in 0 MiB"):
            add.enqueue(30, 0)
        assert sum(len(kept.ids) for kept in app.outage_policy.outbox.entries()) == 30


def test_a_disk_that_cannot_be_written_is_said_with_both_reasons(outbox_folder: Path) -> None:
    outbox_folder.write_text("a file, where a directory is to be")
    with outages.refused() as url:
        _, add = app_at(url, "outbox")
        with pytest.raises(
            StoreUnavailable, match=r"Connection refused.*writing to the outbox failed.*Not a directory"
        ):
            add.enqueue(1, 2)


def test_a_full_disk_is_said_and_leaves_nothing_half_written(outbox_folder: Path) -> None:
    code = """
from tests.support import outages
from holdfast import Holdfast, StoreUnavailable
app = Holdfast("redis://127.0.0.1:1", when_unreachable="outbox")
@app.task(name="print")
def show(text: str) -> None: ...
kept = [show.enqueue("x" * 1000).id for _ in range(2)]
outages.ignore_signal_of_size_limits()
try:
    show.enqueue("x" * 3000)
except StoreUnavailable as error:
    assert "refused" in str(error) or "outbox holds earlier calls" in str(error), error
    assert "File too large" in str(error), error
else:
    raise AssertionError("it was kept")
kept.append(show.enqueue("x").id)
assert [id for each in app.outage_policy.outbox.entries() for id in each.ids] == kept
"""
    root = str(Path(__file__).parents[2])
    environ = outages.environment(outbox_folder, PYTHONPATH=os.pathsep.join([root, *sys.path]))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environ, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("cut", [1, 2, 30, 100])
def test_a_record_that_was_broken_off_is_set_aside_and_blocks_nothing(switch: Switch, cut: int, caplog: Any) -> None:
    app, add = app_at(switch.url, "outbox")
    app.outage_policy.sender.start = lambda: None  # type: ignore[method-assign]
    first, torn = add.enqueue(1, 1), add.enqueue(2, 2)
    outbox = app.outage_policy.outbox
    calls = outbox.folder / "calls"
    calls.write_bytes(calls.read_bytes()[:-cut])
    last = add.enqueue(3, 3)

    switch.on()
    assert app.send_outbox() == 2
    assert [job.id for job in app.list()] == [first.id, last.id]
    assert torn.id.encode() in (outbox.folder / DAMAGED).read_bytes() or cut == 100
    assert [record.levelname for record in caplog.records if "set aside" in record.message] == ["ERROR"]
    app.close()


@pytest.mark.parametrize("damage", [b"\0" * 40, b"nonsense\n", b"P 00001 000000400 12345678 {}\n", b"\n\n"])
def test_damage_anywhere_is_passed_over(switch: Switch, damage: bytes) -> None:
    app, add = app_at(switch.url, "outbox")
    app.outage_policy.sender.start = lambda: None  # type: ignore[method-assign]
    calls = app.outage_policy.outbox.folder / "calls"
    kept = []
    for number in range(3):
        kept.append(add.enqueue(number, 0))
        calls.write_bytes(calls.read_bytes() + damage)
    changed = add.enqueue(3, 0)
    calls.write_bytes(calls.read_bytes().replace(changed.id.encode(), changed.id[::-1].encode()))
    switch.on()
    app.send_outbox()
    assert [job.id for job in app.list()] == [job.id for job in kept]
    assert not app.outage_policy.outbox.has_entries
    app.close()


def test_damage_is_set_aside_once_however_often_sending_is_tried(switch: Switch, caplog: Any) -> None:
    app, add = app_at(switch.url, "outbox")
    app.outage_policy.sender.start = lambda: None  # type: ignore[method-assign]
    outbox = app.outage_policy.outbox
    kept = [add.enqueue(1, 0)]
    calls = outbox.folder / "calls"
    calls.write_bytes(b"\n" + b"nonsense\n" + b"x\n" + calls.read_bytes())
    kept.append(add.enqueue(2, 0))
    for _ in range(3):
        with pytest.raises(StoreUnavailable):
            app.send_outbox()

    assert (outbox.folder / DAMAGED).read_bytes() == b"nonsense\nx\n"
    assert len([record for record in caplog.records if "set aside" in record.message]) == 2
    switch.on()
    assert app.send_outbox() == 2
    assert [job.id for job in app.list()] == [job.id for job in kept]
    app.close()


def test_what_others_have_sent_meanwhile_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if the file has grown longer since then than it was."""
    monkeypatch.setattr("holdfast.outbox.outbox.MAX_CALLS", 5)
    with outages.refused() as url:
        app, add = app_at(url, "outbox")
        app.outage_policy.sender.start = lambda: None  # type: ignore[method-assign]
        outbox, other = app.outage_policy.outbox, Outbox(app.outage_policy.outbox.folder.parent, app.address)
        for number in range(4):
            add.enqueue(number, 0)
        (first, *_) = outbox.entries()
        assert other.send(lambda _: None) == (4, 0)
        other.add(msgspec.structs.replace(first, blobs=(b"x" * 10_000,)))

        for number in range(4):
            add.enqueue(number, 0)
        with pytest.raises(StoreUnavailable, match="5 calls"):
            add.enqueue(4, 0)


def test_catching_up_has_one_budget_for_all_that_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    class Clock:
        now = 1000.0

        def monotonic(self) -> float:
            return self.now

    class SlowStore:
        def run(self, command: commands.Command[Any]) -> None:
            assert command.deadline
            deadlines.append(command.deadline.seconds)
            clock.now += 1

    clock, deadlines = Clock(), list[float]()
    with outages.refused() as url:
        app, add = app_at(url, "outbox")
        app.outage_policy.sender.start = lambda: None  # type: ignore[method-assign]
        for number in range(4):
            add.enqueue(number, 0)
        monkeypatch.setattr("holdfast.store.deadline.time", clock)
        monkeypatch.setattr(app.outage_policy.sender, "_store", SlowStore())

        assert not app.outage_policy.sender.catch_up()

        assert deadlines == pytest.approx([1.8, 0.8])


def test_a_record_of_another_form_is_set_aside(switch: Switch, caplog: Any) -> None:
    app, add = app_at(switch.url, "outbox")
    app.outage_policy.sender.start = lambda: None  # type: ignore[method-assign]
    outbox = app.outage_policy.outbox
    kept = add.enqueue(1, 1)
    outbox.add(msgspec.structs.replace(next(outbox.entries()), format=FORMAT + 1))
    last = add.enqueue(2, 2)

    assert [each.ids for each in outbox.entries()] == [[kept.id], [last.id]]
    switch.on()
    app.send_outbox()
    assert [job.id for job in app.list()] == [kept.id, last.id]
    assert b'"format":%d' % (FORMAT + 1) in (outbox.folder / DAMAGED).read_bytes()
    assert [record.levelname for record in caplog.records if "set aside" in record.message] == ["ERROR"]
    app.close()


def test_what_the_server_refuses_for_reasons_of_its_own_stays_and_is_said_once(switch: Switch, caplog: Any) -> None:
    switch.on()
    app, add = app_at(switch.url, "outbox")
    add_to_outbox(app, call := add.bind(1, 1))
    add_to_outbox(app, add.bind(2, 2))
    app.store.execute("ACL", "SETUSER", "default", "-hset")
    app.outage_policy.sender.start()
    eventually(lambda: caplog.records)
    assert "refused a command" in caplog.records[0].message
    assert len(list(app.outage_policy.outbox.entries())) == 2
    app.store.execute("ACL", "SETUSER", "default", "+@all")
    eventually(lambda: not app.outage_policy.outbox.has_entries)
    assert app.get(call.id).state == "waiting"
    assert len(caplog.records) == 1
    app.close()


def test_files_that_cannot_be_read_are_said_by_those_who_send(switch: Switch) -> None:
    app, add = app_at(switch.url, "outbox")
    app.outage_policy.sender.start = lambda: None  # type: ignore[method-assign]
    add.enqueue(1, 1)
    lock = app.outage_policy.outbox.folder / SEND_LOCK
    lock.mkdir()
    switch.on()
    with pytest.raises(StoreUnavailable, match=r"calls in the outbox cannot be sent: .*Is a directory"):
        app.send_outbox()
    assert add.enqueue(2, 2).in_outbox
    lock.rmdir()
    assert app.send_outbox() == 2
    app.close()


def test_what_is_kept_is_json_of_a_stated_form() -> None:
    with outages.refused() as url:
        app, add = app_at(url, "outbox")
        job = add.enqueue(1, 2)
        line = (app.outage_policy.outbox.folder / "calls").read_bytes()
    kept = json.loads(line[27:])
    assert set(kept) == {"at", "args", "ids", "blobs", "format"}
    assert (kept["ids"], kept["format"]) == ([job.id], 2)  # the first form had no ids, and did not say which it was
    assert line.count(b"\n") == 1


def _hold(outbox: Outbox, ready: Any, end: Any) -> None:
    """Hold the lock of those who send, fork a child that lives on, and die."""
    with outbox._locked(SEND_LOCK):
        child = os.fork()
        if child == 0:
            end.recv()
            os._exit(0)
        ready.send(child)
        os.kill(os.getpid(), signal.SIGKILL)


def test_a_forked_process_holds_no_lock_of_its_parent(switch: Switch) -> None:
    app, add = app_at(switch.url, "outbox")
    app.outage_policy.sender.start = lambda: None  # type: ignore[method-assign]
    add.enqueue(1, 1)
    ready, told = multiprocessing.Pipe()
    end, ending = multiprocessing.Pipe()
    holder = multiprocessing.get_context("fork").Process(target=_hold, args=(app.outage_policy.outbox, told, end))
    holder.start()
    ready.recv()
    holder.join()
    switch.on()
    assert app.send_outbox() == 1
    ending.send(None)
    app.close()


def _enqueue_in_child(add: Task[[int, int], int], pipe: Any) -> None:
    pipe.send(add.enqueue(2, 2).in_outbox)
    eventually(lambda: not add.app.outage_policy.outbox.has_entries)  # type: ignore[attr-defined]
    pipe.send(True)


def test_a_forked_process_sends_by_itself(switch: Switch) -> None:
    app, add = app_at(switch.url, "outbox")
    add.enqueue(1, 1)  # now there is a thread, which the child will not have
    ours, its = multiprocessing.Pipe()
    process = multiprocessing.get_context("fork").Process(target=_enqueue_in_child, args=(add, its))
    process.start()
    assert ours.recv()
    switch.on()
    assert ours.recv()
    process.join()
    assert app.count() == 2
    app.close()


def test_a_process_that_has_kept_calls_ends_at_once(outbox_folder: Path) -> None:
    code = """
from holdfast import Holdfast
app = Holdfast("redis://127.0.0.1:1", when_unreachable="outbox")
@app.task(name="add")
def add(x: int, y: int) -> int: ...
add.enqueue(1, 2)
"""
    line = [sys.executable, "-W", "error", "-c", code]
    environ = outages.environment(outbox_folder)
    done = subprocess.run(line, capture_output=True, text=True, env=environ, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (0, "")
    assert "Traceback" not in done.stderr


def add_to_outbox(app: Holdfast, *calls: BoundCall[Any]) -> None:
    """Add calls to the outbox as if the server were unreachable."""
    app.outage_policy.outbox.add(Entry.of(Chunk.of(app, calls).command, 1_700_000_000_000))


def test_a_worker_sends_what_is_kept_when_it_starts(crew: Crew) -> None:
    from tests.apps.worker_app import add

    call = add.bind(1, 2)
    add_to_outbox(crew.app, call)
    worker = crew.start()
    eventually(lambda: crew.app.get_many([call.id])[0])
    assert crew.app.get(call.id).result(timeout="40s") == 3
    assert not crew.app.outage_policy.outbox.has_entries
    assert worker.stop() == 0


def test_the_command_line_lists_and_sends_what_is_kept(shell: Shell, outbox_folder: Path) -> None:
    shell.environ["HOLDFAST_OUTBOX"] = str(outbox_folder)
    assert shell("outbox", "--json").json == []
    shell("enqueue", "tasks.add", "x=0", "--id", "taken")
    task: Any = shell.client.task(name="tasks.add")(lambda x: x)
    first, second = task.bind(1), task.options(queue="mail", delay="1h").bind(2)
    add_to_outbox(shell.client, first)
    add_to_outbox(shell.client, second)
    add_to_outbox(shell.client, task.options(id="taken", on_exists="error").bind(3))

    listed = shell("outbox", "--json").json
    assert [list(row) for row in listed] == [list(OUTBOX.help)] * 3
    assert [row["id"] for row in listed] == [first.id, second.id, "taken"]
    assert listed[1]["due_at"] == "2023-11-14T23:13:20.000Z"
    assert shell("outbox", "send", "--json", "--url", "redis://127.0.0.1:1").json == {"sent": 0}  # of another store
    assert shell("outbox", "send", "--json").json == {"sent": 3}
    assert shell("outbox", "send").out == "0\n"
    assert [row[0] for row in shell("outbox").rows] == ["taken"]
    assert "already exists" in shell("outbox").out
    assert shell.client.count() == 3


def test_the_command_line_says_what_is_kept_while_the_store_is_away(tmp_path: Path, switch: Switch) -> None:
    shell = Shell(tmp_path, switch.url, "default")
    shell.environ |= {"HOLDFAST_OUTBOX": str(tmp_path / "outbox"), "HOLDFAST_WHEN_UNREACHABLE": "outbox"}
    (id,) = shell("enqueue", "tasks.add", "x=1").rows[0][:1]
    assert [row[0] for row in shell("outbox").rows] == [id]
    assert shell("outbox", "send").code == exit_codes.UNAVAILABLE
    shell.environ["HOLDFAST_WHEN_UNREACHABLE"] = "inline"
    ended = shell("enqueue", "tasks.add", "x=1")
    assert (ended.code, "its task is not declared in this process" in ended.err) == (exit_codes.UNAVAILABLE, True)
    switch.on()
    assert shell("outbox", "send").out == "1\n"
    assert shell.client.get(id).state == "waiting"
    shell.client.close()


PRODUCER = """
import sys
from holdfast import Holdfast
app = Holdfast(sys.argv[1], when_unreachable="outbox")
@app.task(name="add")
def add(x: int, y: int) -> int: ...
number = 0
while True:
    print(add.enqueue(number, 0).id, flush=True)
    number += 1
"""


def test_kills_lose_nothing_and_double_nothing(switch: Switch, outbox_folder: Path) -> None:
    chance = random.Random(7)
    acknowledged: list[str] = []
    for kill in range(20):
        switch.on() if chance.random() < 0.5 else switch.off()
        line = [sys.executable, "-c", PRODUCER, switch.url]
        with subprocess.Popen(
            line, stdout=subprocess.PIPE, text=True, env=outages.environment(outbox_folder)
        ) as process:
            assert process.stdout
            for number, id in enumerate(process.stdout):
                acknowledged.append(id.strip())
                if number == chance.randrange(40):
                    switch.on() if kill % 2 else switch.off()
                if number > chance.randrange(20, 80):
                    process.kill()  # what it has said until then is read, too

    switch.on()
    app, _ = app_at(switch.url, "outbox")
    app.send_outbox()
    assert not app.outage_policy.outbox.has_entries
    stored = [job.id for job in app.list()]
    known = set(acknowledged)
    assert [id for id in stored if id in known] == acknowledged
    assert len(stored) - len(acknowledged) <= 20  # of each process, one call that had not returned
    assert set(enqueued(app).values()) == {1}
    app.close()
