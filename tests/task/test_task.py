"""Tasks, their options, and bound calls."""

from __future__ import annotations

import asyncio
import inspect
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import Invalid
from holdfast.job.limit import Limit
from holdfast.job.options import CheckedOptions
from holdfast.task.task import AsyncTask, BoundCall, Task, make_task


class Shelf:
    """An app that keeps what is enqueued."""

    def __init__(self) -> None:
        self.calls: list[BoundCall[Any]] = []

    def enqueue(self, call: BoundCall[Any], /) -> Any:
        self.calls.append(call)
        return f"job {call.id}"

    async def aenqueue(self, call: BoundCall[Any], /) -> Any:
        return self.enqueue(call)

    @property
    def declared_limits(self) -> dict[str, Limit]:
        return {}


def transcode(source: str, height: int = 720) -> str:
    """Make it smaller."""
    return f"{source} at {height}"


async def fetch(url: str) -> bytes:
    return url.encode()


def declared(**options: Any) -> Task[..., Any]:
    return make_task(transcode, Shelf(), CheckedOptions().replace(**options))


def test_a_task_is_called_as_the_plain_function() -> None:
    assert declared()("in.mov", height=1) == "in.mov at 1"
    assert declared()(7) == "7 at 720"  # unchecked, as in Python
    task = make_task(fetch, Shelf())
    assert isinstance(task, AsyncTask)
    assert task.is_async
    assert asyncio.run(task("x")) == b"x"


def test_a_task_looks_like_its_function() -> None:
    task = declared()
    assert task.__doc__ == "Make it smaller."
    assert inspect.signature(task) == inspect.signature(transcode)
    assert inspect.unwrap(task) is transcode
    assert repr(task) == f"<Task {task.name}>"


def test_a_bound_call_has_its_id_and_payload_at_once() -> None:
    task = declared(queue="video")
    one, other = task.bind("in.mov"), task.bind("in.mov", height=480)
    assert one.id != other.id
    assert len(one.id) == 16
    assert (one.name, one.payload, one.effective_options.queue) == (
        "tests.task.test_task.transcode",
        b'{"source":"in.mov"}',
        "video",
    )
    assert task.signature.decode(other.payload) == (["in.mov", 480], {})
    assert task.app.calls == []  # type: ignore[attr-defined]


def test_a_bound_call_keeps_its_id_when_options_change() -> None:
    call = declared(retries=1).bind("in.mov")
    changed = call.options(priority=3)
    assert (changed.id, changed.effective_options.priority, changed.effective_options.retries) == (call.id, 3, 1)
    assert changed.options(id="mine").id == "mine"
    assert declared().options(id="mine").bind("x").options(priority=1).id == "mine"
    assert call.effective_options.priority is None


def test_arguments_are_checked_when_they_are_bound() -> None:
    task = declared()
    for call in (task.bind, task.enqueue):
        for wrong in ({}, {"source": 7}, {"source": "a", "width": 1}):
            with pytest.raises(Invalid, match=r"task tests\.task\.test_task\.transcode: "):
                call(**wrong)


def test_enqueue_hands_the_bound_call_to_the_app() -> None:
    task = declared().options(id="mine", queue="video")
    assert str(task.enqueue("in.mov")) == "job mine"
    assert str(asyncio.run(task.aenqueue("in.mov"))) == "job mine"
    assert [call.payload for call in task.app.calls] == [b'{"source":"in.mov"}'] * 2  # type: ignore[attr-defined]


def test_the_task_of_a_call_is_the_one_that_was_declared() -> None:
    task = declared()
    call = task.options(priority=2).bind("x")

    assert task.bind("x").task is task
    assert call.task is task
    assert call.options(queue="video").options(retries=0).task is task
    assert task.options(priority=2).options(queue="video").declared is task
    assert call.options(queue="video").effective_options == CheckedOptions().replace(priority=2, queue="video")


def test_options_change_a_copy() -> None:
    task = declared(queue="video", retries=1)
    urgent = task.options(priority=-5, retries=None)
    assert (urgent.effective_options.queue, urgent.effective_options.priority, urgent.effective_options.retries) == (
        "video",
        -5,
        None,
    )
    assert (task.effective_options.priority, task.effective_options.retries) == (None, 1)
    assert urgent.name == task.name
    assert type(make_task(fetch, Shelf()).options(priority=1)) is AsyncTask


