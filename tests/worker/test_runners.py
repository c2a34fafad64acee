"""What every runner does in the same way, and, in a table that is checked both ways, where they differ.

One suite for all: a test gets each runner in turn, and real workers on a real server.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from holdfast import Holdfast, Job, JobCancelled, JobFailed, ResultTypeWarning, WorkDone
from holdfast.job.option_table import Runner
from tests.apps import runner_app as app
from tests.apps.runner_app import RUNNERS, Order, Report
from tests.support.servers import running_server
from tests.support.workers import Crew, Worker, descendants, is_alive, new_crew, said_of, until

DOCUMENT = Path(__file__).parents[2] / "docs" / "runners.md"
APART: tuple[Runner, ...] = ("fork", "spawn", "process")
INSIDE: tuple[Runner, ...] = ("thread", "async")

# Where runners differ by their nature: who has a property.
STARTS_ANEW = "each job starts from a freshly imported app, unaffected by earlier jobs"
DIES_ALONE = "a job that dies takes no other job with it"
STOPS_UNASKED = "a job is stopped even if it never checks `stopping`"
IS_KILLED = "a job that ignores the stop is killed"
LEAVES_NOTHING = "a child process that a job leaves behind is killed when the job ends"
BESIDE_THREADS = "works if importing the app leaves threads that a fork does not copy"
HAS: dict[str, tuple[Runner, ...]] = {
    STARTS_ANEW: ("fork", "spawn"),
    DIES_ALONE: APART,
    STOPS_UNASKED: (*APART, "async"),
    IS_KILLED: APART,
    LEAVES_NOTHING: ("fork", "spawn"),
    BESIDE_THREADS: ("spawn", "process", *INSIDE),
}


class Staff(NamedTuple):
    crew: Crew
    worker: Worker

    def put(self, program: str, runner: Runner, *args: Any, **options: Any) -> Job[Any]:
        return self.crew.put(app.find(program, runner).options(**options), *args)


def start(crew: Crew, *options: str, **env: str) -> Staff:
    crew.app.tasks.update(app.jobs.tasks)  # so that it knows the types of results
    line = ("--processes", "4", "--lease", "1s", *options)
    return Staff(crew, crew.start(*line, app="tests.apps.runner_app", **env, PYTHONUNBUFFERED=""))


@pytest.fixture(scope="module")
def staff(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Staff]:
    """A worker, on a server of its own, for all tests that do no harm to it."""
    with running_server() as url, new_crew(url, tmp_path_factory.mktemp("staff")) as crew:
        yield start(crew)


@pytest.fixture(params=RUNNERS)
def runner(request: pytest.FixtureRequest) -> Runner:
    chosen: Runner = request.param
    return chosen


@pytest.fixture
def mortal(runner: Runner, request: pytest.FixtureRequest) -> Staff:
    """A worker for a job that may take its executor with it: then it is this test's own."""
    if runner in INSIDE:
        return start(request.getfixturevalue("crew"))
    shared: Staff = request.getfixturevalue("staff")
    return shared


# Fields


def test_a_job_attaches_fields_and_reads_those_that_it_was_enqueued_with(staff: Staff, runner: Runner) -> None:
    for program in ["label"] + ["label as async def"] * (runner != "async"):
        job = staff.put(program, runner, {"invoice": "é"}, ["ticket"], fields={"ticket": "17", "owner": "ann"})
        assert job.fields == {"ticket": "17", "owner": "ann"}
        assert job.result(timeout="30s") == {"invoice": "é", "owner": "ann"}
        assert job.refresh().fields == {"invoice": "é", "owner": "ann"}


def test_a_field_that_is_not_allowed_is_an_error_of_the_task(staff: Staff, runner: Runner) -> None:
    full = {f"f{n}": "" for n in range(64)}
    for fields, error in [({"a b": ""}, "Invalid"), ({"a": "x" * 4097}, "TooBig"), ({"one too many": ""}, "Invalid")]:
        job = staff.put("label", runner, fields, [], retries=0)
        with pytest.raises(JobFailed, match=error):
            job.result(timeout="30s")
    job = staff.put("label", runner, {"more": ""}, [], retries=0, fields=full)
    with pytest.raises(JobFailed, match="TooBig"):
        job.result(timeout="30s")
    assert job.refresh().fields == full


