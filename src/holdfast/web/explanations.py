"""Explanations for users with rights on some queues: without names of other queues, of their tasks and of their jobs.

What a job itself waits for is told to whoever may see it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from holdfast.job import reasons
from holdfast.job.explanation import Explanation, Reason
from holdfast.web.call import Call
from holdfast.web.tracebacks import visible_ids

OTHERS = "jobs of other queues"


async def without_other_queues(call: Call, found: Sequence[Explanation]) -> list[Explanation]:
    """Return explanations as a user may see them."""
    if call.user.has_all_queues:
        return list(found)
    visible = await visible_ids(call, {id for each in found for one in _reasons(each) for id in _holders(one)})
    return [_shown(call, each, visible) for each in found]


def _reasons(explanation: Explanation) -> Iterable[Reason]:
    first = Reason(explanation.code, "", explanation.facts)
    return first, *explanation.also


def _holders(reason: Reason) -> Sequence[str]:
    return reason.facts["holders"] if reason.code == "limit" else ()


def _shown(call: Call, explanation: Explanation, visible: set[str]) -> Explanation:
    own = explanation.text.removesuffix("".join(f"; also, {each.text}" for each in explanation.also))
    first = Reason(explanation.code, own, explanation.facts)
    first, *others = (_narrowed(call, each, explanation, visible) for each in (first, *explanation.also))
    text = "; also, ".join(each.text for each in (first, *others))
    return msgspec.structs.replace(explanation, text=text, facts=first.facts, also=tuple(others))


def _narrowed(call: Call, reason: Reason, of: Explanation, visible: set[str]) -> Reason:
    """Return a reason whose facts and text name nothing else than what the user may see."""
    facts = reason.facts
    changed: dict[str, Any] = {}
    if reason.code == "unserved":
        changed = {"served": [name for name in facts["served"] if call.user.has_queue(name)]}
    elif reason.code == "unknown-task":
        changed = {"tasks": []}
    elif reason.code == "limit":
        changed = {"holders": [id for id in facts["holders"] if id in visible]}
    if not changed:
        return reason
    shown = {**facts, **changed}
    return msgspec.structs.replace(reason, facts=shown, text=_text(reason, shown, of))


def _text(reason: Reason, shown: dict[str, Any], of: Explanation) -> str:
    """Return the text of a reason with other facts."""
    if reason.code == "limit":
        if shown["per"] or shown["free"] or not shown["slots"]:
            return reason.text  # which names no holders
        hidden = [OTHERS] if len(shown["holders"]) < len(reason.facts["holders"]) else []
        shown = {**shown, "holders": [*shown["holders"][: reasons.MAX_NAMES - len(hidden)], *hidden]}
    return reasons.describe(reason.code, {"queue": of.queue, "task": of.task}, shown).text
