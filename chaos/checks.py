"""Compare the ledgers of the jobs with the store, and report every broken promise.

No check goes by the clock, but the one of exclusive jobs. The fence makes that possible: a save that was acknowledged
was made while its attempt held the job, so before any later attempt began, whenever the line about it was written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

from chaos.ledger import Entry
from chaos.observer import Seen

SHOWN = 12  # lines of a ledger, with a finding
SOON, AWAKE = 1_000_000_000, 4_000_000_000  # nanoseconds in which a worker that wakes renews its leases, and kills


class Finding(NamedTuple):
    """A broken promise: the job, what happened, and the lines of its ledger that show it."""

    job: str
    words: str
    lines: tuple[Entry, ...] = ()

    def __str__(self) -> str:
        return "\n".join([f"{self.job}: {self.words}", *(f"    {line}" for line in self.lines)])


class Last(NamedTuple):
    """A job's record at the end. `result` has the number of items done, and the attempt."""

    state: str
    attempt: int
    retries_used: int = 0
    result: tuple[int, int] = (0, 0)
    words: str = ""


class Sleep(NamedTuple):
    """When these processes, a whole worker, stood still."""

    pids: frozenset[int]
    since: int
    until: int


@dataclass
class Story:
    """All that is known of a job."""

    id: str
    items: int
    entries: list[Entry]
    last: Last
    seen: list[Seen] = field(default_factory=list)
    logs: dict[int, set[str]] = field(default_factory=dict)  # lines, by attempt
    claimed: dict[int, int] = field(default_factory=dict)  # when attempts were, by the store
    exclusive: bool = False
    loops: bool = False
    sleeps: Sequence[Sleep] = ()

    @cached_property
    def _by_word(self) -> dict[str, list[Entry]]:
        found: dict[str, list[Entry]] = {}
        for entry in self.entries:
            found.setdefault(entry.word, []).append(entry)
        return found

    def of(self, word: str) -> list[Entry]:
        return self._by_word.get(word, [])

    @cached_property
    def begun(self) -> list[Entry]:
        """The beginnings of its attempts, by their numbers."""
        return sorted(self.of("begin"), key=lambda entry: entry.attempt)


def check(story: Story) -> list[Finding]:
    return [finding for each in CHECKS for finding in each(story)]


def ends_well(story: Story) -> Iterator[Finding]:
    """It succeeded, by its last attempt, with the right result; nobody charged it an error."""
    last = story.last
    if last.state != "succeeded":
        yield Finding(story.id, f"is {last.state}. {last.words}", tuple(story.entries[-SHOWN:]))
    elif last.result != (story.items, last.attempt):
        words = f"has the result {last.result}, not {(story.items, last.attempt)}: of all items, by the last attempt"
        yield Finding(story.id, words, tuple(story.entries[-SHOWN:]))
    elif story.seen and story.seen[-1].done != story.items:
        yield Finding(story.id, f"ended, and its last checkpoint is {story.seen[-1]}", tuple(story.begun[-SHOWN:]))
    if last.retries_used:
        yield Finding(story.id, f"was charged {last.retries_used} errors")


def leaves_nothing_out(story: Story) -> Iterator[Finding]:
    """Each attempt does one item after the other from where it began, and together they do all."""
    left = set(range(story.items)) - {entry.number for entry in story.of("item")}
    if left and story.last.state == "succeeded":
        yield Finding(story.id, f"left out items {sorted(left)[:10]}", tuple(story.begun[-SHOWN:]))
    for one, two in pairwise(story.begun):
        if one.attempt == two.attempt:
            yield Finding(story.id, f"began attempt {one.attempt} twice", (one, two))
    before = {begin.attempt: begin for begin in story.begun}
    expected = {begin.attempt: begin.number for begin in story.begun}
    for entry in story.of("item"):
        if entry.number != expected.get(entry.attempt):
            yield Finding(story.id, "did items out of their order", (before[entry.attempt], entry))
            return
        before[entry.attempt], expected[entry.attempt] = entry, entry.number + 1


def resumes_where_it_was(story: Story) -> Iterator[Finding]:
    """No attempt begins before a save that was acknowledged, or in the store, before it; or at one never made."""
    for begin in story.begun:
        kept = [entry for entry in story.of("kept") if entry.attempt < begin.attempt]
        lost = [entry for entry in kept if entry.number > begin.number]
        if lost:
            words = f"attempt {begin.attempt} began at {begin.number}, and a save of {lost[-1].number} was acknowledged"
            yield Finding(story.id, words, (*lost[-3:], begin))
        seen = max((seen.done for seen in story.seen if seen.attempt < begin.attempt), default=0)
        if seen > begin.number:
            yield Finding(story.id, f"attempt {begin.attempt} began at {begin.number}, the store had {seen}", (begin,))
        if begin.number > _furthest(story, begin.attempt):
            yield Finding(story.id, f"attempt {begin.attempt} began at {begin.number}: nobody saved that", (begin,))