def test_an_attempt_that_lost_its_lease_attaches_nothing(staff: Staff, runner: Runner) -> None:
    name = f"lost-{runner}"
    job = staff.put("label_and_wait", runner, name, lost=0)
    (pid,) = staff.crew.pids(name, "runs")
    until(lambda: staff.crew.app.get(job.id).fields == {"n": "1"})
    staff.crew.app.fail(job.id)
    staff.crew.app.attach(job.id, {"n": "2"})
    until(lambda: staff.crew.said(name, "ends") or not is_alive(pid))  # it is killed one second after SIGTERM
    assert staff.crew.app.get(job.id).fields == {"n": "2"}


# Results


def test_results_arrive_as_they_are_typed(staff: Staff, runner: Runner) -> None:
    order = Order(7, datetime(2026, 7, 1, 12, 30, tzinfo=UTC), {"tea": (2, 3.5)})

    echo, nothing = staff.put("echo", runner, order), staff.put("nothing", runner)

    assert echo.result(timeout="30s") == order
    assert nothing.result(timeout="30s") is None
    assert staff.crew.outcomes(echo) == staff.crew.outcomes(nothing) == ["succeeded"]


def test_a_big_result_arrives_and_one_that_is_too_big_fails_clearly(staff: Staff, runner: Runner) -> None:
    fits, too_big = staff.put("big", runner, 900 * 1024), staff.put("big", runner, 3_000_000)

    assert len(fits.result(timeout="30s")) == 900 * 1024
    with pytest.raises(JobFailed, match="result-too-big"):
        too_big.result(timeout="30s")


@pytest.mark.parametrize("what", ["object", "nan", "tuple"])
def test_a_task_whose_result_cannot_be_stored_fails_at_once_as_its_work_is_done(
    staff: Staff, runner: Runner, what: str
) -> None:
    name = f"give-{runner}-{what}"
    job = staff.crew.ended(staff.put("give", runner, name, what, retries=3, backoff="1ms"))

    assert (job.state, job.group, job.final_reason) == ("failed", "result-not-stored", "refused")
    assert len(staff.crew.said(name, "charged")) == len(job.attempts) == 1
    assert "The task has done its work; a retry would repeat it" in job.why
    with pytest.raises(WorkDone, match=r"has done its work.*retry\(force=True\), or --force"):
        job.retry()
    job.retry(force=True)
    until(lambda: len(staff.crew.said(name, "charged")) == 2)


def test_a_task_with_a_wrong_annotation_succeeds_and_its_result_is_the_json_value(staff: Staff, runner: Runner) -> None:
    jobs = [staff.put("give", runner, f"give-{runner}-text", "text") for _ in range(3)]

    for job in jobs:
        with pytest.warns(ResultTypeWarning, match=rf"the result of job {job.id} does not fit its type: .*`int`"):
            result: Any = job.result(timeout="30s")
        assert result == "seven"
    (note,) = staff.crew.get(jobs[0]).notes
    assert (note.what, staff.crew.outcomes(jobs[0])) == ("reported", ["succeeded"])
    assert note.text.startswith(f"the result of task give.{runner}: Expected `int`, got `str`; it is stored as JSON")
    log = until(lambda: log if f"annotation of task give.{runner} " in (log := staff.worker.log) else None)
    assert log.count(f"correct the return annotation of task give.{runner} (logged once)") == 1


def test_work_finished_during_a_stop_is_not_repeated_although_its_result_cannot_be_stored(
    crew: Crew, runner: Runner
) -> None:
    staff = start(crew, "--stop-within", "100ms")
    job = staff.put("give_late", runner, "late")
    crew.pids("late", "runs")

    assert staff.worker.stop() == 0
    ended = crew.get(job)
    assert (ended.state, ended.group, crew.outcomes(job)) == ("failed", "result-not-stored", ["error"])
    assert len(crew.said("late", "charged")) == 1


