"""Commands that keep something with a job: fields, and notes in its history."""

from __future__ import annotations

from collections.abc import Sequence

import click

from holdfast.cli.completers import complete_ids
from holdfast.cli.fields import ATTACHED, NOTED
from holdfast.cli.lookup import saying_which
from holdfast.cli.output import Column, Fact
from holdfast.cli.session import Session, command, pass_session


@command(
    "attach",
    "holdfast attach 0QwErTyUiOpAsDfG ticket=4711 owner=ann",
    "holdfast attach 0QwErTyUiOpAsDfG --remove ticket",
    fields=ATTACHED,
)
@click.argument("id", shell_complete=complete_ids)
@click.argument("words", nargs=-1, metavar="[NAME=TEXT]...")
@click.option("--remove", multiple=True, metavar="NAME", help="Remove this field.")
@pass_session
def attach(session: Session, id: str, words: Sequence[str], remove: Sequence[str]) -> None:
    """Keep fields of your own with a job, and print all that it has.

    Nothing reads them but you: a ticket, an owner, a bill. Up to 64 texts of 4 KiB. When piped, the columns are name
    and text. With --json, an object.
    """
    pairs = [word.partition("=") for word in words]
    for name, equals, _ in pairs:
        if not equals or not name:
            raise click.UsageError(f"{name!r} is no field: write name=text.")
    with saying_which(session.app, id):
        fields = session.app.attach(id, {name: text for name, _, text in pairs}, remove=remove)
    if session.output.mode == "json":
        session.output.json({"id": id, "fields": fields})
    else:
        session.output.facts(Fact(name, fields[name]) for name in sorted(fields))


@command("note", "holdfast note 0QwErTyUiOpAsDfG 'sent again by hand'", fields=NOTED)
@click.argument("id", shell_complete=complete_ids)
@click.argument("words", nargs=-1, required=True, metavar="WORDS...")
@pass_session
def note(session: Session, id: str, words: Sequence[str]) -> None:
    """Add a note to the history of a job: `show` shows it. Up to 1,000 bytes."""
    text = " ".join(words)
    with saying_which(session.app, id):
        session.app.note(id, text)
    columns = [Column("ID", lambda row: row["id"], whole=True), Column("NOTE", lambda row: row["note"])]
    session.output.one({"id": id, "note": text}, columns)
