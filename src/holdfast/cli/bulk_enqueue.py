"""`holdfast enqueue --from FILE`: a job for each line, which is a JSON object with the arguments."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, BinaryIO, NamedTuple

import msgspec

from holdfast import Holdfast
from holdfast.cli.bulk import progress_bar
from holdfast.constants import MAX_BATCH, MAX_PAYLOAD
from holdfast.errors import HoldfastError, Invalid
from holdfast.job.job import Job
from holdfast.names import check_new_id
from holdfast.task.named import AnyTask, checked_json_call, unchecked_call
from holdfast.task.task import BoundCall
from holdfast.text import pluralize

Line = dict[str, msgspec.Raw]
MAX_LINE = 8 * MAX_PAYLOAD  # bytes: JSON may need six for one
_PLACEHOLDER = re.compile(r"\{(\w+)\}")
_decode = msgspec.json.Decoder(Line).decode


class Batch(NamedTuple):
    """Calls of one task, `checked` against its signature or not; ids follow the pattern or are new."""

    app: Holdfast
    task: AnyTask
    checked: bool
    id_pattern: str | None

    def call(self, line: bytes, number: int) -> BoundCall[Any]:
        """Return the call of a line."""
        try:
            named = _decode(line)
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            raise Invalid(f"expected a JSON object with the arguments: {error}") from None
        call = checked_json_call(self.task, named) if self.checked else unchecked_call(self.task, _values(named))
        return call.options(id=_fill(self.id_pattern, named, number)) if self.id_pattern else call


def enqueue_lines(batch: Batch, file: BinaryIO) -> Iterator[Job[Any]]:
    """Enqueue a job for each line, in chunks; chunks before an invalid line are stored.

    Raises:
        Invalid: a line is invalid; the message has its number.
    """
    numbered = ((number, line) for number, line in enumerate(_lines(file), 1) if line.strip())
    stored = 0
    with progress_bar("enqueue") as advance:
        while chunk := list(islice(numbered, MAX_BATCH)):
            try:
                jobs = batch.app.enqueue_many(_calls(batch, chunk))
            except HoldfastError as error:
                raise type(error)(f"{error}; stored before it: {pluralize(stored, 'job')}") from None
            yield from jobs
            stored += len(jobs)
            advance(len(jobs))


def _lines(file: BinaryIO) -> Iterator[bytes]:
    """Yield lines up to one that is too long: /dev/zero is an endless line."""
    while line := file.readline(MAX_LINE + 1):
        yield line
        if len(line) > MAX_LINE:
            return


def _calls(batch: Batch, chunk: Iterable[tuple[int, bytes]]) -> list[BoundCall[Any]]:
    calls: list[BoundCall[Any]] = []
    for number, line in chunk:
        try:
            if len(line) > MAX_LINE:
                raise Invalid(
                    f"the line is longer than {MAX_LINE >> 20} MiB; store the data elsewhere and pass its path or id"
                )
            calls.append(batch.call(line, number))
        except Invalid as error:
            raise Invalid(f"line {number}: {error}") from None
    return calls


def _values(named: Line) -> dict[str, Any]:
    return {name: msgspec.json.decode(data) for name, data in named.items()}


def _fill(pattern: str, named: Line, number: int) -> str:
    """Fill in a pattern: {name} is the argument of that name, {line} the number of the line."""

    def value(placeholder: re.Match[str]) -> str:
        name = placeholder[1]
        if name in named:
            return str(msgspec.json.decode(named[name]))
        if name == "line":
            return str(number)
        raise Invalid(f"--id contains {{{name}}}, which is not an argument of this line")

    return check_new_id(_PLACEHOLDER.sub(value, pattern))
