"""`holdfast operations`: actions on all jobs that match filters; stop and resume them."""

from __future__ import annotations

import click

from holdfast.cli.bulk import drive
from holdfast.cli.client import Client, pass_client
from holdfast.cli.command import Group, command
from holdfast.cli.completers import complete_operation
from holdfast.cli.errors import print_note
from holdfast.cli.output import Fact
from holdfast.records.operations import OPERATIONS
from holdfast.records.table import Record


@click.group(
    "operations", cls=Group, default="list",
    examples=("holdfast operations", "holdfast operations stop 0QwErTyUiOpAsDfG"),
)  # fmt: skip
def operations() -> None:
    """List, stop and resume actions on all jobs that match filters.

    `cancel`, `retry`, `delete`, `move`, `release`, `fail`, `tag` and `untag` with --all start one. It lives in the
    store: anyone can stop it, and workers continue it if the program that started it is gone. The last 100 are kept.
    """


_id = click.argument("id", shell_complete=complete_operation)


@command("list", "holdfast operations list --json", output=OPERATIONS)
@pass_client
def list_operations(client: Client) -> None:
    """List operations, the latest first."""
    client.output.list(OPERATIONS.records(client.app.operations()), OPERATIONS)


@command("show", "holdfast operations show 0QwErTyUiOpAsDfG", output=OPERATIONS, in_columns=False)
@_id
@pass_client
def show(client: Client, id: str) -> None:
    """Show an operation: its filters, its progress, and the number of jobs for each answer."""
    record = OPERATIONS.record(client.app.operation(id))
    if client.output.mode == "json":
        client.output.json(record)
    else:
        client.output.facts(_facts(record))


def _facts(record: Record) -> list[Fact]:
    names = [name for name in record if name not in ("filter", "arguments", "counts")]
    parts = {part: record[part] for part in ("filter", "arguments", "counts")}
    return [
        *(Fact(name.replace("_", " "), record[name]) for name in names if record[name] is not None),
        *(Fact(f"{part} {name}", value) for part, values in parts.items() for name, value in values.items()),
    ]


@command("stop", "holdfast operations stop 0QwErTyUiOpAsDfG", output=OPERATIONS)
@_id
@pass_client
def stop(client: Client, id: str) -> None:
    """Stop an operation before its next step; what was done stays done."""
    operation = client.app.stop_operation(id)
    client.output.one(OPERATIONS.record(operation), OPERATIONS)
    if operation.state == "done":
        print_note("it was already done")


@command("resume", "holdfast operations resume 0QwErTyUiOpAsDfG", output=OPERATIONS)
@_id
@click.option("--detach", is_flag=True, help="Return at once; workers do the work.")
@pass_client
def resume(client: Client, id: str, detach: bool) -> int:
    """Continue an operation that was stopped, and print the number of jobs for each new state.

    Ctrl-C stops it again.
    """
    operation = client.app.resume_operation(id)
    if not detach:
        return drive(client, operation)
    client.output.one(OPERATIONS.record(operation), OPERATIONS)
    return 0


for each in (list_operations, show, stop, resume):
    operations.add_command(each)
