"""Apps whose import starts threads: which can be forked, and what the worker logs about the others."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from holdfast.worker.runners import fork_safety
from tests.apps import native_app as app
from tests.support.workers import Crew, Worker


def start(crew: Crew, thread: str) -> Worker:
    worker = crew.start(app="tests.apps.native_app", THREAD=thread, PYTHONWARNINGS="error")
    crew.app.tasks.update(app.jobs.tasks)
    return worker


@pytest.mark.parametrize("thread", ["ends", "jemalloc_bg_thd"])
def test_an_app_is_forked_if_its_threads_end_at_a_fork_or_survive_it(crew: Crew, thread: str) -> None:
    worker = start(crew, thread)

    where = [crew.put(task).result(timeout="40s") for task in (app.forked, app.forked, app.kept, app.kept)]

    assert all("holdfast.entrypoints.executor" in line for _, line in where)
    assert len({pid for pid, _ in where}) == 3  # the last two shared one
    assert crew.said("threads") == [["2"]]  # or there was nothing to end
    assert "a fork would not copy" not in worker.log


def test_an_app_with_a_thread_that_stays_is_spawned_and_process_keeps_what_is_spawned(crew: Crew) -> None:
    worker = start(crew, "stays")

    where = [crew.put(task).result(timeout="40s") for task in (app.forked, app.forked, app.kept, app.kept)]

    assert all("holdfast.entrypoints.interpreter" in line for _, line in where)
    pids = [pid for pid, _ in where]
    assert pids[2] == pids[3]
    assert len(set(pids)) == 3
    assert "a fork would not copy: 'stays' of tests.apps.native_pool. So jobs of the runner fork" in worker.log
    assert "move into the task: the import of tests.apps.native_pool, or what it computes" in worker.log


def test_what_a_thread_imports_meanwhile_is_not_blamed_for_the_threads_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    modules = {
        "import_gates": "from threading import Event\nbegan, goes_on, ends = Event(), Event(), Event()",
        "import_slowly": "import import_gates as gates\ngates.began.set()\ngates.goes_on.wait()",
        "import_meddler": "import threading, import_gates as gates\n"
        "thread = threading.Thread(target=__import__, args=['import_slowly'])\nthread.start()\ngates.began.wait()",
        "top_importer": "import threading, import_gates as gates, import_meddler as meddler\n"
        "gates.goes_on.set()\nmeddler.thread.join()\n"
        "thread = threading.Thread(target=gates.ends.wait)\nthread.start()",
    }
    for name, text in modules.items():
        (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)

    with fork_safety.watch_imports("top_importer") as noted:
        top = importlib.import_module("top_importer")

    assert noted.started[top.thread.native_id] == "top_importer"
    importlib.import_module("import_gates").ends.set()
    top.thread.join()
