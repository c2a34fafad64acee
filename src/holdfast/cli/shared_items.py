"""Items of queues that other programs use, too: what `holdfast items --protocol redis-work-queue` does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, BinaryIO, Final, NamedTuple

import click

from holdfast.app import Holdfast
from holdfast.cli.client import Client, pass_client
from holdfast.cli.command import command
from holdfast.cli.completers import complete_queue
from holdfast.cli.errors import print_note
from holdfast.cli.options import Decorator, F
from holdfast.constants import MAX_BATCH
from holdfast.records.items import CLEANED_QUEUE, LENGTHS, printable_id
from holdfast.records.table import Table
from holdfast.redis_work_queue.shared_items import SharedItems, StoredItem
from holdfast.redis_work_queue.token import PREFIX, SharedToken, read_token

REDIS_WORK_QUEUE: Final = "redis-work-queue"


def protocol_options(*, required: bool = False) -> Decorator:
    """Declare --protocol and --prefix."""
    help = "Use the keys of this protocol, which other programs share."

    def declare(function: F) -> F:
        function = click.option("--prefix", help="With --protocol: prefix of the keys. Default: the queue.")(function)
        return click.option("--protocol", type=click.Choice([REDIS_WORK_QUEUE]), required=required, help=help)(function)

    return declare


def shared_items(app: Holdfast, queue: str, prefix: str | None) -> SharedItems:
    return app.items(queue, protocol=REDIS_WORK_QUEUE, prefix=prefix)


def check_prefix(protocol: str | None, prefix: str | None) -> None:
    if prefix is not None and protocol is None:
        raise click.UsageError(f"--prefix needs --protocol {REDIS_WORK_QUEUE}.")


class SharedClaim(NamedTuple):
    """The items of a token's queue, and the id in the token."""

    items: SharedItems
    id: str


def read_shared_token(app: Holdfast, text: str) -> SharedClaim | None:
    """Return what a token is for; None if it is that of an item without a protocol."""
    if not text.startswith(PREFIX):
        return None
    token: SharedToken = read_token(text)
    return SharedClaim(app.items(token.queue, protocol=REDIS_WORK_QUEUE, prefix=token.prefix), printable_id(token.id))


def put(client: Client, into: SharedItems, source: BinaryIO, options: Mapping[str, Any], table: Table) -> None:
    """Store an item, or one for each line. Options of jobs do not apply."""
    lines, fresh, id = options["lines"], options["fresh"], options["id"]
    for name, value in options.items():
        if name not in ("lines", "fresh", "id") and value not in (None, ()):
            option = {"tags": "tag", "fields": "field"}.get(name, name)
            raise click.UsageError(
                f"--{option.replace('_', '-')} cannot be combined with --protocol: an item of {REDIS_WORK_QUEUE} has "
                "only an id and bytes."
            )
    if not lines:
        stored = into.put(source.read(), id=id)
        client.output.value({"id": printable_id(stored.id), "created": stored.created}, "id")
        if not stored.created:
            print_note(f"item {printable_id(stored.id)} already exists; nothing was stored")
        return
    remaining = _lines(source)
    while chunk := list(islice(remaining, MAX_BATCH)):
        for each in into.put_many(chunk, fresh=fresh):
            client.output.stream(_record(each), table)


def _record(stored: StoredItem) -> dict[str, Any]:
    return {"id": printable_id(stored.id), "created": stored.created}


def _lines(source: BinaryIO) -> Iterator[bytes]:
    while line := source.readline():
        yield line.removesuffix(b"\n")


@command(
    "clean",
    "holdfast items clean thumbs --protocol redis-work-queue --prefix p",
    "holdfast items clean thumbs --protocol redis-work-queue --deep",
    output=CLEANED_QUEUE,
)
@click.argument("queue", shell_complete=complete_queue)
@protocol_options(required=True)
@click.option("--deep", is_flag=True, help="Also find items that are in no list: scan all keys.")
@pass_client
def clean(client: Client, queue: str, *, protocol: str, prefix: str | None, deep: bool) -> None:  # noqa: ARG001
    """Put abandoned items of a shared queue back.

    An item is abandoned if nobody has a lease on it, as seen twice within a second. Items without --protocol need no
    cleaning.
    """
    back = shared_items(client.app, queue, prefix).clean(deep=deep)
    client.output.one({"queue": queue, "put_back": back}, CLEANED_QUEUE)


@command(
    "length",
    "holdfast items length thumbs --protocol redis-work-queue --prefix p",
    output=LENGTHS,
)
@click.argument("queue", shell_complete=complete_queue)
@protocol_options(required=True)
@pass_client
def length(client: Client, queue: str, *, protocol: str, prefix: str | None) -> None:  # noqa: ARG001
    """Show how many items of a shared queue wait and are in progress.

    `holdfast queues` shows this of items without --protocol.
    """
    items = shared_items(client.app, queue, prefix)
    client.output.one({"queue": queue, "length": items.length(), "in_progress": items.in_progress()}, LENGTHS)
