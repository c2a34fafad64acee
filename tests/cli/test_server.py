"""The embedded server, from the command line."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.support.shells import Shell, running_worker, wait_until


def test_the_embedded_server_is_started_described_and_stopped(shell: Shell) -> None:
    del shell.environ["HOLDFAST_URL"]
    shell.environ["HOLDFAST_HOME"] = str(shell.folder / "home")
    assert shell("server", "status").code == 3
    assert shell("server", "stop").code == 3
    try:
        assert shell("server", "start").out.startswith("unix://")
        code, out, _ = shell("server", "status", "--json")
        assert (code, json.loads(out)["running"]) == (0, True)
        assert "running\tyes" in shell("server", "status").out
        assert shell("enqueue", "any.task", "--id", "mine").code == 0
        assert [row[0] for row in shell("jobs").rows] == ["mine"]
    finally:
        stopped = shell("server", "stop")
    assert (stopped.code, stopped.out) == (0, "stopped\n")
    assert shell("server", "status", "--json").json["running"] is False


def test_the_url_of_the_embedded_server_leads_to_it_whatever_its_directory_is_called(alone: Shell) -> None:
    alone.environ["HOLDFAST_HOME"] = str(alone.folder / "a#b?c%41d é@ f")

    alone.environ["HOLDFAST_URL"] = alone("server", "start").out.rstrip("\n")
    assert alone("enqueue", "any.task", "--id", "mine").code == 0
    del alone.environ["HOLDFAST_URL"]
    assert [row[0] for row in alone("jobs").rows] == ["mine"]


def test_the_server_commands_report_a_url_that_leads_elsewhere(shell: Shell) -> None:
    shell.environ["HOLDFAST_HOME"] = str(shell.folder / "home")

    assert "a URL is given" in shell("server", "status").err


@pytest.fixture
def alone(shell: Shell) -> Iterator[Shell]:
    """A shell without a URL, in a directory where there is no server yet."""
    del shell.environ["HOLDFAST_URL"]
    shell.environ["HOLDFAST_HOME"] = str(shell.folder / "home")
    yield shell
    shell("server", "stop", "--force")


READERS = [
    ("jobs",), ("show", "x"), ("count",), ("peek", "q"), ("queues",), ("workers",), ("nodes",), ("events",),
    ("cancel", "x"), ("retry", "x"), ("delete", "x"), ("wait", "x"),
    ("queues", "pause", "q"), ("queues", "resume", "q"), ("queues", "forget", "q"),
    ("attach", "x", "a=b"), ("note", "x", "words"), ("config",),
]  # fmt: skip


@pytest.mark.parametrize("words", READERS, ids=lambda words: words[0])
def test_commands_that_only_read_start_no_server(alone: Shell, words: tuple[str, ...]) -> None:
    code, out, err = alone(*words)

    assert (code, out) == (4, "")
    assert err.startswith("holdfast: found no server: no URL is given, and ")
    assert err.count("\n") == 1
    assert not (alone.folder / "home").exists()


def test_a_note_reports_that_a_new_server_is_started(alone: Shell) -> None:
    home = str(alone.folder / "home")

    first = alone.on_a_terminal("enqueue", "any.task", "--id", "one", columns=400)
    assert f"a new embedded server is started; its data is in {home}" in first
    assert "a new embedded server" not in alone.on_a_terminal("enqueue", "any.task", columns=400)
    assert "a new embedded server" not in alone("enqueue", "any.task").err


def test_a_server_with_clients_is_stopped_by_force_only(alone: Shell) -> None:
    with running_worker(alone, "--node", "here"):
        wait_until(lambda: alone("workers").out != "")
        (row,) = alone("workers").rows
        code, out, err = alone("server", "stop")
        assert (code, out) == (1, "")
        assert f"(worker {row[0]})" in err
        assert "--force" in err
        assert alone("server", "status").code == 0
    wait_until(lambda: alone("server", "stop").code == 0)
    assert alone("server", "status").code == 3


def test_a_stop_by_force_loses_nothing(alone: Shell) -> None:
    alone("enqueue", "any.task", "--id", "mine")

    assert alone("server", "stop", "--force").out == "stopped\n"
    assert [row[0] for row in alone("jobs").rows] == ["mine"]
