"""`holdfast fsck`: check the consistency of the store, repair it, and measure its memory."""

from __future__ import annotations

import click

from holdfast.cli.bulk import progress_bar
from holdfast.cli.client import Client, pass_client
from holdfast.cli.command import command
from holdfast.cli.errors import print_note
from holdfast.cli.exit_codes import REFUSED
from holdfast.client.checks import CheckReport
from holdfast.records.checks import FINDINGS, HISTORY, MEMORY
from holdfast.text import pluralize


@command(
    "fsck",
    "holdfast fsck",
    "holdfast fsck --repair",
    "holdfast fsck --memory",
    "holdfast fsck --json | jq '.[] | {code, count, examples}'",
    output=FINDINGS,
)
@click.option("--repair", is_flag=True, help="Repair what is found; without it, nothing is changed.")
@click.option("--memory", is_flag=True, help="Only list how much memory each kind of key takes.")
@click.option("--history", is_flag=True, help="Only list what workers have found and repaired on their own.")
@pass_client
def fsck(client: Client, repair: bool, memory: bool, history: bool) -> int:
    """Check that all keys in the store fit together, and repair them.

    It compares each job with the indexes, timers, limits, dependencies and batches that must agree with it, and each
    of their entries with the jobs. It works beside running workers, in steps of a few milliseconds, and can be
    interrupted at any time. docs/fsck.md explains every code.

    Exit code 0 if nothing was found, or everything was repaired; 1 if findings remain.
    """
    if repair + memory + history > 1:
        raise click.UsageError("expected one of --repair, --memory and --history")
    if history:
        _print_history(client)
        return 0
    if memory:
        with progress_bar("measure") as advance:
            uses = client.app.memory(progress=advance)
        client.output.list(MEMORY.records(uses), MEMORY)
        return 0
    with progress_bar("repair" if repair else "check") as advance:
        report = client.app.check(repair=repair, progress=advance)
    client.output.list(FINDINGS.records(report.findings), FINDINGS, empty="nothing found")
    print_note(_summary(report, repair=repair))
    return 0 if report.is_healthy else REFUSED


def _print_history(client: Client) -> None:
    past = client.app.check_history()
    client.output.list(HISTORY.records(past.findings), HISTORY, empty="nothing found")
    last = f"; the last time {client.output.text(past.finished_at)}" if past.finished_at else ""
    print_note(f"upkeep has checked all keys {pluralize(past.passes, 'time')}{last}")


def _summary(report: CheckReport, *, repair: bool) -> str:
    left, total = (sum(getattr(each, name) for each in report.findings) for name in ("left", "count"))
    checked = f"checked {pluralize(report.keys, 'key')} and {report.entries:,} entries in {report.seconds:.1f} s"
    if not total:
        return checked
    if not repair:
        return f"{checked}: found {pluralize(total, 'problem')}; `holdfast fsck --repair` repairs what can be repaired"
    return f"{checked}: repaired {total - left:,} of {pluralize(total, 'problem')}"
