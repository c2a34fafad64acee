"""The checks of a claim, in their order, and which of them hold a job back."""

from __future__ import annotations

from typing import Literal, NamedTuple

from holdfast.records.table import Record

Result = Literal["passed", "held", "later", "unknown"]


class Gate(NamedTuple):
    """A check: its name, what came of it, and the reason that says why not."""

    name: str
    result: Result
    reason: Record | None = None


# Name of a check, and the codes of the reasons that say that it is not passed.
_CHECKS = (
    ("Deadline not passed", ("deadline",)),
    ("Due", ("not-due", "retrying", "unknown-to-last", "alone")),
    ("Dependencies have ended", ("blocked",)),
    ("Queue is not paused", ("paused",)),
    ("Queue may run more jobs", ("concurrency",)),
    ("Its limits have a free slot", ("limit",)),
    ("Its arguments are stored", ("payload-lost",)),
    ("A live worker serves the queue", ("no-worker", "unserved", "draining")),
    ("The worker can run the task", ("unknown-task", "no-exec")),
    ("A slot of a worker is free", ("busy",)),
)
_OF_ITSELF = _CHECKS[1][1] + _CHECKS[2][1]  # limits are asked only of a job that waits in its queue
_NO_WORKER = _CHECKS[7][1]


def gates_of(explanation: Record) -> list[Gate]:
    """Return the checks of a job that is not running; none if it is, or if it cannot be read."""
    reasons = [explanation, *explanation["also"]]
    codes = {each["code"]: each for each in reasons}
    known = {code for _, held_by in _CHECKS for code in held_by} | {"ready"}
    if not codes.keys() & known or "running" in codes:
        return []
    return [Gate(name, *_result(name, held_by, codes)) for name, held_by in _CHECKS]


def _result(name: str, held_by: tuple[str, ...], codes: dict[str, Record]) -> tuple[Result, Record | None]:
    reason = next((codes[code] for code in held_by if code in codes), None)
    if reason:
        return "held", reason
    waits_itself = any(code in codes for code in _OF_ITSELF)
    if waits_itself and name in ("Its limits have a free slot", "A slot of a worker is free"):
        return "later", None
    if any(code in codes for code in _NO_WORKER) and name in (
        "The worker can run the task",
        "A slot of a worker is free",
    ):
        return "unknown", None
    if name == "A slot of a worker is free" and "ready" not in codes:
        return "later", None
    return "passed", None
