"""`holdfast status`: everything at a glance, at a bounded cost."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from holdfast.cli.client import Client
from holdfast.cli.status import status
from holdfast.job.outcome import Error
from holdfast.store.store import Store
from tests.cli.test_queues_and_workers import sign_of_life, silence
from tests.support.shells import Hand, Shell, failure


def test_status_of_an_idle_namespace(shell: Shell) -> None:
    facts = dict(shell("status").rows)

    assert facts["server"].endswith(f"namespace {shell.client.address.namespace}")
    assert (facts["jobs"], facts["overdue timers"], facts["outbox"]) == ("none", "0", "empty")
    assert facts["workers"] == "none"
    assert "queue" not in " ".join(facts)


def test_status_has_queues_workers_failures_and_problems(shell: Shell) -> None:
    hand = Hand(shell.client)
    shell.put("broken")
    hand.end(Error(failure(), "g", final=True))
    shell.put("running")
    hand.take()
    for id, queue in (("one", "mail"), ("two", "mail"), ("three", "video")):
        shell.put(id, queue=queue)
    shell.client.pause("video")
    sign_of_life(shell, "node/worker", "running")
    silence(shell, "node/silent")

    found = shell("status", "--json").json
    assert {state: count for state, count in found["jobs"].items() if count} == {
        "waiting": 3,
        "running": 1,
        "failed": 1,
    }
    assert [queue["queue"] for queue in found["queues"]] == ["default", "mail", "video"]
    assert found["workers"] == {"live": 1, "draining": 0, "silent": 1, "running_jobs": 1}
    assert found["failed_groups"] == {"g": 1}
    mail, video = (next(each for each in found["problems"] if name in each) for name in ("mail", "video"))
    assert mail == "queue mail has 2 waiting jobs, but no live worker serves it"
    assert video == "queue video is paused with 1 waiting job; `holdfast queues resume video`"

    shown = shell.on_a_terminal("status", columns=200, NO_COLOR="1")
    for words in ("queue mail", "2 waiting; workers: 0", "1 live of 2; running jobs: 1", "g 1 (latest 1)", mail, video):
        assert words in shown


def test_status_shows_the_outbox(shell: Shell, tmp_path: Path) -> None:
    shell.environ |= {"HOLDFAST_OUTBOX": str(tmp_path / "outbox"), "HOLDFAST_WHEN_UNREACHABLE": "outbox"}
    nowhere = f"unix://{tmp_path}/nowhere.sock"
    assert shell("enqueue", "tasks.add", "x=1", "--url", nowhere).code == 0

    code, out, err = shell("status", "--url", nowhere)
    assert (code, out) == (4, "")
    assert err.startswith("holdfast: the outbox has 1 call; see `holdfast outbox`\n")


def test_an_outbox_that_others_may_write_to_does_not_hide_the_rest(shell: Shell) -> None:
    shell.put("mine")
    home = shell.folder / ".holdfast"
    home.mkdir(exist_ok=True)
    home.chmod(0o777)
    code, out, _ = shell("status", "--json")

    assert code == 0
    status = json.loads(out)
    assert (status["outbox"], status["jobs"]["waiting"]) == (None, 1)
    assert "the outbox of this directory cannot be read; see `holdfast outbox`" in status["problems"]


def test_status_without_a_server_has_its_exit_code(shell: Shell) -> None:
    del shell.environ["HOLDFAST_URL"]
    shell.environ["HOLDFAST_HOME"] = str(shell.folder / "home")

    code, out, err = shell("status")
    assert (code, out) == (4, "")
    assert err.startswith("holdfast: found no server")


def test_status_is_watched(shell: Shell) -> None:
    with shell.terminal("status", "-w", columns=200) as terminal:
        place = terminal.read_until("overdue timers")
        shell.put("one", queue="mail")
        terminal.read_until("1 waiting", after=place)
        assert terminal.interrupt() == 0


def test_the_cost_of_status_does_not_grow_with_the_number_of_jobs(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert calls_of_status(shell, monkeypatch, failed=150) == calls_of_status(shell, monkeypatch, failed=1500)
    assert "(latest 100)" in capsys.readouterr().out


def calls_of_status(shell: Shell, monkeypatch: pytest.MonkeyPatch, *, failed: int) -> int:
    task = shell.client.task(name=f"tasks.{failed}")(lambda x: x)
    shell.client.enqueue_many([task.bind(number) for number in range(failed)])
    shell.client.fail_all(state="waiting")
    client, calls, execute = Client(), 0, Store.execute
    client.url, client.namespace, client.plain = shell.environ["HOLDFAST_URL"], shell.client.address.namespace, True

    def counting(*args: object, **kwargs: object) -> object:
        nonlocal calls
        calls += 1
        return execute(*args, **kwargs)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(Store, "execute", counting)
        status.main([], obj=client, standalone_mode=False)
    return calls
