"""Commands on the embedded server."""

from __future__ import annotations

from dataclasses import asdict

import click

from holdfast import server as embedded
from holdfast.cli.exits import NOT_FOUND
from holdfast.cli.output import Fact, complain, length
from holdfast.cli.session import Group, Session, command, pass_session


@click.group("server", cls=Group, examples=("holdfast server status", "holdfast server stop"))
def server() -> None:
    """The embedded server: one Valkey per project, in .holdfast.

    It is used when no URL is given, and starts by itself with the first call that needs it. HOLDFAST_HOME says where
    its data is. It stops when it had no clients for HOLDFAST_SERVER_IDLE seconds (300; 0: never).
    """


@command("status", "holdfast server status", "holdfast server status --json | jq .memory_bytes")
@pass_session
def status(session: Session) -> int:
    """Say whether the embedded server runs, and where. Exit code 3 if it does not run."""
    _note_url(session)
    found = embedded.status(embedded.find_home())
    record = {**asdict(found), "home": str(found.home)}
    if session.output.mode == "json":
        session.output.json(record)
    else:
        running = Fact("running", found.running, "green" if found.running else "red")
        facts = [
            Fact(name.replace("_", " "), value) for name, value in record.items() if name not in ("running", "uptime")
        ]
        if found.uptime is not None:
            facts.append(Fact("uptime", length(found.uptime)))
        session.output.facts([running, *(fact for fact in facts if fact.value is not None)])
    return 0 if found.running else NOT_FOUND


@command("start", "holdfast server start", "export HOLDFAST_URL=$(holdfast server start)")
@pass_session
def start(session: Session) -> None:
    """Start the embedded server, unless it runs already, and print its URL."""
    _note_url(session)
    url = f"unix://{embedded.ensure(embedded.find_home())}"
    if session.output.mode == "json":
        session.output.json({"url": url})
    else:
        click.echo(url)


@command("stop", "holdfast server stop")
@pass_session
def stop(session: Session) -> int:
    """Stop the embedded server; its data stays. Exit code 3 if it was not running."""
    _note_url(session)
    home = embedded.find_home()
    stopped = embedded.stop(home)
    if session.output.mode == "json":
        session.output.json({"stopped": stopped})
    elif stopped:
        click.echo("stopped")
    if not stopped:
        complain(f"no server was running in {home}")
    return 0 if stopped else NOT_FOUND


def _note_url(session: Session) -> None:
    if session.url:
        complain("note: a URL is given, so jobs are kept there, not in the embedded server")


for each in (status, start, stop):
    server.add_command(each)
