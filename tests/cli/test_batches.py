"""Batches from the command line."""

from __future__ import annotations

import json

from holdfast.job.outcome import Error, Succeed
from tests.cli.test_completion import offered_by_bash
from tests.support.shells import Hand, Shell, failure, running_worker, wait_until

LINES = "".join(f'{{"x": {number}}}\n' for number in range(3))


def fill(shell: Shell, name: str = "b", lines: str = LINES) -> None:
    assert shell("enqueue", "tasks.add", "--from", "-", "--batch", name, stdin=lines).code == 0


def test_a_batch_is_opened_filled_closed_and_awaited(shell: Shell) -> None:
    opened = shell("batches", "open", "b", "--then", "add 1 y=2", "--app", "tasks", "--keep", "1h")
    assert (opened.code, opened.out) == (0, "b\n")
    assert "was open already" in shell("batches", "open", "b").err
    fill(shell)
    assert shell("batches").rows[0][:8] == ["b", "open", "0%", "3", "3", "0", "0", "0"]
    assert shell("batches", "close", "b").rows == [["b", "closed", ""]]
    assert shell("batches", "close", "b").rows == [["b", "closed", "unchanged"]]
    refused = shell("enqueue", "tasks.add", "x=1", "--batch", "b")
    assert (refused.code, "is closed" in refused.err) == (1, True)
    assert shell("batches", "wait", "b", "--timeout", "10ms").code == 5

    with running_worker(shell, "--processes", "1"):
        done = shell("batches", "wait", "b", "--timeout", "30s", "--json")
        assert done.code == 0
        then = done.json["callbacks"][0]
        assert (then["on"], then["task"]) == ("done", "tasks.add")
        assert shell("wait", then["id"]).code == 0
        assert shell.client.get(then["id"]).decoded_result() == 3
    assert (done.json["state"], done.json["total"], done.json["succeeded"], done.json["fraction"]) == ("done", 3, 3, 1)
    shown = shell("show", then["id"]).out
    assert "batch\tb\n" in shown
    assert shell("jobs", "--json").json[0]["batch"] == "b"
    assert shell("batches", "delete", "b").rows == [["b", "deleted"]]
    assert shell("batches").out == ""


def test_failures_of_jobs_are_seen_in_the_exit_code(shell: Shell) -> None:
    shell("batches", "open", "b", "--on-failure", "tasks.add x=1", "--on-success", "tasks.add x=2")
    fill(shell)
    shell("batches", "close", "b")
    hand = Hand(shell.client)
    for outcome in (Error(failure(), "g", final=True), Succeed(b"1"), Succeed(b"1")):
        hand.end(outcome)
    done = shell("batches", "wait", "b")
    assert (done.code, done.rows[0][:8]) == (1, ["b", "done", "100%", "3", "0", "2", "1", "0"])
    shown = shell("batches", "show", "b").out
    assert "jobs\t3 of 3 have ended\n" in shown
    assert "failed\t1\n" in shown
    assert "on failed\ttasks.add, job " in shown
    assert shell.client.count(state="waiting") == 1


def test_cancel_asks_and_cancels(shell: Shell) -> None:
    shell("batches", "open", "b")
    fill(shell)
    Hand(shell.client).take()
    unsure = shell("batches", "cancel", "b")
    assert (unsure.code, "cancel batch b: 3 jobs. Confirm with --yes." in unsure.err) == (2, True)
    done = shell("batches", "cancel", "b", "--yes", "--reason", "wrong file", "--json").json
    assert done == {"batch": "b", "state": "closed", "cancelled": 2, "cancelling": 1}
    assert {job.state for job in shell.client.batch("b").jobs()} == {"running", "cancelled"}


