"""The report at the end of a run: the faults, and how the jobs came through them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path

from chaos.checks import Finding, Story, besides, has_slept
from chaos.faults import Fault, Faults
from chaos.observer import Witness

REFUSED = re.compile(r"has lost its lease")  # a save, a step or an outcome, as workers log it


@dataclass(frozen=True)
class Times:
    """How long something took: how often it happened, and seconds."""

    count: int
    median: float
    ninety_percent: float
    most: float

    @classmethod
    def of(cls, seconds: Iterable[float]) -> Times:
        every = sorted(seconds)
        if not every:
            return cls(0, 0.0, 0.0, 0.0)
        places = (len(every) // 2, min(len(every) - 1, len(every) * 9 // 10), -1)
        return cls(len(every), *(round(every[place], 2) for place in places))

    def __str__(self) -> str:
        if not self.count:
            return "none"
        return f"{self.count}; median {self.median} s, 90 % {self.ninety_percent} s, longest {self.most} s"


@dataclass(frozen=True)
class Report:
    """All figures of a run."""

    seed: int
    seconds: float  # of faults
    seconds_in_all: float
    jobs: int
    attempts: int
    kills: dict[str, int]
    freezes: dict[str, int]
    recoveries: dict[str, Times]  # from a fault until a job that it hit runs again, by kind of fault
    items: int
    repeated: int
    undone: Times  # how much work an attempt had done since the save that the next one found
    saves: int
    acknowledged: int
    forged: int  # writes in the names of stale attempts, that the harness tried
    forged_and_accepted: int
    refused: int  # writes of stale attempts, that workers tried and were refused
    steps: int
    steps_repeated: int
    lines: int
    lines_found: int
    ran_on: int  # lines that exclusive jobs wrote after their whole worker had slept, as documented
    outages: int  # looks into the store at which it did not answer
    findings: list[str]

    def json(self) -> dict[str, object]:
        return asdict(self)


def make_report(
    stories: Sequence[Story],
    faults: Faults,
    witness: Witness,
    findings: Sequence[Finding],
    logs: Sequence[Path],
    **of: float,
) -> Report:
    items = [Counter(entry.number for entry in story.of("item")) for story in stories]
    steps = [Counter(entry.number for entry in story.of("did")) for story in stories]
    lines = [(entry, story.logs.get(entry.attempt, set())) for story in stories for entry in story.of("line")]
    return Report(
        seed=int(of["seed"]),
        seconds=round(of["seconds"], 1),
        seconds_in_all=round(of["seconds_in_all"], 1),
        jobs=len(stories),
        attempts=sum(story.last.attempt for story in stories),
        kills=dict(faults.count("kill")),
        freezes=dict(faults.count("freeze")),
        recoveries=recoveries(stories, faults.faults),
        items=sum(map(len, items)),
        repeated=_repeats(items),
        undone=Times.of(seconds for story in stories for seconds in undone(story)),
        saves=_count(stories, "save"),
        acknowledged=_count(stories, "kept"),
        forged=witness.tried,
        forged_and_accepted=len(witness.accepted),
        refused=sum(len(REFUSED.findall(log.read_text(errors="replace"))) for log in logs),
        steps=sum(map(len, steps)),
        steps_repeated=_repeats(steps),
        lines=len(lines),
        lines_found=sum(entry.rest in found for entry, found in lines),
        ran_on=sum(has_slept(story, entry, at) for story in stories for entry, at, _ in besides(story)),
        outages=witness.away,
        findings=[str(finding) for finding in findings],
    )


def _repeats(counts: Iterable[Counter[int]]) -> int:
    return sum(count.total() - len(count) for count in counts)


def _count(stories: Iterable[Story], word: str) -> int:
    return sum(len(story.of(word)) for story in stories)


def recoveries(stories: Iterable[Story], faults: Iterable[Fault]) -> dict[str, Times]:
    """From each fault, for each job that it hit, the time until its next attempt began; not if it needed none."""
    begun = {story.id: story.begun for story in stories}
    seconds: dict[str, list[float]] = {}
    for fault in faults:
        times = seconds.setdefault(f"{fault.verb} {fault.kind}", [])
        for job, attempt in fault.hits:
            again = next((begin for begin in begun.get(job, []) if begin.attempt > attempt), None)
            if again and (fault.verb == "kill" or again.at < fault.until + 1_000_000_000):
                times.append((again.at - fault.at) / 1e9)
    killed = [time for kind, times in seconds.items() if kind.startswith("kill") for time in times]
    by_kind = {kind: Times.of(times) for kind, times in sorted(seconds.items()) if times}
    return by_kind | ({"any kill": Times.of(killed)} if killed else {})


def undone(story: Story) -> Iterator[float]:
    """For each attempt that was followed by another: seconds from what that found saved to the last done before it."""
    for begin, after in pairwise(story.begun):
        word, number = ("item", after.number - 1) if story.loops else ("save", after.number)
        done = [entry for entry in story.entries if entry.attempt == begin.attempt and entry.at < after.at]
        saved = [entry.at for entry in done if entry.word == word and entry.number == number]
        yield max(0, max((entry.at for entry in done), default=0) - max(saved, default=begin.at)) / 1e9


def describe(report: Report) -> list[str]:
    """Return the report as lines of text."""
    kills, freezes = (
        f"{sum(counts.values())}: " + ", ".join(f"{number} {kind}" for kind, number in counts.items() if number)
        for counts in (report.kills, report.freezes)
    )
    rows = [
        ("seed", f"{report.seed}; {report.seconds:g} s of faults, {report.seconds_in_all:g} s in all"),
        ("jobs", f"{report.jobs}, in {report.attempts} attempts"),
        ("killed (SIGKILL)", kills),
        ("frozen (SIGSTOP)", freezes),
        *((f"runs again after {kind}", str(times)) for kind, times in report.recoveries.items()),
        (
            "items repeated",
            f"{report.repeated} of {report.items}; {report.acknowledged} of {report.saves} saves were waited for",
        ),
        ("work done again, each time", str(report.undone)),
        ("stale writes", f"{report.refused} of workers refused; {report.forged} forged, {_accepted(report)}"),
        ("steps of once", f"{report.steps}, {report.steps_repeated} done again before they were kept"),
        ("log lines", f"{report.lines} flushed, {report.lines_found} found"),
        ("exclusive", f"{report.ran_on} lines written by attempts whose whole worker had just woken, as documented"),
    ]
    return [f"{name:36} {value}" for name, value in rows]


def _accepted(report: Report) -> str:
    return f"{report.forged_and_accepted} accepted"
