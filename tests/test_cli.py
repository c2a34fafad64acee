"""The program `holdfast`: its help, its errors, its pipes, and its environment."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.cli.app import program
from holdfast.cli.session import Command, Group
from tests.shells import PROGRAM, Shell


def every_command() -> list[tuple[str, Command | Group]]:
    found: list[tuple[str, Command | Group]] = []
    for name, each in program.commands.items():
        assert isinstance(each, Command | Group)
        found.append((name, each))
        for inner, command in each.commands.items() if isinstance(each, Group) else ():
            assert isinstance(command, Command)
            found.append((f"{name} {inner}", command))
    return found


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


def test_the_program_alone_says_what_it_can_do(shell: Shell) -> None:
    code, out, _ = shell()

    assert code == 0
    assert all(name in out for name in program.commands)
    assert "Exit codes:" in out
    assert "Examples:" in out


def test_the_script_of_the_package_is_the_same_program() -> None:
    script = Path(sys.executable).with_name("holdfast")

    assert subprocess.check_output([script, "--version"]) == subprocess.check_output([*PROGRAM, "--version"])


def test_an_unknown_command_is_a_usage_error_with_a_hint(shell: Shell) -> None:
    code, out, err = shell("job")

    assert (code, out) == (2, "")
    assert err.startswith("holdfast: there is no command 'job'; did you mean jobs?\n")


def test_a_server_that_cannot_be_reached_has_its_exit_code(shell: Shell) -> None:
    code, out, err = shell("jobs", "--url", "redis://:secret@localhost:1")

    assert (code, out) == (4, "")
    assert err.startswith("holdfast: redis://localhost:1 cannot be reached")


def test_a_url_that_is_none_is_a_usage_error(shell: Shell) -> None:
    assert shell("jobs", "--url", "http://localhost").code == 2


def test_words_that_are_not_text_are_refused(shell: Shell) -> None:
    code, _, err = shell("show", os.fsdecode(b"\xff"))

    assert (code, err.count("\n")) == (2, 1)


def test_a_reader_that_goes_away_is_no_error(shell: Shell) -> None:
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
