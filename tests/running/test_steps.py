"""Steps that run once, and saves that are flushed, under every runner."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from holdfast import Fail, Invalid, current_job
from tests.apps import long_app
from tests.job.test_result import Unmeasurable
from tests.support.listener import Listener, running
from tests.support.workers import Crew

APP = "tests.apps.long_app"


@pytest.mark.parametrize("runner", ["fork", "spawn", "process", "thread", "async"])
def test_a_step_is_done_once_under_every_runner(crew: Crew, tmp_path: Path, runner: str) -> None:
    crew.start(app=APP)
    job = crew.put(long_app.jobs.tasks[f"pay-{runner}"], str(tmp_path / "ledger"))

    _, receipt = job.result(timeout=60)

    assert receipt == "receipt"
    assert (tmp_path / "ledger").read_text() == "charged\n"
    assert job.refresh().attempt == 2


def test_a_flushed_save_survives_a_kill(crew: Crew, tmp_path: Path) -> None:
    crew.start(app=APP)
    job = crew.put(long_app.pay_and_die, str(tmp_path / "ledger"))

    assert job.result(timeout=60) == "saved by 2"
    assert (tmp_path / "ledger").read_text() == "charged\n"


def test_called_as_a_function_a_step_is_done_once_too(tmp_path: Path) -> None:
    job = current_job()
    path = str(tmp_path / "ledger")
    assert job.once("charge", long_app.charge, path) == job.once("charge", long_app.charge, path)
    assert (tmp_path / "ledger").read_text() == "charged\n"


def test_an_invalid_step_is_refused_before_it_runs() -> None:
    job = running(Listener())
    with pytest.raises(Invalid, match="the step is 'charge card'"):
        job.once("charge card", lambda: 1)
    with pytest.raises(Invalid, match="step charge: expected a function and its arguments, got 3; write"):
        job.once("charge", 3)  # type: ignore[arg-type]
    with pytest.raises(Invalid, match=r"step charge is an async def: write `await job.aonce"):
        _ = job.once("charge", long_app.acharge, "ledger")


@pytest.mark.parametrize("result", [float("nan"), object(), "x" * 70_000, {1: 2}])
def test_a_finished_step_whose_result_cannot_be_stored_is_not_repeated_by_a_retry(result: object) -> None:
    def charge() -> object:
        return result

    with pytest.raises(
        Fail, match=r"step charge was done, but its result cannot be stored: its result.*a retry would repeat the step"
    ) as raised:
        running(Listener()).once("charge", charge)

    assert raised.value.group == "step-not-kept"


def test_a_step_whose_result_raises_when_it_is_compared_is_not_done_again_either() -> None:
    def charge() -> list[int]:
        return Unmeasurable([1])

    with pytest.raises(
        Fail, match=r"step charge was done, but .*: its result: .* ArithmeticError: no length; "
    ) as raised:
        running(Listener()).once("charge", charge)

    assert raised.value.group == "step-not-kept"


def test_a_plain_function_may_be_a_step_of_a_coroutine() -> None:
    async def story() -> object:
        return await running(Listener()).aonce("charge", lambda: 7)  # type: ignore[arg-type,return-value]

    assert asyncio.run(story()) == 7
