"""Commands on workers, and on the machines that they run on."""

from __future__ import annotations

from collections.abc import Sequence

import click

from holdfast.cli.completers import complete_worker
from holdfast.cli.fields import NODE, WORKER
from holdfast.cli.lookup import pick
from holdfast.cli.output import Column
from holdfast.cli.records import Record, node_record, worker_record
from holdfast.cli.session import Session, command, pass_session
from holdfast.cli.text import length, size
from holdfast.cli.watch import View, follow_option, show_list

VOLATILE = ("seen_at", "memory_bytes", "cpu_seconds")
MOST_IDS = 3  # that a terminal shows


@command(
    "workers", "holdfast workers -f", "holdfast workers --json | jq -r '.[].jobs[].id'",
    "holdfast workers --forget node7/0Qw-12", "holdfast workers --idle", fields=WORKER,
)  # fmt: skip
@click.option("--idle", is_flag=True, help="Only those that are live and have nothing to do.")
@click.option("--forget", metavar="WORKER", shell_complete=complete_worker, help="Forget a worker that is gone.")
@follow_option("Refresh until Ctrl-C; when piped, print the workers that change.")
@pass_session
def workers(session: Session, forget: str | None, *, idle: bool, watch: bool) -> None:
    """List workers: which are live, what they serve, need and hold.

    Those that were heard of last come first. A worker that gives no sign of life is silent; after a day it is
    forgotten, with --forget at once (exit code 1 if it is live or holds jobs, 3 if there is none). When piped, the
    columns are worker, state (live, draining or silent), last seen, since when it runs, process id, app, queues, memory
    in bytes, seconds of CPU, and the ids of the jobs. With --json, an array; with --follow, an object on each line.
    """
    if forget:
        return _forget(session, forget)
    on_terminal = session.output.mode == "table"

    def held(worker: Record) -> Sequence[str]:
        ids = [job["id"] for job in worker["jobs"]]
        return [*ids[:MOST_IDS], f"and {len(ids) - MOST_IDS} more"] if on_terminal and len(ids) > MOST_IDS else ids

    columns = [
        Column("WORKER", lambda worker: worker["worker"], whole=True),
        *_signs(),
        Column("SINCE", lambda worker: worker["started_at"], right=True),
        Column("PID", lambda worker: worker["pid"], right=True),
        Column("APP", lambda worker: worker["app"]),
        *([Column("EXEC", lambda worker: "yes" * worker["allow_exec"], right=True)] if on_terminal else []),
        Column("QUEUES", lambda worker: _served(worker) if on_terminal else worker["queues"]),
        *_needs(on_terminal),
        Column("JOBS", held),
    ]
    look = lambda: View([worker_record(each) for each in session.app.workers() if each.is_idle or not idle])  # noqa: E731 - said once
    return show_list(session.output, look, columns, "worker", watch=watch, volatile=VOLATILE)


@command("nodes", "holdfast nodes", "holdfast nodes --json | jq '.[] | select(.live | not) | .node'", fields=NODE)
@follow_option("Refresh until Ctrl-C; when piped, print the nodes that change.")
@pass_session
def nodes(session: Session, watch: bool) -> None:
    """List the machines that workers run on.

    When piped, the columns are node, live or silent, last seen, the numbers of its workers and of the jobs that they
    hold, queues, memory in bytes and seconds of CPU. With --json, an array; with --follow, an object on each line.
    """
    on_terminal = session.output.mode == "table"
    columns = [
        Column("NODE", lambda node: node["node"], whole=True),
        *_signs(),
        Column("WORKERS", lambda node: len(node["workers"]), right=True),
        Column("JOBS", lambda node: len(node["jobs"]), right=True),
        Column("QUEUES", lambda node: node["queues"]),
        *_needs(on_terminal),
    ]
    look = lambda: View([node_record(each) for each in session.app.nodes()])  # noqa: E731 - said once
    show_list(session.output, look, columns, "node", watch=watch, volatile=VOLATILE)


def _signs() -> list[Column]:
    return [
        Column("STATE", _state, coloured=True, whole=True),
        Column("SEEN", lambda each: each["seen_at"], right=True),
    ]


def _needs(on_terminal: bool) -> list[Column]:
    """What processes need: for people in large units, for programs in the smallest."""
    return [
        Column("MEMORY", lambda each: _size(each["memory_bytes"], on_terminal), right=True),
        Column("CPU", lambda each: _seconds(each["cpu_seconds"], on_terminal), right=True),
    ]


def _state(each: Record) -> str:
    return ("draining" if each.get("draining") else "live") if each["live"] else "silent"


def _served(worker: Record) -> Sequence[str]:
    """For people: what a worker was told, and if there are patterns, what it serves now."""
    told: list[str] = worker["told"]
    now: list[str] = worker["queues"]
    if told == now:
        return now
    more = f" and {len(now) - MOST_IDS} more" if len(now) > MOST_IDS else ""
    return [f"{','.join(told)} (now {','.join(now[:MOST_IDS]) or 'none'}{more})"]


def _size(count: int, on_terminal: bool) -> str:
    return str(count) if not on_terminal else size(count) if count else ""


def _seconds(count: float, on_terminal: bool) -> str:
    return f"{count:.1f}" if not on_terminal else length(count) if count else ""


def _forget(session: Session, name: str) -> None:
    pick("worker", {worker.name: worker for worker in session.app.workers()}, name)
    session.app.deregister(name)
    session.output.list([{"worker": name, "forgotten": True}], [Column("WORKER", lambda row: row["worker"])], "")
