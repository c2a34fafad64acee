"""`holdfast outbox`: calls that wait on disk because the store was unreachable. Needs no store."""

from __future__ import annotations

import click

from holdfast import Holdfast
from holdfast.cli.client import Client, pass_client
from holdfast.cli.command import Group, command
from holdfast.cli.errors import print_error
from holdfast.cli.exit_codes import REFUSED
from holdfast.records.outbox import OUTBOX, SENT, outbox_records


@click.group(
    "outbox", cls=Group, default="list", examples=("holdfast outbox", "holdfast outbox send")
)  # fmt: skip
def outbox() -> None:
    """List and send calls that wait on disk for an unreachable server.

    Without a command, calls are listed.
    """


@command("list", "holdfast outbox", "holdfast outbox --json | jq '.[] | select(.refused)'", output=OUTBOX)
@pass_client
def list_outbox(client: Client) -> None:
    """List calls in the outbox in the order of sending.

    Calls that the store has refused come last; they stay in the file `refused` of the outbox until you remove it.
    """
    app = unconnected_app(client)
    client.output.list(outbox_records(app), OUTBOX, f"the outbox for {app.address.display} is empty")


@command("send", "holdfast outbox send", "holdfast outbox send --json | jq .sent", output=SENT)
@pass_client
def send(client: Client) -> int:
    """Send the calls in the outbox now, and print how many were stored.

    They are also sent automatically: when a worker of the app starts, and by every process that has put calls there.
    Exit code 1 if the store refused some of them; 4 if it is unreachable: the calls stay in the outbox.
    """
    result = unconnected_app(client).outage_policy.sender.send()
    client.output.value(result._asdict(), "sent")
    if not result.refused:
        return 0
    print_error(f"calls that the store refused: {result.refused:,}; `holdfast outbox` lists them with the reason")
    return REFUSED


for each in (list_outbox, send):
    outbox.add_command(each)


def unconnected_app(client: Client) -> Holdfast:
    """Return an app whose server may not exist."""
    return Holdfast(client.url, namespace=client.namespace)
