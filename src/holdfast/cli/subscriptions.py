"""`holdfast subscriptions`: handlers of events, which apps declare with `jobs.on`."""

from __future__ import annotations

import click

from holdfast import Holdfast
from holdfast.cli.client import Client, pass_client
from holdfast.cli.command import Group, command
from holdfast.cli.completers import complete_subscription
from holdfast.cli.errors import print_note
from holdfast.cli.watch import show_list, watch_option
from holdfast.client.finding import find
from holdfast.client.subscriptions import Subscription
from holdfast.records.subscriptions import REMOVED, SUBSCRIPTIONS


@click.group(
    "subscriptions", cls=Group, default="list",
    examples=("holdfast subscriptions", "holdfast subscriptions pause tasks.alert"),
)  # fmt: skip
def subscriptions() -> None:
    """List, pause and remove subscriptions of event handlers.

    Without a command, subscriptions are listed. Apps declare them with `jobs.on`; workers add those when they start,
    and deliver events as jobs.
    """


_name = click.argument("name", shell_complete=complete_subscription)


@command(
    "list", "holdfast subscriptions", "holdfast subscriptions --json | jq '.[] | select(.lag_seconds > 60)'",
    output=SUBSCRIPTIONS,
)  # fmt: skip
@watch_option("Refresh until Ctrl-C; in a pipe, print the subscriptions that change.")
@pass_client
def list_subscriptions(client: Client, watching: bool) -> None:
    """List subscriptions, what they have delivered, and how far they lag behind."""
    show_list(
        client.output, lambda: SUBSCRIPTIONS.records(client.app.subscriptions()), SUBSCRIPTIONS, watching=watching
    )


def _find(app: Holdfast, name: str) -> Subscription:
    return find("subscription", {each.name: each for each in app.subscriptions()}, name)


def _print(client: Client, name: str, *, changed: bool) -> None:
    client.output.one(SUBSCRIPTIONS.record(_find(client.app, name)), SUBSCRIPTIONS)
    if not changed:
        print_note(f"subscription {name} is unchanged")


@command("pause", "holdfast subscriptions pause tasks.alert", output=SUBSCRIPTIONS)
@_name
@pass_client
def pause(client: Client, name: str) -> None:
    """Deliver no more events to a handler.

    Exit code 3 if the subscription does not exist.
    """
    _find(client.app, name)
    _print(client, name, changed=client.app.pause_subscription(name))


@command("resume", "holdfast subscriptions resume tasks.alert", output=SUBSCRIPTIONS)
@_name
@pass_client
def resume(client: Client, name: str) -> None:
    """Deliver the events since a subscription was paused, as far as they are kept, and all that follow.

    Exit code 3 if the subscription does not exist.
    """
    _find(client.app, name)
    _print(client, name, changed=client.app.resume_subscription(name))


@command("remove", "holdfast subscriptions remove tasks.alert", output=REMOVED)
@_name
@pass_client
def remove(client: Client, name: str) -> None:
    """Remove a subscription; jobs of its handler stay.

    One that an app declares is added again when a worker of the app starts, and then begins anew: pause it instead.
    Exit code 3 if the subscription does not exist.
    """
    _find(client.app, name)
    client.app.unsubscribe(name)
    client.output.one({"subscription": name, "removed": True}, REMOVED)


for each in (list_subscriptions, pause, resume, remove):
    subscriptions.add_command(each)
