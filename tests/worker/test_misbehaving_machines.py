"""Workers on misbehaving machines: signals, and descriptors, processes or disks that have run out."""

from __future__ import annotations

import fcntl
import os
import resource
import shutil
import sys
import tempfile
import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from holdfast import Job
from holdfast.store.store import Address
from holdfast.worker.supervisor.worker_lock import DeadWorker, WorkerLock
from tests.apps import gevent_app, log_app, reaping_app
from tests.apps import worker_app as app
from tests.support.workers import Crew, until

BADLY = """
import os, signal, sys
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM, signal.SIGCHLD])
os.execv(sys.argv[1], sys.argv[1:])
"""


def test_signals_that_were_ignored_or_blocked_at_the_start_of_a_worker_are_handled(crew: Crew) -> None:
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


def test_resetting_the_wake_up_descriptor_at_a_fork_ends_no_job(crew: Crew) -> None:
    crew.start(app="tests.apps.reaping_app", RESET="yes")

    assert "exit code 3" in str(crew.ended(crew.put(reaping_app.leave, 3)).failure)


def test_a_job_with_an_unknown_exit_code_has_its_reported_outcome_or_has_crashed(crew: Crew) -> None:
    worker = crew.start(app="tests.apps.reaping_app", IGNORE="yes")
    zygote = worker.zygote
    jobs = [crew.put(reaping_app.nothing) for _ in range(3)]

    for job in jobs:
        assert crew.ended(job).state == "succeeded"
        assert crew.outcomes(job) == ["succeeded"]
    crashed = crew.ended(crew.put(reaping_app.leave, 3))
    assert crashed.group == "crashed"
    assert "its exit code is not known" in str(crashed.failure)
    assert worker.zygote == zygote


def test_an_app_that_gevent_has_patched_runs_each_job_once_under_each_runner(crew: Crew) -> None:
    """Its `os.fork` has an event loop reap the child, its sockets wait where others do not."""
    worker = crew.start("--lease", "2s", app="tests.apps.gevent_app", GEVENT="yes")
    zygote = worker.zygote
    jobs = [crew.put(task, number) for number in range(5) for task in gevent_app.doubles.values()]

    for job in jobs:
        assert crew.ended(job).state == "succeeded"
        assert crew.outcomes(job) == ["succeeded"]
    for code in (3, 4):
        assert f"exit code {code}" in str(crew.ended(crew.put(gevent_app.leave, code)).failure)
    assert worker.zygote == zygote


def test_a_job_of_an_app_that_gevent_has_patched_is_cancelled_through_its_finally_blocks(crew: Crew) -> None:
    worker = crew.start(app="tests.apps.gevent_app", GEVENT="yes")
    job = crew.put(gevent_app.hold, "held")
    crew.pids("held", "runs")

    job.cancel()

    assert crew.ended(job).state == "cancelled"
    assert crew.said("held", "cleaned") == [[]]
    assert worker.stop() == 0


@pytest.mark.parametrize("whose", ["executor", "zygote"])
def test_a_worker_without_free_descriptors_starts_the_jobs_it_can_and_the_others_later(crew: Crew, whose: str) -> None:
    worker = crew.start("--processes", "30", "--log-level", "DEBUG")
    zygote = worker.zygote
    resource.prlimit(getattr(worker, whose), resource.RLIMIT_NOFILE, (32, 32))
    jobs = [crew.put(app.hold, f"job-{number}") for number in range(30)]
    until(lambda: "Too many open files" in worker.log or "no process could be started" in worker.log)
    for number in range(30):
        crew.open(f"job-{number}")

    assert {crew.ended(job).state for job in jobs} == {"succeeded"}
    assert worker.zygote == zygote
    assert {crew.get(job).crashes_used for job in jobs} == {0}
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


def test_a_forked_child_that_returns_from_the_task_does_not_affect_the_outcome(crew: Crew) -> None:
    crew.start(app="tests.apps.reaping_app")
    jobs = [crew.put(reaping_app.returns_twice) for _ in range(10)]

    assert [job.result(timeout="40s") for job in jobs] == ["the task"] * 10


def test_a_worker_finds_no_peers_when_the_lock_folder_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As that of a user is removed who has logged out."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "user"))
    (tmp_path / "user").mkdir()
    lock = WorkerLock("node/worker")
    shutil.rmtree(tmp_path / "user")

    assert list(lock.dead_workers()) == []
    lock.remove()


