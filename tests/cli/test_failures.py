"""`holdfast failures`: lists, details, and the commands that it names."""

from __future__ import annotations

import shlex

from holdfast.job.failure import Failure, encode
from holdfast.job.outcome import Error
from tests.support.shells import Hand, Shell, failure


def fail(shell: Shell, id: str, group: str = "g", message: str = "boom", fingerprint: str = "f" * 16) -> None:
    shell.put(id)
    described = Failure(
        type="ValueError", message=message, traceback=f"Traceback\nValueError: {message}", group=group,
        fingerprint=fingerprint, place="tasks:add",
    )  # fmt: skip
    Hand(shell.client, f"node/{id.replace('-', '')}").end(Error(encode(described), group, final=True))


def test_failures_are_listed_by_group_fingerprint_task_and_queue(shell: Shell) -> None:
    fail(shell, "a")
    fail(shell, "b")
    fail(shell, "c", "two words", fingerprint="e" * 16)

    assert {(row[0], row[1]) for row in shell("failures").rows} == {("g", "2"), ("two words", "1")}
    assert [row[:2] for row in shell("failures", "--by", "task").rows] == [["tasks.add", "3"]]
    assert [row[:2] for row in shell("failures", "list", "--by", "queue").rows] == [["default", "3"]]
    rows = shell("failures", "--by", "fingerprint", "-Q", "default").rows
    assert {(row[0], row[1], *row[5:8]) for row in rows} == {
        ("f" * 16, "2", "ValueError", "tasks:add", "boom"),
        ("e" * 16, "1", "ValueError", "tasks:add", "boom"),
    }


def test_each_entry_has_the_command_that_retries_its_jobs(shell: Shell) -> None:
    fail(shell, "a", "it's \x1b[31m")
    [group] = shell("failures", "--json").json
    assert (group["by"], group["name"], group["count"], group["example"]) == ("group", "it's ?[31m", 1, "a")
    for by in ("group", "fingerprint", "task", "queue"):
        [entry] = shell("failures", "--by", by, "--json").json
        line = shlex.split(entry["retry"])
        assert line[:3] == ["holdfast", "retry", "--all"]
        assert shell(*line[1:], "--yes", "--json").json == {"waiting": 1}
        assert shell("failures", "--json").json == []
        Hand(shell.client, f"node/{by}").end(Error(failure(), "it's \x1b[31m", final=True))


def test_a_fingerprint_is_shown_with_the_traceback_and_its_owner(shell: Shell) -> None:
    fail(shell, "a", message="of a")
    fail(shell, "b", message="of b")
    shown = shell("failures", "show", "f" * 16)
    assert ["failed jobs", "2"] in shown.rows
    assert ["traceback", "of attempt 1 of job a"] in shown.rows
    assert "ValueError: of a" in shown.out
    details = shell("failures", "show", "f" * 16, "--json").json
    assert (details["place"], details["errors"], details["traceback_of"]) == ("tasks:add", 2, ["a", 1])
    code, _, err = shell("failures", "show", "nobody")
    assert (code, "no error with fingerprint nobody is known" in err) == (3, True)


def test_show_names_the_owner_of_a_traceback_and_prints_it_once(shell: Shell) -> None:
    fail(shell, "a", message="of a")
    shell.put("b")
    hand = Hand(shell.client)
    for _ in range(2):
        described = Failure(
            type="ValueError", message="of b", traceback="x", group="g", fingerprint="f" * 16, place="tasks:add"
        )
        hand.end(Error(encode(described), "g", delay=0))
    out = shell("show", "b").out
    assert "an example of the same fingerprint, attempt 1 of job a:" in out
    assert out.count("Traceback") == 1
    assert "the traceback is above, with attempt 1" in out
    record = shell("show", "b", "--json").json
    assert record["failure"]["traceback_of"] == ["a", 1]


def test_more_than_the_limit_is_noted(shell: Shell) -> None:
    for number in range(3):
        fail(shell, f"job-{number}", f"group-{number}")
    _, out, err = shell("failures", "-n", "2")
    assert len(out.splitlines()) == 2
    assert "shown are the first 2; --limit shows more" in err


def test_a_queue_and_by_queue_cannot_be_combined(shell: Shell) -> None:
    code, _, err = shell("failures", "--by", "queue", "-Q", "default")
    assert (code, "cannot be combined" in err) == (2, True)
    code, _, err = shell("failures", "-Q", "nowhere")
    assert (code, "queue nowhere does not exist" in err) == (3, True)


def test_a_terminal_gets_the_command_that_retries(shell: Shell) -> None:
    fail(shell, "a")
    shown = shell.on_a_terminal("failures")
    assert "FIRST SEEN" in shown
    assert "to retry 1 job of the first: `holdfast retry --all --group g`" in shown
