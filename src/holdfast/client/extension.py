"""The app's own Lua: its files, and calls of the functions that they register. See docs/extending.md.

call, query ──▶ Extension.library (reads the files once) ──▶ `call` in store/lua/extension.lua
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Protocol

from holdfast import errors
from holdfast.client.enqueue import App as EnqueueingApp
from holdfast.client.enqueue import in_context, on_exists_of, tasks_of
from holdfast.constants import MAX_EXTENSION
from holdfast.running.current import running_id
from holdfast.store import Steps, commands
from holdfast.store.commands import CallReply, Lease, NewJob
from holdfast.store.library import ExtendedLibrary, extend
from holdfast.task.context import carried_values
from holdfast.task.scope import scope_now
from holdfast.task.task import BoundCall

Files = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]

CALL, ITEM = "holdfast.call", "holdfast.item"  # what stands for them in arguments; see store/lua/extension.lua
MAX_EXACT = 2**53  # larger whole numbers are not exact in Lua
MAX_DEPTH = 100
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,50}", re.ASCII)


class App(EnqueueingApp, Protocol):
    """An app that may have Lua of its own."""

    @property
    def extension(self) -> Extension: ...


class HeldItem(Protocol):
    """An item that this program holds: an `Item`, or a token that was read by `holdfast.items.read_token`."""

    @property
    def held(self) -> Lease: ...
    @property
    def created(self) -> int: ...


class Extension:
    """The Lua files of an app. They are read when the first function is called."""

    def __init__(self, files: Files | None) -> None:
        self.paths = _paths(files)
        self._library: ExtendedLibrary | None = None

    @property
    def library(self) -> ExtendedLibrary:
        """The function library with these files.

        Raises:
            Invalid: the app has no files, or one cannot be read.
        """
        if self._library is None:
            if not self.paths:
                raise errors.Invalid('this app has no Lua of its own; create it with Holdfast(extend="shop.lua")')
            files = [(path.name, _read(path)) for path in self.paths]
            size = sum(len(text.encode()) for _, text in files)
            if size > MAX_EXTENSION:
                raise errors.TooBig(f"the Lua files of this app are {size} bytes (limit {MAX_EXTENSION})")
            self._library = extend(files)
        return self._library


def _paths(files: Files | None) -> tuple[Path, ...]:
    """Return absolute paths, as jobs run in other directories. The default is HOLDFAST_EXTEND."""
    if files is None:
        files = [name for name in os.environ.get("HOLDFAST_EXTEND", "").split(os.pathsep) if name]
    given = [files] if isinstance(files, str | os.PathLike) else list(files) if isinstance(files, Iterable) else [files]
    if not all(isinstance(each, str | os.PathLike) for each in given):
        raise errors.Invalid(f"extend is {files!r}; it must be the path of a Lua file, or a list of paths")
    paths = tuple(Path(os.path.abspath(each)) for each in given)
    for path in paths:
        if not _NAME.fullmatch(path.name):
            raise errors.Invalid(f"extend names {path.name!r}; use up to 50 letters, digits, dots, dashes, underscores")
    if len({path.name for path in paths}) < len(paths):
        raise errors.Invalid("extend has two files of the same name; their errors could not be told apart")
    return paths


def _read(path: Path) -> str:
    try:
        data = path.read_bytes()
        text = data.decode("utf-8-sig")  # some editors write a byte order mark
    except OSError as error:
        raise errors.Invalid(f"the Lua file {path} of this app cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise errors.Invalid(f"the Lua file {path} of this app is not UTF-8") from None
    if "\0" in text:
        raise errors.Invalid(f"the Lua file {path} of this app contains a null byte")
    return text


def call(self: App, name: str, /, *arguments: Any) -> Steps[Any]:
    """Call a function of the app's own Lua, and return its value.

    jobs = Holdfast(extend="shop.lua")
    jobs.call("order_paid", order, ship.bind(order))

    The function runs in the server, atomically: it may write its own keys, and enqueue, cancel or move jobs. Arguments
    are JSON values, bound calls that it may enqueue, and items that it may complete, also inside of lists and dicts. If
    a reply is lost, the call is repeated and returns the same value; the function runs once, unless it failed.

    Raises:
        Refused: the function refused the call; its `reason` says why.
        LuaFailed: the function failed, or the files cannot be loaded. What it wrote before stays.
        FunctionNotFound: no file has registered the function.
    """
    reader = _Arguments(self)
    values = [reader.read(value) for value in arguments]
    jobs = reader.jobs()
    adder = running_id() if any("batch" in job.batch for job, _ in jobs) else None
    reply: CallReply = yield commands.call(self.extension.library, name, values, jobs, adder=adder)
    for item in reader.items:
        if item.held.id in reply.ended and hasattr(item, "was_ended"):
            item.was_ended()
    return reply.value


def query(self: App, name: str, /, *arguments: Any) -> Steps[Any]:
    """Call a function of the app's own Lua that writes nothing, and return its value.

    It is answered even while the server is out of memory. Arguments are JSON values.

    Raises:
        Refused: the function refused the call.
        LuaFailed: the function failed, for example because it tried to write.
        FunctionNotFound: no file has registered the function.
    """
    reader = _Arguments(self)
    values = [reader.read(value) for value in arguments]
    if reader.calls or reader.items:
        raise errors.Invalid("a query cannot enqueue jobs or end items; use call")
    reply: CallReply = yield commands.query(self.extension.library, name, values)
    return reply.value


class _Arguments:
    """Reads the arguments of a call, and collects bound calls and items among them."""

    def __init__(self, app: App) -> None:
        self._app = app
        self.calls: list[BoundCall[Any]] = []
        self.items: list[Any] = []

    def read(self, value: Any, depth: int = 0) -> Any:
        """Return a value as JSON can have it, with something that stands for each bound call and item."""
        if depth > MAX_DEPTH:
            raise errors.Invalid(f"an argument is nested more than {MAX_DEPTH} levels deep")
        if isinstance(value, BoundCall):
            self.calls.append(value)
            return {CALL: len(self.calls)}
        if isinstance(held := getattr(value, "held", None), Lease):
            self.items.append(value)
            return {ITEM: [held.executor, held.id, held.attempt, value.created]}
        if isinstance(value, list | tuple):
            return [self.read(each, depth + 1) for each in value]
        if isinstance(value, dict):
            if CALL in value or ITEM in value:
                raise errors.Invalid(f"{CALL} and {ITEM} cannot be keys of an argument")
            return {name: self.read(each, depth + 1) for name, each in value.items()}
        if isinstance(value, float) and not math.isfinite(value):
            raise errors.Invalid(f"{value} is not a JSON value; pass it as text")
        if type(value) is int and abs(value) > MAX_EXACT:
            raise errors.Invalid(f"{value} is not exact in Lua, whose numbers are doubles; pass it as text")
        return value

    def jobs(self) -> list[tuple[NewJob, str]]:
        """Return the jobs of the calls, each with its `on_exists`."""
        found: list[tuple[NewJob, str]] = []
        carried, scope = carried_values(self._app), scope_now(self._app)
        for call in self.calls:
            tasks = tasks_of([call])
            (job,) = [call] if carried is None and scope is None else in_context([call], tasks, carried, scope)
            found.append((job, on_exists_of(tasks)))
        return found
