"""Steps that are done once, and what is saved for certain, under every runner."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast import Invalid, current_job
from tests.apps import long_app
from tests.workers import Crew

APP = "tests.apps.long_app"


@pytest.mark.parametrize("runner", ["fork", "spawn", "process", "thread", "async"])
def test_a_step_is_done_once_whoever_runs_the_job(crew: Crew, tmp_path: Path, runner: str) -> None:
    crew.start(app=APP)
    job = crew.put(long_app.jobs.tasks[f"pay-{runner}"], str(tmp_path / "ledger"))

    _, receipt = job.result(timeout=60)

    assert receipt == "receipt"
    assert (tmp_path / "ledger").read_text() == "charged\n"
    assert job.refresh().attempt == 2


def test_what_is_flushed_is_there_after_a_kill(crew: Crew, tmp_path: Path) -> None:
    crew.start(app=APP)
    job = crew.put(long_app.pay_and_die, str(tmp_path / "ledger"))

    assert job.result(timeout=60) == "saved by 2"
    assert (tmp_path / "ledger").read_text() == "charged\n"


def test_called_as_a_function_a_step_is_done_once_too(tmp_path: Path) -> None:
    job = current_job()
    path = str(tmp_path / "ledger")
    assert job.once("charge", long_app.charge, path) == job.once("charge", long_app.charge, path)
    assert (tmp_path / "ledger").read_text() == "charged\n"


def test_a_step_that_cannot_be_kept_is_refused() -> None:
    job = current_job()
    with pytest.raises(Invalid, match="the step is 'charge card'"):
        job.once("charge card", lambda: 1)
    with pytest.raises(Invalid, match="the result of step nan"):
        job.once("nan", lambda: float("nan"))
