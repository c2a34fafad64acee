"""`holdfast tags`, `scopes` and `tracked`: count and list jobs by tag and scope; `tag` and `track` change jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import click

from holdfast.cli.bulk import Action, Answer, run_action, run_on_ids, selection_options
from holdfast.cli.client import Client, pass_client
from holdfast.cli.command import command
from holdfast.cli.completers import complete_ids, complete_scope, complete_tag
from holdfast.cli.jobs import TERMINAL_LIMIT
from holdfast.cli.options import Integer, limit_option
from holdfast.cli.watch import show_list, watch_option
from holdfast.client.tags import read_mark
from holdfast.records.table import Record
from holdfast.records.tags import MARKED, SCOPES, TAGS, TRACKED, scope_records, tag_records, tracked_records
from holdfast.store import Command, commands

_ids = click.argument("ids", nargs=-1, metavar="[ID...]", shell_complete=complete_ids)
_tags = click.option(
    "-t", "--tag", "tags", multiple=True, required=True, metavar="TAG", shell_complete=complete_tag,
    help="A tag; repeatable.",
)  # fmt: skip
_limit = limit_option(f"Maximum number of rows. Default: {TERMINAL_LIMIT} on a terminal, all in a pipe.")
_min = click.option(
    "--min",
    "minimum",
    type=Integer(1),
    metavar="NUMBER",
    default=1,
    help="Only those with at least this number of jobs.",
)
_watch = watch_option("Refresh until Ctrl-C; in a pipe, print those that change.")


@command("tags", "holdfast tags --min 2", "holdfast tags import urgent", output=TAGS)
@click.argument("names", nargs=-1, metavar="[TAG...]", shell_complete=complete_tag)
@_min
@_limit
@_watch
@pass_client
def tags(client: Client, names: Sequence[str], minimum: int, limit: int | None, *, watching: bool) -> None:
    """List the most used tags, or these tags, with their numbers of jobs.

    A job counts in any state, until its record is deleted.
    """

    def load() -> list[Record]:
        counts = client.app.tags(*names, limit=_rows(client, limit), min_count=minimum)
        return tag_records(counts)

    show_list(client.output, load, TAGS, watching=watching)


@command("scopes", "holdfast scopes", "holdfast scopes /tenant --min 100", output=SCOPES)
@click.argument("scope", required=False, metavar="[PATH]", shell_complete=complete_scope)
@_min
@_limit
@_watch
@pass_client
def scopes(client: Client, scope: str | None, minimum: int, limit: int | None, *, watching: bool) -> None:
    """List the scopes directly inside a scope, with their numbers of jobs.

    Without a path, those with one part: /tenant. A job in /tenant/7 counts in /tenant, too.
    """

    def load() -> list[Record]:
        counts = client.app.scopes(scope, limit=_rows(client, limit), min_count=minimum)
        return scope_records(counts)

    show_list(client.output, load, SCOPES, watching=watching)


def _rows(client: Client, limit: int | None) -> int | None:
    return limit or (TERMINAL_LIMIT if client.output.on_terminal else None)


@command(
    "tag", "holdfast tag 0QwErTyUiOpAsDfG -t reviewed -t 2024-07",
    "holdfast jobs --state failed | holdfast tag -t incident-7",
    "holdfast tag --all --state failed --since 1h -t incident-7 --yes", output=MARKED,
)  # fmt: skip
@_ids
@_tags
@selection_options("tag", without=["tag"])
@pass_client
def tag(client: Client, /, ids: Sequence[str], *, tags: Sequence[str], **selection: Any) -> int:
    """Add tags to jobs in any state.

    Exit code 3 if a job does not exist, 1 if it would have more than 32 tags; the rest are tagged.
    """
    app = client.app
    action = Action("tag", lambda some: zip(some, app.tag_many(some, *tags), strict=True), partial(app.tag_all, tags))
    return run_action(client, action._replace(output=MARKED, answer="done"), ids, selection)


@command(
    "untag", "holdfast untag 0QwErTyUiOpAsDfG -t reviewed", "holdfast untag --all -t incident-7 --yes", output=MARKED
)  # fmt: skip
@_ids
@_tags
@selection_options("untag", without=["tag"])
@pass_client
def untag(client: Client, /, ids: Sequence[str], *, tags: Sequence[str], **selection: Any) -> int:
    """Remove tags from jobs.

    --all with one tag looks only at the jobs that have it. Exit code 3 if a job does not exist; the rest are changed.
    """
    app = client.app
    if selection["all"] and len(set(tags)) == 1:
        selection["tag"] = tags[0]
    untag_all = partial(app.untag_all, tags)
    action = Action("untag", lambda some: zip(some, app.untag_many(some, *tags), strict=True), untag_all)
    return run_action(client, action._replace(output=MARKED, answer="done"), ids, selection)


@command("track", "holdfast track 0QwErTyUiOpAsDfG", output=MARKED)
@_ids
@pass_client
def track(client: Client, ids: Sequence[str]) -> int:
    """Track jobs: `tracked` lists them, and their events say so.

    Without an ID, ids are read from standard input: the first column of each line. Exit code 3 if a job does not exist;
    the rest are tracked.
    """
    return run_on_ids(client, _marking(client, "track", commands.track), ids)


@command("untrack", "holdfast untrack 0QwErTyUiOpAsDfG", output=MARKED)
@_ids
@pass_client
def untrack(client: Client, ids: Sequence[str]) -> int:
    """Track jobs no longer; also jobs that were deleted.

    Without an ID, ids are read from standard input: the first column of each line. Exit code 3 if a job does not exist
    and was not tracked; the rest are untracked.
    """
    return run_on_ids(client, _marking(client, "untrack", commands.untrack), ids)


@command("tracked", "holdfast tracked -w", "holdfast tracked --json | jq '.[].id'", output=TRACKED)
@_watch
@pass_client
def tracked(client: Client, *, watching: bool) -> None:
    """List tracked jobs, those tracked last first; then up to 1,000 tracked jobs that were deleted."""
    show_list(client.output, lambda: tracked_records(client.app.tracked()), TRACKED, watching=watching)


def _marking(client: Client, verb: str, make: Callable[[Sequence[str]], Command[list[str]]]) -> Action:
    """Return the action of a command of the store."""

    def act(ids: Sequence[str]) -> Iterable[Answer]:
        replies = client.app.store.run(make(ids))
        return [(id, read_mark(verb, id, reply)) for id, reply in zip(ids, replies, strict=True)]

    return Action(verb, act, output=MARKED, answer="done")
