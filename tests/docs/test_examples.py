"""The examples run for real: programs of their own, an embedded server in an empty folder, and kill -9."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast import Holdfast
from holdfast.server import server
from holdfast.store.library import library
from tests.support.processes import kill_tree, tree
from tests.support.workers import Worker, until

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
EXAMPLE = EXAMPLES / "reliable"
COUNT = 20
TUTORIAL = {"its queue": 51, "its program": 69}  # lines that are not blank


class Folder:
    """A copy of the example, as a reader has it, with a server of its own."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.workers: list[Worker] = []
        clean = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
        self.environment = {**clean, "PATH": f"{Path(sys.executable).parent}:{clean['PATH']}", "PYTHONUNBUFFERED": "1"}
        self.app = Holdfast(f"unix://{server.ensure(path / '.holdfast')}")

    def start(self, *line: str, **environment: str) -> Worker:
        log = self.path / f"log-{len(self.workers)}"
        with log.open("wb") as file:
            process = subprocess.Popen(
                line, cwd=self.path, env={**self.environment, **environment}, stdout=file, stderr=file
            )
        worker = Worker(process, log)
        self.workers.append(worker)
        return worker

    def run(self, *line: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            line, cwd=self.path, env=self.environment, capture_output=True, text=True, timeout=120, check=False
        )

    def outcomes(self) -> list[str]:
        jobs = [job.refresh() for job in self.app.list()]
        return [attempt.outcome for job in jobs for attempt in job.attempts]

    def end(self) -> None:
        for worker in self.workers:
            worker.end()
        self.app.close()
        server.stop(self.path / ".holdfast")


@pytest.fixture
def folder(request: pytest.FixtureRequest) -> Iterator[Folder]:
    """A copy of the example that a test names; else of the first one."""
    path = Path(tempfile.mkdtemp(prefix="hfe-"))
    shutil.copytree(
        EXAMPLES / getattr(request, "param", EXAMPLE.name),
        path,
        dirs_exist_ok=True,
        ignore=shutil.ignore_patterns("__pycache__", ".holdfast"),
    )
    made = Folder(path)
    yield made
    made.end()
    shutil.rmtree(path, ignore_errors=True)


def test_with_tasks_nothing_is_lost_to_a_worker_that_keeps_failing_and_is_killed(folder: Folder) -> None:
    bad = folder.start("holdfast", "work", "tasks", WORKER="bad")
    producer = folder.start(sys.executable, "produce.py", str(COUNT))
    until(lambda: {"crash", "error"} <= {*folder.outcomes()}, what="a crash and an error")
    until(lambda: len(tree(bad)) > 2, what="the bad worker's processes")
    kill_tree(bad)
    folder.start("holdfast", "work", "tasks", WORKER="bad")
    folder.start("holdfast", "work", "tasks")

    assert producer.wait() == 0, producer.log
    *lines, last = producer.log.splitlines()
    assert last == f"{COUNT} stored, {COUNT} done, 0 pending"
    told = [re.fullmatch(r"(good|bad) worker: Job (\d+) \| attempts: (.*)", line) for line in lines]
    assert [int(line[2]) for line in told if line] == list(range(COUNT))
    assert all(line and line[3].endswith("succeeded") and line[3].count("succeeded") == 1 for line in told)


def test_with_four_calls_what_a_killed_program_held_comes_back_when_its_lease_ends(folder: Folder) -> None:
    assert folder.run(sys.executable, "four_calls.py", "produce", str(COUNT)).returncode == 0
    killed = [folder.run(sys.executable, "four_calls.py", "work", "bad") for _ in range(3)]
    assert [done.returncode for done in killed] == [-signal.SIGKILL] * 3

    bad = folder.start(sys.executable, "four_calls.py", "work", "bad")
    good = folder.run(sys.executable, "four_calls.py", "work", "good")
    assert good.returncode == 0, good.stderr
    assert bad.wait() in (0, -signal.SIGKILL), bad.log
    *lines, last = folder.run(sys.executable, "four_calls.py", "report").stdout.splitlines()
    assert last == f"{COUNT} done, 0 pending"
    assert sorted(int(re.findall(r"Job (\d+)", line)[0]) for line in lines) == list(range(COUNT))
    assert sum("lost" in line for line in lines) >= 3


def test_the_lines_are_counted_honestly() -> None:
    said = (EXAMPLE / "README.md").read_text()
    for name in ("tasks.py", "produce.py", "four_calls.py"):
        lines = [line for line in (EXAMPLE / name).read_text().splitlines() if line.strip()]
        assert f"| `{name}` | {len(lines)} |" in said, f"{name} has {len(lines)} lines"
    for what, number in TUTORIAL.items():
        assert re.search(rf"\| .*{what}.* \| {number} \|", said)


