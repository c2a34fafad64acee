"""Commands on items, for shell scripts: put them, claim one, and renew or end it by the token that was printed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import timedelta
from io import BytesIO
from itertools import islice
from typing import Any, BinaryIO

import click

from holdfast.cli.arguments import given_options
from holdfast.cli.complaints import note
from holdfast.cli.completers import complete_queue
from holdfast.cli.exits import NotFound
from holdfast.cli.fields import CLAIMED_ITEM, ENDED_ITEM, ENQUEUED, RENEWED_ITEM
from holdfast.cli.output import Column
from holdfast.cli.records import decoded
from holdfast.cli.session import Decorator, Group, Session, command, duration_option, pass_session
from holdfast.constants import MAX_BATCH, MAX_DURATION, MAX_LEASE, MAX_PAYLOAD, MIN_LEASE
from holdfast.errors import TooBig
from holdfast.items.item import Item
from holdfast.items.items import Items
from holdfast.items.token import read_token


@click.group(
    "items",
    cls=Group,
    examples=(
        "holdfast items put mail 'to ann'",
        "token=$(holdfast items claim mail --wait 1m --payload letter)",
        'holdfast items complete "$token"',
    ),
)
def items() -> None:
    """Items: any bytes in a queue, without tasks and workers.

    `claim` prints a token. Whoever has it renews the item before its lease ends, and completes it, fails it or
    releases it: in another process, or on another machine. An item whose lease ends is handed out again.
    """


_queue = click.argument("queue", shell_complete=complete_queue)
_token = click.argument("token")


def _file(name: str, words: str, mode: str = "rb", target: str = "file") -> Decorator:
    return click.option(name, target, type=click.File(mode, lazy=False), metavar="FILE", help=words)


@command(
    "put",
    "holdfast items put mail 'to ann' --id mail-17",
    "holdfast items put scans --file page.png --retries 5 --delay 1m",
    "find . -name '*.png' | holdfast items put resize --lines --fresh",
    fields=ENQUEUED,
)
@_queue
@click.argument("text", required=False, metavar="[TEXT]")
@_file("--file", "Its bytes; - is the standard input.")
@click.option("--lines", is_flag=True, help="An item for each line of that.")
@click.option("--fresh", is_flag=True, help="With --lines: the fast way, as none of them can be there yet.")
@click.option("--id", help="Id of the item. While one of that id is kept, no second is stored.")
@click.option("--unique", metavar="KEY", help="While an item of this key is there, no second is stored.")
@click.option("--priority", type=int, help="-256 to 255; lower comes first.")
@duration_option("--delay", "Hand it out after this time: 30s, 1h30m.", most=MAX_DURATION)
@click.option("--retries", type=int, help="How often it is handed out again after it failed.")
@click.option("--keep/--no-keep", default=None, help="Whether its record is kept when it has ended.")
@click.option("--at-most-once", is_flag=True, default=None, help="Once claimed, it is never handed out again.")
@pass_session
def put(session: Session, /, queue: str, text: str | None, file: BinaryIO | None, **options: Any) -> None:
    """Store an item, and print its id.

    Its bytes are TEXT, or those of --file, or of the standard input.
    """
    lines, fresh = options.pop("lines"), options.pop("fresh")
    source = _source(text, file)
    if fresh and not lines:
        raise click.UsageError("--fresh is for many items; give --lines, too.")
    if lines and options["id"] is not None:
        raise click.UsageError("--id is for one item; with --lines each item gets an id of its own.")
    chosen, into = given_options(options), session.new_app.items(queue)
    if not lines:
        job = into.put(source.read(MAX_PAYLOAD + 1), **chosen)
        return _say_stored(session, job.id, job.created)
    each, columns = _lines(source), [Column("ID", lambda row: row["id"])]
    while part := list(islice(each, MAX_BATCH)):
        for job in into.put_many(part, fresh=fresh, **chosen):
            session.output.stream({"id": job.id, "created": job.created}, columns)
    return None


def _source(text: str | None, file: BinaryIO | None) -> BinaryIO:
    if text is not None and file is not None:
        raise click.UsageError("TEXT and --file are both given; choose one.")
    if text is not None:
        return BytesIO(text.encode())
    if file is not None:
        return file
    if sys.stdin is None or sys.stdin.isatty():
        raise click.UsageError("there is nothing to store: give TEXT or --file, or pipe it in.")
    return sys.stdin.buffer


def _lines(source: BinaryIO) -> Iterator[bytes]:
    while line := source.readline(MAX_PAYLOAD + 2):
        if len(line.removesuffix(b"\n")) > MAX_PAYLOAD:
            raise TooBig(f"a line has more than {MAX_PAYLOAD} bytes, which an item may have")
        yield line.removesuffix(b"\n")


def _say_stored(session: Session, id: str, created: bool) -> None:
    session.output.value({"id": id, "created": created}, "id")
    if not created:
        note(f"item {id} is there already; nothing was stored")


@command(
    "claim",
    "token=$(holdfast items claim mail --payload letter)",
    "holdfast items claim mail --wait 1m --lease 10m --json | jq -r '.token, .payload'",
    "holdfast items claim mail --payload - --token token | ./send",
    fields=CLAIMED_ITEM,
)
@_queue
@duration_option("--wait", "Wait so long for an item.", default="0s", show_default=True)
@duration_option(
    "--lease", "How long it is yours, unless you renew it; else what the queue has.", least=MIN_LEASE, most=MAX_LEASE
)
@_file("--payload", "Write its bytes there; - is the standard output.", "wb", "payload")
@_file("--token", "Write the token there, and not to the standard output.", "wb", "token")
@pass_session
def claim(
    session: Session, queue: str, *, wait: timedelta, lease: timedelta | None,
    payload: BinaryIO | None, token: BinaryIO | None,
) -> None:  # fmt: skip
    """Claim the next item, and print its token.

    Exit code 3 if there is none. With --json, an object that has its bytes, too: as text, or if they are none as
    {"base64": ...}. If it cannot be written the item is released.
    """
    _check_streams(session, payload, token)
    source = session.app.items(queue)
    item = source.claim(wait=wait, lease=lease)
    if not item:
        raise NotFound(f"there is no item to claim in queue {queue}")
    text = item.detach()
    try:
        _hand_out(session, item, text, payload, token)
    except OSError:
        source.release(text, reason="it could not be written", unstarted=True)
        raise


def _check_streams(session: Session, payload: BinaryIO | None, token: BinaryIO | None) -> None:
    """Refuse what cannot be told apart, before anything is claimed."""
    is_json = session.output.mode == "json"
    for name, file in (("--payload", payload), ("--token", token)):
        if file is not None and file.fileno() == 1 and is_json:
            raise click.UsageError(f"{name} - and --json both write to the standard output; choose one.")
    if payload is not None and payload.fileno() == 1 and (token is None or token.fileno() == 1):
        raise click.UsageError("--payload - needs the standard output for itself: give --token FILE, too.")


def _hand_out(session: Session, item: Item, token: str, payload: BinaryIO | None, token_file: BinaryIO | None) -> None:
    """Write an item: its bytes first, for who has the token is to have them."""
    if payload is not None:
        payload.write(item.payload)
        payload.flush()
    if token_file is not None:
        token_file.write(f"{token}\n".encode())
        token_file.flush()
    record = {
        "token": token, "id": item.id, "queue": item.queue, "attempt": item.attempt, "lease_seconds": item.lease,
        "payload": decoded(item.payload, "raw"), "data": decoded(item.data, "raw"),
    }  # fmt: skip
    if token_file is None or session.output.mode == "json":
        session.output.value(record, "token")
    sys.stdout.flush()


def _of(session: Session, token: str) -> tuple[Items, str]:
    """Return the items of a token's queue, and the id that it is about."""
    found = read_token(token)
    return session.app.items(found.queue), found.id


