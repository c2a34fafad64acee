"""The files of the outbox: their bounds, full disks, truncated, damaged and unreadable records."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast import StoreUnavailable
from holdfast.outbox.entry import FORMAT
from holdfast.outbox.outbox import DAMAGED, SEND_LOCK, Outbox
from holdfast.store import commands
from tests.outbox.apps import add_to_outbox, app_at
from tests.support import outages
from tests.support.outages import Switch, eventually


def test_the_outbox_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_an_unwritable_disk_is_reported_with_both_reasons(outbox_folder: Path) -> None:
    outbox_folder.write_text("a file, where a directory is to be")
    with outages.refused() as url:
        _, add = app_at(url, "outbox")
        with pytest.raises(
            StoreUnavailable, match=r"Connection refused.*writing to the outbox failed.*Not a directory"
        ):
            add.enqueue(1, 2)


def test_a_full_disk_is_reported_and_leaves_no_partial_record(outbox_folder: Path) -> None:
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
def test_a_truncated_record_is_set_aside_and_blocks_nothing(switch: Switch, cut: int, caplog: Any) -> None:
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
def test_damaged_records_are_skipped(switch: Switch, damage: bytes) -> None:
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


def test_a_damaged_record_is_set_aside_once_however_often_sending_is_tried(switch: Switch, caplog: Any) -> None:
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


def test_calls_that_others_have_sent_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_catching_up_has_one_deadline_for_the_whole_outbox(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_record_of_another_format_is_set_aside(switch: Switch, caplog: Any) -> None:
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


def test_calls_stay_after_an_error_of_the_server_itself_which_is_logged_once(switch: Switch, caplog: Any) -> None:
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


def test_unreadable_files_are_reported_when_sending(switch: Switch) -> None:
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


def test_entries_are_json_with_a_format_number() -> None:
    with outages.refused() as url:
        app, add = app_at(url, "outbox")
        job = add.enqueue(1, 2)
        line = (app.outage_policy.outbox.folder / "calls").read_bytes()
    kept = json.loads(line[27:])
    assert set(kept) == {"at", "args", "ids", "blobs", "format"}
    assert (kept["ids"], kept["format"]) == ([job.id], 2)  # the first form had no ids, and did not say which it was
    assert line.count(b"\n") == 1
