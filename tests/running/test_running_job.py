"""The running job as its task sees it."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from holdfast import Holdfast, HoldfastError, Invalid, TooBig, current_job
from holdfast.job.progress import Reporter
from holdfast.running.current import set_current_job
from holdfast.running.loops import Loops
from tests.support.listener import Listener, running

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


def test_each_call_of_a_task_as_a_function_has_a_job_of_its_own() -> None:
    app = Holdfast("redis://nowhere")

    @app.task(name="count")
    def count(to: int) -> tuple[int, str]:
        job = current_job()
        before = job.checkpoint(int, 0)
        job.save(to)
        return before, str(job.directory)

    @app.task(name="acount")
    async def acount(to: int) -> tuple[int, str]:
        return count(to)

    def work() -> list[tuple[int, str]]:
        return [count(3), count(4), asyncio.run(acount(5)), asyncio.run(acount(6))]

    found = apart(work)
    assert [before for before, _ in found] == [0, 0, 0, 0]
    assert not any(Path(directory).exists() for _, directory in found)


def test_tasks_that_call_each_other_as_functions_have_one_job() -> None:
    app = Holdfast("redis://nowhere")

    @app.task(name="inner")
    def inner() -> int:
        return current_job().checkpoint(int, 0)

    @app.task(name="outer")
    def outer() -> int:
        current_job().save(7)
        return inner()

    assert apart(outer) == 7


def test_inside_of_a_worker_it_is_the_job_that_runs() -> None:
    def work() -> str:
        set_current_job(running(Listener()))
        return current_job().id

    assert apart(work) == "j"


@pytest.mark.parametrize("progress", [-0.1, 1.1, 45, "half", float("nan")])
def test_progress_is_from_0_to_1(progress: Any) -> None:
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
    with pytest.raises(Invalid, match=r"Expected `int`.*An earlier attempt saved {\"done\":\[1,2\]}, perhaps"):
        job.checkpoint(int, 0)
    with pytest.raises(Invalid, match="the checkpoint cannot be stored: objects of type object cannot be stored"):
        job.save(object())


def test_a_type_that_no_checkpoint_has_is_refused_before_there_is_one() -> None:
    with pytest.raises(TypeError, match="complex"):
        running(Listener()).checkpoint(complex, 0j)


def test_the_directory_is_there_when_asked_for() -> None:
    directory = running(Listener()).directory
    assert directory.is_dir()
    directory.rmdir()


def test_threads_that_count_first_at_once_count_together(monkeypatch: pytest.MonkeyPatch) -> None:
    link = Listener()
    job = running(link)

    def make(*args: Any, **options: Any) -> Reporter:
        monkeypatch.undo()
        job.count(rows=2)  # another thread is faster
        return Reporter(*args, **options)

    monkeypatch.setattr("holdfast.running.running_job.Reporter", make)
    job.count(rows=1)
    job._end()

    assert link.progress[-1]["counts"] == {"rows": 3}


def test_threads_that_loop_first_at_once_have_their_loops_in_common(monkeypatch: pytest.MonkeyPatch) -> None:
    job = running(Listener())
    found: list[Loops] = []

    def make(*args: Any) -> Loops:
        monkeypatch.undo()
        found.append(job._loops)
        return Loops(*args)

    monkeypatch.setattr("holdfast.running.running_job.Loops", make)

    assert [job._loops] == found


def test_outside_of_a_worker_fields_are_kept_in_memory() -> None:
    def work() -> list[dict[str, str]]:
        job = current_job()
        first = job.attach({"a": "1", "b": "2"}, remove=["none"])
        first["c"] = "of the caller"
        return [job.attach(), asyncio.run(job.aattach({"a": "3"}, remove=["b"])), job.attach()]

    assert apart(work) == [{"a": "1", "b": "2"}, {"a": "3"}, {"a": "3"}]


@pytest.mark.parametrize(
    ("fields", "remove", "error"),
    [
        ({"a b": ""}, [], "field is 'a b'"),
        ({"a": 1}, [], "field a is 1; it must be a str"),
        ({"a": "x" * 4097}, [], "field a is 4097 bytes"),
        ({f"f{n}": "" for n in range(65)}, [], "fields has 65 fields"),
        ([("a", "b")], [], "fields is .*; it must be a dict of texts"),
        ({}, "a", "remove is 'a'; it must be a list of names"),
        ({}, ["a b"], "field is 'a b'"),
    ],
)
def test_fields_are_checked_before_they_are_sent(fields: Any, remove: Any, error: str) -> None:
    def work() -> None:
        current_job().attach(fields, remove=remove)

    with pytest.raises(HoldfastError, match=error):
        apart(work)


def test_a_detached_job_has_as_many_fields_as_another() -> None:
    def work() -> None:
        current_job().attach({f"f{n}": "" for n in range(64)})
        current_job().attach({"f64": ""})

    with pytest.raises(TooBig, match="65 fields"):
        apart(work)
