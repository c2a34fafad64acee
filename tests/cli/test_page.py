"""The documentation of the command line agrees with the program: pages, variables, fields of the JSON output."""

from __future__ import annotations

import json
from contextlib import redirect_stdout
from io import StringIO
from typing import Any

import click
import pytest

from holdfast.cli.help import VARIABLES
from holdfast.cli.options import SHARED
from holdfast.cli.program import EVERYDAY, program, run
from tests.cli.page import FOLDER, PAGES, context_of, every_command, pages, variable
from tests.cli.test_queues_and_workers import sign_of_life, silence
from tests.support.shells import Hand, Shell

OPTIONS = [
    pytest.param(name, command, option, id=f"{name} {option.opts[-1]}")
    for name, command in every_command()
    for option in command.params
    if isinstance(option, click.Option) and option.name not in SHARED
]


def test_the_pages_of_the_command_line_are_up_to_date() -> None:
    written = {path.name: path.read_text() for path in FOLDER.iterdir()}
    assert written == pages(), "run: python -m tests.cli.page"


def test_each_command_is_on_one_page_of_less_than_600_lines() -> None:
    listed = [name for page in PAGES.values() for name in page.commands]
    assert sorted(listed) == sorted(program.commands)
    assert all(len(text.splitlines()) < 600 for text in pages().values())


def test_the_help_of_the_program_is_short_and_names_every_command(shell: Shell) -> None:
    lines = shell("--help").out.splitlines()
    assert len(lines) < 50
    assert len(EVERYDAY) == 12
    everyday = lines[lines.index("Everyday commands:") + 1 :][:12]
    assert [line.split()[0] for line in everyday] == [each.name for each in EVERYDAY]
    assert all(line.endswith(".") and not line.endswith("...") for line in everyday)
    more = "\n".join(lines[lines.index("More commands:") :])
    assert all(f" {each}" in more for each in program.commands if program.commands[each] not in EVERYDAY)


def test_the_list_of_commands_has_a_whole_sentence_for_each(shell: Shell) -> None:
    text = " ".join(shell("help", "commands", COLUMNS="200").out.split())
    for name, command in every_command():
        sentence = command.get_short_help_str()
        assert sentence.endswith(".")
        assert not sentence.endswith("...")
        assert f"{name} {sentence}" in text


def test_help_of_a_command_is_its_option_help() -> None:
    for name, _ in every_command():
        assert printed("help", *name.split()) == printed(*name.split(), "--help")


def printed(*words: str) -> str:
    with redirect_stdout(StringIO()) as out:
        assert run(words) == 0
    return out.getvalue()


def test_help_of_a_topic(shell: Shell) -> None:
    assert all(f"\n  {code} " in shell("help", "exit-codes").out for code in (0, 1, 2, 3, 4, 5, 6, 130, 141))
    assert all(name in shell("help", "environment").out for name, _ in VARIABLES)
    assert shell("help").out == shell("--help").out
    code, _, err = shell("help", "exit-code")
    assert (code, "did you mean exit-codes?" in err) == (2, True)
    assert shell("help", "queues", "paus").err.startswith(
        "holdfast: unknown command or topic 'paus'; did you mean pause?"
    )


