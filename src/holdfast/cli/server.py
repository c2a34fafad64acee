"""`holdfast server`: the embedded server of a project."""

from __future__ import annotations

import time
from pathlib import Path

import click

from holdfast import Holdfast
from holdfast.cli.client import Client, pass_client
from holdfast.cli.command import Group, command
from holdfast.cli.errors import print_error, print_note
from holdfast.cli.exit_codes import NOT_FOUND
from holdfast.cli.output import Fact
from holdfast.records.formatting import short_duration
from holdfast.records.server import SERVER, STARTED, STOPPED
from holdfast.server import server as embedded
from holdfast.server.home import find_home
from holdfast.store import socket_url
from holdfast.text import pluralize

SAMPLES, SAMPLE_INTERVAL = 3, 0.05  # seconds


@click.group("server", cls=Group, examples=("holdfast server status", "holdfast server stop"))
def server() -> None:
    """Start, stop and inspect the embedded server: one Valkey per project.

    It is used when no URL is given, and started by the first call that needs it. Its data is in .holdfast, or in
    HOLDFAST_HOME; its program is HOLDFAST_SERVER_BIN. It stops after HOLDFAST_SERVER_IDLE seconds without clients (300;
    0: never). A directory that was found must belong to you; HOLDFAST_TRUST lists directories of others.
    """


@command("status", "holdfast server status", "holdfast server status --json | jq .memory_bytes", output=SERVER)
@pass_client
def status(client: Client) -> int:
    """Show whether the embedded server is running, and where.

    Exit code 3 if it is not running.
    """
    _note_url(client)
    found = embedded.status(find_home())
    record = SERVER.record(found)
    if client.output.mode == "json":
        client.output.json(record)
    else:
        record["uptime"] = None if found.uptime is None else short_duration(found.uptime)
        rest = [Fact(name.replace("_", " "), value) for name, value in record.items() if name != "running"]
        running = Fact("running", found.running, "green" if found.running else "red")
        client.output.facts([running, *(fact for fact in rest if fact.value is not None)])
    return 0 if found.running else NOT_FOUND


@command("start", "holdfast server start", "export HOLDFAST_URL=$(holdfast server start)", output=STARTED)
@pass_client
def start(client: Client) -> None:
    """Start the embedded server unless it is running, and print its URL."""
    _note_url(client)
    client.output.value({"url": socket_url(embedded.ensure(find_home()))}, "url")


@command("stop", "holdfast server stop", "holdfast server stop --force", output=STOPPED)
@click.option("--force", is_flag=True, help="Even if clients are connected.")
@pass_client
def stop(client: Client, force: bool) -> int:
    """Stop the embedded server; its data stays.

    Refused while clients are connected (exit code 1) unless --force is given: a worker would start it again. Exit code
    3 if it was not running.
    """
    _note_url(client)
    home = find_home()
    if not force and (clients := _clients(home)):
        raise click.ClickException(
            f"the server in {home} is in use: {pluralize(clients, 'client')}{_workers(client, home)} would start it"
            " again. Stop them first, or use --force"
        )
    stopped = embedded.stop(home)
    if client.output.mode == "json":
        client.output.json({"stopped": stopped})
    elif stopped:
        click.echo("stopped")
    if not stopped:
        print_error(f"no server was running in {home}")
    return 0 if stopped else NOT_FOUND


def _clients(home: Path) -> int:
    """Return the number of lasting clients: the keeper of the server connects for a moment every second."""
    fewest = embedded.status(home).clients or 0
    for _ in range(SAMPLES if fewest else 0):
        time.sleep(SAMPLE_INTERVAL)
        fewest = min(fewest, embedded.status(home).clients or 0)
    return fewest


def _workers(client: Client, home: Path) -> str:
    """Return the live workers of this namespace, for a message."""
    app = Holdfast(socket_url(embedded.status(home).socket), namespace=client.namespace)
    live = [worker.name for worker in app.workers() if worker.is_live]
    return f" (worker {', worker '.join(live)})" if live else ""


def _note_url(client: Client) -> None:
    if client.url:
        print_note("a URL is given, so commands use that server, not the embedded one")


for each in (status, start, stop):
    server.add_command(each)
