"""`holdfast items`: items for shell scripts; claimed with a token, which renews or ends them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import timedelta
from io import BytesIO
from itertools import islice
from typing import Any, BinaryIO

import click

from holdfast.cli.client import Client, pass_client
from holdfast.cli.command import Group, command
from holdfast.cli.completers import complete_queue
from holdfast.cli.errors import print_note
from holdfast.cli.job_options import given_options, job_options
from holdfast.cli.options import Decorator, duration_option
from holdfast.cli.shared_items import (
    SharedClaim,
    check_prefix,
    clean,
    length,
    protocol_options,
    read_shared_token,
    shared_items,
)
from holdfast.cli.shared_items import put as put_shared
from holdfast.constants import MAX_BATCH, MAX_DURATION, MAX_LEASE, MAX_PAYLOAD, MIN_LEASE
from holdfast.errors import NotFound, TooBig
from holdfast.items.item import Item
from holdfast.items.items import Items
from holdfast.items.token import read_token
from holdfast.records.items import CLAIMED_ITEM, ENDED_ITEM, RENEWED_ITEM, STORED_ITEM
from holdfast.redis_work_queue.shared_item import SharedItem
from holdfast.redis_work_queue.shared_items import SharedItems


@click.group(
    "items", cls=Group,
    examples=(
        "holdfast items put mail 'to ann'",
        "token=$(holdfast items claim mail --wait 1m --payload letter)",
        'holdfast items complete "$token"',
    ),
)  # fmt: skip
def items() -> None:
    """Put and claim items: bytes in a queue, without tasks and workers.

    `claim` prints a token. Its holder renews the item before the lease ends, and completes, fails or releases it, in
    any process on any machine. An item whose lease ends can be claimed again.
    """


_queue = click.argument("queue", shell_complete=complete_queue)
_token = click.argument("token")


def _file(option: str, help: str, mode: str = "rb", target: str = "file") -> Decorator:
    return click.option(option, target, type=click.File(mode, lazy=False), metavar="FILE", help=help)


@command(
    "put",
    "holdfast items put mail 'to ann' --id mail-17",
    "holdfast items put scans --file page.png --retries 5 --delay 1m",
    "find . -name '*.png' | holdfast items put resize --lines --fresh",
    "holdfast items put thumbs --file page.png --protocol redis-work-queue --prefix p",
    output=STORED_ITEM,
)
@_queue
@click.argument("text", required=False, metavar="[TEXT]")
@_file("--file", "Read its bytes from this file; - is standard input.")
@click.option("--lines", is_flag=True, help="Store an item for each line.")
@click.option("--fresh", is_flag=True, help="With --lines: faster, for items that cannot exist yet.")
@protocol_options()
@job_options(["id", "unique", "priority", "delay", "retries", "keep", "at_most_once", "fields", "tags", "scope"])
@pass_client
def put(client: Client, /, queue: str, text: str | None, file: BinaryIO | None, **options: Any) -> None:
    """Store an item, and print its id.

    Its payload is TEXT, or the bytes of --file or of standard input.
    """
    protocol, prefix = options.pop("protocol"), options.pop("prefix")
    source = _source(text, file)
    if options["fresh"] and not options["lines"]:
        raise click.UsageError("--fresh needs --lines.")
    if options["lines"] and options["id"] is not None:
        raise click.UsageError("--id is for one item; with --lines each item gets its own id.")
    check_prefix(protocol, prefix)
    if protocol:
        put_shared(client, shared_items(client.app_starting_server, queue, prefix), source, options, STORED_ITEM)
        return
    lines, fresh = options.pop("lines"), options.pop("fresh")
    given, into = given_options(options), client.app_starting_server.items(queue)
    if lines:
        remaining = _lines(source)
        while chunk := list(islice(remaining, MAX_BATCH)):
            for job in into.put_many(chunk, fresh=fresh, **given):
                client.output.stream({"id": job.id, "created": job.created}, STORED_ITEM)
        return
    job = into.put(source.read(MAX_PAYLOAD + 1), **given)
    client.output.value({"id": job.id, "created": job.created}, "id")
    if not job.created:
        print_note(f"item {job.id} already exists; nothing was stored")


def _source(text: str | None, file: BinaryIO | None) -> BinaryIO:
    if text is not None and file is not None:
        raise click.UsageError("TEXT and --file cannot be combined: each is the payload of the item; remove one.")
    if text is not None:
        return BytesIO(text.encode())
    if file is not None:
        return file
    if sys.stdin is None or sys.stdin.isatty():
        raise click.UsageError("expected the payload: give TEXT or --file FILE, or pipe it in.")
    return sys.stdin.buffer


def _lines(source: BinaryIO) -> Iterator[bytes]:
    while line := source.readline(MAX_PAYLOAD + 2):
        if len(line.removesuffix(b"\n")) > MAX_PAYLOAD:
            raise TooBig(f"a line is over {MAX_PAYLOAD} bytes, the limit of an item")
        yield line.removesuffix(b"\n")


@command(
    "claim",
    "token=$(holdfast items claim mail --payload letter)",
    "holdfast items claim mail --wait 1m --lease 10m --json | jq -r '.token, .payload'",
    "holdfast items claim mail --payload - --token token | ./send",
    "token=$(holdfast items claim thumbs --protocol redis-work-queue --prefix p --payload image)",
    output=CLAIMED_ITEM,
)
@_queue
@duration_option("--wait", help="How long to wait for an item.", default="0s")
@duration_option(
    "--lease", help="Length of the lease. Default: the setting of the queue.", minimum=MIN_LEASE, maximum=MAX_LEASE
)
@_file("--payload", "Write its bytes to this file; - is standard output.", "wb", "payload")
@_file("--token", "Write the token to this file instead of standard output.", "wb", "token")
@protocol_options()
@pass_client
def claim(
    client: Client, queue: str, *, wait: timedelta, lease: timedelta | None,
    payload: BinaryIO | None, token: BinaryIO | None, protocol: str | None, prefix: str | None,
) -> None:  # fmt: skip
    """Claim the next item, and print its token.

    Exit code 3 if there is none. With --json, an object that also has the payload: as text, or as {"base64": ...}. An
    item that cannot be written is released.
    """
    _check_streams(client, payload, token)
    check_prefix(protocol, prefix)
    source: Items | SharedItems = shared_items(client.app, queue, prefix) if protocol else client.app.items(queue)
    item = source.claim(wait=wait, lease=lease)
    if not item:
        raise NotFound(f"queue {queue} has no item to claim")
    text = item.detach()
    try:
        _write_claimed(client, item, text, payload, token)
    except OSError:
        if isinstance(source, Items):
            source.release(text, reason="the claimed item could not be written", unstarted=True)
        else:
            source.release(text)
        raise


def _check_streams(client: Client, payload: BinaryIO | None, token: BinaryIO | None) -> None:
    """Refuse two outputs on one stream, before anything is claimed."""
    is_json = client.output.mode == "json"
    for option, file in (("--payload", payload), ("--token", token)):
        if file is not None and file.fileno() == 1 and is_json:
            raise click.UsageError(
                f"{option} - and --json cannot be combined: both write to standard output; remove one."
            )
    if payload is not None and payload.fileno() == 1 and (token is None or token.fileno() == 1):
        raise click.UsageError("--payload - needs --token FILE: standard output cannot have both.")


def _write_claimed(
    client: Client, item: Item | SharedItem, token: str, payload: BinaryIO | None, token_file: BinaryIO | None
) -> None:
    """Write an item: its bytes before its token, so that the holder of the token has both."""
    if payload is not None:
        payload.write(item.payload)
        payload.flush()
    if token_file is not None:
        token_file.write(f"{token}\n".encode())
        token_file.flush()
    if token_file is None or client.output.mode == "json":
        client.output.value(CLAIMED_ITEM.record(item, token=token), "token")
    sys.stdout.flush()


def _shared(client: Client, token: str, given: object = None, what: str = "") -> SharedClaim | None:
    """Return what a token of a shared queue is for, and refuse what its protocol does not have; None: another token."""
    shared = read_shared_token(client.app, token)
    if shared and given is not None:
        raise click.UsageError(f"{what} cannot be stored: an item of redis-work-queue has only an id and bytes.")
    return shared


def _items_of(client: Client, token: str) -> tuple[Items, str]:
    """Return the items of a token's queue, and the id in the token."""
    found = read_token(token)
    return client.app.items(found.queue), found.id


