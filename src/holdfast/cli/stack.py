"""`holdfast stack`: what a running job is doing."""

from __future__ import annotations

from datetime import timedelta

import click

from holdfast.cli.client import Client, pass_client
from holdfast.cli.command import command
from holdfast.cli.completers import complete_ids
from holdfast.cli.options import duration_option
from holdfast.cli.output import write
from holdfast.cli.suggestions import suggesting_ids
from holdfast.records.job_actions import STACK
from holdfast.text import printable


@command("stack", "holdfast stack 0QwErTyUiOpAsDfG", "watch holdfast stack 0QwErTyUiOpAsDfG", output=STACK)
@click.argument("id", shell_complete=complete_ids)
@duration_option("--timeout", help="How long to wait for the worker.", default="10s", minimum=1)
@pass_client
def stack(client: Client, id: str, timeout: timedelta) -> None:
    """Print the stack of a running job.

    Includes each of its threads and the programs it has started. The job continues; it need not cooperate and may hold
    the GIL. For a job that runs as a thread or coroutine among others, only its own stack is printed. Exit code 1 if
    the job is not running, 3 if it does not exist, 5 if its worker does not reply.
    """
    with suggesting_ids(client.app, id):
        text = client.app.stack(id, timeout=timeout)
    if client.output.mode == "json":
        client.output.json({"id": id, "stack": text})
    else:
        write(printable(text, lines=True), end="")