def _furthest(story: Story, attempt: int) -> int:
    """How much the attempts before this one can have saved."""
    done = story.of("item") if story.loops else story.of("save")
    most = max((entry.number for entry in done if entry.attempt < attempt), default=-1 if story.loops else 0)
    return most + 1 if story.loops else most


def refuses_the_stale(story: Story) -> Iterator[Finding]:
    """The checkpoint in the store never goes back, neither in items done nor to an earlier attempt."""
    for one, two in pairwise(story.seen):
        if two.attempt < one.attempt or two.done < one.done or two.by < one.by:
            yield Finding(story.id, f"went back in the store, from {one} to {two}", tuple(story.begun[-SHOWN:]))
    for seen in story.seen:
        if seen.by > seen.attempt:
            yield Finding(story.id, f"has words of an attempt that is not: {seen}", tuple(story.begun[-SHOWN:]))
    for first, then in pairwise([begin for begin in story.begun if begin.by >= 0]):
        if then.by < first.by or then.by >= then.attempt or then.number < first.number:
            yield Finding(story.id, "found an older checkpoint than the attempt before", (first, then))
    if story.last.state == "succeeded" and story.seen and story.seen[-1].by < _last_to_save(story):
        yield Finding(story.id, f"ended with the words of an earlier attempt: {story.seen[-1]}", tuple(story.begun))


def _last_to_save(story: Story) -> int:
    """The attempt that succeeded, if it saved anything: if it found all done, it need not."""
    kept = [entry.attempt for entry in story.of("kept") if entry.attempt == story.last.attempt]
    return max(kept, default=0)


def does_steps_once(story: Story) -> Iterator[Finding]:
    """A step of `once` that was acknowledged is not done by a later attempt, and its result stays."""
    first: dict[int, Entry] = {}
    for entry in sorted(story.of("step"), key=lambda entry: (entry.attempt, entry.at)):
        known = first.setdefault(entry.number, entry)
        if known.rest != entry.rest:
            yield Finding(story.id, f"step {entry.number} has two results", (known, entry))
    for did in story.of("did"):
        known_by = first.get(did.number)
        if known_by and known_by.attempt < did.attempt:
            yield Finding(story.id, f"step {did.number} was done again, after its result was kept", (known_by, did))


def keeps_all_lines(story: Story) -> Iterator[Finding]:
    """Each line that was flushed is in the log of its attempt."""
    lines: dict[int, list[Entry]] = {}
    for entry in story.of("line"):
        lines.setdefault(entry.attempt, []).append(entry)
    for attempt, printed in lines.items():
        found = story.logs.get(attempt, set())
        missing = [entry for entry in printed if entry.rest not in found]
        if missing:
            words = f"of attempt {attempt}, {len(missing)} of {len(printed)} lines are not in its log"
            yield Finding(story.id, words, tuple(missing[:SHOWN]))


def runs_alone(story: Story) -> Iterator[Finding]:
    """If it is exclusive: no attempt does anything after a later one was claimed."""
    for entry, at, attempt in besides(story):
        if not has_slept(story, entry, at):
            words = (
                f"is exclusive, and attempt {entry.attempt} ran when attempt {attempt} was claimed at {at / 1e9:.3f}"
            )
            later = [begin for begin in story.begun if begin.attempt == attempt]
            yield Finding(story.id, words, (entry, *later))
            return


def besides(story: Story) -> Iterator[tuple[Entry, int, int]]:
    """Return what attempts did after a later one was claimed or had begun: the time, and the attempt."""
    known = {begin.attempt: begin.at for begin in story.begun} | story.claimed
    starts = sorted((at, attempt) for attempt, at in known.items())
    for entry in story.entries if story.exclusive else ():
        later = [(at, attempt) for at, attempt in starts if attempt > entry.attempt and at < entry.at]
        if later:
            yield entry, *later[0]


def has_slept(story: Story, entry: Entry, at: int) -> bool:
    """Whether its whole worker stood still when it lost the job: as documented, it is killed when it wakes."""
    return any(
        entry.pid in sleep.pids
        and sleep.since <= at <= sleep.until + SOON
        and sleep.until <= entry.at <= sleep.until + AWAKE
        for sleep in story.sleeps
    )


CHECKS: tuple[Callable[[Story], Iterator[Finding]], ...] = (
    ends_well,
    leaves_nothing_out,
    resumes_where_it_was,
    refuses_the_stale,
    does_steps_once,
    keeps_all_lines,
    runs_alone,
)
