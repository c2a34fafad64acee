"""`--reload`: the app is imported again when one of its files changes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast import Holdfast, Job
from holdfast.worker.supervisor.reload import SourceFiles
from tests.support.workers import Crew, Worker, children, new_crew, until

APP = """
import time
from pathlib import Path
from holdfast import Holdfast, current_job
from helper import VALUE

jobs = Holdfast()

@jobs.task
def value() -> int:
    return VALUE

@jobs.task
async def stay(gate: str) -> int:
    import asyncio
    while not current_job().stopping and not Path(gate).exists():
        await asyncio.sleep(0.01)
    if not Path(gate).exists():
        current_job().yield_now()
    return VALUE
"""


class Project:
    """A directory with an app of two modules, and a worker in it."""

    def __init__(self, crew: Crew, folder: Path) -> None:
        self.crew = crew
        self.folder = folder
        self._worker: subprocess.Popen[bytes] | None = None
        folder.mkdir()
        self.write("helper.py", "VALUE = 1\n")
        self.write("shop.py", APP)

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)

    def start(self, *options: str) -> Worker:
        log = self.folder / "log"
        here = {"HOLDFAST_URL": self.crew.url, "HOLDFAST_NAMESPACE": self.crew.namespace}
        with log.open("wb") as file:
            self._worker = subprocess.Popen(
                [sys.executable, "-m", "holdfast", "work", "shop", "--reload", *options],
                cwd=self.folder,
                env=os.environ | here,
                stdout=file,
                stderr=file,
            )
        return Worker(self._worker, log)

    def stay(self, gate: Path) -> Job[int]:
        app = Holdfast(self.crew.url, namespace=self.crew.namespace)

        @app.task(name="shop.stay")
        def stay(gate: str) -> int: ...  # type: ignore[empty-body]

        return stay.enqueue(str(gate))

    def value(self) -> int:
        app = Holdfast(self.crew.url, namespace=self.crew.namespace)

        @app.task(name="shop.value")
        def value() -> int: ...  # type: ignore[empty-body]

        return value.enqueue().result(timeout="30s")


@pytest.fixture
def project(server_url: str, tmp_path: Path) -> Iterator[Project]:
    with new_crew(server_url, tmp_path) as crew:
        made = Project(crew, tmp_path / "project")
        yield made
        if made._worker:
            Worker(made._worker, made.folder / "log").end()
            print((made.folder / "log").read_text())


def test_a_changed_file_is_imported_again(project: Project) -> None:
    worker = project.start()
    assert project.value() == 1
    assert "--reload is for development" in worker.log

    project.write("helper.py", "VALUE = 22\n")

    assert until(lambda: project.value() == 22)
    assert "changed: helper.py; reloading the app" in worker.log
    assert until(lambda: len(children(worker.pid)) == 1)
    assert worker.stop() == 0


def test_the_fresh_version_serves_the_same_patterns(project: Project) -> None:
    project.start("--queues", "def*")
    assert project.value() == 1

    project.write("helper.py", "VALUE = 22\n")

    assert until(lambda: project.value() == 22)


def test_an_import_error_is_logged_and_the_last_good_version_continues_until_the_next_change(project: Project) -> None:
    worker = project.start()
    assert project.value() == 1

    project.write("helper.py", "VALUE = (\n")
    until(lambda: "waiting for a file to change" in worker.log)
    assert "SyntaxError" in worker.log
    assert "importlib" not in worker.log
    assert "the previous version keeps running" in worker.log
    assert until(lambda: worker.log.count("has exited") == 1)
    assert "died" not in worker.log
    assert project.value() == 1

    project.write("helper.py", "VALUE = 333\n")
    assert until(lambda: project.value() == 333)


def test_an_app_that_cannot_be_imported_at_first_is_waited_for(project: Project) -> None:
    project.write("helper.py", "VALUE = nothing\n")
    worker = project.start()
    until(lambda: "waiting for a file to change" in worker.log)

    project.write("helper.py", "VALUE = 4\n")

    assert until(lambda: project.value() == 4)
    assert worker.stop() == 0


HANGS = "import time\nopen('importing', 'w').close()\ntime.sleep(1000)\n"


def test_a_version_whose_import_does_not_end_is_given_up_at_the_next_change(project: Project) -> None:
    worker = project.start()
    assert project.value() == 1
    project.write("helper.py", HANGS)
    until((project.folder / "importing").exists)
    assert project.value() == 1

    project.write("helper.py", "VALUE = 6\n")

    assert until(lambda: project.value() == 6)
    assert until(lambda: len(children(worker.pid)) == 1)
    assert "died" not in worker.log


def test_a_worker_whose_app_is_not_imported_yet_stops_soon(project: Project) -> None:
    project.write("helper.py", HANGS)
    worker = project.start("--stop-within", "10m")
    until((project.folder / "importing").exists)

    assert worker.stop() == 0


def test_a_running_job_is_requeued_and_resumed_by_the_new_version(project: Project) -> None:
    project.start()
    gate = project.folder / "gate"
    job = project.stay(gate)
    until(lambda: project.crew.get(job).state == "running")

    project.write("helper.py", "VALUE = 55\n")
    until(lambda: project.crew.get(job).attempt == 2)
    gate.touch()

    assert job.result(timeout="30s") == 55
    assert project.crew.outcomes(job) == ["released", "succeeded"]


def test_changes_of_files_are_detected_by_time_and_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    package, elsewhere = tmp_path / "parcel", tmp_path / "elsewhere.py"
    (package / "inner").mkdir(parents=True)
    for file in (package / "__init__.py", package / "inner" / "a.py", elsewhere):
        file.write_text("x = 1\n")
    files = SourceFiles("parcel.inner:app")
    assert files.changed() == []

    (package / "inner" / "a.py").write_text("x = 11\n")
    (package / "b.py").write_text("")
    elsewhere.write_text("x = 2")
    assert files.changed() == [str(package / "b.py"), str(package / "inner" / "a.py")]

    files.add([str(elsewhere)])
    assert files.changed() == []
    elsewhere.unlink()
    assert files.changed() == [str(elsewhere)]
    assert SourceFiles("no_such_module").changed() == []
