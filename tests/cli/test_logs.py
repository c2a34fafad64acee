"""The output of jobs on the command line."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from holdfast.client.logs import LogReader, last_lines
from holdfast.job.outcome import Error, Retry, Succeed, outcome_of
from holdfast.store import commands
from holdfast.store.commands import LogBlock
from holdfast.store.driver import drive
from tests.support.shells import ESCAPE, EVIL, Hand, Shell

TEXT = b"one\ntwo\tand \xff\nthree\n"


def printed(shell: Shell, *texts: bytes, attempt: int = 1) -> None:
    """A job has printed this, in blocks of 8 KiB; an empty one is left out."""
    created = round(shell.client.get("mine").created_at.timestamp() * 1000)
    blocks = [LogBlock("mine", created, attempt, number, text) for number, text in enumerate(texts) if text]
    assert shell.client.store.run(commands.log(blocks)) == ["OK"] * len(blocks)


@pytest.fixture
def hand(shell: Shell) -> Hand:
    """Whoever runs the job `mine`, which has begun."""
    shell.put("mine")
    hand = Hand(shell.client)
    hand.take()
    return hand


@pytest.mark.usefixtures("hand")
def test_a_piped_log_is_byte_for_byte_the_output(shell: Shell, tmp_path: Path) -> None:
    printed(shell, TEXT)
    out = tmp_path / "out"
    with shell.terminal("/bin/sh", "-c", f"{sys.executable} -m holdfast logs mine > {out}") as terminal:
        assert terminal.wait() == 0
    assert out.read_bytes() == TEXT


@pytest.mark.usefixtures("hand")
def test_control_characters_of_logs_are_escaped_on_a_terminal(shell: Shell) -> None:
    printed(shell, f"{EVIL}\r\nnext\ttab".encode())
    shown = shell.on_a_terminal("logs", "mine")
    assert shown == r"\x1b[31mred\x07\x9b2J\u202e[bold]b[/bold]" + "\nnext\ttab\n"
    assert ESCAPE not in shown


@pytest.mark.usefixtures("hand")
def test_the_last_lines_are_enough(shell: Shell) -> None:
    printed(shell, b"one\ntwo\nthree")
    assert shell("logs", "mine", "--tail", "2").out == "two\nthree"
    assert shell("logs", "mine", "--tail", "0").out == ""


@pytest.mark.usefixtures("hand")
def test_omitted_output_is_reported(shell: Shell) -> None:
    printed(shell, b"a" * 8192, *[b""] * 40, b"end\n")
    output = shell("logs", "mine").out
    assert output == "a" * 8192 + f"\n[holdfast: {40 * 8192:,} bytes are left out here]\nend\n"
    assert shell("logs", "mine", "--json").json["left_out_bytes"] == 40 * 8192


def test_attempts_are_separated(shell: Shell, hand: Hand) -> None:
    printed(shell, b"first\n")
    finish = commands.Finish("mine", 1, outcome_of(Retry(delay=0)))
    shell.client.store.run(commands.finish("node/worker.1", [finish]))
    hand.take()
    printed(shell, b"second\n", attempt=2)

    code, out, err = shell("logs", "mine")
    assert (code, out, "this is attempt 2; --attempt shows 1" in err) == (0, "second\n", True)
    first = shell("logs", "mine", "--attempt", "1").out
    assert first == "first\n[holdfast: attempt 1 failed: holdfast.Retry]\n    holdfast.Retry\n"
    assert shell("logs", "mine", "--json").json == {
        "id": "mine", "attempt": 2, "attempts": [1, 2], "left_out_bytes": 0, "text": "second\n", "failure": None,
    }  # fmt: skip


def test_a_job_without_output_is_reported_as_such(shell: Shell) -> None:
    shell.put("mine")
    code, out, err = shell("logs", "mine")
    assert (code, out, err) == (0, "", "holdfast: job mine has no output; it is waiting and has not run yet\n")


def test_a_missing_log_of_an_attempt_is_explained(shell: Shell, hand: Hand) -> None:
    finish = commands.Finish("mine", 1, outcome_of(Retry(delay=0)))
    shell.client.store.run(commands.finish("node/worker.1", [finish]))
    hand.take()
    printed(shell, b"second\n", attempt=2)

    code, out, err = shell("logs", "mine", "--attempt", "1")
    assert (code, out) == (
        0,
        "[holdfast: attempt 1 failed: holdfast.Retry]\n    holdfast.Retry\n",
    )
    assert "attempt 1 has no log: it printed nothing, or its log has expired; attempts with a log: 2" in err
    code, _, err = shell("logs", "mine", "--attempt", "7")
    assert (code, "job mine has no attempt 7; it is running, and its latest attempt is 2" in err) == (3, True)


def failed(shell: Shell, number: int, words: str, **more: Any) -> None:
    """Have an attempt of the job raise something."""
    try:
        raise ValueError(words)
    except ValueError as error:
        outcome = outcome_of(error)
    assert isinstance(outcome, Error)
    finish = commands.Finish("mine", number, replace(outcome, **more))
    shell.client.store.run(commands.finish("node/worker.1", [finish]))


def test_a_failed_attempt_has_its_traceback_and_what_follows(shell: Shell, hand: Hand) -> None:
    printed(shell, b"no line")
    failed(shell, 1, "no luck\n[holdfast: forged]\x1b[2J", delay=0)
    hand.take()
    failed(shell, 2, "no luck", delay=40_000)

    for following in ((), ("--follow", "--attempt", "2")):
        output = shell("logs", "mine", *following).out
        follows = r"retry 2 of 3 in [34]\d(\.\d)? s"
        assert re.search(rf"^\[holdfast: attempt 2 failed: ValueError: no luck; {follows}\]$", output, re.MULTILINE)
        assert re.search(r"^    ValueError: no luck$", output, re.MULTILINE)
    first = shell("logs", "mine", "--attempt", "1").out
    words = "ValueError: no luck\\n[holdfast: forged]\\x1b[2J"
    assert first.startswith(f"no line\n[holdfast: attempt 1 failed: {words}]\n    Trace")
    assert "\n    [holdfast: forged]\\x1b[2J\n" in first
    assert shell("logs", "mine", "--attempt", "2", "--json").json["failure"]["message"] == "no luck"


def test_a_job_that_failed_for_good_and_printed_nothing_shows_why(shell: Shell, hand: Hand) -> None:
    assert hand
    failed(shell, 1, "no hope", final=True)
    code, out, err = shell("logs", "mine")
    follows = "failed for good (declared), in group ValueError; attempts: 1"
    words = f"[holdfast: attempt 1 failed: ValueError: no hope; {follows}]\n"
    assert (code, out.startswith(words), "has no output; it is failed" in err) == (0, True, True)
    assert words in shell("logs", "mine", "--follow").out


def test_a_job_that_is_not_there_is_looked_for(shell: Shell) -> None:
    shell.put("invoice-2024-17")
    code, _, err = shell("logs", "invoice-2024-18")
    assert (code, "did you mean invoice-2024-17?" in err) == (3, True)


def end(shell: Shell) -> None:
    finish = commands.Finish("mine", 1, Succeed(b"null"))
    shell.client.store.run(commands.finish("node/worker.1", [finish]))


@pytest.mark.usefixtures("hand")
def test_following_goes_on_until_the_job_has_ended(shell: Shell) -> None:
    printed(shell, b"one\ntwo\n")
    with shell.terminal("logs", "mine", "-f", "--tail", "1") as terminal:
        terminal.read_until("two\n")
        printed(shell, b"one\ntwo\nthree")
        terminal.read_until("three")
        end(shell)
        assert terminal.wait() == 0
        assert terminal.text == "two\nthree"


@pytest.mark.parametrize(
    ("text", "wanted", "last"),
    [
        ("a\nb\nc", 2, "b\nc"), ("a\nb\n", 1, "b\n"), ("a\nb\n", 2, "a\nb\n"), ("a\nb\n", 9, "a\nb\n"),
        ("a\n", 0, ""), ("", 3, ""), ("\n\n", 1, "\n"), ("a\n1 %\r2 %\r3 %\n", 1, "1 %\r2 %\r3 %\n"),
    ],
)  # fmt: skip
def test_a_progress_bar_is_one_of_the_last_lines(text: str, wanted: int, last: str) -> None:
    assert last_lines(text.encode(), wanted).decode() == last


@pytest.mark.usefixtures("hand")
@pytest.mark.parametrize("tail", [0, 1])
def test_only_of_what_there_is_at_first_the_last_lines_are_enough(shell: Shell, tail: int) -> None:
    reader = LogReader("mine", None, tail)
    assert drive(reader.poll(), shell.client.store.run) == []

    printed(shell, "one\ntwo\nthree ä".encode()[:-1])
    (part,) = drive(reader.poll(), shell.client.store.run)
    assert part.text == "one\ntwo\nthree "

    late = LogReader("mine", None, 1)
    (part,) = drive(late.poll(), shell.client.store.run)
    assert part.text == "three "
    printed(shell, "one\ntwo\nthree äh".encode())
    (part,) = drive(late.poll(), shell.client.store.run)
    assert part.text == "äh"


@pytest.mark.usefixtures("hand")
def test_following_ends_with_ctrl_c(shell: Shell) -> None:
    with shell.terminal("logs", "mine", "-f", "--json") as terminal:
        printed(shell, b"one\n")
        terminal.read_until("}")
        assert terminal.interrupt() == 0
        assert json.loads(terminal.text)["text"] == "one\n"


@pytest.mark.usefixtures("hand")
def test_following_ends_when_the_pipe_is_closed(shell: Shell) -> None:
    printed(shell, b"one\ntwo\n")
    with shell.terminal("/bin/sh", "-c", f"{sys.executable} -m holdfast logs mine -f | head -n 1") as terminal:
        terminal.wait()
        assert terminal.text.splitlines()[0] == "one"


def test_ids_are_completed(shell: Shell) -> None:
    shell.put("mine")
    words = {"_HOLDFAST_COMPLETE": "bash_complete", "HOLDFAST_LINE": "holdfast logs m", "HOLDFAST_WORD": "m"}
    assert "mine" in shell(**words, HOLDFAST_COMPLETION_TIMEOUT="20").out
