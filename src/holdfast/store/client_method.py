"""Client methods: written once, as steps, and exposed as a method and a coroutine method.

def _get(self, id: str, /) -> Steps[Job[Any]]: ...
get, aget = client_method(_get)
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import update_wrapper
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from holdfast.store.driver import Action, Steps, adrive, drive
from holdfast.store.store import AsyncStore, Store

P = ParamSpec("P")
T = TypeVar("T")


class Stores(Protocol):
    """An object with client methods."""

    @property
    def store(self) -> Store: ...
    @property
    def async_store(self) -> AsyncStore: ...


S = TypeVar("S", bound=Stores)


def client_method(
    steps: Callable[Concatenate[S, P], Steps[T]], owner: str = "Holdfast"
) -> tuple[Callable[Concatenate[S, P], T], Callable[Concatenate[S, P], Coroutine[Any, Any, T]]]:
    """Return a method and a coroutine method that run some steps.

    `owner` names the class of a method whose steps are a plain function.
    """

    def run(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return drive(steps(self, *args, **kwargs), self.store.run)

    async def arun(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await adrive(steps(self, *args, **kwargs), self.async_store.run)

    for method, prefix in ((run, ""), (arun, "a")):
        update_wrapper(method, steps)
        method.__name__ = prefix + steps.__name__.lstrip("_")
        method.__qualname__ = f"{steps.__qualname__.rpartition('.')[0] or owner}.{method.__name__}"
    steps.__qualname__ = run.__qualname__  # Python names it when an argument is missing
    return run, arun


def pop_message(stores: Stores, key: bytes, seconds: float) -> Action[Any]:
    """Wait at most `seconds` for a message on a list; the reply is None if none arrived."""
    request = ("BLPOP", key, seconds)
    return Action(
        lambda: stores.store.execute(*request, blocks=seconds),
        lambda: stores.async_store.execute(*request, blocks=seconds),
    )
