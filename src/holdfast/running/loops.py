"""Loops that resume: `for item in job.each(items)` continues after the items that earlier attempts have done.

    a sequence or an iterable   by the number of items done; the order must be the same in each attempt
    an open file                by the position of the line
    a function and a key        by the key of the last item: the function gets it, and returns the items after it

An item is done when the loop asks for the next one. The position of the loop is the job's checkpoint; if a task has
several loops, one after the other, it is the list of their positions.
"""

from __future__ import annotations

import inspect
import io
import os
import time
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator, Sized
from contextlib import suppress
from itertools import islice
from typing import Any, Generic, Protocol, TypeVar, get_type_hints

import msgspec

from holdfast.codec import decode_custom
from holdfast.errors import Invalid
from holdfast.job.progress import Reporter

T = TypeVar("T")

SAVE_INTERVAL = 0.2  # seconds
_END: Any = object()
_START_OF_COOKIE = 1 << 64  # `tell` of a text file: the position, plus multiples of this for the state of the decoder

Items = AsyncIterable[T] | Iterable[T] | Callable[[Any], AsyncIterable[T] | Iterable[T]]


class Resumable(Protocol):
    """The running job, as far as a loop needs it."""

    @property
    def stopping(self) -> bool: ...
    def checkpoint(self, kind: type[T], default: T) -> T: ...
    def yield_now(self) -> None: ...


class _Source(Protocol[T]):
    """Items from the saved position on, and the current position in them."""

    done: int  # items, in all attempts
    total: int | None

    def items(self) -> AsyncIterable[T] | Iterable[T]: ...

    def note_item(self, item: T) -> None:
        """Note the item that the loop works on: it is not done yet."""

    def position(self) -> Any:
        """Return the position to save, once all items so far are done."""

    def fraction(self) -> float | None: ...


class _Position(msgspec.Struct):
    """The saved position of a file or a keyed loop: the last key or file position, and the number of items done."""

    key: Any
    done: int


class _CountedItems(Generic[T]):
    def __init__(self, items: AsyncIterable[T] | Iterable[T], total: int | None, saved: Any) -> None:
        if isinstance(items, set | frozenset):
            raise Invalid("a set has a different order in another process; sort it: each(sorted(items))")
        self._items = items
        self.total = len(items) if total is None and isinstance(items, Sized) else total
        self.done = _read_saved(saved, int, 0)

    def items(self) -> AsyncIterable[T] | Iterable[T]:
        return (
            _askip(self._items, self.done) if isinstance(self._items, AsyncIterable) else _skip(self._items, self.done)
        )

    def note_item(self, item: T) -> None:
        """Do nothing: the position is the number of items."""

    def position(self) -> Any:
        return self.done

    def fraction(self) -> float | None:
        return min(self.done / self.total, 1.0) if self.total else None