@command(
    "renew",
    'holdfast items renew "$token"',
    'while holdfast items renew "$token" | grep -q renewed; do sleep 10; done &',
    output=RENEWED_ITEM,
)
@_token
@_file("--data", "Save the bytes of this file for the next attempt; - is standard input.", "rb", "data")
@pass_client
def renew(client: Client, token: str, data: BinaryIO | None) -> None:
    """Renew the lease of a claimed item.

    Prints `renewed`, or `cancelled` if the item was cancelled: stop, and release it. Exit code 1 if the lease was lost:
    stop, as somebody else may have the item.
    """
    if shared := _shared(client, token, data, "--data"):
        shared.items.renew(token)
        client.output.value({"id": shared.id, "cancelled": False, "state": "renewed"}, "state")
        return
    source, id = _items_of(client, token)
    is_cancelled = source.renew(token, None if data is None else data.read(MAX_PAYLOAD + 1))
    if client.output.mode == "json":
        client.output.json({"id": id, "cancelled": is_cancelled})
    else:
        client.output.value({"state": "cancelled" if is_cancelled else "renewed"}, "state")


@command(
    "complete",
    'holdfast items complete "$token"',
    'holdfast items complete "$token" "sent to 3"',
    './thumbnail page.png | holdfast items complete "$token" --file -',
    output=ENDED_ITEM,
)
@_token
@click.argument("text", required=False, metavar="[RESULT]")
@_file("--file", "Read its result from this file; - is standard input.")
@pass_client
def complete(client: Client, token: str, text: str | None, file: BinaryIO | None) -> None:
    """Complete a claimed item.

    Exactly one caller succeeds. Exit code 1 if the item has ended, or its lease was lost.
    """
    if text is not None and file is not None:
        raise click.UsageError("RESULT and --file cannot be combined: each is the result of the item; remove one.")
    if shared := _shared(client, token, text if file is None else file, "a result"):
        shared.items.complete(token)
        client.output.one({"id": shared.id, "ended": "completed"}, ENDED_ITEM)
        return
    source, id = _items_of(client, token)
    source.complete(token, file.read(MAX_PAYLOAD + 1) if file is not None else (text or "").encode())
    client.output.one({"id": id, "ended": "completed"}, ENDED_ITEM)


