"""Tasks that call the app's own Lua, in each runner; workers with other versions of it side by side."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.apps.extended_app import RUNNERS, TASKS, jobs
from tests.support.workers import Crew

LUA = "holdfast.register('version', function(leaf) holdfast.enqueue(leaf) return '{}' end)"


def _start(crew: Crew, path: Path, text: str, *options: str) -> None:
    path.write_text(text)
    crew.start("--processes", "2", *options, app="tests.apps.extended_app", HOLDFAST_EXTEND=str(path))


@pytest.fixture
def extended(crew: Crew, tmp_path: Path) -> Crew:
    crew.app.tasks.update(jobs.tasks)
    _start(crew, tmp_path / "own.lua", LUA.replace("{}", "one"))
    return crew


def test_a_task_calls_own_lua_in_each_runner(extended: Crew) -> None:
    stored = [extended.put(TASKS[runner]) for runner in RUNNERS]
    assert [job.result(timeout="30s") for job in stored] == ["one"] * len(RUNNERS)
    assert extended.app.count(task="leaf", queue="default") == len(RUNNERS)


def test_workers_with_an_older_and_a_newer_version_share_the_jobs(extended: Crew, tmp_path: Path) -> None:
    task = TASKS["thread"]
    assert extended.put(task).result(timeout="30s") == "one"
    _start(extended, tmp_path / "own.lua", LUA.replace("{}", "two"), "--queues", "newer")
    assert extended.put(task.options(queue="newer")).result(timeout="30s") == "two"
    assert extended.put(task).result(timeout="30s") == "one"  # its file was read when it started to call
    assert extended.app.count(task="leaf", state="failed", queue="default") == 0