class _FileLines(Generic[T]):
    """Lines of a file, by `readline`: the file's own iterator reads ahead and hides the position."""

    def __init__(self, file: Any, total: int | None, saved: Any) -> None:
        if not file.seekable():
            raise Invalid(f"{file!r} is not seekable, so a loop over it cannot resume")
        at = _read_saved(saved, _Position, None)
        if at is not None:
            file.seek(int(at.key))
        self._file = file
        self.total = total
        self.done = at.done if at else 0
        self._size = _size_of(file)

    def items(self) -> Iterable[T]:
        while line := self._file.readline():
            yield line

    def note_item(self, item: T) -> None:
        """Do nothing: the file has the position."""

    def position(self) -> Any:
        place = self._file.tell()
        return _Position(place if place < _START_OF_COOKIE // 2 else str(place), self.done)

    def fraction(self) -> float | None:
        return min(self._file.tell() % _START_OF_COOKIE / self._size, 1.0) if self._size else None


class _KeyedItems(Generic[T]):
    def __init__(self, begin: Callable[[Any], Any], key: Callable[[T], Any], total: int | None, saved: Any) -> None:
        at = _read_saved(saved, _Position, _Position(None, 0))
        self._begin = begin
        self._key = key
        self._last = None if saved is None else _read_key(at.key, begin)
        self.done, self.total = at.done, total

    def items(self) -> AsyncIterable[T] | Iterable[T]:
        found: AsyncIterable[T] | Iterable[T] = self._begin(self._last)
        return found

    def note_item(self, item: T) -> None:
        self._next = self._key(item)  # the loop may change or delete the item

    def position(self) -> Any:
        return _Position(self._next, self.done)

    def fraction(self) -> float | None:
        return min(self.done / self.total, 1.0) if self.total else None


class Loops:
    """The loops of one attempt, one after the other, and their positions."""

    def __init__(self, reporter: Reporter, save_checkpoint: Callable[[Any, str | None], None]) -> None:
        self._reporter = reporter
        self._save_checkpoint = save_checkpoint
        self._positions: list[Any] = []
        self.count = 0  # loops that have begun

    def refuse_save(self) -> None:
        """Raise Invalid if a loop uses the checkpoint: `save` would overwrite its position."""
        if self.count:
            raise Invalid(
                "a task uses either `each` or `save`, because both write the job's only checkpoint: leave out `each` "
                "and save the position yourself; or use `report`, `count` or `note` for what later attempts do not need"
            )

    def begin(self, job: Resumable, items: Items[T], key: Callable[[T], Any] | None, total: int | None) -> Loop[T]:
        if not self.count:
            saved = job.checkpoint(Any, None)
            self._positions = saved if isinstance(saved, list) else [saved]
        self.count += 1
        self._positions += [None] * (self.count - len(self._positions))  # earlier loops may have saved nothing
        source = _source(items, key, total, self._positions[self.count - 1])
        self._reporter.begin(source.fraction() or 0.0, source.done)
        return Loop(job, self, self.count, source)

    def save(self, source: _Source[Any]) -> None:
        """Save the positions of the last loop and those before it."""
        text = self._reporter.report(source.fraction(), None, done=source.done, total=source.total)
        self._positions[self.count - 1 :] = [source.position()]
        self._save_checkpoint(self._positions if self.count > 1 else self._positions[0], text)


class Loop(Generic[T]):
    """One loop: decides when to save."""

    def __init__(self, job: Resumable, loops: Loops, number: int, source: _Source[T]) -> None:
        self.source = source
        self._job = job
        self._loops = loops
        self._number = number
        self._has_item = False
        self._saved_at = time.monotonic()
        self._saved_done = source.done

    def take(self, item: T) -> T:
        self.source.note_item(item)
        self._has_item = True
        return item

    def item_done(self) -> None:
        """Count the current item as done. Saves from time to time; yields when the worker stops."""
        if not self._has_item:
            return
        if self._number != self._loops.count:
            raise Invalid("loops of `each` cannot be nested: the checkpoint has only the position of the last one")
        self._has_item = False
        self.source.done += 1
        is_last = self.source.done == self.source.total
        stopping = self._job.stopping
        if stopping or is_last or time.monotonic() - self._saved_at >= SAVE_INTERVAL:
            self._save()
            if stopping and not is_last:
                self._job.yield_now()

    def end(self) -> None:
        if self.source.done != self._saved_done:
            self._save()

    def _save(self) -> None:
        self._loops.save(self.source)
        self._saved_at, self._saved_done = time.monotonic(), self.source.done


class Each(Generic[T]):
    """The iterator of `each`."""

    def __init__(self, loop: Loop[T]) -> None:
        self._loop = loop
        items = loop.source.items()
        if isinstance(items, AsyncIterable):
            raise Invalid("these items are asynchronous: write `async for item in job.aeach(items)`")
        self._items = iter(items)

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        self._loop.item_done()
        item = next(self._items, _END)
        if item is _END:
            self._loop.end()
            raise StopIteration
        return self._loop.take(item)


class AsyncEach(Generic[T]):
    """The iterator of `aeach`."""

    def __init__(self, loop: Loop[T]) -> None:
        self._loop = loop
        items = loop.source.items()
        self._items = aiter(items if isinstance(items, AsyncIterable) else _as_async(items))

    def __aiter__(self) -> AsyncIterator[T]:
        return self

    async def __anext__(self) -> T:
        self._loop.item_done()
        item = await anext(self._items, _END)
        if item is _END:
            self._loop.end()
            raise StopAsyncIteration
        return self._loop.take(item)


def _source(items: Items[T], key: Callable[[T], Any] | None, total: int | None, saved: Any) -> _Source[T]:
    if key is not None:
        if not callable(items):
            raise Invalid("with key=, pass a function as items: it gets the last key, and returns the items after it")
        return _KeyedItems(items, key, total, saved)
    if isinstance(items, AsyncIterable | Iterable):
        is_file = all(hasattr(items, name) for name in ("readline", "seekable", "tell"))
        return _FileLines(items, total, saved) if is_file else _CountedItems(items, total, saved)
    raise Invalid(f"{items!r} is not iterable; if it is a function, pass key= as well")


def _read_saved(saved: Any, kind: Any, default: Any) -> Any:
    if saved is None:
        return default
    try:
        return msgspec.convert(saved, kind)
    except msgspec.ValidationError:
        raise Invalid(
            f"the checkpoint {saved!r:.100} was not saved by this loop: a task uses either `each` or `save`, and "
            "loops over the same kind of items in each attempt"
        ) from None


def _read_key(key: Any, begin: Callable[..., Any]) -> Any:
    """Return a saved key as the function that gets it is annotated."""
    return msgspec.convert(key, _key_type(begin), strict=False, dec_hook=decode_custom)


def _key_type(begin: Callable[..., Any]) -> Any:
    """Return the type of the key, from the annotation of the function that gets it."""
    with suppress(TypeError, NameError, ValueError, AttributeError, StopIteration):
        first = next(iter(inspect.signature(begin).parameters))
        return get_type_hints(begin, include_extras=True).get(first, Any)
    return Any


def _skip(items: Iterable[T], done: int) -> Iterator[T]:
    return islice(items, done, None)


async def _askip(items: AsyncIterable[T], done: int) -> AsyncIterator[T]:
    async for item in items:
        if done > 0:
            done -= 1
        else:
            yield item


async def _as_async(items: Iterable[T]) -> AsyncIterator[T]:
    for item in items:
        yield item


def _size_of(file: Any) -> int | None:
    """Return the size of a file on disk; None if it is compressed, or in memory."""
    buffer = getattr(file, "buffer", file)
    raw = getattr(buffer, "raw", buffer)
    return os.fstat(raw.fileno()).st_size if type(raw) is io.FileIO else None