def test_options_are_kept_in_the_units_of_the_store() -> None:
    when = datetime(2026, 1, 1, tzinfo=UTC)
    chosen = CheckedOptions().replace(
        queue="video",
        priority=255,
        delay="30s",
        retries=1000,
        backoff=timedelta(minutes=1),
        crashes=0,
        lost=5,
        timeout="6h",
        id="mine",
        on_exists="replace",
        runner="fork",
    )
    assert chosen == CheckedOptions(
        queue="video",
        priority=255,
        delay=30_000,
        retries=1000,
        backoff=60_000,
        crashes=0,
        lost=5,
        timeout=21_600_000,
        id="mine",
        on_exists="replace",
        runner="fork",
    )
    assert CheckedOptions().replace(at=when).at == 1_767_225_600_000


def test_the_last_of_delay_and_at_wins() -> None:
    when = datetime(2026, 1, 1, tzinfo=UTC)
    with pytest.raises(Invalid, match="delay and at are both given"):
        CheckedOptions().replace(delay=1, at=when)
    assert CheckedOptions().replace(delay=1).replace(at=when).delay is None
    assert CheckedOptions().replace(at=when).replace(delay=1).at is None
    assert CheckedOptions().replace(at=when).replace(delay=None).at is not None


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("queue", "no spaces"),
        ("queue", 7),
        ("priority", 256),
        ("priority", -257),
        ("priority", 1.0),
        ("priority", True),
        ("delay", "soon"),
        ("delay", -1),
        ("at", datetime(2026, 1, 1)),
        ("at", "2026-01-01"),
        ("retries", -1),
        ("retries", 1001),
        ("retries", "3"),
        ("backoff", -1),
        ("crashes", -1),
        ("lost", 1.5),
        ("timeout", 0),
        ("timeout", True),
        ("id", "no spaces"),
        ("id", ""),
        ("on_exists", "ignore"),
        ("on_exists", ["return"]),
        ("runner", "rocket"),
        ("urgent", 1),
    ],
)
def test_an_option_that_is_not_acceptable_is_refused_by_name(option: str, value: Any) -> None:
    for refuse in (CheckedOptions().replace, declared().options, declared().bind("x").options):
        with pytest.raises(Invalid, match=rf"^({option} is |unknown option '{option}')"):
            refuse(**{option: value})


def test_the_async_runner_is_for_async_functions() -> None:
    with pytest.raises(Invalid, match="runner is 'async', but transcode is a plain function"):
        declared(runner="async")
    with pytest.raises(Invalid, match="runner is 'async', but transcode is a plain function"):
        declared().options(runner="async")
    assert make_task(fetch, Shelf(), CheckedOptions().replace(runner="async")).effective_options.runner == "async"


def test_a_task_is_named_after_its_module_and_function() -> None:
    assert declared().name == "tests.task.test_task.transcode"
    assert make_task(transcode, Shelf(), name="video.transcode").name == "video.transcode"


SCRIPT = """
from holdfast.task.task import make_task
def work() -> None: ...
print(make_task(work, None).name)
"""


def test_a_task_of_the_main_program_is_named_as_others_would_import_it(tmp_path: Path) -> None:
    package = tmp_path / "shop"
    package.mkdir()
    (package / "tasks.py").write_text(SCRIPT)

    def name(*arguments: str) -> str:
        command = [sys.executable, *arguments]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout.strip()

    assert name("shop/tasks.py") == "tasks.work"
    assert name("-m", "shop.tasks") == "shop.tasks.work"


def test_a_function_that_no_other_process_could_find_needs_a_name() -> None:
    def local() -> None: ...

    for function in (local, lambda: None):
        with pytest.raises(Invalid, match="pass name="):
            make_task(function, Shelf())
    assert make_task(local, Shelf(), name="local").name == "local"
    with pytest.raises(Invalid, match="task is 'no spaces'"):
        make_task(transcode, Shelf(), name="no spaces")


def test_only_plain_functions_can_be_tasks() -> None:
    def lines() -> Iterator[str]:
        yield ""

    async def pages() -> AsyncIterator[str]:
        yield ""

    for thing in (lines, pages, Shelf, 7):
        with pytest.raises(TypeError, match="cannot be a task"):
            make_task(thing, Shelf(), name="it")  # type: ignore[arg-type]


def test_a_parameter_that_cannot_be_stored_is_refused_at_the_declaration() -> None:
    def show(shelf: Shelf) -> None: ...

    with pytest.raises(TypeError, match=r"task show: parameter 'shelf': .*Shelf"):
        make_task(show, Shelf(), name="show")