def test_what_does_not_exist_has_exit_code_3_and_similar_names(shell: Shell) -> None:
    shell("batches", "open", "import-7")
    for words in (("show",), ("close",), ("cancel", "-y"), ("wait",), ("delete",)):
        ended = shell("batches", *words[:1], "import-8", *words[1:])
        assert ended.code == 3, words
        assert "did you mean import-7?" in ended.err
    assert shell("enqueue", "tasks.add", "x=1", "--batch", "import-8").code == 3
    assert shell("batches", "delete", "import-7").code == 1
    assert shell("batches", "show", "a b").code == 2
    assert shell("batches", "open", "b", "--then", "'").code == 2
    assert "did you mean `batches`?" in shell("batch", "show", "x").err
    error = shell("batches", "show", "nothing", "--json").err
    assert json.loads(error)["code"] == "NOTFOUND"


def test_open_batches_are_found(shell: Shell) -> None:
    for name in ("one", "two", "three"):
        shell("batches", "open", name)
    shell("batches", "close", "two")
    assert {row[0] for row in shell("batches", "-s", "open").rows} == {"one", "three"}
    assert [row[0] for row in shell("batches", "--state", "done").rows] == ["two"]
    few = shell("batches", "-n", "2")
    assert (len(few.rows), "--limit shows more" in few.err) == (2, True)
    assert len(shell("batches", "--json").json) == 3


def test_a_terminal_shows_the_progress_while_a_batch_is_awaited(shell: Shell) -> None:
    shell("batches", "open", "b")
    fill(shell)
    shell("batches", "close", "b")
    hand = Hand(shell.client)
    with shell.terminal("batches", "wait", "b") as terminal:
        terminal.read_until("0/3")
        hand.end(Succeed(b"1"))
        terminal.read_until("1/3")
        hand.end(Succeed(b"1"))
        hand.end(Succeed(b"1"))
        assert terminal.wait() == 0
    with shell.terminal("batches", "wait", "b", "--timeout", "1ms") as terminal:
        assert terminal.wait() == 0  # it is done already


def test_show_follows_a_batch_until_it_is_done(shell: Shell) -> None:
    shell("batches", "open", "b")
    fill(shell)
    with shell.terminal("batches", "show", "b", "--watch") as terminal:
        place = terminal.read_until("0 of 3 have ended", "open")
        shell("batches", "close", "b")
        hand = Hand(shell.client)
        for _ in range(3):
            hand.end(Succeed(b"1"))
        terminal.read_until("3 of 3 have ended", "done", after=place)
        assert terminal.wait() == 0
    lines = shell("batches", "show", "b", "--watch").rows
    assert [row[:2] for row in lines] == [["b", "done"]]


def test_a_list_of_batches_is_a_table_on_a_terminal(shell: Shell) -> None:
    assert "no batches" in shell.on_a_terminal("batches")
    shell("batches", "open", "b")
    fill(shell)
    Hand(shell.client).end(Succeed(b"1"))
    text = shell.on_a_terminal("batches")
    assert "PROGRESS" in text
    assert "33%" in text


def test_bash_offers_batches(shell: Shell) -> None:
    shell("batches", "open", "one")
    shell("batches", "open", "two")
    shell("batches", "close", "two")
    assert sorted(offered_by_bash(shell, "batches show ")) == ["one", "two"]
    assert offered_by_bash(shell, "batches close ") == ["one"]
    assert offered_by_bash(shell, "batches delete ") == ["two"]
    assert offered_by_bash(shell, "enqueue any.task --batch ") == ["one"]
    assert "cancel" in offered_by_bash(shell, "batches c")


def test_the_producer_may_be_a_shell_script_that_is_run_again(shell: Shell) -> None:
    script = ("enqueue", "tasks.add", "--from", "-", "--id", "part-{x}", "--batch", "b")
    shell("batches", "open", "b")
    shell(*script, stdin='{"x": 0}\n')
    shell("batches", "open", "b")
    shell(*script, stdin=LINES)
    shell("batches", "close", "b")
    wait_until(lambda: shell.client.batch("b").status().total == 3)
