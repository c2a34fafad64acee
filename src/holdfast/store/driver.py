"""Drives generators against the sync or the async store, so that a sequence of requests is written once.

    def _get(self, id: str, /) -> Steps[Job[Any]]:
        found = yield commands.get([id])
        ...

A generator yields one step at a time and receives its reply, or the error it raised. A step is a request to the store,
usually a command, or an `Action`, which needs no store.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from holdfast.store.commands import Command

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Action(Generic[T]):
    """A step that is called by `drive` and awaited by `adrive`."""

    run: Callable[[], T]
    arun: Callable[[], Awaitable[T]]


Steps = Generator[Command[Any] | Action[Any], Any, T]  # the generator of a client method, which returns a T
# The generator of a method that reads a list in pages: it yields commands, and receives their replies; and pages.
Pages = Generator[Command[Any] | list[T], Any, None]


def sleep(seconds: float) -> Action[None]:
    """Wait between two requests."""

    async def arun() -> None:
        import asyncio

        await asyncio.sleep(seconds)

    return Action(lambda: time.sleep(seconds), arun)


def in_thread(run: Callable[[], T]) -> Action[T]:
    """Call a function that takes long, or reads files; the async methods call it in a thread."""

    async def arun() -> T:
        import asyncio

        return await asyncio.to_thread(run)

    return Action(run, arun)


def drive(steps: Generator[Any, Any, T], request: Callable[[Any], Any]) -> T:
    """Run a generator to its end and return its value; `request` sends what it yields and returns the reply."""
    try:
        step = next(steps)
        while True:
            try:
                reply = step.run() if isinstance(step, Action) else request(step)
            except Exception as error:
                step = steps.throw(error)
            else:
                step = steps.send(reply)
    except StopIteration as end:
        value: T = end.value
        return value
    finally:
        steps.close()


async def adrive(steps: Generator[Any, Any, T], request: Callable[[Any], Coroutine[Any, Any, Any]]) -> T:
    """Run a generator to its end, like `drive`, in an event loop."""
    try:
        step = next(steps)
        while True:
            try:
                reply = await (step.arun() if isinstance(step, Action) else request(step))
            except Exception as error:
                step = steps.throw(error)
            else:
                step = steps.send(reply)
    except StopIteration as end:
        value: T = end.value
        return value
    finally:
        steps.close()


def iterate(pages: Pages[T], request: Callable[[Any], Any]) -> Iterator[T]:
    """Iterate over the entries of the pages that a generator yields; `request` sends the commands that it yields."""
    reply = None
    with closing(pages), suppress(StopIteration):
        while True:
            step = pages.send(reply)
            reply = request(step) if isinstance(step, Command) else None
            if isinstance(step, list):
                yield from step


async def aiterate(pages: Pages[T], request: Callable[[Any], Coroutine[Any, Any, Any]]) -> AsyncIterator[T]:
    """Iterate over the entries of pages, like `iterate`, in an event loop."""
    reply = None
    with closing(pages), suppress(StopIteration):
        while True:
            step = pages.send(reply)
            reply = await request(step) if isinstance(step, Command) else None
            for each in step if isinstance(step, list) else ():
                yield each
