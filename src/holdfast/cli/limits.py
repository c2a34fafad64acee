"""`holdfast limits`: how many jobs run at once or start in a period, and the shares of a queue."""

from __future__ import annotations

from datetime import timedelta
from operator import attrgetter

import click

from holdfast.cli.client import Client, pass_client
from holdfast.cli.command import Group, command
from holdfast.cli.completers import complete_limit, complete_queue
from holdfast.cli.errors import print_note
from holdfast.cli.formatting import capacity, duration_text
from holdfast.cli.options import Integer, duration_option
from holdfast.cli.suggestions import find, find_queue, note_undefined
from holdfast.cli.table import Record, Table, changed_column, column, done_column, field
from holdfast.cli.watch import show_list, watch_option
from holdfast.constants import MAX_SHARE_WEIGHT
from holdfast.store.commands import Limit
from holdfast.text import pluralize

MAX_NOTES = 10  # about limits that are not defined

_NAME = column("limit", "name of the limit", attrgetter("name"), whole=True)
_SLOTS_HELP = "number of jobs that run at once, or start in a period"
_PERIOD_HELP = "length of the period; null if the limit counts running jobs"

LIMITS = Table(
    "limit",
    _NAME,
    column(
        "slots", f"{_SLOTS_HELP}; null if the limit is not defined",
        lambda limit: limit.slots if limit.is_defined else None,
        show=lambda record, _: record["slots"] or "not defined", right=True, whole=True,
    ),
    column(
        "per_seconds", _PERIOD_HELP, lambda limit: limit.per / 1000 if limit.per else None, title="PERIOD",
        show=lambda record, _: duration_text(record["per_seconds"]), right=True,
    ),
    column("held", "number of jobs that hold a slot", right=True),
    column("parked", "number of jobs that wait for a slot", right=True),
    column("keys", "number of keys with waiting jobs; jobs without a key count as one key", right=True),
)  # fmt: skip
LIMIT_SET = Table(
    "limit",
    _NAME,
    column(
        "slots", _SLOTS_HELP, title="",
        show=lambda record, _: capacity(record["slots"], round((record["per_seconds"] or 0) * 1000)),
    ),
    field("per_seconds", _PERIOD_HELP),
    changed_column(),
)  # fmt: skip
LIMIT_REMOVED = Table("limit", _NAME, done_column("removed"))
SHARE_SET = Table(
    "share",
    column("queue", "name of the queue", whole=True),
    column("share", "key of the share", whole=True),
    column("weight", "turns of the share for each turn of another", right=True),
    changed_column(),
)


@click.group(
    "limits", cls=Group, default="list",
    examples=("holdfast limits", "holdfast limits set gpu 2", "holdfast limits set api 5 --per 1s"),
)  # fmt: skip
def limits() -> None:
    """Limit how many jobs run at once or start in a period.

    Without a command, limits are listed. Jobs name their limits: `enqueue --limit api`, or `--limit api:acme` to count
    by a key.
    """


_name = click.argument("name", shell_complete=complete_limit)


@command(
    "list", "holdfast limits", "holdfast limits --json | jq '.[] | select(.parked > 0) | .limit'", output=LIMITS
)  # fmt: skip
@watch_option("Refresh until Ctrl-C; in a pipe, print the limits that change.")
@pass_client
def list_limits(client: Client, watching: bool) -> None:
    """List limits, and how many jobs hold or wait for a slot.

    `held` and `parked` count all keys together. A limit that jobs have named within the last week but that is not
    defined is listed as such, and does not apply. Its name may be misspelt: define it with `limits set`, or drop it
    with `limits remove`.
    """
    found: list[Limit] = []

    def load() -> list[Record]:
        found[:] = sorted(client.app.limits())
        return LIMITS.records(found)

    show_list(client.output, load, LIMITS, watching=watching)
    defined = [each.name for each in found if each.is_defined]
    note_undefined([each.name for each in found if not each.is_defined][:MAX_NOTES], defined)


@command("set", "holdfast limits set gpu 2", "holdfast limits set api 5 --per 1s", output=LIMIT_SET)
@_name
@click.argument("slots", type=Integer(1))
@duration_option("--per", help="Limit the starts in each period of this length, instead of running jobs.", minimum=1)
@pass_client
def set_limit(client: Client, name: str, slots: int, per: timedelta | None) -> None:
    """Define or change a limit.

    It applies to jobs that name it (`enqueue --limit NAME`); each key (`--limit NAME:KEY`) has SLOTS of its own. It
    applies at once, also to stored jobs; running jobs continue. A limit that is not defined does not apply.
    """
    changed = client.app_starting_server.set_limit(name, slots, per=per)
    period = None if per is None else per.total_seconds()
    client.output.one({"limit": name, "slots": slots, "per_seconds": period, "changed": changed}, LIMIT_SET)


@command("remove", "holdfast limits remove api", output=LIMIT_REMOVED)
@_name
@pass_client
def remove(client: Client, name: str) -> None:
    """Remove a limit; jobs that wait for it can start.

    Exit code 3 if the limit does not exist.
    """
    known: dict[str, Limit] = {each.name: each for each in client.app.limits()}
    parked = find("limit", known, name).parked
    client.app.remove_limit(name)
    client.output.one({"limit": name, "removed": True}, LIMIT_REMOVED)
    if parked:
        print_note(f"{pluralize(parked, 'job')} waited for it and can start now")


@command("share", "holdfast limits share mail acme 3", "holdfast limits share mail acme 3 --create", output=SHARE_SET)
@click.argument("queue", shell_complete=complete_queue)
@click.argument("share")
@click.argument("weight", type=Integer(1, MAX_SHARE_WEIGHT))
@click.option("--create", is_flag=True, help="Also if the queue has no jobs yet.")
@pass_client
def share(client: Client, queue: str, share: str, weight: int, create: bool) -> None:
    """Give a share of a queue more turns than other shares.

    SHARE is the key that jobs were enqueued with (`enqueue --share`). Shares of a queue take turns; a WEIGHT of 3 gives
    three turns for each turn of another. It applies to jobs that are enqueued from now on.

    Exit code 3 if the queue does not exist; --create sets the weight before its first job.
    """
    app = client.app_starting_server if create else client.app
    if not create:
        find_queue(app, queue)
    changed = app.set_share_weight(queue, share, weight)
    client.output.one({"queue": queue, "share": share, "weight": weight, "changed": changed}, SHARE_SET)


for each in (list_limits, set_limit, remove, share):
    limits.add_command(each)
