"""Draining workers: they claim no more, and end when their jobs have."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from datetime import timedelta

import click

from holdfast.cli.complaints import note
from holdfast.cli.completers import complete_live_worker, complete_node
from holdfast.cli.fields import DRAINED
from holdfast.cli.lookup import pick
from holdfast.cli.output import Column
from holdfast.cli.session import Session, command, duration_option, pass_session
from holdfast.errors import ResultTimeout
from holdfast.store.commands import Worker

LOOK_EVERY = 0.5  # seconds
COLUMNS = [
    Column("WORKER", lambda row: row["worker"], whole=True),
    Column("STATE", lambda row: row["state"], coloured=True),
    Column("JOBS", lambda row: row["jobs"], right=True),
]


@command(
    "drain", "holdfast drain node7/0QwErTyU", "holdfast drain --node node7 --wait",
    "holdfast workers --idle | cut -f1 | xargs holdfast drain", fields=DRAINED,
)  # fmt: skip
@click.argument("workers", nargs=-1, metavar="[WORKER...]", shell_complete=complete_live_worker)
@click.option("--node", multiple=True, shell_complete=complete_node, help="All workers of this node.")
@click.option("--wait", is_flag=True, help="Wait until they have ended; say each then, too.")
@duration_option("--timeout", "With --wait: wait no longer than this.")
@pass_session
def drain(
    session: Session, workers: Sequence[str], node: Sequence[str], *, wait: bool, timeout: timedelta | None
) -> None:
    """Have workers claim no more, and end when their jobs have.

    That may take as long as it likes; their exit code is 0. Jobs do not notice. (To have them yield at their
    checkpoints, and be resumed elsewhere, send the worker SIGTERM.) A worker that is drained cannot be told otherwise;
    start another. When piped, the columns are worker, state (draining, ended), and how many jobs it holds. With --json,
    an object on each line. Exit code 3 if there is no such worker or node, 5 if --timeout is over first: they go on.
    """
    if not workers and not node:
        raise click.UsageError("say which: WORKER, or --node NODE for all of a node.")
    chosen = _chosen(session.app.workers(), workers, node)
    if not chosen:
        note("no worker is live there: nothing to drain")
    for each in chosen:
        session.app.drain(each.name)
        session.output.stream({"worker": each.name, "state": "draining", "jobs": len(each.held)}, COLUMNS)
    if wait:
        _await(session, [each.name for each in chosen], timeout)


def _chosen(there: Iterable[Worker], names: Sequence[str], nodes: Sequence[str]) -> list[Worker]:
    """The workers of these names, silent ones too; and the live ones of these nodes."""
    known = {worker.name: worker for worker in there}
    chosen = {name: pick("worker", known, name) for name in names}
    for node in nodes:
        pick("node", {worker.node: worker for worker in known.values()}, node)
        chosen |= {name: worker for name, worker in known.items() if worker.node == node and worker.is_live}
    return list(chosen.values())


def _await(session: Session, names: Sequence[str], timeout: timedelta | None) -> None:
    """Wait until workers are gone, and say each."""
    deadline = float("inf") if timeout is None else time.monotonic() + timeout.total_seconds()
    left = set(names)
    silent: set[str] = set()
    while left:
        there = {worker.name: worker for worker in session.app.workers()}
        gone = left.difference(there)
        for name in sorted(left - gone - silent):
            if not there[name].is_live:
                silent.add(name)
                note(f"worker {name} gives no sign of life; if it is dead: holdfast workers --forget {name}")
        for name in sorted(gone):
            session.output.stream({"worker": name, "state": "ended", "jobs": 0}, COLUMNS)
        left -= gone
        if left and time.monotonic() >= deadline:
            raise ResultTimeout(f"{len(left)} of {len(names)} workers have not ended in the time given; they go on")
        if left:
            time.sleep(LOOK_EVERY)
