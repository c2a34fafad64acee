"""A verb of the client is written once, as steps: a generator that says which command to run, and hears its reply.

    def _get(self, id: str, /) -> Steps[Job[Any]]:
        found = yield commands.get([id])
        ...
    get, aget = verb(_get)

Driven by the sync store it is a method, driven by the async store a coroutine method. A step may also be an act, which
is no command.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine, Generator
from dataclasses import dataclass
from functools import update_wrapper
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar

from holdfast.store.commands import Command
from holdfast.store.store import AsyncStore, Store

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Pop:
    """A step that waits for a message on a list, for so many seconds at most. The reply is None if there was none."""

    key: bytes
    seconds: float

    @property
    def parts(self) -> tuple[Any, ...]:
        return ("BLPOP", self.key, self.seconds)


@dataclass(frozen=True, slots=True)
class Act(Generic[T]):
    """A step that asks nothing of the store: called by the sync method, awaited by the async one."""

    run: Callable[[], T]
    arun: Callable[[], Coroutine[Any, Any, T]]


def pause(seconds: float) -> Act[None]:
    """A step that waits."""

    async def arun() -> None:
        import asyncio

        await asyncio.sleep(seconds)

    return Act(lambda: time.sleep(seconds), arun)


Step = Command[Any] | Pop | Act[Any]
Steps = Generator[Step, Any, T]


class Stores(Protocol):
    """Whose verbs they are."""

    @property
    def store(self) -> Store: ...
    @property
    def async_store(self) -> AsyncStore: ...


S = TypeVar("S", bound=Stores)


def verb(
    steps: Callable[Concatenate[S, P], Steps[T]], of: str = "Holdfast"
) -> tuple[Callable[Concatenate[S, P], T], Callable[Concatenate[S, P], Coroutine[Any, Any, T]]]:
    """Make a method and a coroutine method of a method's steps. Errors of a command are raised inside of the steps.

    `of` names the class of steps that are a function.
    """

    def run(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return drive(self.store, steps(self, *args, **kwargs))

    async def arun(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await adrive(self.async_store, steps(self, *args, **kwargs))

    for made, prefix in ((run, ""), (arun, "a")):
        update_wrapper(made, steps)
        made.__name__ = prefix + steps.__name__.lstrip("_")
        made.__qualname__ = f"{steps.__qualname__.rpartition('.')[0] or of}.{made.__name__}"
    steps.__qualname__ = run.__qualname__  # by which Python says that an argument is missing
    return run, arun


def drive(store: Store, steps: Steps[T]) -> T:
    """Run the commands of some steps, and return what they return."""
    try:
        step = next(steps)
        while True:
            try:
                reply = store.run(step) if isinstance(step, Command) else _take(store, step)
            except Exception as error:
                step = steps.throw(error)
            else:
                step = steps.send(reply)
    except StopIteration as end:
        value: T = end.value
        return value
    finally:
        steps.close()


async def adrive(store: AsyncStore, steps: Steps[T]) -> T:
    """Run the commands of some steps, and return what they return."""
    try:
        step = next(steps)
        while True:
            try:
                reply = await (store.run(step) if isinstance(step, Command) else _atake(store, step))
            except Exception as error:
                step = steps.throw(error)
            else:
                step = steps.send(reply)
    except StopIteration as end:
        value: T = end.value
        return value
    finally:
        steps.close()


def _take(store: Store, step: Pop | Act[Any]) -> Any:
    return step.run() if isinstance(step, Act) else store.execute(*step.parts, blocks=step.seconds)


async def _atake(store: AsyncStore, step: Pop | Act[Any]) -> Any:
    return await (step.arun() if isinstance(step, Act) else store.execute(*step.parts, blocks=step.seconds))
