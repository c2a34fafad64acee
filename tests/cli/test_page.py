"""What is written of the command line is so: the page, the variables, the fields of its JSON."""

from __future__ import annotations

import json
from typing import Any

import click
import pytest

from holdfast.cli import fields
from holdfast.cli.app import program
from holdfast.cli.session import SHARED
from tests.cli.page import PAGE, every_command, page, parent_of, variable
from tests.cli.test_queues_and_workers import sign_of_life
from tests.support.shells import Hand, Shell

OPTIONS = [
    pytest.param(name, command, option, id=f"{name} {option.opts[-1]}")
    for name, command in every_command()
    for option in command.params
    if isinstance(option, click.Option) and option.name not in SHARED
]


def test_the_page_of_the_command_line_is_up_to_date() -> None:
    assert PAGE.read_text() == page(), "run: python -m tests.cli.page"


def test_the_list_of_commands_says_of_each_a_whole_sentence_on_one_line(shell: Shell) -> None:
    commands = shell("--help").out.partition("Commands:\n")[2].partition("\n\n")[0].splitlines()
    assert len(commands) == len(program.commands)
    assert all(line.endswith(".") and not line.endswith("...") for line in commands)


@pytest.mark.parametrize(("name", "command", "option"), OPTIONS)
def test_an_option_reads_its_variable_and_names_it_in_the_help(
    name: str, command: click.Command, option: click.Option, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings: dict[str, Any] = {"auto_envvar_prefix": command.context_settings.get("auto_envvar_prefix")}
    with click.Context(command, info_name=name.rpartition(" ")[2], parent=parent_of(name), **settings) as context:
        monkeypatch.setenv(variable(option, command, context), "a value")
        assert option.resolve_envvar_value(context) == "a value"
        assert variable(option, command, context) in command.get_help(context).replace("\n", "").replace(" ", "")


def claimed_token(shell: Shell) -> str:
    item = shell.client.items("full").claim()
    assert item
    return item.detach()


def first(words: str) -> Any:
    found = json.loads(words)
    return found[0] if isinstance(found, list) else found


@pytest.mark.parametrize(
    ("words", "documented"),
    [
        (("jobs",), fields.JOB),
        (("show", "mine"), fields.FULL_JOB),
        (("peek", "default"), fields.FULL_JOB),
        (("count",), fields.COUNT),
        (("queues",), fields.QUEUE),
        (("pause", "default"), fields.PAUSED),
        (("resume", "default"), fields.PAUSED),
        (("forget", "empty"), fields.FORGOTTEN),
        (("workers",), fields.WORKER),
        (("drain", "node/worker"), fields.DRAINED),
        (("nodes",), fields.NODE),
        (("config",), fields.SETTING),
        (("events", "--limit", "1"), fields.EVENT),
        (("enqueue", "any.task"), fields.ENQUEUED),
        (("attach", "mine", "a=b"), fields.ATTACHED),
        (("note", "mine", "words"), fields.NOTED),
        (("logs", "mine"), fields.LOG),
        (("cancel", "mine"), fields.ANSWER),
        (("move", "mine", "--priority", "1"), fields.ANSWER),
        (("release", "running"), fields.ANSWER),
        (("fail", "mine"), fields.ANSWER),
        (("depend", "mine", "--on", "running"), fields.ANSWER),
        (("load",), fields.LOAD),
        (("upkeep", "--once"), fields.UPKEPT),
        (("items", "put", "mail", "words"), fields.ENQUEUED),
        (("items", "claim", "full"), fields.CLAIMED_ITEM),
        (("items", "renew", "TOKEN"), fields.RENEWED_ITEM),
        (("items", "complete", "TOKEN"), fields.ENDED_ITEM),
        (("items", "fail", "TOKEN", "words"), fields.ENDED_ITEM),
        (("items", "release", "TOKEN"), fields.ENDED_ITEM),
        (("limits",), fields.LIMIT),
        (("limit", "gpu", "2"), fields.CHANGED_LIMIT),
        (("unlimit", "api"), fields.UNLIMITED),
        (("weigh", "default", "acme", "3"), fields.WEIGHED),
        (("schedules",), fields.SCHEDULE),
        (("schedules", "show", "nightly"), fields.FULL_SCHEDULE),
        (("schedules", "add", "hourly", "any.task", "--every", "1h"), fields.SCHEDULE),
        (("schedules", "pause", "nightly"), fields.SCHEDULE),
        (("schedules", "resume", "nightly"), fields.SCHEDULE),
        (("schedules", "trigger", "nightly"), fields.TRIGGERED),
        (("schedules", "remove", "nightly"), fields.UNSCHEDULED),
        (("wait", "ended"), fields.WAITED),
        (("doctor",), fields.FINDING),
        (("server", "status"), fields.SERVER),
    ],
)
def test_json_has_the_fields_that_are_documented(
    shell: Shell, words: tuple[str, ...], documented: dict[str, str]
) -> None:
    for id in ("ended", "running", "mine"):
        shell.put(id)
    shell.client.cancel("ended")
    shell.client.pause("empty")
    shell.client.items("full").put(b"")
    shell.client.set_limit("api", 5, per="1s")
    shell("schedules", "add", "nightly", "any.task", "--cron", "0 2 * * *")
    Hand(shell.client).take()
    sign_of_life(shell, "node/worker", "running")

    token = claimed_token(shell) if "TOKEN" in words else ""
    words = tuple(token if word == "TOKEN" else word for word in words)
    assert list(first(shell(*words, "--json").out)) == list(documented)


def test_every_command_that_prints_json_documents_its_fields() -> None:
    without = {name for name, command in every_command() if not getattr(command, "fields", None)}

    assert without <= {"work", "server", "schedules", "items", "completion", "demo"}