def test_a_dead_worker_that_recorded_its_store_late_is_found_among_those_of_other_stores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    here, there = (Address(f"unix:///{name}", None, "default", 1.0) for name in ("here", "there"))
    lock, stranger, sibling = (WorkerLock(f"node/{name}") for name in ("own", "stranger", "sibling"))
    lock.set_store(here, tmp_path)
    stranger.set_store(there, tmp_path)
    os.close(stranger.descriptor)
    assert list(lock.dead_workers()) == []

    sibling.set_store(here, tmp_path)
    assert list(lock.dead_workers()) == []
    os.close(sibling.descriptor)

    assert [dead.name for dead in lock.dead_workers()] == ["node/sibling"]
    lock.remove()


def test_a_dead_worker_of_another_store_is_reported_after_a_day(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    lock, stranger = WorkerLock("node/own"), WorkerLock("node/stranger")
    lock.set_store(Address("unix:///here", None, "default", 1.0), tmp_path)
    stranger.set_store(Address("unix:///there", None, "default", 1.0), tmp_path)
    os.close(stranger.descriptor)
    assert list(lock.dead_workers()) == []

    (file,) = tmp_path.glob("*/node@stranger")
    os.utime(file, (0, 0))
    os.utime(lock.descriptor, (0, 0))

    (dead,) = lock.dead_workers()
    assert (dead.name, dead.held_jobs) == ("node/stranger", False)
    lock.remove()


def test_a_worker_that_is_killed_while_it_starts_leaves_nothing_for_long(crew: Crew) -> None:
    killed = crew.start(app="tests.apps.endless_import")
    (folder,) = until(crew.directories)
    (file,) = until(lambda: list(crew.folder.glob("node/*/node@*")))
    until(lambda: "imports" in killed.log)
    killed.kill()

    worker = crew.start()

    until(lambda: not folder.exists() and not file.exists())
    assert worker.stop() == 0
    assert crew.directories() == []
    assert list(crew.folder.glob("node/*/*")) == []


def test_a_worker_that_is_killed_before_it_has_a_folder_leaves_nothing_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    lock, empty, early = (WorkerLock(f"node/{name}") for name in ("own", "empty", "early"))
    lock.set_store(Address("unix:///here", None, "default", 1.0), tmp_path)
    early.write(tmp_path / "holdfast-planned")
    assert list(lock.dead_workers()) == []
    os.close(empty.descriptor)
    os.close(early.descriptor)

    found = {dead.name: dead for dead in lock.dead_workers()}
    assert set(found) == {"", "node/early"}
    assert not any(dead.held_jobs or dead.has_folder for dead in found.values())
    lock.remove()


def test_a_lock_file_that_another_worker_removes_before_it_is_locked_is_created_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker has made its file, and a sibling was faster to lock it."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    (tmp_path / f"holdfast-workers-{os.getuid()}").mkdir(mode=0o700)
    file = tmp_path / f"holdfast-workers-{os.getuid()}" / "node@late"
    sibling = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(sibling, fcntl.LOCK_EX)
    made: list[WorkerLock] = []
    thread = threading.Thread(target=lambda: made.append(WorkerLock("node/late")))
    thread.start()
    until(lambda: "-> FLOCK" in Path("/proc/locks").read_text())
    file.unlink()
    os.close(sibling)
    thread.join()

    assert os.path.samestat(os.fstat(made[0].descriptor), file.stat())
    made[0].remove()


@pytest.mark.parametrize("kind", ["file", "link", "stranger"])
def test_only_a_folder_of_this_user_is_removed_for_a_dead_worker(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "holdfast-0123"
    if kind == "file":
        path.touch()
    elif kind == "link":
        (tmp_path / "other").mkdir()
        path.symlink_to(tmp_path / "other")
    else:
        if os.geteuid():
            pytest.skip("only root can give files away")
        path.mkdir()
        os.chown(path, 65534, 65534)

    assert not DeadWorker("node/dead", path, tmp_path / "file", held_jobs=True).has_folder


def test_files_that_a_worker_of_another_store_left_a_day_ago_are_removed(crew: Crew) -> None:
    other = crew.start(HOLDFAST_NAMESPACE=f"{crew.namespace}-other")
    (folder,) = until(crew.directories)
    (file,) = until(lambda: [path for path in crew.folder.glob("node/*/node@*") if "holdfast-" in path.read_text()])
    until(lambda: " is ready" in other.log)
    other.kill()
    os.utime(file, (0, 0))

    crew.start()

    until(lambda: not folder.exists() and not file.exists())


def test_the_folder_of_a_worker_is_locked_so_that_systemd_removes_nothing_from_it(crew: Crew) -> None:
    """It removes what is old from /tmp, unless it cannot lock the folder: see tmpfiles.d(5)."""
    worker = crew.start()
    until(lambda: " starts, importing " in worker.log)  # it has locked the folder before
    (folder,) = crew.directories()
    descriptor = os.open(folder, os.O_RDONLY)

    with pytest.raises(BlockingIOError):
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)

    worker.stop()
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(descriptor)
