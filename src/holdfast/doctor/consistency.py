"""The check `consistency` of the doctor: what upkeep has found in the store that does not fit together."""

from __future__ import annotations

from holdfast.doctor.probe import ServerFacts
from holdfast.doctor.result import Result, note, ok, warning
from holdfast.text import listed, pluralize


def consistency(facts: ServerFacts) -> Result:
    history = facts.check_history
    if history is None or not history.findings:
        return ok("Upkeep has found nothing that does not fit together.")
    if history.unrepaired:
        return warning(
            f"Upkeep has found what it cannot repair: {listed([each.code for each in history.unrepaired], 'and')}.",
            "Run `holdfast fsck`, and look the codes up in docs/fsck.md.",
        )
    total, codes = sum(each.repaired for each in history.findings), [each.code for each in history.findings]
    return note(
        f"Upkeep has repaired {pluralize(total, 'problem')}: {listed(codes, 'and')}.",
        "Find out what damaged the data: `holdfast fsck --history` says when.",
    )
