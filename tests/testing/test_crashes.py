"""The crash test finds planted bugs, and nothing in their correct twins."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from holdfast import Advance, Fail, Holdfast, Invalid, Retries, Snooze, current_job
from holdfast.store.store import Address, Store
from holdfast.task import BoundCall, Task
from holdfast.testing import Workbench, acrash_everywhere, crash_everywhere, use
from tests.support.workers import is_alive, until
from tests.testing import crashing
from tests.testing.crashing import append, append_once, bill, bill_by_key, order, order_once, ship, ship_by_name

CUSTOMERS = ["ann", "bob", "cleo"]
jobs = Holdfast("redis://127.0.0.1:1", namespace="production")
seen: list[Any] = []


@pytest.fixture
def bench(server_url: str) -> Iterator[Workbench]:
    seen.clear()
    with use(jobs, server_url) as made:
        yield made


@pytest.fixture
def crashing_bench(server_url: str) -> Iterator[Workbench]:
    with use(crashing.jobs, server_url) as made:
        yield made


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    return tmp_path / "ledger"


def crash(call: BoundCall[Any], ledger: Path, **given: Any) -> int:
    return crash_everywhere(
        call,
        effects=lambda: ledger.read_text().splitlines(),
        reset=lambda: ledger.write_text(""),
        **given,
    )


def line_of(task: Task[..., Any], text: str) -> str:
    """Return the place of a line of a task, as a message has it."""
    code = task.function.__code__
    lines = Path(code.co_filename).read_text().splitlines()
    number = next(n for n in range(code.co_firstlineno, len(lines)) if text in lines[n - 1])
    return f"{Path(code.co_filename).name}:{number}: {lines[number - 1].strip()}"


def fill(folder: Path) -> None:
    for path in folder.iterdir():
        path.unlink()
    for name in ("a", "b", "c"):
        (folder / f"{name}.open").touch()


# The three planted bugs, and their twins


@pytest.mark.parametrize("in_process", [False, True])
@pytest.mark.usefixtures("crashing_bench")
def test_an_effect_before_its_save_is_found(ledger: Path, in_process: bool) -> None:
    with pytest.raises(AssertionError) as caught:
        crash(bill.bind(str(ledger), CUSTOMERS), ledger, in_process=in_process)
    message = str(caught.value)
    assert "killed before the checkpoint was stored\n" in message
    assert line_of(bill, "job.save(") in message
    assert "effects: repeated or added: ['ann']" in message
    assert "and 2 more times at this line" in message
    assert crash(bill_by_key.bind(str(ledger), CUSTOMERS), ledger, in_process=in_process) == 11


@pytest.mark.parametrize("in_process", [False, True])
@pytest.mark.usefixtures("crashing_bench")
def test_a_loop_that_skips_is_found(tmp_path: Path, in_process: bool) -> None:
    def run(task: Task[[str], None]) -> int:
        return crash_everywhere(
            task.bind(str(tmp_path)),
            effects=lambda: sorted(path.name for path in tmp_path.iterdir()),
            reset=lambda: fill(tmp_path),
            in_process=in_process,
        )

    with pytest.raises(AssertionError) as caught:
        run(ship)
    message = str(caught.value)
    assert "killed after the position of the loop was stored\n" in message
    assert line_of(ship, "each(") in message
    assert "effects: repeated or added: ['b.open']" in message
    assert "effects: missing: ['b.shipped']" in message
    assert run(ship_by_name) == 11


@pytest.mark.parametrize("in_process", [False, True])
@pytest.mark.usefixtures("crashing_bench")
def test_a_step_done_twice_is_found(ledger: Path, in_process: bool) -> None:
    with pytest.raises(AssertionError) as caught:
        crash(order.options(id="o").bind(str(ledger), 7), ledger, in_process=in_process)
    message = str(caught.value)
    assert "killed after step charge-1 was stored\n" in message
    assert line_of(order, "charge-{") in message
    assert "effects: repeated or added: ['charge 7 o.2']" in message
    assert crash(order_once.bind(str(ledger), 7), ledger, in_process=in_process) == 6


# Where and how it is killed


@jobs.task
def trace(ledger: str) -> str:
    job = current_job()
    append(ledger, f"attempt {job.attempt} in {os.getpid()}")
    try:
        job.save("begun", flush=True)
        job.note("halfway")
        job.once("step", append_once, ledger, "step")
    finally:
        append(ledger, "finally")
    return "done"


def test_a_kill_is_real_and_runs_no_finally_block(bench: Workbench, ledger: Path) -> None:
    snapshots = []

    def effects() -> list[str]:
        snapshots.append(ledger.read_text().splitlines())
        return ["always the same", *snapshots[-1][:0]] if ledger.read_text() else []

    assert crash_everywhere(trace.bind(str(ledger)), effects=effects, reset=lambda: ledger.write_text("")) == 10
    runs = [lines for lines in snapshots if lines]
    assert len(runs) == 2 + 10  # two undisturbed
    assert [sum(line.startswith("attempt") for line in lines) for lines in runs] == [1, 1, 1, *[2] * 9]
    assert [lines.count("finally") for lines in runs] == [1, 1, 1, *[1] * 7, 2, 2]  # twice: killed after its end
    pids = {line.split()[-1] for lines in runs for line in lines if line.startswith("attempt")}
    assert len(pids) == 2 + 1 + 9 * 2
    assert str(os.getpid()) not in pids
    assert bench.jobs() == []


def test_in_the_process_of_the_test_an_exception_takes_the_place_of_the_kill(bench: Workbench) -> None:
    @jobs.task(name="stubborn")
    def stubborn() -> int:
        job = current_job()
        try:
            job.save(1)
        except BaseException as error:
            seen.append(type(error).__name__)
            job.save(2)  # a dead process could not
        return 5

    try:
        assert crash_everywhere(stubborn.bind(), in_process=True) == 5
    finally:
        del jobs.tasks["stubborn"]
    assert seen == ["Killed", "Killed"]
    bench.assert_nothing_pending()


@jobs.task
async def count_slowly(numbers: int, ledger: str) -> int:
    total = 0
    async for number in current_job().aeach(range(numbers)):
        await asyncio.sleep(0)
        append_once(ledger, str(number))
        total += 1
    return len(Path(ledger).read_text().splitlines())


def test_coroutines_are_killed_too_also_next_to_an_event_loop(bench: Workbench, ledger: Path) -> None:
    assert bench.jobs() == []
    assert crash(count_slowly.bind(2, str(ledger)), ledger) == 8

    async def story() -> None:
        with pytest.raises(RuntimeError, match="await acrash_everywhere"):
            crash(count_slowly.bind(2, str(ledger)), ledger)
        call = count_slowly.bind(2, str(ledger))
        kills = await acrash_everywhere(call, effects=ledger.read_text, reset=lambda: ledger.write_text(""))
        assert kills == 8

    asyncio.run(story())


@jobs.task
def stages(ledger: str) -> None:
    if current_job().attempt == 1:
        raise Snooze("1h")
    append_once(ledger, "first stage")
    raise Advance(last_stage.bind(ledger))


@jobs.task(retries=2, backoff="1h")
def last_stage(ledger: str) -> int:
    job = current_job()
    children = job.gather(child.bind(1), child.bind(2))
    append_once(ledger, "last stage")
    return sum(each.decoded_result() for each in children)


@jobs.task
def child(number: int) -> int:
    return number


def test_snoozes_stages_and_children_are_followed_to_the_end(bench: Workbench, ledger: Path) -> None:
    assert crash(stages.bind(str(ledger)), ledger) == 8
    assert bench.jobs() == []


@jobs.task(retries=Retries(4, waits=["1h", "2h"], on=ConnectionError))
def patient(ledger: str) -> str:
    job = current_job()
    done = job.checkpoint(int, 0)
    if done < 3:
        job.save(done + 1)
        raise ConnectionError("not yet")
    append_once(ledger, "patient")
    return "done"


def test_a_job_is_killed_between_the_retries_of_its_policy(bench: Workbench, ledger: Path) -> None:
    before = bench.now
    kills = crash(patient.bind(str(ledger)), ledger)
    assert kills > 8
    assert bench.now - before >= (kills + 2) * timedelta(hours=3), "each run waits one hour, and two once or twice"


@jobs.task
def enqueue_twice(number: int, keep: bool = True) -> None:
    child.options(keep=keep).enqueue(number)


@jobs.task
def enqueue_once(number: int, keep: bool = True) -> None:
    child.options(id=f"{current_job().id}.child", keep=keep).enqueue(number)


@pytest.mark.usefixtures("bench")
def test_jobs_that_are_enqueued_twice_are_found_without_further_ado() -> None:
    with pytest.raises(AssertionError, match=r"before its outcome was stored\n.*def enqueue_twice") as caught:
        crash_everywhere(enqueue_twice.bind(7))
    assert "jobs: repeated or added:" in str(caught.value)
    assert 'child({"number":7})' in str(caught.value)
    assert crash_everywhere(enqueue_once.bind(7)) == 2
    with pytest.raises(AssertionError, match=r'jobs: repeated or added: .*child\(\{"number":7\}\)'):
        crash_everywhere(enqueue_twice.bind(7, keep=False))
    assert crash_everywhere(enqueue_once.bind(7, keep=False)) == 2


@jobs.task
def forget(numbers: int) -> int:
    job, total = current_job(), 0
    for number in job.each(range(numbers)):
        job.note(f"number {number}")
        total += number  # only the position is saved
    return total


@jobs.task
def remember(numbers: int) -> int:
    job = current_job()
    at, total = job.checkpoint(tuple[int, int], default=(0, 0))
    while at < numbers:
        job.note(f"number {at}")
        at, total = at + 1, total + at
        job.save((at, total), progress=at / numbers)
    return total


@jobs.task
def note_at_first() -> None:
    if current_job().attempt == 1:
        current_job().note("begun")


@jobs.task
def report_at_first() -> None:
    current_job().report(0.5 if current_job().attempt == 1 else 0.25)


@pytest.mark.usefixtures("bench")
def test_results_progress_and_notes_are_compared() -> None:
    with pytest.raises(AssertionError, match=r"notes: missing: \['begun'\]"):
        crash_everywhere(note_at_first.bind())
    with pytest.raises(AssertionError, match=r"progress: 0.25; undisturbed: 0.5"):
        crash_everywhere(report_at_first.bind())
    with pytest.raises(AssertionError, match=r"result: 2; undisturbed: 3"):
        crash_everywhere(forget.bind(3))
    assert crash_everywhere(remember.bind(3)) > 10


@jobs.task
def save_first(ledger: str, customers: list[str], flush: bool) -> None:
    job = current_job()
    for number in range(job.checkpoint(int, default=0), len(customers)):
        job.save(number + 1, flush=flush)
        append_once(ledger, f"{customers[number]} in attempt {job.attempt}")


@pytest.mark.parametrize("in_process", [False, True])
@pytest.mark.usefixtures("bench")
def test_saves_that_a_worker_has_not_sent_yet_are_lost_unless_they_are_flushed(ledger: Path, in_process: bool) -> None:
    def message(flush: bool) -> str:
        with pytest.raises(AssertionError) as caught:
            crash_everywhere(
                save_first.bind(str(ledger), CUSTOMERS, flush),
                effects=lambda: [line.split()[0] for line in ledger.read_text().splitlines()],
                reset=lambda: ledger.write_text(""),
                in_process=in_process,
            )
        return str(caught.value)

    lost, unsent = "effects: missing: ['ann']", "was stored, when earlier saves were not sent yet"
    assert lost in message(flush=True)
    assert unsent not in message(flush=True)
    assert lost in message(flush=False)
    assert "effects: repeated or added: ['ann']" in message(flush=False).partition(unsent)[2]


# What cannot be tested


def start_sleepers(ledger: str) -> None:
    for own_session in (False, True):
        process = subprocess.Popen(
            [sys.executable, "-c", "import time; time.sleep(1000)"], start_new_session=own_session
        )
        append(ledger, str(process.pid))


@jobs.task(retries=1, backoff="1h")
def misbehave(how: str, ledger: str = "") -> int:
    job = current_job()
    match how:
        case "fails":
            raise Fail("hopeless")
        case "dies":
            os.kill(os.getpid(), signal.SIGKILL)
        case "exits":
            os._exit(3)
        case "hangs":
            start_sleepers(ledger)
            time.sleep(1000)
        case "starts processes":
            start_sleepers(ledger)
            job.save(1)
        case "waits for nothing":
            failing = misbehave.options(id=f"{job.id}.failing").enqueue("fails")
            job.gather(child.options(after=failing).bind(1))
        case "differs":
            return time.time_ns()
        case "saves another number of times":
            for _ in range(len(seen)):
                job.save(1)
        case "fails after a crash" if job.attempt > 1:
            raise Fail("not again")
        case "takes another way":
            append(ledger, "x")
            for _ in range(3 if len(Path(ledger).read_text().splitlines()) < 3 else 0):
                job.save(1)
    return 0


@pytest.mark.usefixtures("bench")
def test_a_job_that_fails_undisturbed_says_why() -> None:
    with pytest.raises(AssertionError, match=r"misbehave ended as failed without a crash: .*Fail: hopeless"):
        crash_everywhere(misbehave.bind("fails"))
    with pytest.raises(
        AssertionError, match=r"ended as failed without a crash: .*: its process ended; signal SIGKILL$"
    ):
        crash_everywhere(misbehave.bind("dies"))
    with pytest.raises(AssertionError, match=r": its process ended; exit code 3$"):
        crash_everywhere(misbehave.bind("exits"))


@pytest.mark.usefixtures("bench")
def test_a_job_that_fails_only_after_a_crash_says_why() -> None:
    with pytest.raises(
        AssertionError, match=r"before the task began\n.*\n  state: failed: .*not again; undisturbed: succ"
    ):
        crash_everywhere(misbehave.bind("fails after a crash"))


def test_an_attempt_that_hangs_is_killed_with_what_it_started(bench: Workbench, ledger: Path) -> None:
    ledger.touch()
    with pytest.raises(
        AssertionError, match=r"attempt 1 of .*misbehave has not ended within 2 s; pass a longer timeout="
    ):
        crash_everywhere(misbehave.bind("hangs", str(ledger)), timeout="2s")
    started = [int(pid) for pid in ledger.read_text().split()]  # none, if the machine was too slow for it
    until(lambda: not any(map(is_alive, started)), what="the end of its subprocess")
    assert bench.jobs() == []


@pytest.mark.usefixtures("bench")
def test_what_an_attempt_started_is_killed_when_it_ends_and_when_it_is_killed(ledger: Path) -> None:
    ledger.touch()
    assert crash_everywhere(misbehave.bind("starts processes", str(ledger))) == 5
    started = [int(pid) for pid in ledger.read_text().split()]
    assert len(started) == 2 * (2 + 5 + 4)  # two undisturbed runs, and one kill before the start
    until(lambda: not any(map(is_alive, started)), what="the end of the subprocesses")


def test_a_run_that_cannot_go_on_leaves_no_job(bench: Workbench) -> None:
    with pytest.raises(AssertionError, match=r"misbehave cannot go on: it is blocked, waits for .* \(pending\)"):
        crash_everywhere(misbehave.bind("waits for nothing"))
    assert bench.jobs() == []
    bench.assert_nothing_pending()
    jobs.set_limit("slow", 1, per="1h")
    with pytest.raises(AssertionError, match="child cannot go on: it is throttled, waits for limit slow"):
        crash_everywhere(child.options(limits="slow").bind(1))
    assert bench.jobs() == []
    with pytest.raises(AssertionError, match="can be killed at"):
        crash_everywhere(forget.bind(100))
    assert bench.jobs() == []


@pytest.mark.usefixtures("bench")
def test_runs_that_differ_without_a_crash_are_told(ledger: Path) -> None:
    with pytest.raises(AssertionError, match=r"two runs of .*misbehave differ without a crash.\n  result: "):
        crash_everywhere(misbehave.bind("differs"))
    seen.clear()
    with pytest.raises(AssertionError, match="they save or do steps in another order"):
        crash_everywhere(misbehave.bind("saves another number of times"), reset=lambda: seen.append(1))
    ledger.write_text("")
    with pytest.raises(AssertionError, match="never: it did not get there again"):
        crash_everywhere(misbehave.bind("takes another way", str(ledger)))


@pytest.mark.usefixtures("bench")
def test_effects_without_a_reset_and_effects_that_cannot_be_seen_are_told(ledger: Path) -> None:
    ledger.write_text("")
    with pytest.raises(AssertionError, match=r"Without reset=, effects of earlier runs are left.\n  effects: "):
        crash_everywhere(trace.bind(str(ledger)), effects=ledger.read_text)

    @jobs.task(name="in-memory")
    def in_memory() -> None:
        seen.append("effect")

    try:
        given: dict[str, Any] = {"effects": lambda: seen, "reset": seen.clear}
        with pytest.raises(
            AssertionError, match=r"has changed nothing that effects\(\) returns: \[\].*in_process=True"
        ):
            crash_everywhere(in_memory.bind(), **given)
        with pytest.raises(AssertionError, match=r"effects: repeated or added: \['effect'\]"):
            crash_everywhere(in_memory.bind(), **given, in_process=True)
    finally:
        del jobs.tasks["in-memory"]


@pytest.mark.usefixtures("bench")
def test_positions_have_a_limit() -> None:
    with pytest.raises(
        AssertionError, match=r"forget can be killed at 202 positions or more \(limit 100\): .*higher limit="
    ):
        crash_everywhere(forget.bind(100))


@pytest.mark.parametrize("in_process", [False, True])
@pytest.mark.usefixtures("bench")
def test_a_job_with_endless_positions_is_ended(in_process: bool) -> None:
    with pytest.raises(AssertionError, match=r"can be killed at 21 positions or more \(limit 2\)"):
        crash_everywhere(save_forever.bind(), limit=2, in_process=in_process)


@pytest.mark.usefixtures("bench")
def test_a_job_with_endless_attempts_is_ended() -> None:
    with pytest.raises(
        AssertionError, match=r"wait_for_new can be killed at 12 positions or more \(limit 10\) in 6 att"
    ):
        crash_everywhere(wait_for_new.bind(), limit=10)


@pytest.mark.usefixtures("bench")
def test_a_job_whose_jobs_never_end_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.testing.crashes.MAX_TURNS", 10)
    with pytest.raises(
        AssertionError, match=r"again has succeeded, but the jobs that it enqueued go on after 10 attempts"
    ):
        crash_everywhere(again.bind())


@jobs.task
def wait_for_new() -> None:
    calls = [idle.bind()]
    jobs.enqueue_many(calls)
    current_job().wait_for(calls)


@jobs.task
def idle() -> None: ...


@jobs.task
def again() -> None:
    again.enqueue()


@jobs.task
def save_forever() -> None:
    while True:
        current_job().save(1)


@jobs.task(keep=False, unique="one")
def forgotten(ledger: str) -> int:
    append_once(ledger, "x")
    if os.fork() == 0:
        return 2  # in another process, which is not the job's
    return 1


def test_a_job_that_is_not_kept_is_killed_too(bench: Workbench, ledger: Path) -> None:
    assert crash(forgotten.bind(str(ledger)), ledger) == 2
    assert bench.jobs() == []


def test_calls_that_cannot_be_tested_are_refused(bench: Workbench) -> None:
    with pytest.raises(Invalid, match=r"expected a bound call, as task.bind\(...\), got <Task .*child>"):
        crash_everywhere(child)  # type: ignore[arg-type]
    with pytest.raises(Invalid, match="runs at most once: a crash ends its job"):
        crash_everywhere(child.options(at_most_once=True).bind(1))
    with pytest.raises(Invalid, match="has crashes=0: a crash ends its job"):
        crash_everywhere(child.options(crashes=0).bind(1))
    assert bench.jobs() == []
    with pytest.raises(Invalid, match=r"expected a bound call, as task.bind\(...\), got <Job c .*child waiting>"):
        crash_everywhere(child.options(id="c").enqueue(1))  # type: ignore[arg-type]
    with pytest.raises(Invalid, match=r"the app has waiting jobs \(1\), which would run too"):
        crash_everywhere(child.bind(1))
    bench.run_until_empty()
    with pytest.raises(Invalid, match="job c exists already, in state succeeded"):
        crash_everywhere(child.options(id="c").bind(1))
    assert [job.id for job in bench.jobs()] == ["c"]


def test_without_a_workbench_a_server_is_started() -> None:
    before = dict(vars(jobs))
    assert crash_everywhere(child.bind(3)) == 2
    assert vars(jobs) == before


def test_no_key_is_left(server_url: str, ledger: Path) -> None:
    with use(jobs, server_url):
        name = jobs.address.namespace
        crash(trace_once.bind(str(ledger)), ledger)
    store = Store(Address.find(server_url, namespace=name))
    assert store.execute("KEYS", f"hf:{{{name}}}:*") == []
    store.close()


@jobs.task
def trace_once(ledger: str) -> None:
    append_once(ledger, "x")
