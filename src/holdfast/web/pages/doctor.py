"""The page of the doctor: what the server guarantees, in words, and what to change."""

from __future__ import annotations

from typing import NamedTuple

from holdfast.records.table import Record
from holdfast.web.call import Call
from holdfast.web.pages.page import Page, Pages
from holdfast.web.resources.checks import list_findings

pages = Pages()


class Verdict(NamedTuple):
    """What the worst finding means: a state that gives the colour, a glyph, and a sentence."""

    state: str
    shape: str
    title: str


VERDICTS = {
    "danger": Verdict("failed", "failed", "This server loses jobs in normal operation, or cannot be worked with."),
    "warning": Verdict("throttled", "warn", "Jobs may be lost in a disaster, or refused soon."),
    "unknown": Verdict("throttled", "warn", "This user may not query all that the safety of jobs depends on."),
    "note": Verdict("succeeded", "succeeded", "No job is lost in normal operation."),
    "ok": Verdict("succeeded", "succeeded", "No job is lost in normal operation, and nothing could be better."),
}
# The glyph and its colour of each level.
SHAPES = {
    "danger": ("failed", "failed"), "warning": ("warn", "throttled"), "unknown": ("warn", "throttled"),
    "note": ("note", "waiting"), "ok": ("succeeded", "succeeded"),
}  # fmt: skip
GUARANTEES = {"persistence": "A power cut", "replicas": "The loss of the machine", "eviction": "Full memory"}


@pages.get("/doctor", role="operator")
async def doctor_page(call: Call) -> Page:
    """The findings of the doctor, the worst first."""
    findings = (await list_findings(call)).items
    worst = findings[0]["level"] if findings else "ok"
    return Page(
        "doctor.html", title="Doctor", section="Doctor", findings=findings, verdict=VERDICTS[worst], shapes=SHAPES,
        guarantees=guarantees(findings), concerns=sum(each["level"] not in ("ok", "note") for each in findings),
    )  # fmt: skip


def guarantees(findings: list[Record]) -> list[tuple[str, str]]:
    """Return what happens to jobs in each kind of accident, as far as it is known."""
    means = {each["code"]: each["means"] for each in findings}
    return [(title, means[code]) for code, title in GUARANTEES.items() if code in means]
