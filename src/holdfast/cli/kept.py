"""Commands on calls that are kept on disk because the store could not be reached. They work while it is away."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast import Holdfast
from holdfast.cli.fields import KEPT, SENT
from holdfast.cli.output import Column
from holdfast.cli.records import Record
from holdfast.cli.session import Session, command, pass_session
from holdfast.cli.text import moment
from holdfast.outbox.outbox import Entry
from holdfast.units import utc


@command("kept", "holdfast kept", "holdfast kept --json | jq '.[] | select(.refused)'", fields=KEPT)
@pass_session
def kept(session: Session) -> None:
    """List calls that are kept on disk, to be sent to the store later.

    They come in the order of sending. After them come those that the store has refused; they stay in the file `refused`
    until you remove it. When piped, the columns are id, task, queue, when it was kept, when it is due, and why it was
    refused. With --json, an array.
    """
    columns = [
        Column("ID", lambda call: call["id"], whole=True),
        Column("TASK", lambda call: call["task"]),
        Column("QUEUE", lambda call: call["queue"]),
        Column("KEPT", lambda call: call["kept_at"]),
        Column("DUE", lambda call: call["due_at"]),
        Column("REFUSED", lambda call: call["refused"]),
    ]
    app = _app(session)
    session.output.list(list(_records(app)), columns, f"nothing is kept on disk for {app.address.display}")


@command("send", "holdfast send", "holdfast send --json | jq .sent", fields=SENT)
@pass_session
def send(session: Session) -> None:
    """Send calls that are kept on disk, now.

    How many were sent is printed. It happens by itself, too: when a worker of the app starts, and by any process of it
    that keeps calls. Exit code 4 if the store cannot be reached: then they stay where they are.
    """
    session.output.value({"sent": _app(session).send_outbox()}, "sent")


def _app(session: Session) -> Holdfast:
    """A client of a store that may not be there."""
    return Holdfast(session.url, namespace=session.namespace)


def _records(app: Holdfast) -> Iterator[Record]:
    outbox = app.outage_policy.outbox
    for call in outbox.entries():
        yield from _record(call, None)
    for refused in outbox.refused():
        yield from _record(refused.entry, refused.reason)


def _record(call: Entry, refused: str | None) -> Iterator[Record]:
    """Times are text: the age of something would be asked of the store."""
    for id, batch in call.calls:
        yield {
            "id": id,
            "task": batch["task"],
            "queue": batch["queue"],
            "kept_at": moment(utc(call.at)),
            "due_at": moment(utc(batch["at"])) if "at" in batch else None,
            "refused": refused,
        }
