"""Commands on limits, and on the shares of a queue."""

from __future__ import annotations

from datetime import timedelta

import click

from holdfast.cli.complaints import note
from holdfast.cli.completers import complete_limit, complete_queue
from holdfast.cli.fields import CHANGED_LIMIT, LIMIT, UNLIMITED, WEIGHED
from holdfast.cli.lookup import note_new_queue, note_undefined, pick
from holdfast.cli.output import Column
from holdfast.cli.records import limit_record
from holdfast.cli.session import Session, command, duration_option, pass_session
from holdfast.cli.text import allowance, seconds_text
from holdfast.cli.watch import View, follow_option, show_list
from holdfast.constants import MAX_SHARE_WEIGHT
from holdfast.store.commands import Limit

MAX_NOTES = 10  # of limits that nobody has defined


@command(
    "limits", "holdfast limits", "holdfast limits --json | jq '.[] | select(.parked > 0) | .limit'", fields=LIMIT
)  # fmt: skip
@follow_option("Refresh until Ctrl-C; when piped, print the limits that change.")
@pass_session
def limits(session: Session, watch: bool) -> None:
    """List limits: how many jobs each lets run, and how many wait.

    Jobs say in which limits they take part: `enqueue --limit api`, or `--limit api:acme` to be counted by a key. Those
    that are held and parked are counted without a key; so many keys of the limit have parked jobs. When piped, the
    columns are limit, slots, period, held, parked, keys. With --json, an array; with --follow, an object on each line.

    A limit that jobs took part in within the last week and nobody has defined has no slots: it does not hold. Its name
    may be misspelt; define it with `limit`, or have it forgotten with `unlimit`.
    """
    columns = [
        Column("LIMIT", lambda row: row["limit"], whole=True),
        Column("SLOTS", lambda row: row["slots"] or "not defined", right=True, whole=True),
        Column("PERIOD", lambda row: seconds_text(row["per_seconds"]), right=True),
        *(Column(name.upper(), lambda row, name=name: row[name], right=True) for name in ("held", "parked", "keys")),  # type: ignore[misc]
    ]

    found: list[Limit] = []

    def look() -> View:
        found[:] = sorted(session.app.limits())
        return View([limit_record(each) for each in found])

    show_list(session.output, look, columns, "limit", watch=watch)
    known = [each.name for each in found if each.is_defined]
    note_undefined([each.name for each in found if not each.is_defined][:MAX_NOTES], known)


@command("limit", "holdfast limit gpu 2", "holdfast limit api 5 --per 1s", fields=CHANGED_LIMIT)
@click.argument("name", shell_complete=complete_limit)
@click.argument("slots", type=click.IntRange(1))
@duration_option("--per", "So many in each such period, instead of at once: 1s, 1h.", least=1)
@pass_session
def limit(session: Session, name: str, slots: int, per: timedelta | None) -> None:
    """Limit how many jobs run at once, or start in a period (--per).

    It holds for jobs that take part in it: `enqueue --limit NAME`; each key (`--limit NAME:KEY`) has so many of its
    own. It holds from now on, also for jobs that are stored already; those that run go on. A limit that nobody has
    defined does not hold.
    """
    changed = session.new_app.set_limit(name, slots, per=per)
    period = None if per is None else per.total_seconds()
    columns = [
        Column("LIMIT", lambda row: row["limit"], whole=True),
        Column("", lambda _: allowance(slots, per // timedelta(milliseconds=1) if per else 0)),
        Column("", lambda row: "" if row["changed"] else "it was so before"),
    ]
    session.output.one({"limit": name, "slots": slots, "per_seconds": period, "changed": changed}, columns)


@command("unlimit", "holdfast unlimit api", fields=UNLIMITED)
@click.argument("name", shell_complete=complete_limit)
@pass_session
def unlimit(session: Session, name: str) -> None:
    """Remove a limit; jobs that wait for it start as others do. Exit code 3 if there is no such limit."""
    known: dict[str, Limit] = {each.name: each for each in session.app.limits()}
    pick("limit", known, name)
    session.app.remove_limit(name)
    columns = [Column("LIMIT", lambda row: row["limit"], whole=True), Column("", lambda _: "removed")]
    session.output.one({"limit": name, "removed": True}, columns)
    if known[name].parked:
        note(f"{known[name].parked:,} jobs waited for it; they start now")


@command("weigh", "holdfast weigh mail acme 3", fields=WEIGHED)
@click.argument("queue", shell_complete=complete_queue)
@click.argument("share")
@click.argument("weight", type=click.IntRange(1, MAX_SHARE_WEIGHT))
@pass_session
def weigh(session: Session, queue: str, share: str, weight: int) -> None:
    """Give the jobs of a share more of a queue than others get.

    A SHARE is what jobs were given with `enqueue --share`. Those of different shares take turns; a WEIGHT of 3 gives
    three turns for each of the others. It holds for jobs that come from now on.
    """
    note_new_queue(session.new_app, queue)
    changed = session.new_app.set_share_weight(queue, share, weight)
    columns = [
        Column("QUEUE", lambda row: row["queue"], whole=True),
        Column("SHARE", lambda row: row["share"], whole=True),
        Column("WEIGHT", lambda row: row["weight"], right=True),
        Column("", lambda row: "" if row["changed"] else "it was so before"),
    ]
    session.output.one({"queue": queue, "share": share, "weight": weight, "changed": changed}, columns)
