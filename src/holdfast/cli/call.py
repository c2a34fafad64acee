"""`holdfast call`: call a function of the app's own Lua."""

from __future__ import annotations

from collections.abc import Sequence

import click

from holdfast.cli.calls import imported_app
from holdfast.cli.client import Client, pass_client
from holdfast.cli.command import command
from holdfast.cli.output import write
from holdfast.records.formatting import json_text
from holdfast.records.job_actions import CALLED
from holdfast.task.named import json_or_text


@command(
    "call",
    "holdfast call deliver pen 3 --app shop",
    """holdfast call order '{"article": "pen", "count": 2}' --app shop""",
    "HOLDFAST_EXTEND=shop.lua holdfast call stock pen --read-only",
    output=CALLED,
)
@click.argument("name")
@click.argument("words", nargs=-1, metavar="[ARGUMENT...]")
@click.option(
    "-A", "--app", "path", envvar="HOLDFAST_APP", metavar="APP",
    help="Module of the app, which names the Lua files. Default: those of HOLDFAST_EXTEND.",
)  # fmt: skip
@click.option("--read-only", is_flag=True, help="The server refuses writes of the function, as in `jobs.query`.")
@pass_client
def call(client: Client, /, name: str, words: Sequence[str], path: str | None, *, read_only: bool) -> None:
    """Call a function of the app's own Lua, and print its value as JSON.

    An ARGUMENT is read as JSON if it is JSON, else as text: 3 is a number, pen is text, and '"3"' is the text 3; put --
    before a negative number. Functions that take calls of tasks or items can be called from Python only.

    Exit code 1 if the function refuses or fails, 3 if it does not exist.
    """
    app = imported_app(client, path) if path else client.app_starting_server
    value = (app.query if read_only else app.call)(name, *map(json_or_text, words))
    client.output.json({"value": value}) if client.output.mode == "json" else write(json_text(value))