@pytest.mark.parametrize("runner", [*APART, "thread"])
def test_an_async_def_runs_under_the_runners_of_plain_functions_too(staff: Staff, runner: Runner) -> None:
    job = staff.put("paint as async def", runner, "red")

    assert job.result(timeout="30s") == ("none", job.id)


# Exceptions


def test_an_exception_is_described_with_the_traceback_of_the_task_alone(staff: Staff, runner: Runner) -> None:
    ended = staff.crew.ended(staff.put("fail", runner, retries=0))

    assert (ended.state, ended.group, ended.crashes_used) == ("failed", "ZeroDivisionError", 0)
    assert ended.failure
    assert "in divide\n" in ended.failure.traceback
    assert ended.failure.traceback.endswith("ZeroDivisionError: division by zero\n")
    assert "holdfast/worker" not in ended.failure.traceback


def test_retry_snooze_and_fail_mean_the_same(staff: Staff, runner: Runner) -> None:
    retry = staff.put("try_until", runner, 3, "retry", retries=2)
    snooze = staff.put("try_until", runner, 3, "snooze", retries=0)
    fail = staff.put("try_until", runner, 3, "fail", retries=5)

    assert retry.result(timeout="30s") == snooze.result(timeout="30s") == 3
    assert staff.crew.outcomes(retry) == ["error", "error", "succeeded"]
    assert staff.crew.outcomes(snooze) == ["snoozed", "snoozed", "succeeded"]
    assert (staff.crew.ended(fail).group, staff.crew.outcomes(fail)) == ("hopeless", ["error"])


# Cancelling, and the time limit


def test_a_job_that_looks_is_cancelled_through_its_finally_blocks(staff: Staff, runner: Runner) -> None:
    name = f"looks-{runner}"
    job = staff.put("hold", runner, name, True)
    staff.crew.pids(name, "runs")

    assert job.cancel() == "cancelling"

    with pytest.raises(JobCancelled):
        job.result(timeout="30s")
    assert staff.crew.outcomes(job) == ["cancelled"]
    assert (staff.crew.said(name, "cleaned"), staff.crew.said(name, "ends")) == ([[]], [])
    assert staff.crew.get(job).checkpoint_bytes == b'"clean"'


def test_a_job_that_does_not_look_is_cancelled_all_the_same(mortal: Staff, runner: Runner) -> None:
    name = f"blind-{runner}"
    job = mortal.put("hold", runner, name, False)
    mortal.crew.pids(name, "runs")

    job.cancel()

    assert mortal.crew.ended(job).state == "cancelled"
    assert mortal.crew.said(name, "cleaned") == ([[]] if runner in HAS[STOPS_UNASKED] else [])
    assert mortal.crew.said(name, "ends") == []


def test_a_job_that_ignores_its_cancellation_is_gone_when_its_neighbours_are_done(
    mortal: Staff, runner: Runner
) -> None:
    crew, names = mortal.crew, (f"deaf-{runner}", f"neighbour-{runner}")
    deaf, neighbour = mortal.put("ignore", runner, names[0]), mortal.put("hold", runner, names[1], True)
    ((pid,), _) = [crew.pids(name, "runs") for name in names]

    deaf.cancel()

    assert crew.ended(deaf).state == "cancelled"
    assert is_alive(pid) == (runner not in HAS[IS_KILLED])
    crew.open(names[1])
    assert neighbour.result(timeout="30s") == names[1]
    assert crew.outcomes(neighbour) == ["succeeded"]
    assert until(lambda: not is_alive(pid))
    assert mortal.put("nothing", runner).result(timeout="30s") is None
    assert "died" not in mortal.worker.log


