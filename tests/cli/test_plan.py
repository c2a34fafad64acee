"""`holdfast plan`: the table, its notes, and JSON."""

from __future__ import annotations

import json
import re

import pytest

from holdfast.job.outcome import Succeed
from holdfast.records.plans import span
from holdfast.store import commands
from tests.store.lua.test_state_machine import end, put, take
from tests.support.shells import Shell


@pytest.fixture
def busy(shell: Shell) -> Shell:
    """A queue with 20 jobs that take no time, and a worker with two processes."""
    store = shell.client.store
    pools = [{"queues": {"mail": 1}, "order": "strict", "processes": 2, "concurrency": 100}]
    about = json.dumps({"pools": pools, "tasks": ["app.send"], "in_process": []})
    store.run(commands.renew("node/one", [], executors=["node/one.0"], queues=["mail"], about=about))
    put(store, *(f"h{number}" for number in range(30)), queue="mail", task="app.send")
    for id in take(store, "node/one.0", "mail", limit=30):
        end(store, id, Succeed(b""))
    put(store, *(f"b{number}" for number in range(20)), queue="mail", task="app.send")
    return shell


def test_json_has_both_forecasts(busy: Shell) -> None:
    found = busy("plan", "mail", "--workers", "+3", "--arriving", "0", "--json").json
    assert (found["workers"], found["workers_then"], found["left_out"]) == (1, 4, 0)
    [mail] = found["queues"]
    assert (mail["queue"], mail["backlog"], mail["runs"], mail["arriving"], mail["notes"]) == ("mail", 20, 30, 0, [])
    assert (mail["now"]["workers"], mail["then"]["workers"]) == (1, 4)
    assert 0 <= mail["then"]["earliest"] <= mail["then"]["after"] <= mail["now"]["latest"] < 10
    assert mail["now"]["reason"] in ("all slots are busy", "jobs that run")


def test_a_pipe_gets_seconds_and_a_terminal_a_sentence(busy: Shell) -> None:
    [row] = busy("plan").rows
    assert row[:2] == ["mail", "20"]
    shown = busy.on_a_terminal("plan", "mail", "--workers", "-1", columns=200)
    assert re.search(r"1 worker: 0\.\ds \(0\.\ds to \d\.\ds\)", shown)
    assert "0 workers: never, no worker serves the queue" in shown


def test_what_is_missing_is_said(busy: Shell) -> None:
    put(busy.client.store, "new", queue="new", task="app.new")
    done = busy("plan", "new", "--workers", "+1", "--processes", "2")
    assert "new: no attempt of app.new has completed yet, so nothing is known about its run times" in done.err
    refused = busy("plan", "new", "--workers", "+1")
    assert (refused.code, "no worker serves new: say how many jobs" in refused.err) == (2, True)
    refused = busy("plan", "--workers", "ten")
    assert (refused.code, "workers is 'ten'" in refused.err) == (2, True)
    assert busy("plan", "unknown").code == 3


def test_without_work_there_is_nothing_to_plan(shell: Shell) -> None:
    assert shell("plan").out == ""
    assert shell("plan", "--json").json == {"workers": 0, "workers_then": None, "queues": [], "left_out": 0}


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.84, "0.8s"), (12.4, "12s"), (65, "1m05s"), (600, "10m00s"), (7800, "2h10m"), (86_400 * 3 + 14_400, "3d4h"),
    ],
)  # fmt: skip
def test_times_to_come_have_two_units(seconds: float, text: str) -> None:
    assert span(seconds) == text
