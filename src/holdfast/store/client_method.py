"""Client methods: written once, as steps, and exposed as a method and a coroutine method.

def _get(self, id: str, /) -> Steps[Job[Any]]: ...
get, aget = client_method(_get)
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from functools import update_wrapper
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from holdfast.store.driver import Action, Pages, Steps, adrive, aiterate, drive, iterate
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

    _name_methods(steps, run, arun, steps.__name__.lstrip("_"), owner)
    return run, arun


def paged_method(
    pages: Callable[Concatenate[S, P], Pages[T]], name: str | None = None, owner: str = "Holdfast"
) -> tuple[Callable[Concatenate[S, P], Iterator[T]], Callable[Concatenate[S, P], AsyncIterator[T]]]:
    """Return a method and its async counterpart that iterate over the entries of pages."""

    def run(self: S, /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        return iterate(pages(self, *args, **kwargs), self.store.run)

    def arun(self: S, /, *args: P.args, **kwargs: P.kwargs) -> AsyncIterator[T]:
        return aiterate(pages(self, *args, **kwargs), self.async_store.run)

    _name_methods(pages, run, arun, name or pages.__name__, owner)
    return run, arun


def _name_methods(
    steps: Callable[..., Any], run: Callable[..., Any], arun: Callable[..., Any], name: str, owner: str
) -> None:
    for method, prefix in ((run, ""), (arun, "a")):
        update_wrapper(method, steps)
        method.__name__ = prefix + name
        method.__qualname__ = f"{steps.__qualname__.rpartition('.')[0] or owner}.{method.__name__}"
    steps.__qualname__ = run.__qualname__  # Python names it when an argument is missing


def pop_message(stores: Stores, key: bytes, seconds: float) -> Action[Any]:
    """Wait at most `seconds` for a message on a list; the reply is None if none arrived."""
    request = ("BLPOP", key, seconds)
    return Action(
        lambda: stores.store.execute(*request, blocks=seconds),
        lambda: stores.async_store.execute(*request, blocks=seconds),
    )
