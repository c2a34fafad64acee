"""Workers that are drained: they claim no more, and end when their jobs have."""

from __future__ import annotations

import pytest

from holdfast import errors
from tests.apps import long_app
from tests.workers import Crew, until

APP = "tests.apps.long_app"


def test_a_drained_worker_ends_when_its_job_has_and_claims_no_other(crew: Crew) -> None:
    worker = crew.start("--processes", "2", app=APP)
    running = crew.put(long_app.wait_for_file, str(crew.folder / "go"))
    until(lambda: running.refresh().state == "running")
    [known] = crew.app.workers()
    assert not known.is_idle

    crew.app.drain(known.name)
    until(lambda: crew.app.workers()[0].is_draining)
    other = crew.put(long_app.wait_for_file, str(crew.folder / "go"))
    (crew.folder / "go").touch()

    assert worker.wait() == 0
    assert running.refresh().state == "succeeded"
    assert other.refresh().state == "waiting"
    assert crew.app.workers() == []


def test_an_idle_worker_that_is_drained_ends_at_once(crew: Crew) -> None:
    worker = crew.start(app=APP)
    until(lambda: crew.app.workers())
    assert crew.app.workers()[0].is_idle

    crew.app.drain(crew.app.workers()[0].name)

    assert worker.wait() == 0


def test_a_worker_that_is_not_there_cannot_be_drained(crew: Crew) -> None:
    with pytest.raises(errors.JobNotFound, match="there is no worker node/nobody"):
        crew.app.drain("node/nobody")