@pytest.mark.parametrize("runner", INSIDE)
def test_the_result_of_an_abandoned_job_is_refused_and_its_neighbours_continue(mortal: Staff, runner: Runner) -> None:
    crew = mortal.crew
    deaf, neighbour = mortal.put("ignore", runner, "deaf"), mortal.put("hold", runner, "neighbour", True)
    ((executor,), _) = [crew.pids(name, "runs") for name in ("deaf", "neighbour")]
    deaf.cancel()
    assert crew.ended(deaf).state == "cancelled"

    crew.open("deaf")

    assert mortal.put("where", runner).result(timeout="30s")
    assert (crew.get(deaf).state, crew.outcomes(deaf)) == ("cancelled", ["cancelled"])
    assert is_alive(executor)
    crew.open("neighbour")
    assert neighbour.result(timeout="30s") == "neighbour"
    assert crew.outcomes(neighbour) == ["succeeded"]


def test_a_job_that_takes_too_long_is_stopped_and_fails(staff: Staff, runner: Runner) -> None:
    name = f"long-{runner}"
    job = staff.put("hold", runner, name, True, timeout="300ms", retries=0)

    with pytest.raises(JobFailed, match=r"longer than its timeout of 0\.3 s"):
        job.result(timeout="30s")
    failed = staff.crew.get(job)
    assert failed.group == "timeout"
    assert failed.failure
    if runner != "spawn":  # which may not have come so far
        assert app.__file__ in failed.failure.traceback, "it says where it was"
    assert staff.crew.said(name, "ends") == []


# Crashes


@pytest.mark.parametrize(("way", "words"), [("os._exit", "exit code 3"), ("kill", "signal SIGKILL")])
def test_a_job_that_dies_is_charged_and_its_neighbours_are_not(
    mortal: Staff, runner: Runner, way: str, words: str
) -> None:
    crew, names = mortal.crew, (f"{way}-{runner}", f"beside-{way}-{runner}")
    killer, neighbour = mortal.put("die", runner, names[0], way, crashes=0), mortal.put("hold", runner, names[1], True)
    for name in names:
        crew.pids(name, "runs")

    crew.open(names[0])

    ended = crew.ended(killer)
    assert (ended.state, ended.group, ended.crashes_used) == ("failed", "crashed", 1)
    assert ended.failure
    assert words in ended.failure.message
    crew.open(names[1])
    assert neighbour.result(timeout="30s") == names[1]
    first = [] if runner in HAS[DIES_ALONE] else ["released"]
    assert (crew.outcomes(killer), crew.outcomes(neighbour)) == ([*first, "crash"], [*first, "succeeded"])
    assert crew.get(neighbour).crashes_used == 0


def test_a_job_that_calls_sys_exit_crashes_alone(staff: Staff, runner: Runner) -> None:
    name, other = f"exit-{runner}", f"beside-exit-{runner}"
    neighbour = staff.put("hold", runner, other, True)
    staff.crew.pids(other, "runs")
    staff.crew.open(name)

    ended = staff.crew.ended(staff.put("die", runner, name, "sys.exit", crashes=0))

    assert ended.group == "crashed"
    assert ended.failure
    assert "exit code 4" in ended.failure.message
    staff.crew.open(other)
    assert neighbour.result(timeout="30s") == other
    assert staff.crew.outcomes(neighbour) == ["succeeded"]


def test_a_process_that_dies_while_idle_is_not_a_crash_of_the_next_job(crew: Crew) -> None:
    start(crew, "--runner", "process")
    pid, _ = crew.put(app.sync_task).result(timeout="30s")
    assert crew.put(app.sync_task).result(timeout="30s")[0] == pid

    crew.kill(pid)
    job = crew.put(app.sync_task)

    assert job.result(timeout="30s")[0] != pid
    assert crew.outcomes(job) == ["succeeded"]


# Leases


def test_a_job_that_holds_its_interpreter_for_three_leases_keeps_its_own(staff: Staff, runner: Runner) -> None:
    name = f"gil-{runner}"
    job = staff.put("hold_gil", runner, name, 3.2)

    assert job.result(timeout="30s") is None
    assert staff.crew.outcomes(job) == ["succeeded"]
    assert len(staff.crew.said(name, "runs")) == 1


