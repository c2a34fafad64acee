"""`holdfast doctor`: what the server guarantees."""

from __future__ import annotations

from holdfast.cli.client import Client, pass_client
from holdfast.cli.command import command
from holdfast.cli.exit_codes import DANGER, REFUSED
from holdfast.cli.output import Fact
from holdfast.records.doctor import FINDINGS, find_worst_first

EXIT_CODES = {"ok": 0, "note": 0, "warning": REFUSED, "danger": DANGER}
STYLES = {"ok": "green", "note": "cyan", "unknown": "magenta", "warning": "yellow", "danger": "bold red"}


@command(
    "doctor",
    "holdfast doctor",
    "holdfast doctor --url redis://cache.example.org --json | jq '.[] | select(.level == \"danger\")'",
    "holdfast doctor --plain | grep ^danger",
    output=FINDINGS,
)
@pass_client
def doctor(client: Client) -> int:
    """Check what the server's version and settings guarantee, and what to change.

    Each finding has a level, a code, a meaning and advice; the worst come first. docs/doctor.md explains every code.

    Exit code 0 if nothing is worse than a note; 1 if there are warnings, or a setting that affects the safety of data
    is unknown; 6 if there is danger: the server can lose jobs, or refuses to work. A worker refuses a server that is in
    danger because of its version, role, eviction or acl, unless it is started with --accept-data-loss.
    """
    from holdfast.doctor import worst_level

    findings = find_worst_first(client.app_starting_server)
    if client.output.on_terminal:
        client.output.facts(
            Fact(each.code, f"{each.level}: {each.means}\n{each.advice}".rstrip(), STYLES[each.level])
            for each in findings
        )
    else:
        client.output.list(FINDINGS.records(findings), FINDINGS)
    return EXIT_CODES[worst_level(findings)]
