"""`holdfast conformance`: does a server behave as the protocol says? And the data for clients in other languages."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.client import Client, pass_client
from holdfast.cli.command import command
from holdfast.cli.errors import print_note
from holdfast.cli.exit_codes import REFUSED
from holdfast.records.conformance import CASES, RESULTS
from holdfast.text import pluralize

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from holdfast.conformance import Result

MAX_NAMED = 20  # failed cases that the summary names


def complete_case(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Offer areas, and the cases of an area whose name is complete."""
    from click.shell_completion import CompletionItem

    from holdfast.conformance import load_areas

    areas = load_areas()
    pairs = [(area.name, area.about) for area in areas]
    pairs += [(case.path, case.shows) for area in areas for case in area.cases if f"{area.name}/" in incomplete]
    return [CompletionItem(name, help=help) for name, help in pairs if name.startswith(incomplete)]


@command(
    "conformance",
    "holdfast conformance",
    "holdfast conformance --url redis://cache.example.org enqueue claim/order",
    "holdfast conformance --list finish",
    "holdfast conformance --export conformance/",
    shared=("url", "json", "plain"),
    output=RESULTS,
)
@click.argument("cases", metavar="[CASE]...", nargs=-1, shell_complete=complete_case)
@click.option("--list", "only_list", is_flag=True, help="List the cases, and run none.")
@click.option(
    "--export", "folder", type=click.Path(file_okay=False, path_type=Path), metavar="DIRECTORY",
    help="Write all cases, vectors and the library into a directory, for a client in another language.",
)  # fmt: skip
@pass_client
def conformance(client: Client, cases: tuple[str, ...], only_list: bool, folder: Path | None) -> int:
    """Check that a server behaves as the protocol says, case by case.

    CASE is an area, such as `enqueue`, or a case of one, such as `enqueue/a-job`; default: all. Each case runs in a
    new namespace, which is deleted afterwards; other namespaces are not touched. Clients in other languages use the
    same cases as tests: see docs/conformance.md. Exit code 1 if a case fails.
    """
    from holdfast.conformance import find_cases

    if only_list and folder:
        raise click.UsageError("--list and --export cannot be combined.")
    if folder:
        print_note(f"wrote {_export(folder)} files to {folder}")
        return 0
    found = find_cases(cases)
    if only_list:
        client.output.list(CASES.records(found), CASES)
        return 0
    results: list[Result] = []
    with closing(_run(client, found)) as run:  # also if the reader of the output closes it
        records = (_record(each, results) for each in run)
        if client.output.on_terminal:
            for record in records:
                client.output.stream(record, RESULTS)
        else:
            client.output.list(records, RESULTS)
    print_note(_summary(results))
    return REFUSED if any(each.status == "failed" for each in results) else 0


def _run(client: Client, cases: Iterable[Any]) -> Generator[Result, None, None]:
    """Run cases, and delete what they stored, also after Ctrl-C."""
    from holdfast.conformance import Run, open_connection
    from holdfast.store.library import library

    address = client.app_starting_server.address
    with open_connection(address) as connection:
        run = Run(connection.send, library())
        try:
            for case in cases:
                yield run.run(case)
        finally:
            with open_connection(address) as another:  # the first may still await a reply
                run.clean_up(another.send)


def _record(result: Result, results: list[Result]) -> dict[str, Any]:
    results.append(result)
    return RESULTS.record(result)


def _summary(results: list[Result]) -> str:
    passed, skipped, failed = (
        [each.case.path for each in results if each.status == status] for status in ("passed", "skipped", "failed")
    )
    names = ", ".join(failed[:MAX_NAMED]) + (", ..." if len(failed) > MAX_NAMED else "")
    parts = [
        f"{len(passed)} of {pluralize(len(results), 'case')} passed",
        f"{len(skipped)} skipped" if skipped else "",
        f"{len(failed)} failed: {names}" if failed else "",
    ]
    return ", ".join(part for part in parts if part)


def _export(folder: Path) -> int:
    """Write the data and the library; return the number of files."""
    from holdfast.conformance.cases import data_files
    from holdfast.store.library import library

    files = [*data_files(), ("holdfast.lua", library().encode())]
    for name, content in files:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return len(files)
