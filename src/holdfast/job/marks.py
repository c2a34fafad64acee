"""Marks, by which jobs are found besides their queue and state: tags, a scope, and a batch."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, NamedTuple

from holdfast.constants import MAX_TAGS_PER_JOB
from holdfast.errors import Invalid, TooBig
from holdfast.names import check_tag


class Marks(NamedTuple):
    """The marks of a claimed job. See `marks.lua`."""

    tags: tuple[str, ...] = ()
    scope: str = ""
    batch: str = ""  # the batch that the job belongs to, or at whose end it runs

    @classmethod
    def read(cls, text: str) -> Marks:
        """Read the text of a job's record: a letter and a name in each line."""
        if not text:
            return NO_MARKS
        lines = text.split("\n")
        named = {letter: [line[1:] for line in lines if line.startswith(letter)] for letter in "#/=$"}
        scope, batch = "".join(f"/{path}" for path in named["/"][-1:]), "".join((*named["="], *named["$"])[:1])
        return cls(tuple(named["#"]), scope, batch)


NO_MARKS = Marks()


def check_tags(name: str, value: Any) -> tuple[str, ...]:
    """Return tags without duplicates, in order; `value` is a tag or a list of tags.

    Raises:
        Invalid: one of them is not a tag.
        TooBig: there are too many.
    """
    tags = [value] if isinstance(value, str) else value
    if not isinstance(tags, Collection):
        raise Invalid(f"{name} is {value!r}; it must be a tag or a list of tags")
    return check_number(name, map(check_tag, tags))


def check_number(name: str, tags: Iterable[str]) -> tuple[str, ...]:
    """Return tags without duplicates, if a job can have as many."""
    found = tuple(dict.fromkeys(tags))
    if len(found) > MAX_TAGS_PER_JOB:
        raise TooBig(f"{name} has {len(found)} tags (limit {MAX_TAGS_PER_JOB})")
    return found
