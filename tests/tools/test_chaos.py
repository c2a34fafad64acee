"""Chaos: a minute of it, and that its checker would notice. `make chaos` runs it for longer.

The checker is fed ledgers that show what may not be: it has to find that, and nothing else.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from chaos.checks import Finding, Last, Sleep, Story, check
from chaos.faults import FREEZES, KILLS, Fault
from chaos.ledger import Book, Entry, Page, parse
from chaos.observer import Seen, done_of
from chaos.report import Times, recoveries, undone

from tests.support.workers import ROOT

SECONDS = 40  # of harm; with the start and the end about a minute
SEED = 5
SECOND = 1_000_000_000


# A minute of it


@contextmanager
def chaos(*options: str) -> Iterator[subprocess.Popen[str]]:
    line = [sys.executable, "-m", "chaos", "--json", *options]
    process = subprocess.Popen(line, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    with process:
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)


@pytest.mark.timeout(480)
def test_fifty_jobs_lose_nothing_while_everything_is_killed_and_frozen(capsys: pytest.CaptureFixture[str]) -> None:
    with chaos("--seconds", str(SECONDS), "--seed", str(SEED)) as process:
        said, complaints = process.communicate()

    assert process.returncode == 0, complaints
    record = json.loads(said)
    assert record["findings"] == []
    assert record["jobs"] >= 50
    assert all(record["kills"][kind] for kind in KILLS)
    assert all(record["freezes"][kind] for kind in FREEZES)
    assert record["lines_found"] == record["lines"] > 1000
    assert record["forged"] > 0 == record["forged_and_accepted"]
    with capsys.disabled():
        kills, freezes = sum(record["kills"].values()), sum(record["freezes"].values())
        print(
            f"\nchaos: {kills} kills and {freezes} freezes, {record['attempts']} attempts at {record['jobs']} jobs, "
            f"{record['repeated']} of {record['items']} items repeated"
        )


# The checker

WORDS = {
    1: ["begin 0 0", "item 0", "line a", "did 0", "step 0 x", "save 1", "kept 1", "item 1", "line b", "save 2"],
    2: ["begin 1 1", "item 1", "line b", "save 2", "kept 2", "item 2", "line c", "save 3", "kept 3", "end"],
}


def ledger(words: dict[int, list[str]]) -> list[Entry]:
    """Entries, a second apart, each attempt in a process of its own."""
    lines = [(attempt, line) for attempt, lines in words.items() for line in lines]
    return [
        Entry(place * SECOND, attempt, 100 + attempt, *line.partition(" ")[::2])
        for place, (attempt, line) in enumerate(lines)
    ]


def story(words: dict[int, list[str]] | None = None) -> Story:
    """A job of three items, at the second attempt."""
    return Story(
        id="job",
        items=3,
        entries=ledger(words or WORDS),
        last=Last("succeeded", 2, result=(3, 2)),
        seen=[Seen(1, 0, 0), Seen(1, 1, 1), Seen(2, 1, 1), Seen(2, 3, 2)],
        logs={1: {"a", "b"}, 2: {"b", "c"}},
    )


def found(told: Story) -> str:
    return "; ".join(finding.words for finding in check(told))


def test_a_correct_ledger_has_no_findings() -> None:
    assert check(story()) == []
    assert check(replace(story(), exclusive=True)) == []


def test_a_job_that_did_not_succeed_is_found() -> None:
    (finding,) = check(replace(story(), last=Last("running", 2, words="Held by nobody")))
    assert "is running. Held by nobody" in str(finding)


@pytest.mark.parametrize("result", [(2, 2), (3, 1)], ids=["of too few items", "of an earlier attempt"])
def test_a_wrong_result_is_found(result: tuple[int, int]) -> None:
    assert "has the result" in found(replace(story(), last=Last("succeeded", 2, result=result)))


def test_an_error_that_was_charged_is_found() -> None:
    assert "charged 1 errors" in found(replace(story(), last=Last("succeeded", 2, 1, (3, 2))))


def test_a_line_that_is_not_in_the_log_is_found() -> None:
    (finding,) = check(replace(story(), logs={1: {"a"}, 2: {"b", "c"}}))
    assert finding.words == "of attempt 1, 1 of 2 lines are not in its log"
    assert [line.rest for line in finding.lines] == ["b"]


def test_a_repetition_of_what_was_acknowledged_is_found() -> None:
    repeating = ["begin 0 0", "item 0", "line a", "save 1", "item 1", "item 2", "save 3", "kept 3", "end"]
    told = replace(story({1: WORDS[1], 2: repeating}), seen=[], logs={1: {"a", "b"}, 2: {"a"}})
    (finding,) = check(told)
    assert finding.words == "attempt 2 began at 0, and a save of 1 was acknowledged"


def test_a_repetition_of_what_the_store_had_is_found() -> None:
    told = replace(story(), seen=[Seen(1, 2, 1), Seen(2, 3, 2)])
    assert found(told) == "attempt 2 began at 1, the store had 2"


def test_a_beginning_that_nobody_saved_is_found() -> None:
    without = [word for word in WORDS[1] if word not in ("save 1", "kept 1", "save 2")]
    assert "nobody saved that" in found(story({1: without, 2: WORDS[2]}))


def test_an_item_that_is_left_out_is_found() -> None:
    gap = [word for word in WORDS[2] if word != "item 2"]
    assert found(story({1: WORDS[1], 2: gap})) == "left out items [2]"
    assert "out of their order" in found(story({1: ["begin 0 0", "item 0", "item 2", "save 1"], 2: WORDS[2]}))


def test_an_attempt_that_begins_twice_is_found() -> None:
    assert "began attempt 1 twice" in found(story({1: ["begin 0 0", *WORDS[1]], 2: WORDS[2]}))


def test_a_stale_write_that_was_acknowledged_is_found() -> None:
    told = story()
    stale = Entry(99 * SECOND, 1, 101, "kept", "2")  # the second attempt began at 1, so this came after that
    assert "a save of 2 was acknowledged" in found(replace(told, entries=[*told.entries, stale]))


@pytest.mark.parametrize(
    "back", [Seen(2, 2, 2), Seen(2, 3, 1), Seen(1, 3, 2)], ids=["items", "words of an earlier attempt", "attempt"]
)
def test_a_stale_write_that_was_seen_is_found(back: Seen) -> None:
    told = story()
    assert "went back in the store" in found(replace(told, seen=[*told.seen, back, told.seen[-1]]))


def test_a_checkpoint_of_an_earlier_attempt_that_comes_back_is_found() -> None:
    third = ["begin 1 1", "item 1", "item 2", "save 3", "kept 3"]
    second = ["begin 2 1", "item 2", "save 3"]
    told = replace(story({1: WORDS[1], 2: second, 3: third}), last=Last("succeeded", 3, result=(3, 3)), seen=[])
    assert "found an older checkpoint than the attempt before" in found(told)


def test_last_words_of_an_earlier_attempt_are_found() -> None:
    assert "ended with the words of an earlier attempt" in found(replace(story(), seen=[Seen(2, 3, 1)]))
    assert "its last checkpoint is" in found(replace(story(), seen=[Seen(2, 2, 2)]))


def test_a_step_that_is_done_again_is_found() -> None:
    again = [*WORDS[2][:2], "did 0", "step 0 x", *WORDS[2][2:]]
    assert found(story({1: WORDS[1], 2: again})) == "step 0 was done again, after its result was kept"


def test_a_step_that_was_not_kept_may_be_done_again() -> None:
    first = [word for word in WORDS[1] if word != "step 0 x"]
    again = [*WORDS[2][:2], "did 0", "step 0 y", *WORDS[2][2:]]
    assert found(story({1: first, 2: again})) == ""


def test_a_step_with_two_results_is_found() -> None:
    assert found(story({1: WORDS[1], 2: [*WORDS[2], "step 0 y"]})) == "step 0 has two results"


def test_exclusive_attempts_beside_each_other_are_found() -> None:
    told = replace(story(), exclusive=True)
    late = Entry(99 * SECOND, 1, 101, "item", "2")
    beside = replace(told, entries=[*told.entries, late])
    assert found(beside) == "is exclusive, and attempt 1 ran when attempt 2 was claimed at 10.000"
    assert found(replace(beside, exclusive=False)) == ""


def test_an_exclusive_attempt_that_runs_when_the_next_one_is_claimed_is_found() -> None:
    told = replace(story(), exclusive=True, claimed={2: 8 * SECOND + 1})  # it begins in second 10
    assert found(told) == "is exclusive, and attempt 1 ran when attempt 2 was claimed at 8.000"


def test_an_exclusive_attempt_may_wake_beside_another_if_its_whole_worker_slept() -> None:
    told = replace(story(), exclusive=True)
    late = Entry(99 * SECOND, 1, 101, "item", "2")
    slept = Sleep(frozenset([101]), 5 * SECOND, 98 * SECOND)
    assert found(replace(told, entries=[*told.entries, late], sleeps=[slept])) == ""
    earlier = Sleep(frozenset([101]), 5 * SECOND, 6 * SECOND)  # that is no reason to run now
    assert "is exclusive" in found(replace(told, entries=[*told.entries, late], sleeps=[earlier]))
    too_early = Entry(97 * SECOND, 1, 101, "item", "2")
    assert "is exclusive" in found(replace(told, entries=[*told.entries, too_early], sleeps=[slept]))


# Its parts


def test_a_ledger_is_read_as_it_grows_and_a_line_that_was_cut_off_spoils_no_other(tmp_path: Path) -> None:
    page, book = Page(tmp_path / "job", 1), Book(tmp_path)
    page.write("begin", 0, 0)
    assert book.running("job")
    with (tmp_path / "job").open("ab") as file:
        file.write(b"\n123 1 7 it")
    assert [entry.word for entry in book.of("job")] == ["begin"]
    page.write("item", 0)
    page.write("end")
    page.close()
    assert [(entry.word, entry.rest) for entry in book.of("job")] == [("begin", "0 0"), ("item", "0"), ("end", "")]
    assert book.running("job") is None
    assert parse("") is None


def test_recoveries_are_measured_from_a_blow_to_the_next_beginning_of_each_job_that_it_hit() -> None:
    told = story()  # the second attempt begins in second 10
    kill = Fault("kill", "job", 8 * SECOND, [101], [("job", 1), ("job", 2), ("other", 1)])
    took = Times(1, 2.0, 2.0, 2.0)
    assert recoveries([told], [kill]) == {"kill job": took, "any kill": took}
    assert str(Times.of([])) == "none"
    assert Times.of(range(100)) == Times(100, 50, 90, 99)


def test_work_that_is_done_again_is_measured_from_the_save_that_was_found() -> None:
    assert list(undone(story())) == [4.0]  # saved in second 5, and the last thing that it did was in second 9


def test_a_checkpoint_is_read_whoever_has_saved_it() -> None:
    assert [done_of(None), done_of(b"7"), done_of(b'{"done":8,"by":2}')] == [0, 7, 8]


def test_a_finding_names_the_job_and_the_lines_of_its_ledger() -> None:
    assert str(Finding("job", "is lost", tuple(ledger({1: ["begin 0 0"]})))) == (
        "job: is lost\n    0.000 attempt 1 process 101: begin 0 0"
    )
