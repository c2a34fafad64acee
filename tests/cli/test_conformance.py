"""`holdfast conformance`: results, exit codes, and a server without leftovers."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import click
import redis

from holdfast.cli.conformance import complete_case, conformance
from holdfast.conformance import find_cases, load_areas
from holdfast.store.library import library
from tests.support.shells import Shell


def _leftovers(shell: Shell) -> list[bytes]:
    client = redis.Redis(unix_socket_path=str(shell.client.address.url).removeprefix("unix://"))
    return list(client.scan_iter(match="hf:{conformance-*", count=1000))


def test_cases_run_and_leave_nothing_behind(shell: Shell) -> None:
    done = shell("conformance", "enqueue/a-job", "cancel")
    cancel = next(area for area in load_areas() if area.name == "cancel")
    assert done.code == 0
    assert done.rows[-1] == ["passed", "enqueue/a-job", ""]
    assert [row[0] for row in done.rows] == ["passed"] * (len(cancel.cases) + 1)
    assert f"{len(done.rows)} of {len(done.rows)} cases passed" in done.err
    assert _leftovers(shell) == []


def test_results_as_json(shell: Shell) -> None:
    (only,) = shell("conformance", "claim/order", "--json").json
    assert (only["status"], only["case"], only["why"]) == ("passed", "claim/order", "")
    assert only["shows"] == find_cases(["claim/order"])[0].shows


def test_all_cases_are_listed(shell: Shell) -> None:
    listed = shell("conformance", "--list", "--json").json
    assert [each["case"] for each in listed] == [case.path for case in find_cases()]


def test_an_unknown_case_is_named(shell: Shell) -> None:
    done = shell("conformance", "enqeue")
    assert done.code == 2
    assert "no conformance case or area is named 'enqeue'; did you mean enqueue?" in done.err


def test_a_server_that_behaves_differently_fails_cases(shell: Shell) -> None:
    """A server whose memory is full refuses what stores jobs."""
    client = redis.Redis(unix_socket_path=str(shell.client.address.url).removeprefix("unix://"))
    client.function_load(library(), replace=True)
    client.config_set("maxmemory", "1")
    try:
        done = shell("conformance", "enqueue/a-job", "claim/empty")
    finally:
        client.config_set("maxmemory", "0")
    assert done.code == 1
    assert [row[:2] for row in done.rows] == [["passed", "claim/empty"], ["failed", "enqueue/a-job"]]
    assert "step 1, enqueue: reply: expected [1700000000000, 1], got the error OOM" in done.rows[1][2]
    assert "1 of 2 cases passed, 1 failed: enqueue/a-job" in done.err


def test_ctrl_c_cleans_up(shell: Shell) -> None:
    line = [sys.executable, "-m", "holdfast", "conformance", "--plain"]
    with subprocess.Popen(
        line, env=shell.environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=1
    ) as process:
        assert process.stdout
        assert process.stdout.readline().startswith("passed")
        process.send_signal(signal.SIGINT)
        process.stdout.read()
        assert process.wait() in (0, 130)  # 0: it was faster
    assert _leftovers(shell) == []


def test_a_reader_that_closes_the_output_leaves_nothing_behind(shell: Shell) -> None:
    line = [sys.executable, "-m", "holdfast", "conformance", "--plain"]
    with subprocess.Popen(line, env=shell.environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout
        process.stdout.read(1)
        process.stdout.close()
        process.wait()
    assert _leftovers(shell) == []


def test_areas_are_completed_and_then_their_cases() -> None:
    context, parameter = click.Context(conformance), conformance.params[0]
    assert [each.value for each in complete_case(context, parameter, "enq")] == ["enqueue"]
    found = [each.value for each in complete_case(context, parameter, "enqueue/a")]
    assert found == [case.path for case in find_cases(["enqueue"]) if case.name.startswith("a")]


def test_the_data_is_exported(shell: Shell, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    done = shell("conformance", "--export", str(folder))
    assert done.code == 0
    assert (folder / "holdfast.lua").read_text() == library()
    assert len(json.loads((folder / "cases" / "enqueue.json").read_text())["cases"]) > 20
    assert json.loads((folder / "vectors" / "payloads.json").read_text())["arguments"]
    assert shell("conformance", "--export", str(folder), "--list").code == 2


def test_an_unreachable_server_is_an_error(shell: Shell, tmp_path: Path) -> None:
    done = shell("conformance", "--url", f"unix://{tmp_path}/nowhere")
    assert done.code == 4
    assert "cannot use unix://" in done.err