@command(
    "fail",
    'holdfast items fail "$token" "no route"',
    'holdfast items fail "$token" "no such address" --final',
    output=ENDED_ITEM,
)
@_token
@click.argument("reason", metavar="REASON")
@click.option("--final", is_flag=True, help="Do not retry it.")
@duration_option("--delay", help="Time before it can be claimed again, instead of its backoff.", maximum=MAX_DURATION)
@pass_client
def fail(client: Client, token: str, reason: str, *, final: bool, delay: timedelta | None) -> None:
    """Fail a claimed item; it can be claimed again while it has retries.

    Exit code 1 if the item has ended, or its lease was lost.
    """
    if _shared(client, token):
        raise click.UsageError(
            "an item of redis-work-queue cannot fail: release it, or do nothing, and it comes back after its lease."
        )
    source, id = _items_of(client, token)
    source.fail(token, reason, final=final, delay=delay)
    client.output.one({"id": id, "ended": "failed"}, ENDED_ITEM)


@command(
    "release",
    'holdfast items release "$token" --unstarted',
    'holdfast items release "$token" --delay 10m --reason "the shop is closed"',
    output=ENDED_ITEM,
)
@_token
@duration_option("--delay", help="Time before it can be claimed again.", default="0s", maximum=MAX_DURATION)
@click.option("--reason", default="released", help="Reason, stored with the attempt.")
@click.option(
    "--unstarted",
    is_flag=True,
    help="State that no work was done, so that even an at-most-once item can be claimed again.",
)
@pass_client
def release(client: Client, token: str, delay: timedelta, reason: str, *, unstarted: bool) -> None:
    """Requeue a claimed item without charging a retry; a cancelled one ends.

    Exit code 1 if the item has ended, or its lease was lost.
    """
    if shared := _shared(client, token, delay or None, "--delay"):
        shared.items.release(token)
        client.output.one({"id": shared.id, "ended": "released"}, ENDED_ITEM)
        return
    source, id = _items_of(client, token)
    source.release(token, delay=delay, reason=reason, unstarted=unstarted)
    client.output.one({"id": id, "ended": "released"}, ENDED_ITEM)


for each in (put, claim, renew, complete, fail, release, clean, length):
    items.add_command(each)
