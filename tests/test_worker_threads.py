"""Apps whose import starts threads: which of them are forked all the same, and what the worker says of the others."""

from __future__ import annotations

import pytest

from tests.apps import native_app as app
from tests.workers import Crew, Worker


def start(crew: Crew, thread: str) -> Worker:
    worker = crew.start(app="tests.apps.native_app", THREAD=thread, PYTHONWARNINGS="error")
    crew.app.tasks.update(app.jobs.tasks)
    return worker


@pytest.mark.parametrize("thread", ["ends", "jemalloc_bg_thd"])
def test_an_app_is_forked_if_its_threads_end_at_a_fork_or_survive_it(crew: Crew, thread: str) -> None:
    worker = start(crew, thread)

    where = [crew.put(task).result(timeout="40s") for task in (app.forked, app.forked, app.kept, app.kept)]

    assert all("holdfast.worker.main" in line for _, line in where)
    assert len({pid for pid, _ in where}) == 3  # the last two shared one
    assert crew.said("threads") == [["2"]]  # or there was nothing to end
    assert "a fork would not copy" not in worker.log


def test_an_app_with_a_thread_that_stays_is_spawned_and_process_keeps_what_is_spawned(crew: Crew) -> None:
    worker = start(crew, "stays")

    where = [crew.put(task).result(timeout="40s") for task in (app.forked, app.forked, app.kept, app.kept)]

    assert all("holdfast.worker.spawned" in line for _, line in where)
    pids = [pid for pid, _ in where]
    assert pids[2] == pids[3]
    assert len(set(pids)) == 3
    assert "a fork would not copy: 'stays' of tests.apps.native_pool. So jobs of the runner fork" in worker.log
    assert "move into the task: the import of tests.apps.native_pool, or what it computes" in worker.log
