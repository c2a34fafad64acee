"""`holdfast status`: the server, queues, workers and problems of a namespace at a glance.

The cost is bounded: it depends on the number of queues and workers, never on the number of jobs.
"""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.cli.client import Client, pass_client
from holdfast.cli.command import command
from holdfast.cli.doctor import STYLES as LEVEL_STYLES
from holdfast.cli.errors import print_note
from holdfast.cli.outbox import unconnected_app
from holdfast.cli.output import Fact
from holdfast.cli.watch import View, Watched, watch, watch_option
from holdfast.errors import StoreUnavailable
from holdfast.job.job import STATES
from holdfast.records.status import STATUS, readable_outbox, server_summary, status_record
from holdfast.records.table import Record
from holdfast.text import pluralize

MAX_QUEUES = 20  # that people see
MAX_GROUPS = 5  # the same


@command(
    "status", "holdfast status", "holdfast status -w", "holdfast status --json | jq -r '.problems[]'",
    output=STATUS, in_columns=False,
)  # fmt: skip
@watch_option("Refresh until Ctrl-C; in a pipe, print each change.")
@pass_client
def status(client: Client, watching: bool) -> None:
    """Show the server, queues, workers and problems at a glance.

    Problems are weak guarantees of the server, waiting jobs that no worker serves or that are paused, silent workers
    that hold jobs, overdue timers, and calls in the outbox of this machine. The cost does not depend on the number of
    jobs. Exit code 4 if there is no server, or it is unreachable.
    """
    output = client.output
    try:
        server = server_summary(client.app)
        if watching:
            watch(
                output,
                Watched(
                    lambda: View([status_record(client.app, server)]),
                    lambda view: output.grid(_describe(view.records[0])),
                    STATUS,
                ),
            )
            return
        record = status_record(client.app, server)
    except StoreUnavailable:
        if calls := readable_outbox(unconnected_app(client)):
            print_note(f"the outbox has {pluralize(len(calls), 'call')}; see `holdfast outbox`")
        raise
    if output.mode == "json":
        output.json(record)
    else:
        output.facts(_describe(record))


def _describe(record: Record) -> Iterator[Fact]:
    server, workers, outbox = record["server"], record["workers"], record["outbox"]
    where = f" at {server['url']}" if "://" in server["url"] else f", {server['url']}"
    yield Fact("server", f"{server['name']}{where}, namespace {record['namespace']}")
    yield Fact("guarantee", f"{server['level']}: {server['guarantee']}", LEVEL_STYLES.get(server["level"], ""))
    yield Fact("jobs", _counts(record["jobs"]) or "none")
    fullest = sorted(record["queues"], key=lambda queue: (-queue["pending"], queue["queue"]))
    for queue in fullest[:MAX_QUEUES]:
        counts = _counts({state: queue[state] for state in STATES}) or "empty"
        yield Fact(f"queue {queue['queue']}", f"{counts}{', paused' * queue['paused']}; workers: {queue['workers']}")
    if len(fullest) > MAX_QUEUES:
        yield Fact("", f"and {pluralize(len(fullest) - MAX_QUEUES, 'more queue')}; see `holdfast queues`")
    total = workers["live"] + workers["silent"]
    draining = f", {workers['draining']} draining" if workers["draining"] else ""
    counted = f"{workers['live']} live of {total}{draining}; running jobs: {workers['running_jobs']}"
    yield Fact("workers", counted if total else "none")
    yield Fact("overdue timers", record["overdue"])
    if groups := list(record["failed_groups"].items()):
        more = f" and {pluralize(len(groups) - MAX_GROUPS, 'more group')}" if len(groups) > MAX_GROUPS else ""
        counted = ", ".join(f"{group} {count}" for group, count in groups[:MAX_GROUPS])
        yield Fact("failures", f"{counted}{more} (latest {sum(record['failed_groups'].values())})")
    yield Fact("outbox", _describe_outbox(outbox))
    for problem in record["problems"]:
        yield Fact("problem", problem, "yellow")


def _describe_outbox(outbox: dict[str, int] | None) -> str:
    if outbox is None:
        return "cannot be read"
    refused = f", {outbox['refused']:,} refused" if outbox["refused"] else ""
    return f"{pluralize(outbox['waiting'], 'call')}{refused}" if outbox["waiting"] or refused else "empty"


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{count:,} {state}" for state, count in counts.items() if count)
