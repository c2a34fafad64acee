"""Filters, pages, exports and operations on the command line."""

from __future__ import annotations

import json
import signal
import subprocess

import pytest

from holdfast.cli.filters import option_name
from holdfast.client.filters import NAMES
from holdfast.job.outcome import Error
from holdfast.store import commands
from tests.support.new_job import NewJob
from tests.support.shells import PROGRAM, Hand, Shell, failure

VERBS = ("cancel", "retry", "delete", "move", "release", "fail")


@pytest.fixture
def full(shell: Shell) -> Shell:
    """Two jobs that failed, three that wait."""
    for id in ("bad1", "bad2", "w1", "w2"):
        shell.put(id)
    shell.put("other", queue="video", task="render")
    hand = Hand(shell.client)
    hand.end(Error(failure(), "Disk", final=True))
    hand.end(Error(failure(), "SMTP", final=True))
    return shell


def many(shell: Shell, count: int) -> None:
    for first in range(0, count, 1000):
        jobs = [NewJob(id=f"j{first + n}", payload=b"{}", queue="q", task="t") for n in range(min(1000, count - first))]
        shell.client.store.run(commands.enqueue(jobs))


def test_jobs_and_count_take_every_filter(full: Shell) -> None:
    for words, ids in (
        (("--group", "Disk"), ["bad1"]),
        (("--task", "render"), ["other"]),
        (("-Q", "video"), ["other"]),
        (("-s", "failed", "--since", "1h"), ["bad1", "bad2"]),
        (("-s", "failed", "--until", "1h"), []),
        (("--since", "2020-01-01", "--id-prefix", "w"), ["w1", "w2"]),
        (("--worker", "node/nobody"), []),
        (("-s", "failed", "--task", "render"), []),
    ):
        for order in ("--newest", "--oldest"):
            assert sorted(row[0] for row in full("jobs", order, *words).rows) == ids, words
        assert full("count", *words).out == f"{len(ids)}\n"
        assert sorted(json.loads(line)["id"] for line in full("export", *words).out.splitlines()) == ids


@pytest.mark.parametrize("command", ["jobs", "count", "export", *VERBS])
def test_each_command_has_the_filters(shell: Shell, command: str) -> None:
    words = shell(command, "--help").out
    for name in NAMES:
        if command != "fail" or name not in {"group", "fingerprint"}:  # pending jobs have no failure
            assert option_name(name) in words, name


def test_some_fields_are_columns(full: Shell) -> None:
    assert full("jobs", "--fields", "state,id", "--group", "Disk").rows == [["failed", "bad1"]]
    assert full("jobs", "--fields", "id,attempt,worker", "--group", "Disk", "--json").json == [
        {"id": "bad1", "attempt": 1, "worker": full.client.get("bad1").worker}
    ]
    assert "did you mean state?" in full("jobs", "--fields", "stat").err


def test_pages_end_with_a_cursor(full: Shell) -> None:
    first = full("jobs", "--cursor", "start", "-n", "3", "--json", "--fields", "id").json
    second = full("jobs", "--cursor", first["cursor"], "-n", "3", "--json", "--fields", "id").json
    ids = [row["id"] for page in (first, second) for row in page["jobs"]]
    assert (sorted(ids), second["cursor"]) == (["bad1", "bad2", "other", "w1", "w2"], None)

    plain = full("jobs", "--cursor", "start", "-n", "3")
    assert (len(plain.rows), "next page: --cursor s," in plain.err) == (3, True)
    assert full("jobs", "--cursor", "nonsense").code == 2


def test_all_jobs_that_match_are_changed(full: Shell) -> None:
    done = full("retry", "--all", "--group", "Disk", "--yes")
    assert (done.code, done.rows) == (0, [["waiting", "1"]])
    assert full("cancel", "--all", "--id-prefix", "w", "--yes", "--json").json == {"cancelled": 2}
    refused = full("delete", "--all", "--group", "SMTP")
    assert refused.code == 2
    assert "delete all succeeded, failed or cancelled jobs of group SMTP: 1 job" in refused.err
    assert "--since needs --all" in full("cancel", "w1", "--since", "1h").err

    rows = full("operations").rows
    assert [(row[1], row[2], row[3]) for row in rows] == [("cancel", "done", "2"), ("retry", "done", "1")]
    shown = full("operations", "show", rows[0][0]).out
    assert "filter id_prefix\tw" in shown
    assert "counts cancelled\t2" in shown
    assert full("operations", "show", "nobody").code == 3


def test_a_detached_operation_is_stopped_and_resumed(shell: Shell) -> None:
    many(shell, 500)
    detached = shell("cancel", "--all", "-Q", "q", "--yes", "--detach", "--json")
    assert detached.json["state"] == "running"
    id = detached.json["id"]
    assert f"holdfast operations stop {id}" in detached.err
    assert shell("operations", "stop", id, "--json").json["state"] == "stopped"
    assert shell("operations", "resume", id).rows == [["cancelled", "500"]]
    again = shell("operations", "stop", id)
    assert "it was already done" in again.err


def test_ctrl_c_stops_an_operation(shell: Shell) -> None:
    many(shell, 20_000)
    process = subprocess.Popen(
        [*PROGRAM, "cancel", "--all", "-Q", "q", "--yes"],
        env=shell.environ, cwd=shell.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    while not (found := shell.client.operations()) or found[0].acted_on == 0:
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    (operation,) = shell.client.operations()
    assert (process.returncode, operation.state) == (130, "stopped")
    assert f"stopped; `holdfast operations resume {operation.id}` continues it" in err
    assert out.split() == ["cancelled", str(operation.acted_on)]
    assert operation.acted_on == shell.client.count(state="cancelled") < 20_000


def test_an_export_continues_from_its_position(shell: Shell) -> None:
    many(shell, 230)
    whole = [json.loads(line)["id"] for line in shell("export", "-Q", "q").out.splitlines()]
    first = shell("export", "-Q", "q", "-n", "100", "--position", "here").out.splitlines()
    rest = shell("export", "-Q", "q", "--position", "here").out.splitlines()
    assert [json.loads(line)["id"] for line in (*first, *rest)] == whole
    assert len(whole) == 230
    assert not (shell.folder / "here").exists()
    assert json.loads(first[0])["arguments"] == {}
