"""The command that says what a server guarantees."""

from __future__ import annotations

from dataclasses import asdict

from holdfast.cli.exits import IN_DANGER, REFUSED
from holdfast.cli.fields import FINDING
from holdfast.cli.output import Column, Fact
from holdfast.cli.session import Session, command, pass_session

EXIT_CODES = {"ok": 0, "note": 0, "warning": REFUSED, "danger": IN_DANGER}
STYLES = {"ok": "green", "note": "cyan", "unknown": "magenta", "warning": "yellow", "danger": "bold red"}


@command(
    "doctor",
    "holdfast doctor",
    "holdfast doctor --url redis://cache.example.org --json | jq '.[] | select(.level == \"danger\")'",
    "holdfast doctor --plain | grep ^danger",
    fields=FINDING,
)
@pass_session
def doctor(session: Session) -> int:
    """Say what the server guarantees, and what to do about it.

    Its version and its settings are looked at. Each finding has a code, a level, what it means, and what to do, the
    worst first. When piped, the columns are level, code, meaning, advice. With --json, an array. docs/doctor.md
    explains every code.

    Exit code 0 if nothing is worse than a note; 1 if there are warnings, or something that data depends on could not be
    known; 6 if there is danger: the server loses jobs, or works for nobody. A worker refuses a server whose version,
    role, eviction or acl is in danger, unless it is started with --accept-data-loss.
    """
    from holdfast.doctor import LEVELS, probe_server, run_checks, worst_level

    found = sorted(run_checks(probe_server(session.new_app.store)), key=lambda finding: -LEVELS.index(finding.level))
    if session.output.mode == "table":
        session.output.facts(
            Fact(each.code, f"{each.level}: {each.means}\n{each.advice}".rstrip(), STYLES[each.level]) for each in found
        )
    else:
        names = ("level", "code", "means", "advice")
        columns = [Column(name.upper(), lambda record, name=name: record[name]) for name in names]  # type: ignore[misc]
        session.output.list([asdict(finding) for finding in found], columns, "")
    return EXIT_CODES[worst_level(found)]
