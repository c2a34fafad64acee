"""A check of a whole namespace by the store's own functions: `check` and `repair`."""

from __future__ import annotations

from holdfast.store import commands
from holdfast.store.commands import Finding
from holdfast.store.store import Store

PASSES = 3  # of repairs, as the client makes them


def findings(
    store: Store, *, repair: bool = False, again: bool = False, units: int | None = None
) -> dict[str, Finding]:
    """Check all keys. Return what was found; by code."""
    found: dict[str, Finding] = {}
    position = b""
    while True:
        step = store.run(commands.check_step(position, repair=repair, again=again, units=units))
        for finding in step.findings:
            found[finding.code] = found[finding.code].plus(finding) if finding.code in found else finding
        position = step.position
        if not position:
            return found


def repair_all(store: Store) -> None:
    """Repair until nothing is found."""
    for number in range(PASSES):
        if not findings(store, repair=True, again=number > 0):
            break


def nothing_found(store: Store) -> None:
    """Fail if a check finds anything."""
    found = findings(store)
    assert not found, "\n".join(f"{each.code}: {each.count}: {each.examples}" for each in found.values())
