"""`holdfast export`: whole jobs, one JSON object per line."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import click

from holdfast.cli.client import Client, pass_client
from holdfast.cli.command import command
from holdfast.cli.errors import print_note
from holdfast.cli.exit_codes import INTERRUPTED
from holdfast.cli.filters import filter_options, given_filters
from holdfast.cli.options import limit_option
from holdfast.cli.suggestions import find_queue
from holdfast.errors import HoldfastError
from holdfast.records.formatting import json_text
from holdfast.records.jobs import JOB_DETAILS, details

PAGE = 50  # jobs that are written at once


@command(
    "export", "holdfast export --state failed > failed.ndjson",
    "holdfast export -Q mail --since 1d --position mail.position >> mail.ndjson", output=JOB_DETAILS, in_columns=False,
)  # fmt: skip
@filter_options()
@limit_option("Maximum number of jobs. Default: all.")
@click.option("--cursor", help="Continue behind this position, which an interrupted export printed.")
@click.option(
    "--position", type=click.Path(dir_okay=False), metavar="FILE",
    help="Write the position to this file, and continue from it; the file is removed at the end.",
)  # fmt: skip
@pass_client
def export(client: Client, /, limit: int | None, cursor: str | None, position: str | None, **options: Any) -> int:
    """Print whole jobs, one JSON object per line: arguments, result, attempts and notes.

    Memory does not grow with the number of jobs. Jobs that change while it runs may be printed in their old or in their
    new state, or be left out. An interrupted export prints its position: --cursor continues there. With --position a
    killed one can continue, too; then up to 50 jobs may be printed twice.
    """
    filters, file = given_filters(options), Path(position) if position else None
    if "queue" in filters:
        find_queue(client.app, filters["queue"])
    if file and file.exists() and cursor is None:
        cursor = file.read_text().strip() or None
    left = limit
    try:
        while left is None or left > 0:
            page = client.app.page(cursor, limit=PAGE if left is None else min(PAGE, left), whole=True, **filters)
            _write(page.rows)
            cursor, left = page.cursor, None if left is None else left - len(page.rows)
            if cursor is None:
                break
            if file:
                _store(file, cursor)
    except (KeyboardInterrupt, HoldfastError) as error:
        print_note(f"interrupted; continue with --cursor {cursor}" if cursor else "interrupted before the first jobs")
        if isinstance(error, HoldfastError):
            raise
        return INTERRUPTED
    if file and cursor is None:
        file.unlink(missing_ok=True)
    return 0


def _write(jobs: list[Any]) -> None:
    sys.stdout.write("".join(f"{json_text(details(job))}\n" for job in jobs))
    sys.stdout.flush()


def _store(file: Path, cursor: str) -> None:
    """Replace the file at once, so that it is whole whenever this program is killed."""
    other = file.with_name(f"{file.name}.new")
    other.write_text(f"{cursor}\n")
    os.replace(other, file)
