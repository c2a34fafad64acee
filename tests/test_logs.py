"""What jobs print is kept, under every runner, and whatever dies."""

from __future__ import annotations

import pytest

from holdfast import commands
from holdfast.commands import Log
from tests.apps import long_app
from tests.workers import Crew, until

APP = "tests.apps.long_app"


def log_of(crew: Crew, id: str) -> Log:
    return crew.app.store.run(commands.logs(id))


def text_of(crew: Crew, id: str) -> str:
    return b"".join(data for number, data in sorted(log_of(crew, id).blocks.items()) if number >= 0).decode()


@pytest.mark.parametrize("runner", ["fork", "spawn", "process", "thread", "async"])
def test_what_a_job_prints_is_kept(crew: Crew, runner: str) -> None:
    crew.start(app=APP)
    job = crew.put(long_app.jobs.tasks[f"talk-{runner}"], 50)
    assert job.result(timeout=60) == "talked"

    until(lambda: "out 49" in text_of(crew, job.id))

    lines = text_of(crew, job.id).splitlines()
    assert [line for line in lines if line.startswith("out")] == [f"out {number}" for number in range(50)]
    if runner != "async":
        assert [line for line in lines if line.startswith("err")] == [f"err {number}" for number in range(50)]
        assert lines[-1] == "no end of line"
    if runner in ("fork", "spawn", "process"):
        assert "from a subprocess" in lines


def test_every_line_is_there_when_the_process_was_killed(crew: Crew) -> None:
    crew.start(app=APP)
    job = crew.put(long_app.talk_and_die, 2000)
    until(lambda: job.refresh().state == "failed")
    until(lambda: "line 1999" in text_of(crew, job.id))

    assert text_of(crew, job.id).splitlines() == [f"line {number}" for number in range(2000)]
