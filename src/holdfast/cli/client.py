"""The connection and the output of one command line, made from the options that all commands share."""

from __future__ import annotations

import os
import sys
from datetime import datetime
from functools import cached_property

import click

from holdfast import Holdfast
from holdfast.cli.errors import print_note
from holdfast.cli.output import Output
from holdfast.errors import StoreUnavailable
from holdfast.server.home import has_data
from holdfast.store import read_url
from holdfast.units import utc


class Client:
    """What a command works with: an app without tasks, and the output."""

    def __init__(self) -> None:
        self.url: str | None = None
        self.namespace: str | None = None
        self.json = False
        self.plain = False
        self.from_command_line: set[str] = set()  # options that override the environment

    @cached_property
    def app(self) -> Holdfast:
        """An app for commands that only read or change what is stored: no embedded server is created for them.

        Raises:
            StoreUnavailable: there is no URL and no data of an embedded server.
        """
        app = Holdfast(self.url, namespace=self.namespace)
        home = app.address.home
        if home is not None and not has_data(home):
            raise StoreUnavailable(
                f"found no server: no URL is given, and {home} has no data. Run this in your project's directory, set"
                " HOLDFAST_URL to the address of a server, or start one here: `holdfast server start`"
            )
        return app

    @cached_property
    def app_starting_server(self) -> Holdfast:
        """An app for commands that store something: creates the embedded server if it does not exist."""
        app = Holdfast(self.url, namespace=self.namespace)
        note_new_server(app)
        return app

    @cached_property
    def output(self) -> Output:
        chosen = {name for name in ("json", "plain") if getattr(self, name)}
        chosen = chosen & self.from_command_line or chosen
        if len(chosen) > 1:
            raise click.UsageError(
                "--json and --plain cannot be combined: --json prints JSON, --plain tab-separated text."
            )
        if chosen:
            return Output(chosen.pop(), self.now)
        return Output("table" if sys.stdout.isatty() else "plain", self.now)

    def now(self) -> datetime:
        """Return the server's time, so that ages do not depend on the clock of this machine."""
        seconds, microseconds = self.app.store.execute("TIME")
        return utc(int(seconds) * 1000 + int(microseconds) // 1000)

    def share_address(self) -> None:
        """Pass the address of this command line to imported apps, here and in child processes.

        Raises:
            Invalid: the URL is malformed; an app would report it with a traceback.
        """
        if self.url:
            read_url(self.url)
        for name, value in (("HOLDFAST_URL", self.url), ("HOLDFAST_NAMESPACE", self.namespace)):
            if value is not None:
                os.environ[name] = value


pass_client = click.make_pass_decorator(Client, ensure=True)


def note_new_server(app: Holdfast) -> None:
    """Note that an embedded server will be created: this may be the wrong directory."""
    home = app.address.home
    if home is not None and not has_data(home):
        print_note(f"no URL is given, so a new embedded server is started; its data is in {home}")
