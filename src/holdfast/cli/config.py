"""The command on settings, which can be changed while everything runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click
import msgspec

from holdfast import Holdfast
from holdfast.cli.completers import complete_queue, complete_settings
from holdfast.cli.fields import SETTING
from holdfast.cli.lookup import find_queue, note_new_queue
from holdfast.cli.output import Column
from holdfast.cli.records import Record
from holdfast.cli.session import Session, command, pass_session
from holdfast.errors import Invalid
from holdfast.store.commands import Setting
from holdfast.text import suggestion
from holdfast.units import humanize, milliseconds

ACTIONS = ("list", "set", "reset")


@command(
    "config",
    "holdfast config",
    "holdfast config set lease=1m keep_failed=90d --queue video",
    "holdfast config reset lease --queue video",
    fields=SETTING,
)
@click.argument("action", type=click.Choice(ACTIONS), default="list", metavar="[list|set|reset]")
@click.argument("words", nargs=-1, metavar="[NAME|NAME=VALUE]...", shell_complete=complete_settings)
@click.option("--queue", shell_complete=complete_queue, help="As it holds for this queue, instead of for all.")
@pass_session
def config(session: Session, action: str, words: Sequence[str], queue: str | None) -> None:
    """List settings, change them, or give them their defaults again.

    That is `list`, `set NAME=VALUE` and `reset NAME`. They hold from the next call on, for all queues or for one. A
    VALUE is a number, or a duration like 30s or 1h30m; when piped, the columns are name, value, default, least, most,
    source and meaning. Where a value comes from is its source: default, global or queue. With --json, an array; there
    durations are in milliseconds.
    """
    app = session.app if action == "list" else session.new_app
    known = {setting.name: setting for setting in app.config(queue)}
    changes = _changes(action, words, known)
    found = app.configure(changes, queue=queue) if changes else list(known.values())
    if queue:
        _check_queue(app, queue, found, is_changed=bool(changes))
    names = {word.partition("=")[0] for word in words}
    shown = [msgspec.structs.asdict(setting) for setting in found if setting.name in names or not names]
    session.output.list(shown, _columns(), "")


def _columns() -> list[Column]:
    return [
        Column("NAME", lambda row: row["name"], whole=True),
        Column("VALUE", lambda row: _text(row, "value"), right=True, whole=True),
        Column("DEFAULT", lambda row: _text(row, "default"), right=True, whole=True),
        Column("LEAST", lambda row: _text(row, "least"), right=True, whole=True),
        Column("MOST", lambda row: _text(row, "most"), right=True, whole=True),
        Column("SOURCE", lambda row: row["source"], whole=True),
        Column("MEANING", lambda row: row["explanation"], wraps=True),
    ]


def _text(record: Record, name: str) -> str:
    """Return a value as it would be set."""
    return humanize(record[name]) if record["unit"] == "ms" else str(record[name])


def _changes(action: str, words: Sequence[str], known: dict[str, Setting]) -> dict[str, Any]:
    """Return what is to be changed, nothing for `list`; what is wrong with the words is refused."""
    pairs = [word.partition("=") for word in words]
    if action == "set" and (not pairs or any(not equals for _, equals, _ in pairs)):
        raise click.UsageError("say what to set: NAME=VALUE.")
    if action == "reset" and not pairs:
        raise click.UsageError(f"say which: {', '.join(known)}.")
    for name in words if action != "set" else [name for name, _, _ in pairs]:
        if name not in known:
            raise Invalid(f"there is no setting {name!r}{suggestion(name, known)}")
    if action == "set":
        return {name: _value(known[name], value) for name, _, value in pairs}
    return dict.fromkeys(words) if action == "reset" else {}


def _value(setting: Setting, text: str) -> Any:
    """Read a value; what is out of bounds is refused here, in the words of the command line."""
    if setting.unit == "ms":
        duration = f"{text}s" if text[-1:].isdigit() else text
        number = milliseconds(duration, what=setting.name, least=setting.least, most=setting.most)
        return number / 1000
    if not text.isascii() or not text.isdigit() or not setting.least <= int(text) <= setting.most:
        raise Invalid(f"{setting.name} is {text!r}; it must be a number from {setting.least} to {setting.most}")
    return int(text)


def _check_queue(app: Holdfast, queue: str, found: Sequence[Setting], *, is_changed: bool) -> None:
    """A queue may be configured before it has jobs, but its name may also be mistyped."""
    if is_changed:
        note_new_queue(app, queue)
    elif all(setting.source != "queue" for setting in found):
        find_queue(app, queue)
