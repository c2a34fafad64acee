"""The checks of a claim, in their order, and which of them hold a job back."""

from __future__ import annotations

from typing import Literal, NamedTuple

from holdfast.records.table import Record

Result = Literal["passed", "held", "later", "unknown"]


class Gate(NamedTuple):
    """A check of a claim: its name, its outcome, and the reason if it failed."""

    name: str
    result: Result
    reason: Record | None = None


_DEADLINE, _LIMITS = "Its deadline has not passed", "Its limits have a free slot"
_RUNS, _SLOT = "The worker can run the task", "A slot of a worker is free"
# Name of a check, and the codes of the reasons that say that it is not passed.
_CHECKS = (
    (_DEADLINE, ("deadline",)),
    ("Due", ("not-due", "retrying", "unknown-to-last", "alone")),
    ("Dependencies have ended", ("blocked",)),
    ("Queue is not paused", ("paused",)),
    ("Queue may run more jobs", ("concurrency",)),
    (_LIMITS, ("limit",)),
    ("Its arguments are stored", ("payload-lost",)),
    ("A live worker serves the queue", ("no-worker", "unserved", "draining")),
    (_RUNS, ("unknown-task", "no-exec")),
    (_SLOT, ("busy",)),
)
_OF_ITSELF = _CHECKS[1][1] + _CHECKS[2][1]
_NO_WORKER = _CHECKS[7][1]


def gates_of(job: Record, explanation: Record) -> list[Gate]:
    """Return the checks of a job that is not running; none if it is, or if it cannot be read."""
    codes = {each["code"]: each for each in [explanation | {"text": own_text(explanation)}, *explanation["also"]]}
    known = {code for _, held_by in _CHECKS for code in held_by} | {"ready"}
    if not codes.keys() & known or "running" in codes:
        return []
    left_out = {_DEADLINE: not job["deadline"], _LIMITS: not job["limits"], "Dependencies have ended": not job["after"]}
    checks = [(name, held_by, _held(held_by, codes)) for name, held_by in _CHECKS]
    shown = [(name, held_by, reason) for name, held_by, reason in checks if reason or not left_out.get(name)]
    return [Gate(name, "held" if reason else _result(name, codes), reason) for name, _, reason in shown]


def own_text(explanation: Record) -> str:
    """Return the sentence of the first reason alone."""
    others = "".join(f"; also, {each['text']}" for each in explanation["also"])
    text: str = explanation["text"]
    return text.removesuffix(others)


def _held(held_by: tuple[str, ...], codes: dict[str, Record]) -> Record | None:
    return next((codes[code] for code in held_by if code in codes), None)


def _result(name: str, codes: dict[str, Record]) -> Result:
    """Return what came of a check that is no reason: limits are asked only of a job that waits in its queue."""
    if any(code in codes for code in _OF_ITSELF) and name in (_LIMITS, _SLOT):
        return "later"
    if any(code in codes for code in _NO_WORKER) and name in (_RUNS, _SLOT):
        return "unknown"
    return "later" if name == _SLOT and "ready" not in codes else "passed"
