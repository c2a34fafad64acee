"""What a worker logs: its tasks and store, how its jobs end, what follows, and what it waits for."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
from contextlib import suppress

import pytest

from holdfast import Retries
from tests.apps.log_lines_app import crash_first, quick, shout, shout_async, wait_for, wait_for_async
from tests.apps.worker_app import end_by
from tests.support.workers import ROOT, Crew, Worker, until
from tests.test_text import HOSTILE

APP = "tests.apps.log_lines_app"
LINE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} (DEBUG|INFO|WARNING|ERROR) ")

GATED = """
import os, time
from holdfast import Holdfast
jobs = Holdfast()
print("imports", flush=True)
while not os.path.exists(f"{os.environ['GATES']}/import"):
    time.sleep(0.01)
"""


def _line(worker: Worker, words: str) -> str:
    """Wait for a line with these words, and return it."""
    found = until(lambda: [line for line in worker.log.splitlines() if words in line], what=words)
    return found[0]


def _stopped(worker: Worker) -> str:
    assert worker.stop() == 0
    return worker.log


def test_a_ready_worker_logs_its_tasks_queues_slots_and_store(crew: Crew) -> None:
    worker = crew.start("--queues", "post,default", "--processes", "3", "--concurrency", "40", app=APP)
    _line(worker, "is ready")
    log = _stopped(worker)
    assert re.search(r"INFO worker \S+ is ready\n    tasks   6: tests\.apps\.log_lines_app\.quick, ", log)
    assert "\n    queues  post, default\n    slots   3 processes, 40 coroutines or threads\n" in log
    assert re.search(r"\n    store   (Valkey|Redis) \d+\.\d+\.\d+ at .*, namespace " + crew.namespace + "\n", log)
    assert log.count("is ready") == 1


def test_an_app_without_tasks_is_warned_of(crew: Crew) -> None:
    (crew.folder / "empty_app.py").write_text("from holdfast import Holdfast\njobs = Holdfast()\n")
    worker = crew.start(app="empty_app", PYTHONPATH=str(crew.folder))
    _line(worker, "no tasks: does the module import them?")
    assert "WARNING worker" in worker.log


def test_each_job_has_a_line_and_a_failed_attempt_its_traceback_and_what_follows(crew: Crew) -> None:
    worker = crew.start(app=APP)
    good = crew.put(quick, 1)
    retried = crew.app.enqueue(shout.bind("no luck").options(retries=Retries(5, jitter=0), backoff="20s"))
    lost = crew.app.enqueue(shout_async.bind("no hope").options(retries=0))
    assert "INFO" in _line(worker, f"{good.id}: attempt 1 of {quick.name} succeeded after ")
    assert "WARNING" in _line(worker, f"{retried.id}: attempt 1 of {shout.name} failed after ")
    assert "INFO" in _line(worker, f"{retried.id}: retry 1 of 5 in 20 s")
    assert "ERROR" in _line(worker, f"{lost.id}: failed for good (exhausted), in group ValueError; attempts: 1")
    log = _stopped(worker)
    for task in (shout, shout_async):
        assert f", in {task.name.rpartition('.')[2]}\n        raise ValueError(words)\n" in log
    assert "\n    ValueError: no luck\n" in log


def test_a_job_of_an_unknown_task_has_one_line(crew: Crew) -> None:
    worker = crew.start(app=APP)
    job = crew.put(end_by, "raise")
    line = _line(worker, f"{job.id}: attempt 1 of {end_by.name} requeued after ")
    assert "WARNING" in line
    assert line.endswith(f": task {end_by.name} is not known here; does the module import it?")
    assert worker.log.count(job.id) == 1


def test_a_crash_and_an_immediate_retry_log_what_follows(crew: Crew) -> None:
    worker = crew.start()
    job = crew.app.enqueue(end_by.bind("os._exit").options(crashes=1))
    _line(worker, f"{job.id}: failed for good (exhausted), in group crashed; attempts: 2")
    assert worker.log.count("exit code 3") == 2


def test_an_error_after_a_crash_is_followed_by_a_retry(crew: Crew) -> None:
    worker = crew.start(app=APP)
    job = crew.app.enqueue(crash_first.bind("raise").options(retries=3, backoff=0))
    until(lambda: crew.get(job).attempt == 2)
    crew.app.pause("default")
    crew.open("raise")
    _line(worker, f"{job.id}: retry 1 of 3 now")  # not: requeued, after crash 1 of 3


def test_text_of_an_exception_neither_controls_the_terminal_nor_forges_a_line(crew: Crew) -> None:
    worker = crew.start(app=APP)
    for task in (shout, shout_async):
        job = crew.app.enqueue(task.bind(HOSTILE).options(retries=0))
        _line(worker, f"{job.id}: failed for good")
    log = _stopped(worker)
    for line in log.split("\n"):
        assert line.isprintable()
        assert LINE.match(line) or line.startswith("    ") or not line
    assert "2030-01-01 INFO forged" in log  # so that this test could fail


def test_many_jobs_have_a_line_a_second_for_all(crew: Crew) -> None:
    jobs = crew.app.enqueue_many(quick.bind(number) for number in range(3000))
    worker = crew.start("--burst", "--executors", "2", app=APP)
    assert worker.wait() == 0
    sums = re.findall(r"INFO ran ([\d,]+) jobs? in the last second: ([\d,]+) succeeded\n", worker.log)
    lines = [line for line in worker.log.splitlines() if " attempt 1 of " in line]
    seconds = {line[:19] for line in worker.log.splitlines() if LINE.match(line)}
    counted = sum(int(total.replace(",", "")) for total, _ in sums)
    assert counted <= len(jobs) <= counted + len(lines)
    assert len(lines) <= 10 * len(seconds) < len(jobs)


def test_failures_among_many_are_summed_too(crew: Crew) -> None:
    crew.app.enqueue_many(shout_async.bind("no").options(retries=0) for _ in range(500))
    worker = crew.start("--burst", app=APP)
    assert worker.wait() == 0
    failed = [int(found.replace(",", "")) for found in re.findall(r"last second: ([\d,]+) failed", worker.log)]
    shown = worker.log.count(f"of {shout_async.name} failed after")
    assert 0 < shown < 500
    assert sum(failed) <= 500 <= sum(failed) + shown


def test_below_info_no_job_has_a_line_and_at_debug_each_has(crew: Crew) -> None:
    crew.app.enqueue_many(quick.bind(number) for number in range(50))
    quiet = crew.start("--burst", "--log-level", "WARNING", app=APP)
    assert quiet.wait() == 0
    assert "INFO" not in quiet.log
    crew.app.enqueue_many(quick.bind(number) for number in range(50))
    verbose = crew.start("--burst", "--log-level", "DEBUG", app=APP)
    assert verbose.wait() == 0
    assert verbose.log.count(f"of {quick.name} succeeded after") == 50


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopping_worker_logs_the_jobs_it_waits_for_and_the_effect_of_a_second_signal(
    crew: Crew, number: int
) -> None:
    if signal.getsignal(number) is signal.SIG_IGN:
        pytest.skip("the signal is ignored here, as in the background of a shell")
    worker = crew.start(app=APP)
    apart, inside = crew.put(wait_for, "never"), crew.put(wait_for_async, "never")
    until(lambda: all((crew.folder / "gates" / f"{name}.begun").exists() for name in ("wait_for", "wait_for_async")))
    _line(worker, "is ready")
    worker.send(number)
    line = _line(worker, "is stopping within 25 s: waiting for ")
    assert f"{apart.id} ({wait_for.name})" in line
    assert f"{inside.id} ({wait_for_async.name})" in line
    assert "a second Ctrl-C or SIGTERM requeues them at once" in line
    worker.send(number)
    assert worker.wait() == 0
    assert "requeues its running jobs at once: it received a second signal" in worker.log
    assert f"{apart.id}: attempt 1 of {wait_for.name} requeued after " in worker.log
    assert {crew.get(apart).state, crew.get(inside).state} == {"waiting"}


def test_a_stopping_worker_does_not_log_that_it_is_ready(crew: Crew) -> None:
    (crew.folder / "gated_app.py").write_text(GATED)
    worker = crew.start(app="gated_app", PYTHONPATH=os.pathsep.join([str(crew.folder), *sys.path]))
    _line(worker, "imports")
    worker.send(signal.SIGTERM)
    _line(worker, "is stopping within 25 s")

    crew.open("import")

    assert worker.wait() == 0
    assert "is ready" not in worker.log


def test_an_app_that_cannot_be_imported_is_shown_with_its_traceback_indented_as_it_was(crew: Crew) -> None:
    (crew.folder / "broken_app.py").write_text("import nothing_of_this_name\n")
    worker = crew.start(app="broken_app", PYTHONPATH=str(crew.folder))
    assert worker.wait() == 1
    assert "\n        import nothing_of_this_name\n    ModuleNotFoundError: No module named " in worker.log


def test_an_executor_that_dies_while_importing_is_logged_and_restarted_with_growing_pauses(crew: Crew) -> None:
    (crew.folder / "deadly_app.py").write_text("import os\nos._exit(7)\n")
    worker = crew.start(app="deadly_app", PYTHONPATH=str(crew.folder))
    _line(worker, "died: exit code 7, while it imported deadly_app")
    _line(worker, "starting the next executor of pool default in 2 s")
    pauses = re.findall(r"starting the next executor of pool default in (\S+) s", worker.log)
    assert pauses[:3] == ["0.5", "1", "2"]
    assert worker.log.count("died: exit code 7") == len(pauses) == 3
    assert worker.stop() == 0


def test_a_server_that_writes_nothing_to_disk_is_warned_of(crew: Crew) -> None:
    worker = crew.start(app=APP)
    _line(worker, "is ready")
    assert "WARNING persistence: Nothing is written to disk: a restart of the server loses all jobs." in worker.log


def test_colours_are_for_terminals(crew: Crew) -> None:
    ours, its = pty.openpty()
    environ = os.environ | {"HOLDFAST_URL": crew.url, "HOLDFAST_NAMESPACE": crew.namespace, "TERM": "xterm"}
    environ.pop("NO_COLOR", None)
    crew.app.enqueue(shout.bind("no").options(retries=0))
    line = [sys.executable, "-m", "holdfast", "work", APP, "--burst"]
    with subprocess.Popen(line, cwd=ROOT, env=environ, stdout=its, stderr=its) as process:
        os.close(its)
        shown = b""
        with suppress(OSError):  # the end of a terminal
            while part := os.read(ours, 65536):
                shown += part
        assert process.wait(40) == 0
    os.close(ours)
    assert re.search(rb"\x1b\[33m[^\x1b]* WARNING [^\x1b]* failed after [^\x1b]*\x1b\[0m\r\n", shown)
    assert re.search(rb"\x1b\[31m[^\x1b]* ERROR [^\x1b]* failed for good[^\x1b]*\x1b\[0m\r\n", shown)
