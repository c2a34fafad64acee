"""Looking into a job that runs: what it does just now."""

from __future__ import annotations

from datetime import timedelta

import click

from holdfast.cli.completers import complete_ids
from holdfast.cli.fields import STACK
from holdfast.cli.lookup import saying_which
from holdfast.cli.output import write
from holdfast.cli.session import Session, command, duration_option, pass_session
from holdfast.text import printable


@command("stack", "holdfast stack 0QwErTyUiOpAsDfG", "watch holdfast stack 0QwErTyUiOpAsDfG", fields=STACK)
@click.argument("id", shell_complete=complete_ids)
@duration_option("--timeout", "How long the worker has to answer; else 10s.", least=1)
@pass_session
def stack(session: Session, id: str, timeout: timedelta | None) -> None:
    """Show what a running job does just now.

    That is the stack of each of its threads, and the programs that it has started. The job goes on; it need not know of
    this, and may hold the interpreter. Of a job that runs as a thread or coroutine among others, its own stack is
    shown. Exit code 1 if the job does not run, 3 if there is none, 5 if its worker does not answer. With --json, an
    object.
    """
    with saying_which(session.app, id):
        doing = session.app.stack(id, timeout=timeout or timedelta(seconds=10))
    if session.output.mode == "json":
        session.output.json({"id": id, "stack": doing})
    else:
        write(printable(doing, lines=True), end="")
