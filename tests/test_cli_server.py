"""The embedded server, from the command line."""

from __future__ import annotations

import json

from tests.shells import Shell


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


def test_the_server_commands_say_when_a_url_leads_elsewhere(shell: Shell) -> None:
    shell.environ["HOLDFAST_HOME"] = str(shell.folder / "home")

    assert "a URL is given" in shell("server", "status").err
