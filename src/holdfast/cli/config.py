"""`holdfast config`: runtime settings of the namespace and of queues."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import click

from holdfast import Holdfast
from holdfast.cli.client import Client, pass_client
from holdfast.cli.command import Group, command
from holdfast.cli.completers import complete_queue, complete_settings
from holdfast.cli.suggestions import find_queue, note_new_queue
from holdfast.client.config import read_value
from holdfast.errors import Invalid
from holdfast.records.config import SETTINGS
from holdfast.store.commands import Setting
from holdfast.text import suggestion


@click.group(
    "config", cls=Group, default="list",
    examples=(
        "holdfast config", "holdfast config set lease=1m keep_failed=90d -Q video", "holdfast config reset lease",
    ),
)  # fmt: skip
def config() -> None:
    """List and change runtime settings: leases, retries, retention.

    Without a command, settings are listed. Changes apply at once, to all queues or to one, without a restart.
    """


_queue = click.option("-Q", "--queue", shell_complete=complete_queue, help="For this queue instead of all queues.")


@command(
    "list", "holdfast config", "holdfast config list lease retries", "holdfast config -Q video", output=SETTINGS
)  # fmt: skip
@click.argument("names", nargs=-1, metavar="[NAME...]", shell_complete=complete_settings)
@_queue
@pass_client
def list_settings(client: Client, names: Sequence[str], queue: str | None) -> None:
    """List settings with their values, defaults and bounds.

    The source of a value is default, global or queue. With --json, durations are in milliseconds.
    """
    settings = client.app.config(queue)
    _check_names(names, settings)
    if queue and all(setting.source != "queue" for setting in settings):
        find_queue(client.app, queue)
    _print(client, settings, names)


@command("set", "holdfast config set lease=1m keep_failed=90d -Q video", output=SETTINGS)
@click.argument("words", nargs=-1, metavar="NAME=VALUE...", shell_complete=complete_settings)
@_queue
@pass_client
def set_settings(client: Client, words: Sequence[str], queue: str | None) -> None:
    """Change settings.

    A VALUE is a number, or a duration such as 30s or 1h30m.
    """
    pairs = [word.partition("=") for word in words]
    if not pairs or any(not equals for _, equals, _ in pairs):
        wrong = next((f", got {word!r}" for word in words if "=" not in word), ": lease=1m")
        raise click.UsageError(f"expected NAME=VALUE{wrong}.")
    app = client.app_starting_server
    settings = {setting.name: setting for setting in app.config(queue)}
    names = [name for name, _, _ in pairs]
    _check_names(names, settings.values())
    _change(client, app, {name: read_value(settings[name], value) for name, _, value in pairs}, queue)


@command("reset", "holdfast config reset lease -Q video", output=SETTINGS)
@click.argument("names", nargs=-1, metavar="NAME...", shell_complete=complete_settings)
@_queue
@pass_client
def reset(client: Client, names: Sequence[str], queue: str | None) -> None:
    """Reset settings to their defaults."""
    app = client.app_starting_server
    settings = app.config(queue)
    if not names:
        raise click.UsageError(f"expected NAME: {', '.join(setting.name for setting in settings)}.")
    _check_names(names, settings)
    _change(client, app, dict.fromkeys(names), queue)


def _change(client: Client, app: Holdfast, changes: dict[str, Any], queue: str | None) -> None:
    settings = app.configure(changes, queue=queue)
    if queue:
        note_new_queue(app, queue)  # a queue may be configured before its first job
    _print(client, settings, changes)


def _print(client: Client, settings: Iterable[Setting], names: Iterable[str]) -> None:
    wanted = set(names)
    client.output.list(SETTINGS.records(each for each in settings if each.name in wanted or not wanted), SETTINGS)


def _check_names(names: Iterable[str], settings: Iterable[Setting]) -> None:
    known = [setting.name for setting in settings]
    for name in names:
        if name not in known:
            raise Invalid(f"unknown setting {name!r}{suggestion(name, known)}")


for each in (list_settings, set_settings, reset):
    config.add_command(each)
