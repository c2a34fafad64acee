"""Names of other queues are answered with what to write here, and are no attributes otherwise."""

from __future__ import annotations

import copy
import inspect
from datetime import UTC, datetime
from typing import Any
from unittest.mock import Mock, patch

import pytest

import holdfast
from holdfast import BoundCall, Holdfast, Invalid, Job, RunningJob, Task
from holdfast.hints import HINTS
from holdfast.job.option_table import BY_NAME
from holdfast.running import DetachedLink

jobs = Holdfast("redis://127.0.0.1:1")
NOW = datetime.now(UTC)


@jobs.task
def add(x: int, y: int) -> int:
    """Add."""
    return x + y


@jobs.task
async def aadd(x: int, y: int) -> int:
    return x + y


def plain() -> None: ...


job: Job[Any] = Job(id="j", state="waiting", queue="q", task="t", created_at=NOW, since=NOW, updated_at=NOW, app=jobs)
running = RunningJob(DetachedLink(), id="j", attempt=1, task="t", queue="q")
OBJECTS = {"Task": add, "BoundCall": add.bind(1, 2), "Job": job, "Holdfast": jobs, "RunningJob": running}
CLASSES = {"Task": Task, "BoundCall": BoundCall, "Job": Job, "Holdfast": Holdfast, "RunningJob": RunningJob}
NAMES = [(owner, name) for owner in OBJECTS for name in HINTS[owner]]


@pytest.mark.parametrize(
    ("thing", "name", "message"),
    [
        (add, "delay", "Task has no attribute 'delay'; call task.enqueue(...)"),
        (aadd, "kiq", "Task has no attribute 'kiq'; await task.aenqueue(...)"),
        (job, "status", "Job has no attribute 'status'; read job.state, or job.refresh().state to ask the store again"),
        (
            job,
            "get",
            "Job has no attribute 'get'; call job.result(timeout=\"10s\"), which waits for the end of the job",
        ),
        (running, "retry", "RunningJob has no attribute 'retry'; raise holdfast.Retry(delay=\"10s\")"),
        (jobs, "AsyncResult", "Holdfast has no attribute 'AsyncResult'; call jobs.get(id)"),
    ],
)
def test_a_name_of_another_queue_is_answered_with_what_to_write(thing: Any, name: str, message: str) -> None:
    with pytest.raises(AttributeError) as caught:
        getattr(thing, name)
    assert str(caught.value) == message
    assert caught.value.obj is None  # or Python adds a guess of its own


@pytest.mark.parametrize(("owner", "name"), NAMES)
def test_such_a_name_is_no_attribute(owner: str, name: str) -> None:
    thing = OBJECTS[owner]
    assert not hasattr(thing, name)
    assert not hasattr(type(thing), name)
    assert getattr(thing, name, None) is None
    assert name not in dir(thing)


@pytest.mark.parametrize("owner", OBJECTS)
def test_no_hint_hides_an_attribute(owner: str) -> None:
    """A hint is set after the class is made, so it would replace an attribute of the same name."""
    kind = CLASSES[owner]
    source = inspect.getsource(kind)
    fields = {*getattr(kind, "__struct_fields__", ()), *getattr(kind, "__dataclass_fields__", ())}
    for name in HINTS[owner]:
        assert f"def {name}(" not in source
        assert f"    {name}, " not in source
        assert f"self.{name} =" not in source
        assert name not in fields


def test_no_option_has_a_hint() -> None:
    assert not HINTS["option"].keys() & BY_NAME.keys()


@pytest.mark.parametrize("owner", OBJECTS)
def test_objects_with_hints_are_copied_listed_and_mocked_as_before(owner: str) -> None:
    thing = OBJECTS[owner]
    assert type(copy.copy(thing)) is type(thing)
    assert repr(thing)
    mocked = Mock(spec=dir(thing))
    for name in HINTS[owner]:
        assert name == "return_value" or not hasattr(mocked, name)  # which every mock has
        with pytest.raises(AttributeError, match=r"ha(s no|ve the) attribute"), patch.object(thing, name):
            pass  # never comes here


def test_a_task_is_still_the_function_that_it_wraps() -> None:
    assert inspect.signature(add) == inspect.signature(add.function)
    assert inspect.unwrap(add) is add.function
    assert add.__doc__ == "Add."


class OwnTask(Task[..., Any]):
    def delay(self) -> str:
        return "later"


class OwnApp(Holdfast):
    def __init__(self) -> None:
        super().__init__("redis://127.0.0.1:1")
        self.conf = "own"


def test_a_name_that_a_subclass_defines_is_an_attribute_as_any_other() -> None:
    own = OwnTask(add.name, add.function, jobs, add.signature, add.effective_options)
    assert own.delay() == "later"
    assert "delay" in dir(own)
    assert "apply_async" not in dir(own)
    app = OwnApp()
    assert app.conf == "own"
    assert "conf" in dir(app)
    assert "purge" not in dir(app)


@pytest.mark.parametrize("name", HINTS["holdfast"])
def test_an_import_of_another_queue_is_answered_with_what_to_write(name: str) -> None:
    with pytest.raises(ImportError, match=f"^holdfast has no {name}; "):
        exec(f"from holdfast import {name}")  # noqa: S102 - the statement of a user
    assert name not in dir(holdfast)


def test_an_import_that_is_unknown_fails_as_in_any_module() -> None:
    with pytest.raises(ImportError, match="cannot import name 'nothing' from 'holdfast'"):
        exec("from holdfast import nothing")  # noqa: S102
    assert not hasattr(holdfast, "nothing")


TASK, FUNCTION = (
    "write add.enqueue(...), or jobs.enqueue(add.bind(...))",
    "declare a task, `@jobs.task` above `def plain`",
)
wrong: Any = jobs  # type checkers refuse these calls


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: wrong.enqueue(add, 1, 2), f"enqueue() takes one bound call: {TASK}"),
        (lambda: wrong.enqueue(add, x=1, y=2), f"enqueue() takes one bound call: {TASK}"),
        (lambda: wrong.enqueue(plain, 1), f"enqueue() takes one bound call: {FUNCTION}"),
        (lambda: wrong.enqueue(add), f"got <Task tests.test_hints.add>; {TASK}"),
        (lambda: wrong.enqueue(plain), f"{FUNCTION}, and write plain.enqueue(...)"),
        (lambda: wrong.enqueue_many([add]), TASK),
        (lambda: wrong.enqueue("tasks.add"), "expected a bound call, as task.bind(...), got 'tasks.add'"),
        (lambda: wrong.tasks[add.name].options(countdown=3), "unknown option 'countdown'; write delay"),
        (lambda: wrong.task(bind=True), "unknown option 'bind'; call current_job() in the task"),
        (lambda: wrong.tasks[add.name].bind(1, 2, queue="q"), "To give the option: task.options(queue=...).enqueue("),
        (lambda: wrong.tasks[add.name].bind(1, 2, countdown=3), "As an option, in task.options(...): write delay"),
    ],
)
def test_a_call_as_in_another_queue_is_answered_with_what_to_write(call: Any, message: str) -> None:
    with pytest.raises((Invalid, TypeError)) as caught:
        call()
    assert message in str(caught.value)
