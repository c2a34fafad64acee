"""Commands on queues."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta

import click
import msgspec

from holdfast.cli.completers import complete_queue
from holdfast.cli.fields import FORGOTTEN, LOAD, PAUSED, QUEUE
from holdfast.cli.lookup import find_queue
from holdfast.cli.output import Column, write
from holdfast.cli.records import Record, queue_record
from holdfast.cli.session import Session, command, duration_option, pass_session
from holdfast.cli.text import length
from holdfast.cli.watch import View, follow_option, show_list
from holdfast.job.job import STATES


@command(
    "queues", "holdfast queues", "holdfast queues -f",
    "holdfast queues --json | jq '.[] | select(.failed > 0) | .queue'", fields=QUEUE,
)  # fmt: skip
@follow_option("Refresh until Ctrl-C; when piped, print the queues that change.")
@pass_session
def queues(session: Session, watch: bool) -> None:
    """List queues, with their numbers of jobs in each state.

    When piped, the columns are queue, paused or active, live workers, then the numbers of scheduled, waiting, blocked,
    throttled, running, succeeded, failed and cancelled jobs. With --json, an array; with --follow, an object on each
    line.
    """
    columns = [
        Column("QUEUE", lambda queue: queue["queue"], whole=True),
        Column("", lambda queue: "paused" if queue["paused"] else "active", coloured=True),
        Column("WORKERS", lambda queue: queue["listeners"], right=True, whole=True),
        *(Column(state.upper(), lambda queue, state=state: queue[state], right=True) for state in STATES),  # type: ignore[misc]
    ]

    def look() -> View:
        return View([queue_record(queue) for queue in session.app.queues()])

    show_list(session.output, look, columns, "queue", watch=watch)


@command("pause", "holdfast pause mail", "holdfast pause mail --create", fields=PAUSED)
@click.argument("queue", shell_complete=complete_queue)
@click.option("--create", is_flag=True, help="Also a queue that has no jobs yet.")
@pass_session
def pause(session: Session, queue: str, create: bool) -> None:
    """Start no more jobs of a queue; those that run go on.

    Exit code 3 if there is no such queue: with --create it is paused before its first job comes.
    """
    if not create:
        find_queue(session.app, queue)
    _say_paused(session, queue, changed=session.app.pause(queue), paused=True)


@command("resume", "holdfast resume mail", fields=PAUSED)
@click.argument("queue", shell_complete=complete_queue)
@pass_session
def resume(session: Session, queue: str) -> None:
    """Start jobs of a paused queue again. Exit code 3 if there is no such queue."""
    find_queue(session.app, queue)
    _say_paused(session, queue, changed=session.app.resume(queue), paused=False)


@command("forget", "holdfast forget mail", fields=FORGOTTEN)
@click.argument("queue", shell_complete=complete_queue)
@pass_session
def forget(session: Session, queue: str) -> None:
    """Forget a queue that has no jobs.

    That is its name, its settings, and that it is paused. Exit code 1 if it has jobs, 3 if there is no such queue.
    """
    if not session.app.forget(queue):
        find_queue(session.app, queue)
    columns = [Column("QUEUE", lambda row: row["queue"], whole=True), Column("", lambda _: "forgotten")]
    session.output.one({"queue": queue, "forgotten": True}, columns)


@command(
    "load", "holdfast load", "holdfast load mail video --target 30s", "holdfast load --needed",
    "holdfast load mail --json | jq .needed", fields=LOAD,
)  # fmt: skip
@click.argument("names", nargs=-1, metavar="[QUEUE...]", shell_complete=complete_queue)
@duration_option("--target", "Within which time a job is to start.", default="1m", show_default=True, least=1)
@click.option("--needed", is_flag=True, help="Print only how many jobs have to run at once, in all.")
@pass_session
def load(session: Session, names: Sequence[str], target: timedelta, needed: bool) -> None:
    """Say how much work queues have, to scale workers by.

    Printed is how many jobs have to run at once. So many are needed that what waits, and what will come, starts within
    --target: divide it by --processes or --concurrency of your workers. Numbers are exact, rates those of the last five
    minutes. A queue that is not there needs none. When piped, the columns are queue, needed, workers that serve it,
    jobs that wait, run, are scheduled, blocked and throttled, what is overdue, seconds that the first waits, jobs per
    second that come and that end, seconds that a job takes, and paused if it is. With --json, an object: `needed` is
    what KEDA or a script looks at. It is at least 1 while something of a queue is overdue, which only workers move (or
    `holdfast upkeep`): so it is right without any worker.
    """
    found = [msgspec.structs.asdict(each) for each in session.app.load(*names, target=target)]
    total = sum(each["needed"] for each in found)
    if session.output.mode == "json":
        seconds = target.total_seconds()
        session.output.json(
            {"needed": total, "target_seconds": seconds, "overdue": session.app.overdue(), "queues": found}
        )
    elif needed:
        write(str(total))
    else:
        session.output.list(found, _load_columns(session.output.mode == "table"), "no queues")


def _load_columns(on_terminal: bool) -> list[Column]:
    """Durations and rates are for people in few digits."""

    def number(name: str, spell: Callable[[float], str]) -> Column:
        def value(row: Record) -> str:
            if row[name] is None:
                return ""
            return spell(row[name]) if on_terminal else f"{row[name]:.3f}"

        return Column(name.upper().replace("_", " "), value, right=True)

    counts = ("waiting", "running", "scheduled", "blocked", "throttled", "overdue")
    rate = "{:.3g}/s".format
    return [
        Column("QUEUE", lambda row: row["queue"], whole=True),
        Column("NEEDED", lambda row: row["needed"], right=True, whole=True),
        Column("WORKERS", lambda row: row["workers"], right=True, whole=True),
        *(Column(each.upper(), lambda row, each=each: row[each], right=True) for each in counts),  # type: ignore[misc]
        number("oldest", length), number("arriving", rate), number("ending", rate), number("run_time", length),
        Column("", lambda row: "paused" if row["paused"] else "", coloured=True),
    ]  # fmt: skip


def _say_paused(session: Session, queue: str, *, changed: bool, paused: bool) -> None:
    columns = [
        Column("QUEUE", lambda row: row["queue"], whole=True),
        Column("", lambda row: "paused" if row["paused"] else "active", coloured=True),
        Column("", lambda row: "" if row["changed"] else "it was so before"),
    ]
    session.output.one({"queue": queue, "paused": paused, "changed": changed}, columns)