# What a job has, and leaves


def test_the_output_of_a_job_is_stored_when_it_has_ended(staff: Staff, runner: Runner) -> None:
    staff.put("shout", runner, f"hello from {runner}").result(timeout="30s")
    until(lambda: f"hello from {runner} on stderr\n" in staff.worker.log)

    assert f"hello from {runner} on stdout\n" in staff.worker.log


def test_context_variables_and_the_current_job_do_not_leak_into_the_next_job(staff: Staff, runner: Runner) -> None:
    for value in ("red", "blue", "green"):
        job = staff.put("paint", runner, value)
        assert job.result(timeout="30s") == ("none", job.id)


def test_saves_arrive_while_a_job_runs_and_the_next_attempt_finds_them(staff: Staff, runner: Runner) -> None:
    job = staff.put("save", runner, f"save-{runner}")
    until(lambda: said_of(staff.crew.get(job)) == (0.25, "a quarter"))
    assert staff.crew.get(job).checkpoint_bytes == b'"saved by 1"'
    staff.crew.open(f"save-{runner}")
    assert job.result(timeout="30s") == "nothing"

    job.retry()

    assert staff.crew.app.get(job.id).result(timeout="30s") == "saved by 1"


def test_saves_of_another_thread_of_a_job_arrive(crew: Crew) -> None:
    """In debug mode an event loop refuses what is not safe to do from another thread."""
    staff = start(crew, PYTHONASYNCIODEBUG="1")
    jobs = [staff.put("save_in_thread", runner) for runner in RUNNERS]

    for job in jobs:
        job.result(timeout="30s")
        assert crew.get(job).checkpoint_bytes == b'"from a thread"'


def test_a_thread_left_behind_does_not_save_for_the_next_job(staff: Staff, runner: Runner) -> None:
    name = f"haunt-{runner}"
    staff.put("haunt", runner, name).result(timeout="30s")

    after = staff.put("save", runner, f"after-{name}")
    until(lambda: staff.crew.get(after).checkpoint_bytes)
    staff.crew.open(f"after-{name}")

    assert after.result(timeout="30s") == "nothing"
    assert staff.crew.get(after).checkpoint_bytes == b'"saved by 1"'
    staff.crew.open(name)


def test_changes_of_the_app_by_a_job_are_visible_to_the_next_one_as_documented(staff: Staff, runner: Runner) -> None:
    staff.put("remember", runner, runner).result(timeout="30s")

    found = staff.put("remember", runner, "more").result(timeout="30s")

    assert found == ("nothing" if runner in HAS[STARTS_ANEW] else runner)


def test_a_child_that_a_job_leaves_behind_is_killed_with_it_or_not(staff: Staff, runner: Runner) -> None:
    name = f"left-{runner}"
    staff.put("leave_child", runner, name).result(timeout="30s")
    (child,) = staff.crew.pids(name, "started")

    if runner in HAS[LEAVES_NOTHING]:
        assert until(lambda: not is_alive(child))
    else:
        assert is_alive(child)
        staff.crew.kill(child)


def test_a_job_of_a_stopping_worker_is_requeued_and_resumed(crew: Crew, runner: Runner) -> None:
    first = start(crew)
    job = first.put("step", runner, "steps", 3)
    until(lambda: crew.said("steps", "item", "0"))
    first.worker.send(signal.SIGTERM)
    until(lambda: "is stopping" in first.worker.log)
    crew.open("steps-0")
    assert first.worker.wait() == 0
    assert crew.get(job).state == "waiting"
    crew.open("steps-1")
    crew.open("steps-2")

    start(crew)

    assert job.result(timeout="30s") == [1, 2]
    assert crew.said("steps", "item") == [["0"], ["1"], ["2"]]
    ended = crew.get(job)
    assert (ended.retries_used, ended.crashes_used, ended.lost_used) == (0, 0, 0)
    assert crew.outcomes(job) == ["released", "succeeded"]


