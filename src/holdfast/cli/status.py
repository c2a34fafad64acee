"""`holdfast status`: the server, queues, workers and problems of a namespace at a glance.

The cost is bounded: it depends on the number of queues and workers, never on the number of jobs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from holdfast import Holdfast
from holdfast.cli.client import Client, pass_client
from holdfast.cli.command import command
from holdfast.cli.doctor import STYLES as LEVEL_STYLES
from holdfast.cli.errors import print_note
from holdfast.cli.outbox import outbox_records, unconnected_app
from holdfast.cli.output import Fact
from holdfast.cli.queues import QUEUES
from holdfast.cli.selection import select_jobs
from holdfast.cli.table import Record, Table, column, field
from holdfast.cli.watch import View, Watched, watch, watch_option
from holdfast.errors import HoldfastError, StoreUnavailable
from holdfast.job.job import STATES
from holdfast.store.commands import Queue, Worker
from holdfast.text import pluralize

FAILED_JOBS = 100  # the latest ones, whose groups are counted
FAILED_QUEUES = 10  # those with most failures, in which they are looked for
MAX_QUEUES = 20  # that people see
MAX_GROUPS = 5  # the same


def _length(name: str) -> Any:
    return lambda record, _: len(record[name])


STATUS = Table(
    "status",
    column("namespace", "namespace of the jobs", whole=True),
    field("server", "its name with the version, url, guarantee (what survives a crash), level, findings (codes)"),
    column("jobs", "number of jobs in each state", title="PENDING", show=lambda record, _: _pending(record["jobs"])),
    column("queues", f"an array; of each queue: {', '.join(QUEUES.help)}", show=_length("queues"), right=True),
    column(
        "workers", "number of workers: live, draining, silent; and of the jobs they are running",
        show=lambda record, _: record["workers"]["live"], right=True,
    ),
    column("overdue", "number of timers that are due and not processed", right=True),
    field("failed_groups", f"groups of the latest {FAILED_JOBS} failed jobs, with their number"),
    field("outbox", "number of calls waiting on this machine, and of those that were refused"),
    column("problems", "sentences about what needs attention", show=_length("problems"), right=True),
)  # fmt: skip


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
        server = _server(client)
        if watching:
            watch(
                output,
                Watched(
                    lambda: View([_status(client, server)]),
                    lambda view: output.grid(_describe(view.records[0])),
                    STATUS,
                ),
            )
            return
        record = _status(client, server)
    except StoreUnavailable:
        if calls := _outbox(unconnected_app(client)):
            print_note(f"the outbox has {pluralize(len(calls), 'call')}; see `holdfast outbox`")
        raise
    if output.mode == "json":
        output.json(record)
    else:
        output.facts(_describe(record))


def _server(client: Client) -> Record:
    """Return the server and what it guarantees; asked once, also with --watch."""
    from holdfast.doctor import probe_server, run_checks, server_name, worst_level

    facts = probe_server(client.app.store)
    findings = run_checks(facts)
    return {
        "name": server_name(facts),
        "url": client.app.address.display,
        "guarantee": next((each.means for each in findings if each.code == "persistence"), ""),
        "level": worst_level(findings),
        "findings": [each.code for each in findings if each.level in ("warning", "danger")],
    }


def _status(client: Client, server: Record) -> Record:
    app = client.app
    queues, workers, overdue, outbox = app.queues(), app.workers(), app.overdue(), _outbox(app)
    live = [worker for worker in workers if worker.is_live]
    refused = sum(call["refused"] is not None for call in outbox or ())
    record = {
        "namespace": app.address.namespace,
        "server": server,
        "jobs": {state: sum(queue.counts[state] for queue in queues) for state in STATES},
        "queues": QUEUES.records(queues),
        "workers": {
            "live": len(live),
            "draining": sum(worker.is_draining for worker in live),
            "silent": len(workers) - len(live),
            "running_jobs": sum(len(worker.held) for worker in live),
        },
        "overdue": overdue,
        "failed_groups": _failed_groups(client, queues),
        "outbox": None if outbox is None else {"waiting": len(outbox) - refused, "refused": refused},
    }
    return {**record, "problems": list(_problems(record, queues, workers))}


def _outbox(app: Holdfast) -> list[Record] | None:
    """Return the calls in the outbox; None if it cannot be read, for example because others may write there."""
    try:
        return outbox_records(app)
    except (OSError, HoldfastError):
        return None


def _failed_groups(client: Client, queues: Sequence[Queue]) -> dict[str, int]:
    failed = sorted((each for each in queues if each.counts["failed"]), key=lambda each: -each.counts["failed"])
    jobs = select_jobs(client.app, failed[:FAILED_QUEUES], ["failed"], newest=True, limit=FAILED_JOBS) if failed else ()
    return dict(Counter(job.group or "unreadable" for job in jobs).most_common())


def _problems(record: Record, queues: Sequence[Queue], workers: Sequence[Worker]) -> Iterator[str]:
    if codes := record["server"]["findings"]:
        yield f"the server needs attention ({', '.join(codes)}); see `holdfast doctor`"
    for queue in queues:
        if not (count := queue.counts["waiting"]):
            continue
        waiting = pluralize(count, "waiting job")
        if queue.paused:
            yield f"queue {queue.name} is paused with {waiting}; `holdfast queues resume {queue.name}`"
        elif not queue.workers:
            yield f"queue {queue.name} has {waiting}, but no live worker serves it"
    for worker in workers:
        if worker.held and not worker.is_live:
            held = pluralize(len(worker.held), "job")
            yield f"worker {worker.name} sends no heartbeat and holds {held} until the leases end"
    if record["overdue"] and not record["workers"]["live"]:
        yield f"{pluralize(record['overdue'], 'overdue timer')}; start a worker, or `holdfast upkeep`"
    if record["outbox"] is None:
        yield "the outbox of this directory cannot be read; see `holdfast outbox`"
        return
    if waiting := record["outbox"]["waiting"]:
        yield f"the outbox has {pluralize(waiting, 'call')} to send; see `holdfast outbox`"
    if refused := record["outbox"]["refused"]:
        yield f"the outbox has {pluralize(refused, 'call')} that the store refused; see `holdfast outbox`"


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


def _pending(counts: dict[str, int]) -> int:
    return sum(counts[state] for state in STATES[:5])


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{count:,} {state}" for state, count in counts.items() if count)
