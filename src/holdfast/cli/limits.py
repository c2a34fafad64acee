"""`holdfast limits`: how many jobs run at once or start in a period, and the shares of a queue."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import click

from holdfast import Holdfast
from holdfast.cli.client import Client, pass_client
from holdfast.cli.command import Group, command
from holdfast.cli.completers import complete_ids, complete_limit, complete_queue
from holdfast.cli.errors import print_note
from holdfast.cli.options import Integer, duration_option, limit_option
from holdfast.cli.output import Fact, Output
from holdfast.cli.suggestions import find_queue, note_undefined
from holdfast.cli.watch import show_list, watch_option
from holdfast.client.finding import find
from holdfast.constants import MAX_DURATION, MAX_SHARE_WEIGHT
from holdfast.names import check_limit
from holdfast.records.formatting import capacity
from holdfast.records.limits import (
    LIMIT_DETAILS,
    LIMIT_REMOVED,
    LIMIT_SET,
    LIMITS,
    SHARE_SET,
    SLOT_RELEASED,
    capacity_text,
    declared_text,
    limit_details,
)
from holdfast.records.table import Record
from holdfast.store.commands import LimitStatus
from holdfast.text import pluralize

MAX_NOTES = 10  # about limits that are not defined

SHOWN = 20  # keys and jobs that `limits show` shows of each kind


@click.group(
    "limits", cls=Group, default="list",
    examples=("holdfast limits", "holdfast limits set gpu 2", "holdfast limits set api 5 --per 1s"),
)  # fmt: skip
def limits() -> None:
    """Limit how many jobs run at once or start in a period.

    Without a command, limits are listed. Jobs name their limits: `enqueue --limit api`, or `--limit api:acme` to count
    by a key. Apps may declare limits, too; workers define those when they start, and `limits set` overrides them.
    """


_name = click.argument("name", shell_complete=complete_limit)


@command(
    "list", "holdfast limits", "holdfast limits --json | jq '.[] | select(.parked > 0) | .limit'", output=LIMITS
)  # fmt: skip
@watch_option("Refresh until Ctrl-C; in a pipe, print the limits that change.")
@pass_client
def list_limits(client: Client, watching: bool) -> None:
    """List limits, and how many jobs hold or wait for a slot.

    `held` and `parked` count all keys together; `limits show` has the keys and the jobs. A limit that jobs have named
    within the last week but that is not defined is listed as such, and does not apply. Its name may be misspelt: define
    it with `limits set`, or drop it with `limits remove`.
    """
    found: list[LimitStatus] = []

    def load() -> list[Record]:
        found[:] = client.app.limits()
        return LIMITS.records(found)

    show_list(client.output, load, LIMITS, watching=watching)
    defined = [each.name for each in found if each.is_defined]
    note_undefined([each.name for each in found if not each.is_defined][:MAX_NOTES], defined)


@command(
    "show", "holdfast limits show api", "holdfast limits show api:acme --json | jq -r '.holders[].id'",
    output=LIMIT_DETAILS,
)  # fmt: skip
@click.argument("name", metavar="NAME[:KEY]", shell_complete=complete_limit)
@limit_option("Maximum number of keys, of holders, and of waiting jobs.", default=SHOWN)
@pass_client
def show(client: Client, name: str, limit: int) -> None:
    """Show who uses a limit: its keys, the jobs that hold a slot, and those that wait for one.

    Jobs are those of the limit as it is given: NAME shows jobs without a key, NAME:KEY those of a key. Waiting jobs are
    listed by queue, in the order in which they will start.

    Exit code 3 if the limit does not exist.
    """
    status = _find(client.app, check_limit(name).partition(":")[0])
    record, has_more = limit_details(client.app, status, name, limit)
    if client.output.mode == "json":
        client.output.json(record)
    else:
        client.output.facts(_describe(record, name, client.output))
    if has_more:
        print_note(f"shown are the first {limit} keys, holders and waiting jobs; --limit shows more")


def _describe(record: Record, limit: str, output: Output) -> Iterator[Fact]:
    yield Fact("limit", limit)
    yield Fact("slots", capacity_text(record) if record["slots"] else "not defined")
    if record["source"]:
        yield Fact("source", record["source"], "yellow" if record["source"] == "overridden" else "")
    if record["declared_slots"]:
        yield Fact("declared", declared_text(record))
    if record["expires_at"]:
        yield Fact("expires", output.when(record["expires_at"]))
    yield Fact("held", f"{record['held']}, of all keys")
    yield Fact("parked", f"{record['parked']}, of all keys")
    for use in record["usage"]:
        yield Fact(f"key {use['key']}" if use["key"] else "no key", f"{use['held']} held, {use['parked']} parked")
    for job in record["holders"]:
        yield Fact("holder", _job_line(job, f"on {job['executor']}", output))
    for job in record["waiting"]:
        yield Fact("waiting", _job_line(job, f"in queue {job['queue']}", output))


def _job_line(job: Record, where: str, output: Output) -> str:
    if job["since"] is None:
        return f"{job['id']}, whose record cannot be read"
    return f"{job['id']} {job['task']} {where}, since {output.when(job['since'])}"


def _find(app: Holdfast, name: str) -> LimitStatus:
    return find("limit", {each.name: each for each in app.limits()}, name)


@command(
    "set", "holdfast limits set gpu 2", "holdfast limits set api 5 --per 1s",
    "holdfast limits set api 1 --per 1s --ttl 1h", output=LIMIT_SET,
)  # fmt: skip
@_name
@click.argument("slots", type=Integer(1))
@duration_option(
    "--per", help="Limit the starts in each period of this length, instead of running jobs.", minimum=1,
    maximum=MAX_DURATION,
)  # fmt: skip
@duration_option(
    "--ttl", help="Apply for this long; then the declared limit applies again, or none.", minimum=1,
    maximum=MAX_DURATION,
)  # fmt: skip
@pass_client
def set_limit(client: Client, name: str, slots: int, per: timedelta | None, ttl: timedelta | None) -> None:
    """Define or change a limit.

    It applies to jobs that name it (`enqueue --limit NAME`); each key (`--limit NAME:KEY`) has SLOTS of its own. It
    applies at once, also to stored jobs; running jobs continue. A limit that is not defined does not apply.

    It overrides the limit that an app declares, also after workers restart, until `limits reset`, or until --ttl has
    passed. A limit that was set before does not return then.
    """
    changed = client.app_starting_server.set_limit(name, slots, per=per, ttl=ttl)
    status = _print(client, name, changed=changed)
    if status.declared:
        declared = capacity(status.declared.slots, status.declared.per)
        print_note(f"the app declares {declared}; `holdfast limits reset {name}` returns to it")
    elif ttl is not None:
        print_note(f"no app declares {name}: once this expires, nothing limits it, not even what was set before")


@command("reset", "holdfast limits reset api", output=LIMIT_SET)
@_name
@pass_client
def reset(client: Client, name: str) -> None:
    """Return to the limit that the app declares.

    Exit code 3 if the limit does not exist, 1 if no app declares it.
    """
    _find(client.app, name)
    _print(client, name, changed=client.app.reset_limit(name))


def _print(client: Client, name: str, *, changed: bool) -> LimitStatus:
    status = _find(client.app, name)
    client.output.one(LIMIT_SET.record(status, changed=changed), LIMIT_SET)
    return status


@command("remove", "holdfast limits remove api", output=LIMIT_REMOVED)
@_name
@pass_client
def remove(client: Client, name: str) -> None:
    """Remove a limit; jobs that wait for it can start.

    A limit that an app declares is defined again when a worker of the app starts. Exit code 3 if the limit does not
    exist.
    """
    status = _find(client.app, name)
    client.app.remove_limit(name)
    client.output.one({"limit": name, "removed": True}, LIMIT_REMOVED)
    if status.parked:
        print_note(f"{pluralize(status.parked, 'job')} waited for it and can start now")
    if status.declared:
        print_note(f"an app declares {name}: its workers define it again when they start")


@command("release", "holdfast limits release gpu:0 JOB", output=SLOT_RELEASED)
@click.argument("limit", metavar="NAME[:KEY]", shell_complete=complete_limit)
@click.argument("id", metavar="JOB", shell_complete=complete_ids)
@pass_client
def release(client: Client, limit: str, id: str) -> None:
    """Take a slot from a running job, which continues without it; the next waiting job gets the slot.

    Exit code 1 if the job does not hold a slot of this limit, or if the limit counts starts in a period: a start cannot
    be taken back.
    """
    client.app.release_slot(limit, id)
    client.output.one({"limit": limit, "id": id, "released": True}, SLOT_RELEASED)


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


for each in (list_limits, show, set_limit, reset, remove, release, share):
    limits.add_command(each)
