"""The running job as its task sees it."""

from __future__ import annotations

import contextvars
from collections.abc import Callable
from typing import TypeVar

import pytest

from holdfast import Invalid, current_job
from holdfast.running import set_current_job
from tests.listener import Listener, running

T = TypeVar("T")


def apart(work: Callable[[], T]) -> T:
    return contextvars.Context().run(work)


def test_outside_of_a_worker_a_job_keeps_what_it_saves_in_memory() -> None:
    def work() -> tuple[int, int]:
        before = current_job().checkpoint(int, 7)
        current_job().save(8)
        return before, current_job().checkpoint(int, 7)

    assert apart(work) == (7, 8)
    assert apart(work) == (7, 8)


def test_inside_of_a_worker_it_is_the_job_that_runs() -> None:
    def work() -> str:
        set_current_job(running(Listener()))
        return current_job().id

    assert apart(work) == "j"


@pytest.mark.parametrize("progress", [-0.1, 1.1, float("nan")])
def test_progress_is_from_0_to_1(progress: float) -> None:
    with pytest.raises(Invalid, match="from 0 to 1"):
        running(Listener()).report(progress)


def test_a_message_is_cut() -> None:
    link = Listener()
    running(link).report(0.5, "x" * 1000)
    assert (link.progress[0]["progress"], link.progress[0]["message"]) == (0.5, "x" * 200)


def test_a_checkpoint_comes_back_as_its_type() -> None:
    job = running(Listener())
    job.save({"done": [1, 2]})
    assert job.checkpoint(dict[str, list[int]], {}) == {"done": [1, 2]}
    with pytest.raises(Invalid, match="checkpoint"):
        job.checkpoint(int, 0)
    with pytest.raises(Invalid, match="checkpoint"):
        job.save(object())


def test_the_directory_is_there_when_asked_for() -> None:
    directory = running(Listener()).directory
    assert directory.is_dir()
    directory.rmdir()