@command(
    "renew",
    'holdfast items renew "$token"',
    'while holdfast items renew "$token" | grep -q renewed; do sleep 10; done &',
    fields=RENEWED_ITEM,
)
@_token
@_file("--data", "Keep these bytes for the next attempt, should there be one; - is the standard input.", "rb", "data")
@pass_session
def renew(session: Session, token: str, data: BinaryIO | None) -> None:
    """Prolong the lease of a claimed item by its whole length.

    Prints `renewed`; or `cancelled`, if somebody has cancelled it: then stop, and release it. Exit code 1 if the lease
    was lost: stop, for another may have the item.
    """
    of, id = _of(session, token)
    is_cancelled = of.renew(token, None if data is None else data.read(MAX_PAYLOAD + 1))
    record = {"id": id, "cancelled": is_cancelled}
    if session.output.mode == "json":
        session.output.json(record)
    else:
        session.output.value({"said": "cancelled" if is_cancelled else "renewed"}, "said")


@command(
    "complete",
    'holdfast items complete "$token"',
    'holdfast items complete "$token" "sent to 3"',
    './thumbnail page.png | holdfast items complete "$token" --file -',
    fields=ENDED_ITEM,
)
@_token
@click.argument("text", required=False, metavar="[RESULT]")
@_file("--file", "Its result; - is the standard input.")
@pass_session
def complete(session: Session, token: str, text: str | None, file: BinaryIO | None) -> None:
    """End a claimed item: it is done.

    It succeeds for exactly one caller. Exit code 1 if the item has ended already, or its lease was lost.
    """
    if text is not None and file is not None:
        raise click.UsageError("RESULT and --file are both given; choose one.")
    of, id = _of(session, token)
    of.complete(token, file.read(MAX_PAYLOAD + 1) if file is not None else (text or "").encode())
    _say_ended(session, id, "completed")


