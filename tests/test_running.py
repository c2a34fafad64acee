"""The running job as its task sees it."""

from __future__ import annotations

import contextvars
from collections.abc import Callable, Iterator
from typing import TypeVar

import msgspec
import pytest

from holdfast import Invalid, current_job
from holdfast.running import Detached, HandOver, RunningJob, set_current_job

T = TypeVar("T")


class Listener(Detached):
    """A link that remembers what was said, and stops when told to."""

    def __init__(self) -> None:
        super().__init__()
        self.checkpoints: list[bytes] = []
        self.progress: list[dict[str, object]] = []
        self.notes: list[str] = []

    def save(self, checkpoint: bytes | None, progress: str | None, note: str | None = None) -> None:
        self.notes += [] if note is None else [note]
        if checkpoint is not None:
            self.checkpoints.append(checkpoint)
        if progress is not None:
            self.progress.append(msgspec.json.decode(progress))


def running(link: Listener, checkpoint: bytes = b"") -> RunningJob:
    return RunningJob(link, id="j", attempt=1, task="t", queue="q", checkpoint=checkpoint)


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


def test_each_goes_on_after_what_is_done() -> None:
    assert list(running(Listener(), b"3").each("abcde")) == ["d", "e"]
    assert list(running(Listener()).each([])) == []


def test_each_says_how_far_it_is() -> None:
    link = Listener()
    list(running(link).each(range(5)))
    assert link.checkpoints[-1] == b"5"
    assert link.progress[-1] == {"progress": 1.0}


def test_each_takes_what_has_no_length() -> None:
    def letters() -> Iterator[str]:
        yield from "abc"

    link = Listener()
    link.stopping = True
    with pytest.raises(HandOver):
        list(running(link).each(letters()))
    assert link.checkpoints == [b"1"]
    assert link.progress == []


def test_each_yields_at_a_deploy_after_the_item_in_hand() -> None:
    link, done = Listener(), []

    def work() -> None:
        for item in running(link).each(range(10)):
            done.append(item)
            link.stopping = item == 3

    with pytest.raises(HandOver):
        work()
    assert done == [0, 1, 2, 3]
    assert link.checkpoints[-1] == b"4"


def test_each_does_not_yield_when_the_last_item_is_done() -> None:
    link = Listener()
    link.stopping = True
    assert list(running(link).each([1])) == [1]


@pytest.mark.parametrize("progress", [-0.1, 1.1, float("nan")])
def test_progress_is_from_0_to_1(progress: float) -> None:
    with pytest.raises(Invalid, match="from 0 to 1"):
        running(Listener()).report(progress)


def test_a_message_is_cut() -> None:
    link = Listener()
    running(link).report(0.5, "x" * 1000)
    assert link.progress == [{"progress": 0.5, "message": "x" * 200}]


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
