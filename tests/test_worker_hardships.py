"""What a machine does to a worker: signals, and descriptors, processes or disks that have run out."""

from __future__ import annotations

import fcntl
import os
import resource
import shutil
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from holdfast import Job
from holdfast.store import Address
from holdfast.worker.locks import WorkerLock
from tests.apps import log_app, reaping_app
from tests.apps import worker_app as app
from tests.workers import Crew, until

BADLY = """
import os, signal, sys
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM, signal.SIGCHLD])
os.execv(sys.argv[1], sys.argv[1:])
"""


def test_signals_that_were_ignored_or_blocked_when_a_worker_was_started_are_heard(crew: Crew) -> None:
    worker = crew.start(before=[sys.executable, "-c", BADLY])
    job = crew.put(app.end_by.options(crashes=0), "os._exit")

    assert "exit code 3" in str(crew.ended(job).failure)
    assert worker.stop() == 0


def test_an_app_that_reaps_children_does_so_in_its_jobs_only(crew: Crew) -> None:
    worker = crew.start(app="tests.apps.reaping_app", REAP="yes")
    zygote = worker.zygote

    assert [crew.put(reaping_app.is_heard_here).result(timeout="40s") for _ in range(3)] == [True] * 3
    for code in (3, 4):
        assert f"exit code {code}" in str(crew.ended(crew.put(reaping_app.leave, code)).failure)
    assert worker.zygote == zygote


def test_what_takes_the_wake_up_descriptor_away_at_a_fork_ends_no_job(crew: Crew) -> None:
    crew.start(app="tests.apps.reaping_app", RESET="yes")

    assert "exit code 3" in str(crew.ended(crew.put(reaping_app.leave, 3)).failure)


@pytest.mark.parametrize("whose", ["executor", "zygote"])
def test_a_worker_that_has_no_descriptors_left_starts_what_it_can_and_the_rest_later(crew: Crew, whose: str) -> None:
    worker = crew.start("--processes", "30", "--log-level", "DEBUG")
    zygote = worker.zygote
    resource.prlimit(getattr(worker, whose), resource.RLIMIT_NOFILE, (32, 32))
    jobs = [crew.put(app.hold, f"job-{number}") for number in range(30)]
    until(lambda: "Too many open files" in worker.log or "no process could be started" in worker.log)
    for number in range(30):
        crew.open(f"job-{number}")

    assert {crew.ended(job).state for job in jobs} == {"succeeded"}
    assert worker.zygote == zygote
    assert {crew.get(job).crashes for job in jobs} == {0}
    assert worker.stop() == 0


def test_a_worker_without_standard_files_runs_jobs_and_keeps_what_they_print(crew: Crew) -> None:
    worker = crew.start(app="tests.apps.log_app", before=["bash", "-c", 'exec "$@" <&- >&- 2>&-', "bash"])

    for runner in ("fork", "spawn", "process", "thread", "async"):
        job = crew.put(log_app.jobs.tasks[f"talk-{runner}"], 1)
        assert crew.ended(job).state == "succeeded"
        until(partial(_is_all_there, job))
    assert worker.stop() == 0


def _is_all_there(job: Job[Any]) -> bool:
    return job.logs().lines == ["out 0", "err 0", "no end of line"]


def test_a_copy_that_a_task_forks_and_that_returns_from_it_has_no_say(crew: Crew) -> None:
    crew.start(app="tests.apps.reaping_app")
    jobs = [crew.put(reaping_app.returns_twice) for _ in range(10)]

    assert [job.result(timeout="40s") for job in jobs] == ["the task"] * 10


def test_a_worker_has_no_siblings_when_the_folder_of_locks_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As that of a user is removed who has logged out."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "user"))
    (tmp_path / "user").mkdir()
    lock = WorkerLock("node/worker")
    shutil.rmtree(tmp_path / "user")

    assert list(lock.dead_siblings()) == []
    lock.remove()


def test_a_dead_worker_is_found_among_those_of_other_stores_also_when_it_said_late_which_its_store_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    here, there = (Address(f"unix:///{name}", None, "default", 1.0) for name in ("here", "there"))
    lock, stranger, sibling = (WorkerLock(f"node/{name}") for name in ("own", "stranger", "sibling"))
    lock.belongs_to(here, tmp_path)
    stranger.belongs_to(there, tmp_path)
    os.close(stranger.descriptor)
    assert list(lock.dead_siblings()) == []

    sibling.belongs_to(here, tmp_path)
    assert list(lock.dead_siblings()) == []
    os.close(sibling.descriptor)

    assert [dead.name for dead in lock.dead_siblings()] == ["node/sibling"]
    lock.remove()


def test_what_other_stores_left_for_more_than_a_day_is_removed_though_it_was_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    lock, stranger = WorkerLock("node/own"), WorkerLock("node/stranger")
    lock.belongs_to(Address("unix:///here", None, "default", 1.0), tmp_path)
    stranger.belongs_to(Address("unix:///there", None, "default", 1.0), tmp_path)
    os.close(stranger.descriptor)
    assert list(lock.dead_siblings()) == []

    (file,) = tmp_path.glob("*/node@stranger")
    os.utime(file, (0, 0))
    os.utime(lock.descriptor, (0, 0))

    assert list(lock.dead_siblings()) == []
    assert not file.exists()
    lock.remove()


def test_the_folder_of_a_worker_is_locked_so_that_systemd_removes_nothing_from_it(crew: Crew) -> None:
    """It removes what is old from /tmp, unless it cannot lock the folder: see tmpfiles.d(5)."""
    worker = crew.start()
    (folder,) = until(crew.directories)
    descriptor = os.open(folder, os.O_RDONLY)

    with pytest.raises(BlockingIOError):
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)

    worker.stop()
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(descriptor)