@command(
    "fail",
    'holdfast items fail "$token" "no route"',
    'holdfast items fail "$token" "no such address" --final',
    fields=ENDED_ITEM,
)
@_token
@click.argument("words", metavar="WHY")
@click.option("--final", is_flag=True, help="It is not handed out again.")
@duration_option("--delay", "Hand it out again after this time, not as its retries say.", most=MAX_DURATION)
@pass_session
def fail(session: Session, token: str, words: str, *, final: bool, delay: timedelta | None) -> None:
    """End a claimed item that could not be done: it is handed out again, as its retries allow.

    Exit code 1 if the item has ended already, or its lease was lost.
    """
    of, id = _of(session, token)
    of.fail(token, words, final=final, delay=delay)
    _say_ended(session, id, "failed")


@command(
    "release",
    'holdfast items release "$token" --unstarted',
    'holdfast items release "$token" --delay 10m --reason "the shop is closed"',
    fields=ENDED_ITEM,
)
@_token
@duration_option("--delay", "Hand it out again after this time.", default="0s", most=MAX_DURATION)
@click.option("--reason", default="released", help="Why; it is kept with the attempt.")
@click.option(
    "--unstarted", is_flag=True, help="Nothing was done about it: it comes back even if it is --at-most-once."
)
@pass_session
def release(session: Session, token: str, delay: timedelta, reason: str, *, unstarted: bool) -> None:
    """Give a claimed item back, uncharged. One that was cancelled ends.

    Exit code 1 if the item has ended already, or its lease was lost.
    """
    of, id = _of(session, token)
    of.release(token, delay=delay, reason=reason, unstarted=unstarted)
    _say_ended(session, id, "released")


def _say_ended(session: Session, id: str, ended: str) -> None:
    columns = [Column("ID", lambda row: row["id"], whole=True), Column("", lambda row: row["ended"])]
    session.output.one({"id": id, "ended": ended}, columns)


for each in (put, claim, renew, complete, fail, release):
    items.add_command(each)
