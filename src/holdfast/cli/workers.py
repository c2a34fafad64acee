"""`holdfast workers` and `holdfast nodes`: workers, the machines they run on, draining and forgetting them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any

import click

from holdfast.cli.client import Client, pass_client
from holdfast.cli.command import Group, command
from holdfast.cli.completers import complete_live_worker, complete_node, complete_silent_worker
from holdfast.cli.errors import print_note
from holdfast.cli.options import duration_option
from holdfast.cli.watch import show_list, watch_option
from holdfast.client.finding import find
from holdfast.errors import ResultTimeout
from holdfast.records.table import Record
from holdfast.records.workers import DRAINED, FORGOTTEN, NODES, WORKERS
from holdfast.store.commands import Worker
from holdfast.text import pluralize

POLL_INTERVAL = 0.5  # seconds


@click.group(
    "workers", cls=Group, default="list",
    examples=("holdfast workers -w", "holdfast workers drain --node node7", "holdfast workers forget node7/0Qw-12"),
)  # fmt: skip
def workers() -> None:
    """List, drain and forget workers.

    Without a command, workers are listed.
    """


@command(
    "list", "holdfast workers -w", "holdfast workers --json | jq -r '.[].jobs[].id'", "holdfast workers --idle",
    output=WORKERS,
)  # fmt: skip
@click.option("--idle", is_flag=True, help="Only live workers without jobs.")
@watch_option("Refresh until Ctrl-C; in a pipe, print the workers that change.")
@pass_client
def list_workers(client: Client, *, idle: bool, watching: bool) -> None:
    """List workers with their queues, resources and jobs, last seen first.

    A worker without a recent heartbeat is silent. It is forgotten after a day, or with `workers forget`.
    """

    def load() -> list[Record]:
        return WORKERS.records(each for each in client.app.workers() if each.is_idle or not idle)

    show_list(client.output, load, WORKERS, watching=watching)


@command("nodes", "holdfast nodes", "holdfast nodes --json | jq '.[] | select(.live | not) | .node'", output=NODES)
@watch_option("Refresh until Ctrl-C; in a pipe, print the nodes that change.")
@pass_client
def nodes(client: Client, watching: bool) -> None:
    """List the machines that workers run on."""
    show_list(client.output, lambda: NODES.records(client.app.nodes()), NODES, watching=watching)


@command("forget", "holdfast workers forget node7/0Qw-12", output=FORGOTTEN)
@click.argument("worker", shell_complete=complete_silent_worker)
@pass_client
def forget(client: Client, worker: str) -> None:
    """Remove a dead worker from the list.

    Exit code 1 if it is live or holds jobs, 3 if it does not exist.
    """
    find("worker", {each.name: each for each in client.app.workers()}, worker)
    client.app.deregister(worker)
    client.output.one({"worker": worker, "forgotten": True}, FORGOTTEN)


@command(
    "drain", "holdfast workers drain node7/0QwErTyU", "holdfast workers drain --node node7 --wait",
    "holdfast workers --idle | cut -f1 | xargs holdfast workers drain", output=DRAINED,
)  # fmt: skip
@click.argument("workers", nargs=-1, metavar="[WORKER...]", shell_complete=complete_live_worker)
@click.option("--node", multiple=True, shell_complete=complete_node, help="All workers of this node.")
@click.option("--wait", is_flag=True, help="Wait until they have ended, and print each.")
@duration_option("--timeout", help="With --wait: stop waiting after this time.")
@pass_client
def drain(
    client: Client, workers: Sequence[str], node: Sequence[str], *, wait: bool, timeout: timedelta | None
) -> None:
    """Drain workers: they claim no more jobs and exit when theirs have ended.

    Jobs are not interrupted and may take as long as they need; the workers' exit code is 0. (To make jobs yield at
    their checkpoints and resume elsewhere, send the worker SIGTERM instead.) Draining cannot be undone; start another
    worker. Exit code 3 if a worker or node does not exist, 5 if --timeout elapses first: draining continues.
    """
    if not workers and not node:
        raise click.UsageError("expected WORKER, or --node NODE for all workers of a node.")
    chosen = _choose(client.app.workers(), workers, node)
    if not chosen:
        print_note(f"no live worker on node {', '.join(node)}; nothing to drain")
    for each in chosen:
        client.app.drain(each.name)
        client.output.stream({"worker": each.name, "state": "draining", "jobs": len(each.held)}, DRAINED)
    if wait:
        _wait_until_ended(client, [each.name for each in chosen], timeout)


def _choose(workers: Iterable[Worker], names: Sequence[str], nodes: Sequence[str]) -> list[Worker]:
    """Return the workers of these names, silent ones too, and the live workers of these nodes."""
    known: dict[str, Any] = {worker.name: worker for worker in workers}
    chosen = {name: find("worker", known, name) for name in names}
    for node in nodes:
        find("node", {worker.node: worker for worker in known.values()}, node)
        chosen |= {name: worker for name, worker in known.items() if worker.node == node and worker.is_live}
    return list(chosen.values())


def _wait_until_ended(client: Client, names: Sequence[str], timeout: timedelta | None) -> None:
    """Wait until workers have ended, and print each."""
    deadline = float("inf") if timeout is None else time.monotonic() + timeout.total_seconds()
    left = set(names)
    silent: set[str] = set()
    while left:
        known = {worker.name: worker for worker in client.app.workers()}
        ended = left.difference(known)
        for name in sorted(left - ended - silent):
            if not known[name].is_live:
                silent.add(name)
                print_note(f"worker {name} sends no heartbeat; if it is dead: `holdfast workers forget {name}`")
        for name in sorted(ended):
            client.output.stream({"worker": name, "state": "ended", "jobs": 0}, DRAINED)
        left -= ended
        if left and time.monotonic() >= deadline:
            unended = f"{len(left):,} of {pluralize(len(names), 'worker')}"
            raise ResultTimeout(f"--timeout elapsed before {unended} ended; draining continues")
        if left:
            time.sleep(POLL_INTERVAL)


for each in (list_workers, drain, forget):
    workers.add_command(each)
