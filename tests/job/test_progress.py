"""The progress of a job: its reports, the estimates derived from them, and what is shown."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from holdfast import Holdfast, Invalid, TooBig, current_job
from holdfast.job.progress import Progress, Reporter, read_progress
from holdfast.store import commands
from holdfast.store.commands import Lease
from holdfast.testing import Workbench, use
from tests.support.listener import Listener, running
from tests.support.shells import Hand, Shell

GOING = Progress(fraction=0.5, done=50, total=100, counts={"rows": 300}, attempt=1, after=60.0, base=(10.0, 0.25, 25))


class Clock:
    """The time of the machine that a job runs on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr("holdfast.job.progress.time.monotonic", lambda: self.now)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


@pytest.fixture
def bench(server_url: str) -> Iterator[Workbench]:
    with use(Holdfast(server_url), server_url) as made:
        yield made


def read(text: str | None) -> Progress:
    assert text is not None
    progress = read_progress(text)
    assert progress
    return progress


def test_rates_are_of_what_this_attempt_has_done() -> None:
    assert GOING.rates == {"rows": 5.0, "items": 0.5}


def test_the_time_that_is_left_follows_from_the_speed_of_this_attempt() -> None:
    assert GOING.seconds_left == 100.0
    assert msgspec.structs.replace(GOING, fraction=1.0).seconds_left == 0


@pytest.mark.parametrize("progress", [
    Progress(), Progress(message="begins"), Progress(fraction=0.0, after=5.0), Progress(fraction=0.5),
    Progress(fraction=0.4, after=9.0, base=(1.0, 0.4, 0)),
])  # fmt: skip
def test_seconds_left_is_none_without_enough_data(progress: Progress) -> None:
    assert progress.seconds_left is None


def test_a_report_has_its_attempt_and_time(clock: Clock) -> None:
    reporter = Reporter(2, resumes=False)
    clock.now += 30
    assert read(reporter.report(0.25, "page 1")) == Progress(fraction=0.25, message="page 1", attempt=2, after=30.0)


def test_a_job_that_goes_on_by_itself_is_measured_from_its_first_report(clock: Clock) -> None:
    reporter = Reporter(2, resumes=True)
    clock.now += 10
    first = read(reporter.report(0.5, None))
    clock.now += 20
    second = read(reporter.report(0.6, None))

    assert first.seconds_left is None
    assert second.seconds_left == pytest.approx(80.0)


def test_counters_are_sent_a_few_times_a_second_and_with_every_report(clock: Clock) -> None:
    reporter = Reporter(1, resumes=False)
    assert read(reporter.count({"rows": 1})).counts == {"rows": 1}
    assert reporter.count({"rows": 1, "bytes": 512}) is None
    clock.now += 1
    assert read(reporter.count({"bytes": 0.5})).counts == {"rows": 2, "bytes": 512.5}
    assert reporter.count({"rows": 1}) is None
    assert read(reporter.report(0.5, None)).counts == {"rows": 3, "bytes": 512.5}
    assert reporter.unreported() is None


def test_counting_keeps_what_was_reported(clock: Clock) -> None:
    reporter = Reporter(1, resumes=False)
    reporter.report(0.5, "half")
    clock.now += 1
    progress = read(reporter.count({"rows": 1}))
    assert (progress.fraction, progress.message, progress.counts) == (0.5, "half", {"rows": 1})


def test_the_last_counts_are_reported_at_the_end(bench: Workbench) -> None:
    @bench.app.task(name="count")
    def count() -> None:
        for _ in range(1000):
            current_job().count(rows=1)

    bench.app.enqueue(count.bind())
    (job,) = bench.run_until_empty()
    assert job.progress
    assert job.progress.counts == {"rows": 1000}


def test_counts_before_an_error_are_reported_too(bench: Workbench) -> None:
    @bench.app.task(name="count", retries=0)
    def count() -> None:
        current_job().count(rows=1)
        current_job().count(rows=1)
        raise RuntimeError("enough")

    bench.app.enqueue(count.bind())
    (job,) = bench.run_until_empty()
    assert job.progress
    assert job.progress.counts == {"rows": 2}


@pytest.mark.parametrize("amount", [float("nan"), float("inf"), True, "1", 10**16])
def test_counting_refuses_what_is_not_a_number(amount: Any) -> None:
    with pytest.raises(Invalid, match="must be a number"):
        running(Listener()).count(rows=amount)


def test_there_are_not_too_many_counters() -> None:
    job = running(Listener())
    job.count(**{f"counter{number}": 1 for number in range(8)})
    with pytest.raises(TooBig, match=r"there are 9 counters \(limit 8\): .*, ninth;"):
        job.count(ninth=1)
    with pytest.raises(Invalid, match="it must be up to 32 printable"):
        job.count(**{"x" * 33: 1})
    with pytest.raises(Invalid, match="it must be up to 32 printable"):
        running(Listener()).count(**{"\x01": 1})


@pytest.mark.parametrize("letter", ["x", "€", "\U0001f600", "\x01", '"'])
def test_a_long_message_is_cut_to_what_the_store_takes(letter: str) -> None:
    reporter = Reporter(1, resumes=False)
    reporter.count({f"{'c' * 30}{number}": 10**15 for number in range(8)})
    text = reporter.report(0.5, letter * 1000)
    assert text
    assert len(text.encode()) <= 1024
    assert read(text).message.startswith(letter)


@pytest.mark.parametrize("text", ["90 %", '{"message":[]}', "[]", "7", '{"progress":"half"}'])
def test_progress_written_by_another_program_is_read_as_a_message(text: str) -> None:
    assert read_progress(text) == Progress(message=text)


# What people see


def going(shell: Shell, progress: Progress) -> None:
    shell.put("mine")
    Hand(shell.client).take()
    text = msgspec.json.encode(progress).decode()
    shell.client.store.run(commands.save(Lease("node/worker.1", "mine", 1), progress=text))


def test_the_end_of_a_running_job_is_estimated(shell: Shell) -> None:
    going(shell, GOING)
    job = shell.client.get("mine")
    assert job.claimed_at
    assert job.estimated_end == job.claimed_at + timedelta(seconds=160)


def test_of_another_attempt_nothing_is_estimated(shell: Shell) -> None:
    going(shell, msgspec.structs.replace(GOING, attempt=2))
    assert shell.client.get("mine").estimated_end is None


def test_show_has_amounts_rates_and_the_estimated_end(shell: Shell) -> None:
    going(shell, msgspec.structs.replace(GOING, message="page 3"))

    shown = shell.on_a_terminal("show", "mine")
    assert "████░░░░ 50%, 50 of 100 items (0.5/s), 300 rows (5/s), ends in 3m" in shown
    assert "page 3" in shown
    plain = shell("show", "mine").out
    assert "progress\t50%, 50 of 100 items (0.5/s), 300 rows (5/s), ends 20" in plain


def test_jobs_has_a_bar_and_what_is_left(shell: Shell) -> None:
    going(shell, msgspec.structs.replace(GOING, message="page 3"))

    assert "████░░░░ 50% 3m left page 3" in shell.on_a_terminal("jobs", columns=160)
    assert shell("jobs").rows[0][6] == "50% page 3"


def test_json_has_all_of_it(shell: Shell) -> None:
    going(shell, GOING)
    progress = shell("show", "mine", "--json").json["progress"]
    assert progress.pop("estimated_end").endswith("Z")
    assert progress == {
        "fraction": 0.5, "message": "", "done": 50, "total": 100, "counts": {"rows": 300},
        "per_second": {"rows": 5.0, "items": 0.5},
    }  # fmt: skip
