"""Calls in the outbox are sent in order and stored once, by any process, whoever is killed."""

from __future__ import annotations

import logging
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast import Holdfast, Job, JobExists, JobNotFound, ResultTimeout, StoreFull, StoreUnavailable, TooBig
from holdfast.cli import exit_codes
from holdfast.outbox.entry import Entry
from holdfast.outbox.outbox import SEND_LOCK, Outbox
from holdfast.records.outbox import OUTBOX
from holdfast.server import server
from holdfast.store import commands
from holdfast.task.task import Task
from tests.outbox.apps import add_to_outbox, app_at, enqueued, run_async
from tests.support import outages
from tests.support.outages import Switch, eventually
from tests.support.shells import Shell
from tests.support.workers import Crew


def _senders() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "holdfast-send"}


async def _add_all(add: Task[[int, int], int], numbers: range) -> list[Job[int]]:
    return [await add.aenqueue(number, 0) for number in numbers]


def test_calls_are_written_in_order_and_sent_when_the_store_is_back(switch: Switch, caplog: Any) -> None:
    caplog.set_level(logging.INFO)
    others = _senders()  # of apps of other tests, whose store never comes back
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
    eventually(lambda: _senders() <= others)
    app.close()


def test_a_call_that_timed_out_but_was_stored_is_stored_once(switch: Switch) -> None:
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


def test_a_delay_counts_from_the_time_of_the_call(switch: Switch) -> None:
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


def test_dependencies_survive_the_outbox_and_a_deadline_counts_from_the_time_of_the_call(switch: Switch) -> None:
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


def test_another_process_sends_the_calls_of_a_killed_one(switch: Switch, outbox_folder: Path) -> None:
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


def test_an_embedded_server_that_cannot_be_started_counts_as_unreachable(
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


def test_send_outbox_sends_all_calls(switch: Switch) -> None:
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


def test_a_call_whose_sender_died_before_marking_it_is_sent_again_and_stored_once(switch: Switch) -> None:
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


def test_a_call_is_marked_as_sent_only_after_the_reply_of_the_store(switch: Switch) -> None:
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


def test_result_waits_until_a_job_in_the_outbox_was_sent_and_has_ended(switch: Switch) -> None:
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


def test_calls_that_a_full_store_refuses_stay_and_are_sent_again(switch: Switch) -> None:
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


def test_a_process_with_calls_in_the_outbox_exits_at_once(outbox_folder: Path) -> None:
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


def test_a_worker_sends_the_outbox_when_it_starts(crew: Crew) -> None:
    from tests.apps.worker_app import add

    call = add.bind(1, 2)
    add_to_outbox(crew.app, call)
    worker = crew.start()
    eventually(lambda: crew.app.get_many([call.id])[0])
    assert crew.app.get(call.id).result(timeout="40s") == 3
    assert not crew.app.outage_policy.outbox.has_entries
    assert worker.stop() == 0


def test_the_command_line_lists_and_sends_the_outbox(shell: Shell, outbox_folder: Path) -> None:
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
    assert shell("outbox", "send", "--json", "--url", "redis://127.0.0.1:1").json == {"sent": 0, "refused": 0}
    assert shell("outbox", "send", "--json").json == {"sent": 2, "refused": 1}
    assert shell("outbox", "send").out == "0\n"
    assert [row[0] for row in shell("outbox").rows] == ["taken"]
    assert "already exists" in shell("outbox").out
    assert shell.client.count() == 3


def test_the_command_line_lists_the_outbox_while_the_store_is_unreachable(tmp_path: Path, switch: Switch) -> None:
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


def test_kills_lose_no_call_and_store_none_twice(switch: Switch, outbox_folder: Path) -> None:
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
