"""Misbehaving jobs: each ends as docs/long.md lists, and its neighbour in the same worker is unaffected."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from holdfast import Job
from holdfast.job.option_table import Runner
from tests.apps import misbehaving_app as zoo
from tests.support.servers import running_server
from tests.support.workers import Crew, Worker, is_alive, new_crew

DOCUMENT = Path(__file__).parents[2] / "docs" / "long.md"
ONE_JOB_EACH: tuple[Runner, ...] = ("fork", "spawn")


class Staff(NamedTuple):
    crew: Crew
    worker: Worker

    def put(self, animal: str, runner: Runner, name: str) -> Job[Any]:
        return self.crew.put(zoo.find(animal, runner), name)


@pytest.fixture(scope="module")
def staff(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Staff]:
    with running_server() as url, new_crew(url, tmp_path_factory.mktemp("zoo")) as crew:
        crew.app.tasks.update(zoo.jobs.tasks)
        yield Staff(crew, crew.start("--processes", "4", "--lease", "2s", app="tests.apps.misbehaving_app"))


def nothing_is_left(crew: Crew, name: str) -> None:
    pids = [int(pid) for (pid,) in crew.said(name, "started")]
    assert pids
    assert not any(map(is_alive, pids))


def directory_is_gone(crew: Crew, name: str) -> None:
    ((directory,),) = crew.said(name, "fills")
    assert not Path(directory).exists()


class Ending(NamedTuple):
    """How a poison job ends, as the document has it: what it does, its state or group, and the words of each death."""

    does: str
    ends: str
    words: str = ""
    and_then: Callable[[Crew, str], None] | None = None
    runners: tuple[Runner, ...] = zoo.APART


ZOO = {
    "leave": Ending("ends its process: `os._exit(3)`", "crashed", "ended without an outcome; exit code 3"),
    "segfault": Ending("reads address 0", "crashed", "was killed; signal SIGSEGV"),
    "eat_memory": Ending("takes memory without end, with `memory=`", "memory", "more than their limit of 160 MiB"),
    "loop": Ending("loops without end, with `timeout=`", "timeout", "longer than its timeout of 1 s"),
    "fork_ten": Ending(
        "forks ten times, and returns", "succeeded", and_then=nothing_is_left, runners=ONE_JOB_EACH
    ),
    "ignore_term": Ending("ignores SIGTERM, with `timeout=`", "timeout", "longer than its timeout of 1 s"),
    "escape": Ending(
        "leaves a process in a session of its own, by `setsid` and a double fork, and returns",
        "succeeded",
        and_then=nothing_is_left,
        runners=ONE_JOB_EACH,
    ),
    "close_all": Ending("closes all its descriptors", "crashed", "closed its connection to the worker"),
    "flood": Ending("floods stdout", "succeeded"),
    "fill_directory": Ending(
        "fills its directory, and is killed", "crashed", "was killed; signal SIGKILL", and_then=directory_is_gone
    ),
}  # fmt: skip
CASES = [(animal, runner) for animal, ending in ZOO.items() for runner in ending.runners]


@pytest.mark.parametrize(("animal", "runner"), CASES)
def test_a_misbehaving_job_ends_as_documented_and_its_neighbour_is_unaffected(
    staff: Staff, animal: str, runner: Runner
) -> None:
    crew, name, ending = staff.crew, f"{animal}-{runner}", ZOO[animal]
    healthy = staff.put("neighbour", runner, f"beside-{name}")
    (before,) = crew.pids(f"beside-{name}", "runs")

    ended = crew.ended(staff.put(animal, runner, name))

    assert (ended.group or ended.state) == ending.ends
    assert ended.state == ("succeeded" if ending.ends == "succeeded" else "failed")
    for run in ended.attempts:
        assert ending.words in (run.failure.message if run.failure else "")
    if ending.and_then:
        ending.and_then(crew, name)
    assert is_alive(before)
    crew.open(f"beside-{name}")
    assert healthy.result(timeout="30s") == f"beside-{name}"
    assert crew.outcomes(healthy) == ["succeeded"]
    assert "died" not in staff.worker.log


@pytest.mark.parametrize("runner", zoo.APART)
def test_a_machine_without_memory_would_kill_jobs_before_their_worker(staff: Staff, runner: Runner) -> None:
    healthy = staff.put("neighbour", runner, f"offered-{runner}")
    (pid,) = staff.crew.pids(f"offered-{runner}", "runs")

    scores = [int(Path(f"/proc/{each}/oom_score_adj").read_text()) for each in (pid, staff.worker.executor)]

    assert scores[0] == max(500, scores[1])
    staff.crew.open(f"offered-{runner}")
    assert healthy.result(timeout="30s")


def test_the_document_lists_the_outcome_of_each_misbehaving_job() -> None:
    rows = re.findall(r"^\| ([^|]+?) \| ([^|]+?) \|", DOCUMENT.read_text(), re.MULTILINE)
    said = dict(rows)

    for ending in ZOO.values():
        assert said[ending.does] == ending.ends
