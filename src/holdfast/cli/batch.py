"""Storing very many jobs of one task: an object of JSON on each line has the arguments of one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, BinaryIO, NamedTuple

import msgspec

from holdfast import Holdfast
from holdfast.cli.arguments import AnyTask, call_of_line, unchecked_call
from holdfast.cli.many import meter
from holdfast.constants import MAX_BATCH, MAX_PAYLOAD
from holdfast.errors import HoldfastError, Invalid
from holdfast.job.job import Job
from holdfast.names import check_id
from holdfast.task.task import BoundCall

Line = dict[str, msgspec.Raw]
MAX_LINE = 8 * MAX_PAYLOAD  # bytes: JSON may need six for one
_PLACE = re.compile(r"\{(\w+)\}")
_read = msgspec.json.Decoder(Line).decode


class Batch(NamedTuple):
    """What is to be stored: calls of a task; `checked` against its signature, or not; with ids of a pattern, or new."""

    app: Holdfast
    task: AnyTask
    checked: bool
    pattern: str | None

    def call(self, line: bytes, number: int) -> BoundCall[Any]:
        """Return the call that a line stands for."""
        try:
            named = _read(line)
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            raise Invalid(f"it is no JSON object with the arguments: {error}") from None
        call = call_of_line(self.task, named) if self.checked else unchecked_call(self.task, _values(named))
        return call.options(id=_id(self.pattern, named, number)) if self.pattern else call


def store(batch: Batch, file: BinaryIO) -> Iterator[Job[Any]]:
    """Store a job for each line, a thousand at a time; up to a line that is wrong, those before it are stored.

    Raises:
        Invalid: a line is wrong; the message says which.
    """
    numbered = ((number, line) for number, line in enumerate(_lines(file), 1) if line.strip())
    done = 0
    with meter("enqueue") as advance:
        while part := list(islice(numbered, MAX_BATCH)):
            try:
                jobs = batch.app.enqueue_many(_calls(batch, part))
            except HoldfastError as error:
                raise type(error)(f"{error}; {done:,} jobs were stored before") from None
            yield from jobs
            done += len(jobs)
            advance(len(jobs))


def _lines(file: BinaryIO) -> Iterator[bytes]:
    """Yield lines, up to one that no call can be: a file such as /dev/zero is one line without end."""
    while line := file.readline(MAX_LINE + 1):
        yield line
        if len(line) > MAX_LINE:
            return


def _calls(batch: Batch, part: Iterable[tuple[int, bytes]]) -> list[BoundCall[Any]]:
    calls: list[BoundCall[Any]] = []
    for number, line in part:
        try:
            if len(line) > MAX_LINE:
                raise Invalid(f"it has more than {MAX_LINE >> 20} MiB")
            calls.append(batch.call(line, number))
        except Invalid as error:
            raise Invalid(f"line {number}: {error}") from None
    return calls


def _values(named: Line) -> dict[str, Any]:
    return {name: msgspec.json.decode(data) for name, data in named.items()}


def _id(pattern: str, named: Line, number: int) -> str:
    """Fill in a pattern: {name} is the argument of that name, {line} the number of the line."""

    def fill(place: re.Match[str]) -> str:
        name = place[1]
        if name in named:
            return str(msgspec.json.decode(named[name]))
        if name == "line":
            return str(number)
        raise Invalid(f"--id has {{{name}}}, but there is no such argument")

    return check_id(_PLACE.sub(fill, pattern))
