"""The program `holdfast`: its help, its errors, its pipes, and its environment."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast.cli.program import FOREIGN_NAMES, program
from holdfast.cli.work import FOREIGN_OPTIONS, work
from holdfast.client.finding import FOREIGN_STATES, STATE_NAMES
from holdfast.job.job import STATES
from holdfast.text import nearest
from tests.cli.page import every_command
from tests.support.shells import PROGRAM, Shell


@pytest.mark.parametrize("name", [name for name, _ in every_command()])
def test_help_of_each_command_ends_with_examples(shell: Shell, name: str) -> None:
    code, out, err = shell(*name.split(), "--help")

    assert (code, err) == (0, "")
    examples = out.partition("\nExamples:\n")[2].splitlines()
    assert 1 <= len(examples) <= 8
    assert all(f"holdfast {name.split(maxsplit=1)[0]}" in example for example in examples)


def test_examples_are_command_lines_that_are_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "people.jsonl").touch()
    (tmp_path / "worker.toml").touch()
    for _, command in every_command():
        for example in command.examples:
            for words in re.findall(r"holdfast ([^|)>]+)", re.sub(r"xargs (.*)", r"\1 id", example)):
                first, *rest = shlex.split(words)
                if first in program.commands and first != "server":
                    with program.commands[first].make_context(first, rest, resilient_parsing=False):
                        pass


def test_the_program_without_arguments_prints_its_help(shell: Shell) -> None:
    code, out, _ = shell()

    assert code == 0
    assert all(name in out for name in program.commands)
    assert "`exit-codes`" in out
    assert "Examples:" in out


@pytest.mark.parametrize("words", [["--version"], ["--help"], ["jobs", "--help"], ["completion", "bash"]])
def test_python_m_holdfast_is_the_same_program_as_the_script(words: list[str]) -> None:
    script, module = Path(sys.executable).with_name("holdfast"), [sys.executable, "-m", "holdfast"]

    assert subprocess.check_output([script, *words]) == subprocess.check_output([*module, *words])


@pytest.mark.parametrize("command", ["doctor", "config set retries=5", "server start"])
def test_json_with_plain_is_refused_before_a_server_is_started(shell: Shell, command: str) -> None:
    del shell.environ["HOLDFAST_URL"]
    code, out, err = shell(*command.split(), "--json", "--plain")

    assert (code, out, json.loads(err)["message"]) == (
        2,
        "",
        "--json and --plain cannot be combined: --json prints JSON, --plain tab-separated text.",
    )
    assert not (shell.folder / ".holdfast").exists()


def test_an_unknown_command_is_a_usage_error_with_a_hint(shell: Shell) -> None:
    code, out, err = shell("job")

    assert (code, out) == (2, "")
    assert err.startswith("holdfast: unknown command 'job'; did you mean jobs?\n")


def test_a_server_that_cannot_be_reached_has_its_exit_code(shell: Shell) -> None:
    code, out, err = shell("jobs", "--url", "redis://:secret@localhost:1")

    assert (code, out) == (4, "")
    assert err.startswith("holdfast: redis://localhost:1 cannot be reached")


def test_an_invalid_url_is_a_usage_error(shell: Shell) -> None:
    assert shell("jobs", "--url", "http://localhost").code == 2


def test_words_that_are_not_text_are_refused(shell: Shell) -> None:
    code, _, err = shell("show", os.fsdecode(b"\xff"))

    assert (code, err.count("\n")) == (2, 1)


def test_a_closed_pipe_is_not_an_error(shell: Shell) -> None:
    for number in range(100):
        shell.put(f"{number}-{'x' * 120}")
    listing = subprocess.Popen(
        [*PROGRAM, "jobs", "--limit", "100", "--json"],
        env=shell.environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert listing.stdout
    listing.stdout.close()

    listing.wait()
    assert listing.stderr
    assert listing.stderr.read() == b""
    listing.stderr.close()
    assert listing.returncode == 141


# Errors as JSON, and the environment


@pytest.mark.parametrize(
    ("words", "code", "exit_code"),
    [
        (("show", "nobody"), "NOTFOUND", 3),
        (("jobs", "--queue", "nowhere"), "NOTFOUND", 3),
        (("jobs", "--state", "done"), "INVALID", 2),
        (("jobs", "--quue", "x"), "USAGE", 2),
        (("jbos",), "USAGE", 2),
        (("jobs", "--url", "redis://localhost:1"), "UNAVAILABLE", 4),
        (("jobs", "--plain"), "USAGE", 2),
    ],
)
def test_with_json_an_error_is_an_object(shell: Shell, words: tuple[str, ...], code: str, exit_code: int) -> None:
    ended = shell(*words, "--json")

    assert (ended.code, ended.out) == (exit_code, "")
    error = json.loads(ended.err)
    assert (error["code"], error["exit_code"]) == (code, exit_code)
    assert error["message"]


def test_a_note_is_an_object_too(shell: Shell) -> None:
    assert json.loads(shell("retry", "--json").err)["note"].startswith("nothing to retry")


def test_the_environment_chooses_the_output_and_the_command_line_wins(shell: Shell) -> None:
    shell.put("mine")

    assert shell("jobs", HOLDFAST_JSON="1").json[0]["id"] == "mine"
    assert shell("jobs", "--plain", HOLDFAST_JSON="1").rows[0][0] == "mine"
    assert shell("jobs", "--json", HOLDFAST_PLAIN="1").json[0]["id"] == "mine"
    assert shell("show", "nobody", HOLDFAST_JSON="true").err.startswith("{")
    assert shell("show", "nobody", "--plain", HOLDFAST_JSON="true").err.startswith("holdfast: ")
    assert shell("jobs", HOLDFAST_JSON="1", HOLDFAST_PLAIN="1").code == 2


def test_options_come_from_the_environment_and_the_command_line_wins(shell: Shell) -> None:
    shell.put("one", queue="a")
    shell.put("two", queue="b")

    assert [row[0] for row in shell("jobs", HOLDFAST_JOBS_QUEUE="a").rows] == ["one"]
    assert [row[0] for row in shell("jobs", "--queue", "b", HOLDFAST_JOBS_QUEUE="a").rows] == ["two"]
    assert len(shell("jobs", HOLDFAST_JOBS_LIMIT="1").rows) == 1
    assert shell("count", HOLDFAST_COUNT_STATE="waiting,failed").out == "2\n"


def test_a_word_after_two_dashes_is_not_an_option(shell: Shell) -> None:
    assert shell("note", "nobody", "--", "--json").err.startswith("holdfast: ")


# Names that are like others


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("enqeue", "x"), "unknown command 'enqeue'; did you mean enqueue?"),
        (("server", "sttus"), "unknown command 'sttus'; did you mean status?"),
        (
            ("pause", "mail"),
            "unknown command 'pause'; did you mean `queues pause`, `schedules pause` or `subscriptions pause`?",
        ),
        (("drain",), "unknown command 'drain'; did you mean `workers drain`?"),
        (("limit", "api", "5"), "unknown command 'limit'; did you mean `limits set`?"),
        (("kept",), "unknown command 'kept'; did you mean `outbox`?"),
        (("send",), "unknown command 'send'; did you mean `outbox send`?"),
        (("unlimit", "api"), "unknown command 'unlimit'; did you mean `limits remove`?"),
        (("weigh", "mail", "acme", "3"), "unknown command 'weigh'; did you mean `limits share`?"),
        (("purge",), "unknown command 'purge'; did you mean `cancel --all --state waiting`?"),
        (("inspect", "active"), "unknown command 'inspect'; did you mean `status`?"),
        (("cron",), "unknown command 'cron'; did you mean `schedules`?"),
        (("run", "shop"), "unknown command 'run'; did you mean `work`?"),
        (("-A", "shop", "worker"), "unknown option -A; name the module of the app: `holdfast work shop`"),
        (("work", "-A", "shop"), "unknown option -A; name the module of the app: `holdfast work shop`"),
        (("work", "shop", "--with-scheduler"), "unknown option --with-scheduler; leave it out: every worker fires"),
        (("work", "shop", "--pool", "threads"), "unknown option --pool; use --runner"),
        (("work", "shop", "--concurency", "3"), "No such option '--concurency'"),
        (("info",), "unknown command 'info'; did you mean `status`?"),
        (("help", "kept"), "unknown command or topic 'kept'; did you mean `outbox`?"),
        (("help", "enviroment"), "unknown command or topic 'enviroment'; did you mean environment?"),
        (("help", "jobs", "list"), "unknown command or topic 'list'; `jobs` has no subcommands"),
        (("jobs", "--stat", "failed"), "--state"),
        (("frobnicate",), "unknown command 'frobnicate'; see `holdfast help commands`"),
    ],
)
def test_a_mistyped_name_is_answered_with_a_suggestion(shell: Shell, words: tuple[str, ...], expected: str) -> None:
    code, out, err = shell(*words)

    assert (code, out) == (2, "")
    assert expected in err


def test_every_command_that_is_suggested_exists() -> None:
    for words in FOREIGN_NAMES.values():
        found: Any = program
        for word in words.split(" -")[0].split():
            found = found.commands[word]
    for hint in FOREIGN_OPTIONS.values():
        for option in re.findall(r"(?<=use )--[a-z-]+|(?<=or )--[a-z-]+", hint):
            assert any(option in each.opts for each in work.params)


def test_a_state_of_another_queue_is_answered_with_ours(shell: Shell) -> None:
    for word, state in (("started", "running"), ("SUCCESS", "succeeded"), ("queued", "waiting")):
        assert f"unknown state '{word}'; did you mean {state}?" in shell("jobs", "--state", word).err
    assert set(FOREIGN_STATES.values()) <= set(STATES)
    assert not set(FOREIGN_STATES) & set(STATE_NAMES)


@pytest.mark.parametrize(
    ("word", "names", "near"),
    [
        ("vidoe", ["video", "mail"], ["video"]),
        ("vid", ["video", "videos", "mail"], ["video", "videos"]),
        ("add", ["tasks.add", "tasks.sub"], ["tasks.add"]),
        ("zzz", ["video", "mail"], []),
        ("", ["video"], []),
    ],
)
def test_names_are_near_if_they_begin_so_or_are_spelled_alike(word: str, names: list[str], near: list[str]) -> None:
    assert nearest(word, names) == near


# What the system refuses


def in_a_shell(shell: Shell, line: str) -> tuple[int, str]:
    """Run a line of bash in which `holdfast` is the program, and return its exit code and what it says of errors."""
    words = ["bash", "-c", f'holdfast() {{ {shlex.join(PROGRAM)} "$@"; }}; {line}']
    done = subprocess.run(words, cwd=shell.folder, env=shell.environ, capture_output=True, text=True, check=False)
    return done.returncode, done.stderr


@pytest.mark.parametrize("words", ["jobs", "jobs --json", "jobs -w", "show mine", "queues", "count"])
def test_output_that_cannot_be_written_is_reported(shell: Shell, words: str) -> None:
    shell.put("mine")

    code, err = in_a_shell(shell, f"holdfast {words} > /dev/full")
    assert (code, err.count("\n")) == (1, 1)
    assert "cannot write the output: No space left on device" in err


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_are_no_matter(shell: Shell, closed: str) -> None:
    shell.put("mine")

    assert in_a_shell(shell, f"holdfast jobs {closed}") == (0, "")
    assert in_a_shell(shell, f"holdfast retry nobody {closed}")[0] == 3


def test_a_missing_working_directory_is_reported(shell: Shell) -> None:
    del shell.environ["HOLDFAST_URL"]
    code, err = in_a_shell(shell, "mkdir gone; cd gone; rmdir ../gone; holdfast jobs")

    assert (code, err) == (1, "holdfast: the working directory has been removed; change to another\n")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("queues --json pause mail", "options go after the command: `holdfast queues pause ...`"),
        ("config set retries 5", "expected NAME=VALUE, got 'retries'."),
        ("limits set api x", "expected an integer of at least 1, got 'x'"),
        ("work app --executors 5000", "expected an integer from 1 to 1000, got '5000'"),
    ],
)
def test_a_usage_error_names_what_was_expected(shell: Shell, line: str, expected: str) -> None:
    code, _, err = shell(*line.split())

    assert code == 2
    assert expected in err
