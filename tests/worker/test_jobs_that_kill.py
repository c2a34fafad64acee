"""Jobs that kill the process that forked them, or more: they are charged, and their neighbours are not."""

from __future__ import annotations

import pytest

from holdfast.job.option_table import Runner
from tests.apps import killer_app as app
from tests.support.workers import Crew

APART: tuple[Runner, ...] = ("fork", "spawn", "process")


@pytest.mark.parametrize(
    ("runner", "whom"),
    [
        *((runner, "parent") for runner in APART),
        ("fork", "grandparent"),
        ("fork", "parent's group"),
        ("fork", "grandparent's group"),
        ("async", "own group"),
        ("thread", "own group"),
    ],
)
def test_a_job_that_kills_its_worker_is_charged_and_its_neighbours_are_not(
    crew: Crew, runner: Runner, whom: str
) -> None:
    crew.start("--processes", "2", app="tests.apps.killer_app", before=["setsid"])  # what it kills is not this test
    killer = crew.put(app.killers[runner], whom)
    crew.pids("killer", "runs")
    neighbour, *others = [crew.put(app.innocent, f"innocent-{number}") for number in range(6)]
    crew.pids("innocent-0", "runs")
    for number in range(1, 6):
        crew.open(f"innocent-{number}")

    crew.open("killer")

    ended = crew.ended(killer)
    assert (ended.state, ended.group, ended.crashes_used) == ("failed", "crashed", 4)
    assert set(crew.outcomes(killer)) == {"released", "crash"}
    assert len(crew.said("killer", "runs")) == 5  # the first was not charged
    assert ended.failure
    words = "was killed; signal SIGKILL" if whom == "own group" else "the job or a process of it has killed"
    assert words in ended.failure.message
    crew.open("innocent-0")
    for job in (neighbour, *others):
        assert crew.ended(job).state == "succeeded"
        assert set(crew.outcomes(job)) <= {"released", "succeeded"}
    assert len(crew.said("innocent-0", "runs")) == 2  # once was enough