# The same program everywhere

BOOK = {1: "call me", 2: "some years ago", 3: "never mind"}


def test_a_program_runs_when_it_is_enqueued_by_a_plain_function(staff: Staff, runner: Runner) -> None:
    job = staff.put("read_book", runner, BOOK)

    assert job.result(timeout="30s") == Report([1, 2, 3], 7, True)
    assert said_of(staff.crew.get(job)) == (1, "")


def test_a_program_runs_when_it_is_enqueued_by_a_coroutine(staff: Staff, runner: Runner) -> None:
    async def run() -> Any:
        client = Holdfast(staff.crew.url, namespace=staff.crew.namespace)
        client.tasks.update(app.jobs.tasks)
        try:
            job = await client.aenqueue(app.find("read_book", runner).bind(BOOK))
            return await job.aresult(timeout="30s")
        finally:
            await client.aclose()

    assert asyncio.run(run()) == Report([1, 2, 3], 7, True)


# Processes


def opened(pid: int) -> list[str]:
    """The files that a process has open."""
    names = []
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # it was closed
            names.append(os.readlink(entry))
    return names


@pytest.mark.parametrize("env", [{}, {"START_THREAD": "yes"}], ids=["forking", "beside threads"])
def test_every_process_holds_the_lock_of_its_worker_and_none_outlives_it(crew: Crew, env: dict[str, str]) -> None:
    staff = start(crew, **env)
    for runner in RUNNERS:
        staff.put("hold", runner, runner, False)
    pids = {pid for runner in RUNNERS for pid in crew.pids(runner, "runs")} | set(descendants(staff.worker.pid))
    assert len(pids) == 5  # the executor, its zygote, three jobs
    lock = str(crew.folder / "node")
    for pid in pids:
        assert any(name.startswith(lock) for name in opened(pid))

    staff.worker.kill()

    assert until(lambda: not any(map(is_alive, pids)))


# Choosing one


@pytest.mark.parametrize("default", [*APART, "thread"])
def test_a_worker_has_a_runner_for_sync_tasks_that_name_none(crew: Crew, default: Runner) -> None:
    worker = start(crew, "--runner", default).worker

    (pid, thread), (second, _) = (crew.put(app.sync_task).result(timeout="30s") for _ in range(2))
    executor, _ = crew.put(app.async_task).result(timeout="30s")

    assert executor == worker.executor
    assert (pid == executor, pid == second) == (default == "thread", default in ("thread", "process"))
    assert thread.startswith("job") == (default == "thread")


def test_an_app_that_starts_threads_is_never_forked_and_the_worker_logs_it_once(crew: Crew) -> None:
    threaded = start(crew, "--executors", "2", START_THREAD="yes")

    jobs = {runner: [threaded.put("where", runner) for _ in range(2)] for runner in RUNNERS}
    held = threaded.put("hold", "fork", "held", False)
    crew.pids("held", "runs")
    held.cancel()

    found = {runner: [job.result(timeout="30s") for job in pair] for runner, pair in jobs.items()}
    spawned = {runner for runner, lines in found.items() if "holdfast.entrypoints.interpreter" in lines[0]}
    assert spawned == set(APART)
    kept = {runner for runner, lines in found.items() if "reuse" in lines[0].split("\0")}
    assert kept == {"process"}
    assert crew.ended(held).state == "cancelled"
    assert threaded.worker.log.count("a fork would not copy: 'restless' of tests.apps.runner_app.") == 1
    assert "move into the task: the code of tests.apps.runner_app that starts threads\n" in threaded.worker.log
    assert threaded.worker.stop() == 0


def test_the_document_lists_the_properties_of_each_runner() -> None:
    rows = re.findall(r"^\| ([^|]+?) \|(.+)\|$", DOCUMENT.read_text(), re.MULTILINE)
    said = {words: cells.split("|") for words, cells in rows}

    for property, those in HAS.items():
        assert [cell.strip() for cell in said[property]] == ["yes" if kind in those else "no" for kind in RUNNERS]