@pytest.mark.parametrize(("name", "command", "option"), OPTIONS)
def test_an_option_reads_the_variable_that_is_named_after_it(
    name: str, command: click.Command, option: click.Option, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = {"work": "HOLDFAST", "web serve": "HOLDFAST_WEB"}
    prefix = own.get(name, f"HOLDFAST_{name.replace(' ', '_').upper()}")
    long = next(each for each in option.opts if each.startswith("--"))[2:].replace("-", "_").upper()
    shared = {"APP": "HOLDFAST_APP", "AUTH": "HOLDFAST_WEB_AUTH"}
    documented = shared.get(long, f"{prefix}_{long}")
    assert variable(option, name, command) == documented
    with context_of(name, command) as context:
        command.make_parser(context)
        context.resilient_parsing = True
        command.parse_args(context, [])  # names the variables
        monkeypatch.setenv(documented, "a value")
        assert option.resolve_envvar_value(context) == "a value"


def claimed_token(shell: Shell) -> str:
    item = shell.client.items("full").claim()
    assert item
    return item.detach()


def first(words: str) -> Any:
    found = json.loads(words)
    return found[0] if isinstance(found, list) else found


@pytest.mark.parametrize(
    "words",
    [
        ("jobs",),
        ("show", "mine"),
        ("peek", "default"),
        ("count",),
        ("status",),
        ("top", "--once"),
        ("queues",),
        ("queues", "pause", "default"),
        ("queues", "resume", "default"),
        ("queues", "forget", "empty"),
        ("workers",),
        ("workers", "drain", "node/worker"),
        ("nodes",),
        ("config",),
        ("events", "--limit", "1"),
        ("enqueue", "any.task"),
        ("attach", "mine", "a=b"),
        ("note", "mine", "words"),
        ("logs", "mine"),
        ("cancel", "mine"),
        ("move", "mine", "--priority", "1"),
        ("release", "running"),
        ("fail", "mine"),
        ("operations",),
        ("operations", "show", "OPERATION"),
        ("operations", "stop", "OPERATION"),
        ("operations", "resume", "OPERATION", "--detach"),
        ("depend", "mine", "--on", "running"),
        ("load",),
        ("upkeep", "--once"),
        ("items", "put", "mail", "words"),
        ("items", "claim", "full"),
        ("items", "renew", "TOKEN"),
        ("items", "complete", "TOKEN"),
        ("items", "fail", "TOKEN", "words"),
        ("items", "release", "TOKEN"),
        ("limits",),
        ("limits", "set", "gpu", "2"),
        ("limits", "show", "api"),
        ("limits", "remove", "api"),
        ("limits", "share", "default", "acme", "3"),
        ("schedules",),
        ("schedules", "show", "nightly"),
        ("schedules", "add", "hourly", "any.task", "--every", "1h"),
        ("schedules", "pause", "nightly"),
        ("schedules", "resume", "nightly"),
        ("schedules", "trigger", "nightly"),
        ("schedules", "remove", "nightly"),
        ("wait", "ended"),
        ("doctor",),
        ("server", "status"),
        ("workers", "forget", "node/silent"),
        ("outbox", "send"),
        ("config", "set", "lease=1m"),
        ("config", "reset", "lease"),
    ],
)
def test_json_has_the_fields_that_are_documented(shell: Shell, words: tuple[str, ...]) -> None:
    for id in ("ended", "running", "mine"):
        shell.put(id)
    shell.client.cancel("ended")
    shell.client.pause("empty")
    shell.client.items("full").put(b"")
    shell.client.set_limit("api", 5, per="1s")
    shell("schedules", "add", "nightly", "any.task", "--cron", "0 2 * * *")
    Hand(shell.client).take()
    sign_of_life(shell, "node/worker", "running")
    silence(shell, "node/silent")

    token = claimed_token(shell) if "TOKEN" in words else ""
    operation = shell.client.cancel_all(task="nothing", wait=False).id
    given = tuple({"TOKEN": token, "OPERATION": operation}.get(word, word) for word in words)
    assert list(first(shell(*given, "--json").out)) == documented(words)


def documented(words: tuple[str, ...]) -> list[str]:
    known = dict(every_command())
    names = (" ".join(words[:2]), f"{words[0]} list", words[0])
    tables = [getattr(known.get(name), "output", None) for name in names]
    return next(list(table.help) for table in tables if table)


def test_every_command_that_prints_json_documents_its_fields() -> None:
    without = {name for name, command in every_command() if not getattr(command, "output", None)}

    groups = {"queues", "workers", "limits", "schedules", "batches", "config", "outbox", "server", "items"}
    groups |= {"failures", "subscriptions", "operations", "web", "web users", "web tokens"}
    assert without <= {*groups, "work", "metrics", "completion", "demo", "help"}
