"""Completion in real shells: what they offer when Tab is pressed, without starting anything."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.shells import PROGRAM, Shell

SHELLS = ("bash", "zsh", "fish")
BIN = str(Path(sys.executable).parent)

# What bash does when Tab is pressed: it calls the function with the program, the word and the word before.
IN_BASH = """
source "$1"
COMP_LINE="$2" COMP_POINT=${#2} COMP_TYPE=9
_holdfast_completion holdfast "$3" ""
printf '%s\\n' "${COMPREPLY[@]}"
"""


def need(name: str) -> None:
    if shutil.which(name) is None:
        pytest.skip(f"there is no {name} here")


def script(shell: Shell, name: str) -> Path:
    path = shell.folder / f"completion.{name}"
    if not path.exists():
        path.write_text(shell("completion", name).out)
        shell.environ["PATH"] = f"{BIN}:{shell.environ['PATH']}"
        shell.environ["HOLDFAST_COMPLETION_TIMEOUT"] = "20"  # this machine may be busy
    return path


def offered_by_bash(shell: Shell, line: str, word: str | None = None) -> list[str]:
    last = line.rpartition(" ")[2] if word is None else word
    words = ["bash", "--norc", "-c", IN_BASH, "bash", str(script(shell, "bash")), f"holdfast {line}", last]
    done = subprocess.run(words, cwd=shell.folder, env=shell.environ, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return done.stdout.split()


def offered_by_fish(shell: Shell, line: str) -> list[str]:
    need("fish")
    words = ["fish", "--no-config", "-c", f"source {script(shell, 'fish')}; complete -C 'holdfast {line}'"]
    done = subprocess.run(words, cwd=shell.folder, env=shell.environ, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return [each.partition("\t")[0] for each in done.stdout.splitlines()]


@pytest.mark.parametrize("name", SHELLS)
def test_a_completion_script_explains_its_installation_and_is_valid(shell: Shell, name: str) -> None:
    code, out, err = shell("completion", name)

    assert (code, err) == (0, "")
    assert any(line.startswith("# For all shells: holdfast completion") for line in out.splitlines()[:3])
    need(name)
    subprocess.run([name, "-n", str(script(shell, name))], check=True)


def test_bash_offers_commands_and_options(shell: Shell) -> None:
    assert offered_by_bash(shell, "wo") == ["work", "workers"]
    assert offered_by_bash(shell, "server st") == ["status", "start", "stop"]
    assert offered_by_bash(shell, "jobs --st") == ["--state", "--stalled"]
    assert offered_by_bash(shell, "queues --w") == ["--watch"]  # an option of its default command
    assert offered_by_bash(shell, "help exit") == ["exit-codes"]
    assert offered_by_bash(shell, "completion ") == list(SHELLS)


def test_bash_offers_what_is_in_the_store(shell: Shell) -> None:
    for id, queue in (("one", "video"), ("two", "mail")):
        shell.put(id, queue=queue, task=f"tasks.{id}")
    shell.client.cancel("two")

    assert offered_by_bash(shell, "jobs --queue vi") == ["video"]
    assert offered_by_bash(shell, "queues pause ") == ["mail", "video"]
    assert offered_by_bash(shell, "config --queue vi") == ["video"]
    assert sorted(offered_by_bash(shell, "show ")) == ["one", "two"]
    assert offered_by_bash(shell, "cancel ") == ["one"]
    assert offered_by_bash(shell, "retry ") == ["two"]
    assert offered_by_bash(shell, "enqueue tasks.t") == ["tasks.two"]
    assert offered_by_bash(shell, "move one --to m") == ["mail"]
    assert offered_by_bash(shell, "enqueue any.task --after o") == ["one"]
    assert offered_by_bash(shell, "config set keep_f") == ["keep_failed=", "keep_failed_count="]


def test_bash_offers_limits_and_schedules(shell: Shell) -> None:
    shell.client.set_limit("api", 5, per="1s")
    shell("schedules", "add", "nightly", "any.task", "--cron", "0 2 * * *")

    assert offered_by_bash(shell, "limits remove ") == ["api"]
    assert offered_by_bash(shell, "enqueue any.task --limit a") == ["api"]
    assert offered_by_bash(shell, "schedules pa") == ["pause"]
    assert offered_by_bash(shell, "schedules show ") == ["nightly"]
    assert offered_by_bash(shell, "schedules add x y --tz Europe/Berl") == ["Europe/Berlin"]


def test_bash_offers_tags_and_the_next_part_of_a_scope(shell: Shell) -> None:
    shell("enqueue", "any.task", "-t", "urgent", "-t", "mail", "--scope", "/tenant/7")

    assert offered_by_bash(shell, "enqueue any.task --tag u") == ["urgent"]
    assert offered_by_bash(shell, "tags m") == ["mail"]
    assert offered_by_bash(shell, "scopes ") == ["/tenant"]
    assert offered_by_bash(shell, "enqueue any.task --scope /tenant/") == ["/tenant/7"]


def test_states_are_offered_after_a_comma_too(shell: Shell) -> None:
    assert offered_by_bash(shell, "jobs --state fa") == ["failed"]
    assert offered_by_bash(shell, "jobs --state failed,ca") == ["failed,cancelled"]


def test_words_that_bash_breaks_are_completed_from_where_it_breaks_them(shell: Shell) -> None:
    shell.put("order:7/a", queue="video")

    assert offered_by_bash(shell, "jobs --queue=vi", word="vi") == ["video"]
    assert offered_by_bash(shell, "show order:7", word="7") == ["7/a"]
    assert offered_by_bash(shell, "show 'order:7", word="'order:7") == ["order:7/a"]


def test_the_store_that_is_asked_is_the_one_of_the_line(shell: Shell) -> None:
    shell("enqueue", "any.task", "--id", "mine", "--namespace", "elsewhere-of-completion")

    assert offered_by_bash(shell, "show ") == []
    assert offered_by_bash(shell, "show --namespace elsewhere-of-completion ") == ["mine"]
    assert offered_by_bash(shell, "--namespace elsewhere-of-completion show ") == ["mine"]
    shell.client.store.execute("DEL", *shell.client.store.execute("KEYS", "hf:{elsewhere-of-completion}:*"))


def test_fish_offers_commands_options_and_what_is_in_the_store(shell: Shell) -> None:
    shell.put("mine", queue="video")

    assert offered_by_fish(shell, "wo") == ["work", "workers"]
    assert offered_by_fish(shell, "jobs --st") == ["--state"]
    assert offered_by_fish(shell, "queues pause ") == ["video"]
    assert offered_by_fish(shell, "jobs --queue=v") == ["--queue=video"]
    assert offered_by_fish(shell, "show m") == ["mine"]


@pytest.mark.parametrize(
    ("name", "words", "before"),
    [
        ("bash", ("--norc", "-i"), "PS1='READY> '; bind 'set bell-style none'; source {script}"),
        ("zsh", ("-f", "-i"), "PS1='READY> '; autoload -U compinit; compinit -u -D; source {script}"),
    ],
)
def test_tab_completes_on_a_terminal(shell: Shell, name: str, words: tuple[str, ...], before: str) -> None:
    need(name)
    shell.put("0123456789abcdef", queue="video")
    path = shutil.which(name) or ""
    before = before.format(script=script(shell, name))

    with shell.terminal(path, *words, TERM="dumb" if name == "bash" else "xterm") as terminal:
        terminal.type(f"{before}\n")
        place = terminal.read_until("READY> ")
        terminal.type("holdfast que\t")
        place = terminal.read_until("queues", after=place)
        terminal.type("\x15holdfast jobs --queue v\t")
        place = terminal.read_until("video", after=place)
        terminal.type("\x15holdfast show 0123\t")
        terminal.read_until("456789abcdef", after=place)


def test_no_server_is_started_by_completion(shell: Shell) -> None:
    del shell.environ["HOLDFAST_URL"]
    home = shell.folder / "home"
    shell.environ["HOLDFAST_HOME"] = str(home)

    assert offered_by_bash(shell, "show ") == []
    assert offered_by_bash(shell, "jobs --queue ") == []
    assert not home.exists()


def test_a_server_that_does_not_answer_is_not_waited_for(shell: Shell) -> None:
    """It listens, and says nothing."""
    import socket

    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(shell.folder / "s"))
        silent.listen()
        shell.environ["HOLDFAST_URL"] = f"unix://{shell.folder / 's'}"
        words = subprocess.run(
            PROGRAM,
            env={
                **shell.environ,
                "_HOLDFAST_COMPLETE": "bash_complete",
                "HOLDFAST_LINE": "holdfast show ",
                "HOLDFAST_WORD": "",
            },
            capture_output=True,
            check=False,
            timeout=30,
        )
    assert (words.stdout, words.stderr) == (b"\n", b"")
