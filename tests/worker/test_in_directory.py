"""Workers that run jobs in the directory of their attempt: `--in-directory`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast import Holdfast, Job
from holdfast.errors import Invalid
from holdfast.job.option_table import Runner
from tests.support.workers import Crew, Worker, until

APP = """
import os, sys
from pathlib import Path
from holdfast import Holdfast, current_job

sys.path[:0] = ["", "lib"]  # as some programs do
jobs = Holdfast()

def look():
    before = os.getcwd()
    Path("made.txt").write_text("here")
    import beside, in_lib
    os.chdir("/")  # a job may go elsewhere
    job = current_job()
    return [before, str(job.directory), (job.directory / "made.txt").read_text(), beside.NAME, in_lib.NAME, os.getpid()]

def stay():
    return [os.getcwd(), os.getpid()]

async def astay():
    return stay()

for runner in ("fork", "spawn", "process", "thread"):
    jobs.task(look, name=f"look.{runner}", runner=runner)
    jobs.task(stay, name=f"stay.{runner}", runner=runner)
jobs.task(astay, name="stay.async")
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / "lib").mkdir(parents=True)
    (folder / "project_tasks.py").write_text(APP)
    (folder / "beside.py").write_text("NAME = 'beside'")
    (folder / "lib" / "in_lib.py").write_text("NAME = 'in lib'")
    return folder


def start(crew: Crew, project: Path, *options: str) -> Worker:
    return crew.start(*options, app="project_tasks", before=("env", "-C", str(project)))


def put(crew: Crew, name: str) -> Job[Any]:
    task: Any = crew.app.task(name=name)(lambda: None)
    del crew.app.tasks[name]  # it may be put again
    job: Job[Any] = task.enqueue()
    return job


@pytest.mark.parametrize("runner", ["fork", "spawn", "process"])
def test_a_job_with_its_own_process_runs_in_its_directory(crew: Crew, project: Path, runner: Runner) -> None:
    start(crew, project, "--in-directory", "--processes", "1")
    seen = set()
    for _ in range(3):
        before, directory, text, *names, pid = put(crew, f"look.{runner}").result(timeout="30s")
        assert before == directory
        assert (text, names) == ("here", ["beside", "in lib"])
        assert until(lambda path=directory: not Path(path).exists())  # type: ignore[misc]
        seen.add((directory, pid))
    assert len({directory for directory, _ in seen}) == 3
    assert len({pid for _, pid in seen}) == (1 if runner == "process" else 3)
    assert sorted(path.name for path in project.iterdir() if "cache" not in path.name) == [
        "beside.py",
        "lib",
        "project_tasks.py",
    ]


def test_a_process_for_many_jobs_returns_to_the_directory_of_its_worker(crew: Crew, project: Path) -> None:
    start(crew, project, "--in-directory", "--processes", "1")
    *_, pid = put(crew, "look.process").result(timeout="30s")
    until(lambda: os.readlink(f"/proc/{pid}/cwd") == str(project))


def test_jobs_that_share_a_process_stay_where_they_are_and_the_worker_logs_it_once(crew: Crew, project: Path) -> None:
    worker = start(crew, project, "--in-directory", "--executors", "2")
    for runner in ("thread", "async"):
        assert put(crew, f"stay.{runner}").result(timeout="30s")[0] == str(project)
    assert put(crew, "stay.fork").result(timeout="30s")[0] != str(project)
    [line] = [line for line in worker.log.splitlines() if "in_directory" in line]
    assert "those of look.thread, stay.async, stay.thread" in line


def test_without_the_setting_all_jobs_run_in_the_directory_of_the_worker(crew: Crew, project: Path) -> None:
    worker = start(crew, project)
    for runner in ("fork", "spawn", "process", "thread", "async"):
        assert put(crew, f"stay.{runner}").result(timeout="30s")[0] == str(project)
    assert "in_directory" not in worker.log


def test_a_program_runs_in_its_directory_unless_it_has_one(crew: Crew, project: Path) -> None:
    start(crew, project, "--in-directory", "--allow-exec")
    own = crew.app.enqueue(crew.app.program(["sh", "-c", 'test "$PWD" = "$HOLDFAST_DIRECTORY" && touch made && pwd']))
    chosen = crew.app.enqueue(crew.app.program(["pwd"], cwd="lib"))
    assert "holdfast-" in own.result(timeout="30s").last_line
    assert chosen.result(timeout="30s").last_line == str(project / "lib")


def test_a_pool_has_the_setting_of_its_own(crew: Crew, project: Path) -> None:
    (project / "holdfast.toml").write_text("""
app = "project_tasks"
[[pools]]
name = "inside"
queues = ["default"]
in_directory = true
[[pools]]
name = "outside"
queues = ["other"]
""")
    crew.start("--config", "holdfast.toml", app="project_tasks", before=("env", "-C", str(project)))
    stay: Any = crew.app.task(name="stay.fork")(lambda: None)
    assert stay.enqueue().result(timeout="30s")[0] != str(project)
    assert stay.options(queue="other").enqueue().result(timeout="30s")[0] == str(project)


def test_an_embedded_worker_has_no_processes_to_run_in_directories() -> None:
    options: Any = {"in_directory": True}
    with pytest.raises(Invalid, match="an embedded worker has no setting 'in_directory'"):
        Holdfast("redis://nowhere").worker(**options)


def in_project(project: Path, tmp_path: Path, code: str, **variables: str) -> str:
    """Run code in the directory of an attempt of a worker that runs in the project. Return what it printed."""
    before = f"from holdfast.worker.runners.working_directory import work_in; work_in({str(tmp_path / 'job')!r})\n"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    (project / "pyproject.toml").touch()
    run = subprocess.run(
        [sys.executable, "-c", before + code],
        cwd=project,
        env=environment | variables,
        capture_output=True,
        text=True,
        check=True,
    )
    return run.stdout.strip()


FIND_HOME = "from holdfast.server.home import find_home; print(find_home())"


@pytest.mark.parametrize(
    ("variables", "home"),
    [({}, ".holdfast"), ({"HOLDFAST_URL": "redis://somewhere"}, ".holdfast"), ({"HOLDFAST_HOME": "own"}, "own")],
)
def test_the_server_of_the_project_is_still_found(
    project: Path, tmp_path: Path, variables: dict[str, str], home: str
) -> None:
    assert in_project(project, tmp_path, FIND_HOME, **variables) == str(project / home)


def test_a_home_of_the_project_that_others_can_write_to_is_still_refused(project: Path, tmp_path: Path) -> None:
    code = """
from holdfast.server.home import NotTrusted, find_home, has_data
try:
    has_data(find_home())
except NotTrusted as error:
    print(error)
"""
    (project / ".holdfast").mkdir()
    (project / ".holdfast").chmod(0o777)
    assert "is writable by other users" in in_project(project, tmp_path, code)


@pytest.mark.parametrize("variables", [{}, {"HOLDFAST_OUTBOX": "out"}])
def test_calls_for_an_unreachable_server_are_not_removed_with_the_directory(
    project: Path, tmp_path: Path, variables: dict[str, str]
) -> None:
    code = """
from holdfast import Holdfast
jobs = Holdfast(when_unreachable="outbox", timeout="1s")
jobs.task(name="work")(lambda: None).enqueue()
"""
    in_project(project, tmp_path, code, HOLDFAST_URL="redis://localhost:1", **variables)
    outbox = project / variables.get("HOLDFAST_OUTBOX", ".holdfast/outbox")
    assert [path for path in outbox.iterdir() if path.stat().st_size]
    assert not list((tmp_path / "job").iterdir())
