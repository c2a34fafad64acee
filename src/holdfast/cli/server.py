"""Commands on the embedded server."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path

import click

from holdfast import Holdfast
from holdfast.cli.complaints import complain, note
from holdfast.cli.exits import NOT_FOUND
from holdfast.cli.fields import SERVER
from holdfast.cli.output import Fact
from holdfast.cli.session import Group, Session, command, pass_session
from holdfast.cli.text import length
from holdfast.server import server as embedded
from holdfast.server.home import find_home
from holdfast.store import socket_url

LOOKS, BETWEEN_LOOKS = 3, 0.05  # seconds


@click.group("server", cls=Group, examples=("holdfast server status", "holdfast server stop"))
def server() -> None:
    """The embedded server: one Valkey per project, in .holdfast.

    It is used when no URL is given, and starts by itself with the first call that needs it. HOLDFAST_HOME says where
    its data is, HOLDFAST_SERVER_BIN which program it is. It stops when it had no clients for HOLDFAST_SERVER_IDLE
    seconds (300; 0: never). A home that was found must belong to you; HOLDFAST_TRUST lists directories of others.
    """


@command("status", "holdfast server status", "holdfast server status --json | jq .memory_bytes", fields=SERVER)
@pass_session
def status(session: Session) -> int:
    """Say whether the embedded server runs, and where. Exit code 3 if it does not run."""
    _note_url(session)
    found = embedded.status(find_home())
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


@command(
    "start", "holdfast server start", "export HOLDFAST_URL=$(holdfast server start)", fields={"url": "its address"}
)
@pass_session
def start(session: Session) -> None:
    """Start the embedded server, unless it runs already, and print its URL."""
    _note_url(session)
    session.output.value({"url": socket_url(embedded.ensure(find_home()))}, "url")


@command("stop", "holdfast server stop", "holdfast server stop --force", fields={"stopped": "whether it was running"})
@click.option("--force", is_flag=True, help="Also while clients are connected.")
@pass_session
def stop(session: Session, force: bool) -> int:
    """Stop the embedded server; its data stays. Exit code 3 if it was not running.

    While clients are connected it is not stopped (exit code 1), unless with --force: a worker would start it again.
    """
    _note_url(session)
    home = find_home()
    if not force and (clients := _clients(home)):
        raise click.ClickException(
            f"the server in {home} has {clients} client{'s' * (clients > 1)}{_workers(session, home)}, which would"
            " start it again; stop them first, or stop it with --force"
        )
    stopped = embedded.stop(home)
    if session.output.mode == "json":
        session.output.json({"stopped": stopped})
    elif stopped:
        click.echo("stopped")
    if not stopped:
        complain(f"no server was running in {home}")
    return 0 if stopped else NOT_FOUND


def _clients(home: Path) -> int:
    """Return how many clients stay connected: the server's keeper comes and goes every second."""
    least = embedded.status(home).clients or 0
    for _ in range(LOOKS if least else 0):
        time.sleep(BETWEEN_LOOKS)
        least = min(least, embedded.status(home).clients or 0)
    return least


def _workers(session: Session, home: Path) -> str:
    """Say which workers are among the clients, as far as they are of this namespace."""
    app = Holdfast(socket_url(embedded.status(home).socket), namespace=session.namespace)
    live = [worker.name for worker in app.workers() if worker.is_live]
    return f" (worker {', worker '.join(live)})" if live else ""


def _note_url(session: Session) -> None:
    if session.url:
        note("a URL is given, so jobs are kept there, not in the embedded server")


for each in (status, start, stop):
    server.add_command(each)