@pytest.mark.skipif(shutil.which("node") is None, reason="there is no node here")
def test_a_worker_in_another_language_and_python_share_a_queue(folder: Folder) -> None:
    (folder.path / "holdfast.lua").write_text(library())
    for name in ("client.mjs", "worker.mjs"):
        shutil.copy(ROOT / "examples" / "node" / name, folder.path)
    items = folder.app.items("shout")
    before = [items.put(f"item {number}".encode()) for number in range(3)]
    node = folder.start("node", "worker.mjs", folder.app.address.url or "", "shout")
    assert [job.result(timeout="30s") for job in before] == [b"ITEM 0", b"ITEM 1", b"ITEM 2"]

    (worker,) = folder.app.workers()
    assert (worker.queues, worker.about["kind"], worker.pid) == (["shout"], "node", node.pid)
    assert items.put("später".encode()).result(timeout="30s") == "SPÄTER".encode()
    assert node.wait() == 0, node.log
    assert folder.app.workers() == []
    assert {attempt.executor for job in before for attempt in job.refresh().attempts} == {f"{worker.name}.0"}


def _story(folder: Folder, *workers: str, **environment: str) -> list[str]:
    """What an example prints, with these workers."""
    for queues in workers:
        folder.start("holdfast", "work", "tasks", *queues.split(), **environment)
    told = folder.start(sys.executable, "run.py", **environment)
    assert told.wait() == 0, told.log + "".join(worker.log for worker in folder.workers)
    return told.log.splitlines()


def _shown(name: str) -> list[str]:
    """What its document says that it prints, without what is left out there or differs each time."""
    shown = (EXAMPLES / name / "README.md").read_text().partition("```text\n")[2].partition("```")[0]
    return [line for line in shown.splitlines() if not re.search(r"\.\.\.|\d{13}|job \w{16}|second \d|\d bytes", line)]


@pytest.mark.parametrize("folder", ["mapreduce"], indirect=True)
def test_map_and_reduce_with_a_failing_member(folder: Folder) -> None:
    lines = _story(folder, "", "")
    assert {*_shown("mapreduce")} <= {*lines}
    assert lines[-1] == "total: 15000 words"
    assert "No such file or directory: 'book/chapter-3.txt'" in "\n".join(lines)


@pytest.mark.parametrize("folder", ["pipeline"], indirect=True)
def test_a_pipeline_of_three_stages_repeats_only_the_stage_that_failed(folder: Folder) -> None:
    lines = _story(folder, "--queues net", "--queues cpu")
    assert {*_shown("pipeline")} <= {*lines}
    assert sorted(path.name for path in (folder.path / "site").iterdir()) == ["cat.gz", "dog.gz", "emu.gz"]


@pytest.mark.parametrize("folder", ["nightly"], indirect=True)
def test_a_nightly_report_is_triggered_now(folder: Folder) -> None:
    lines = _story(folder, "", "", "")
    assert {*_shown("nightly")} <= {*lines}
    assert len(re.findall(r" \d\d:\d\d", lines[0])) == 10
    assert len((folder.path / "report.txt").read_text().splitlines()) == 1


@pytest.mark.parametrize("folder", ["api"], indirect=True)
def test_five_calls_a_second_and_no_more(folder: Folder) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    lines = _story(folder, "", "", API_PORT=port)
    assert lines[-1].startswith("25 answers, the last is 'answer 24'; refused: ")
    starts = sorted(attempt.claimed_at for job in folder.app.list() for attempt in job.refresh().attempts)
    assert all((later - one).total_seconds() > 0.99 for one, later in zip(starts, starts[5:], strict=False))


@pytest.mark.parametrize("folder", ["layout"], indirect=True)
def test_an_app_of_several_modules_runs_and_passes_its_own_tests(folder: Folder) -> None:
    folder.start("holdfast", "work", "shop.worker", "--queues", "mail,default")
    told = folder.run(sys.executable, "run.py")
    assert told.stdout.splitlines() == _shown("layout"), told.stderr
    tests = folder.run(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider")
    assert "3 passed" in tests.stdout, tests.stdout


@pytest.mark.parametrize("folder", ["shop"], indirect=True)
def test_a_shop_sells_what_it_has_and_no_more(folder: Folder) -> None:
    assert _story(folder, "--queues shipping,purchasing") == _shown("shop")


@pytest.mark.parametrize("folder", ["tenants"], indirect=True)
def test_tenants_that_share_a_queue_take_turns(folder: Folder) -> None:
    lines = _story(folder, "--queues plain,fair --concurrency 1")
    assert {*_shown("tenants")[:2]} <= {*lines}
    assert lines[0].startswith("plain: aaaaa")
    bell, caro = (int(re.findall(r"number (\d+) of 110", line)[0]) for line in lines[4:])
    assert bell in (14, 15)  # of jobs whose turn is the same any may be the first
    assert caro in (9, 10, 11)
