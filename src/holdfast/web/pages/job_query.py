"""Which jobs a list shows, as one line of text: `queue:mail state:failed task:app.send since:1h`.

The words are the filters of jobs, `id:` stands for how an id begins, and so does a word without a name. A value with
spaces, quotes or nothing in it is written in double quotes. Text, parameters of addresses, commands and forms are made
from the same `Query`, so each can be changed into the others.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple
from urllib.parse import urlencode

from holdfast.client.filters import FILTERS
from holdfast.errors import Invalid
from holdfast.text import suggestion
from holdfast.web.filters import LISTS

Value = str | tuple[str, ...]

ORDER = ("state", "queue", *(each.name for each in FILTERS if each.name not in LISTS))
SHORT = {"id_prefix": "id"}  # how a filter is called in text
_NAMED = {SHORT.get(name, name): name for name in ORDER}
_BARE = "; a word without a name is how an id begins"
_FLAGS = frozenset(each.name for each in FILTERS if not each.metavar)
_FLAG_WORDS = {"yes": "true", "true": "true"}
MAX_TEXT = 4000  # characters

_TERM = re.compile(r'\s*(?:([A-Za-z_]+):)?("(?:[^"\\]|\\.)*"|[^\s"]+|)(?=\s|$)')
_PLAIN = re.compile(r"[^\s\"\\,]+")


class Term(NamedTuple):
    """A part of a query: the name of a filter in text, its value there, and the filter."""

    word: str
    value: str
    name: str


class Query:
    """Filters of jobs by name, each as text; lists have several."""

    def __init__(self, filters: Mapping[str, Value | None]) -> None:
        self.filters: dict[str, Value] = {name: value for name in ORDER if (value := filters.get(name))}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Query) and self.filters == other.filters

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<Query {self.text}>"

    def __bool__(self) -> bool:
        return bool(self.filters)

    @property
    def states(self) -> tuple[str, ...]:
        return tuple(self.filters.get("state", ()))

    def terms(self) -> list[Term]:
        return [
            Term(SHORT.get(name, name), "yes" if name in _FLAGS else _spell(value), name)
            for name, value in self.filters.items()
        ]

    @property
    def text(self) -> str:
        return " ".join(f"{term.word}:{term.value}" for term in self.terms())

    def pairs(self, prefix: str = "") -> list[tuple[str, str]]:
        """Return the parameters of an address, or the fields of a form."""
        return [
            (prefix + name, each)
            for name, value in self.filters.items()
            for each in (value if isinstance(value, tuple) else (value,))
        ]

    def address(self, **more: str) -> str:
        """Return the query of an address."""
        return urlencode([*self.pairs(), *((name, value) for name, value in more.items() if value)])

    def having(self, **changes: Value | None) -> Query:
        """Return a query with other values of some filters; None removes one."""
        return Query({**self.filters, **changes})

    def options(self) -> dict[str, Any]:
        """Return the options of the command line."""
        return {name: True if name in _FLAGS else value for name, value in self.filters.items()}


def parse(text: str) -> Query:
    """Read a query.

    Raises:
        Invalid: it has an unknown word, a name twice, or quotes without an end.
    """
    found: dict[str, list[str]] = {}
    for word, value in _words(text):
        name = _NAMED.get(word.lower()) or (word if word in ORDER else "")
        if not name:
            raise Invalid(f"unknown filter {word[:40]!r}{suggestion(word, _NAMED)}")
        values = found.setdefault(name, [])
        if values and name not in LISTS:
            raise Invalid(f"{word}: is given twice" + (_BARE if word == "id" else ""))
        values += _read(name, word, value)
    return Query({name: tuple(dict.fromkeys(values)) if name in LISTS else values[0] for name, values in found.items()})


def _words(text: str) -> Iterable[tuple[str, str]]:
    """Yield names and values. A word without a name is how an id begins."""
    if len(text) > MAX_TEXT:
        raise Invalid(f"the query has {len(text):,} characters (limit {MAX_TEXT:,})")
    place, end = 0, len(text.rstrip())
    while place < end:
        match = _TERM.match(text, place, end)
        if match is None:
            raise Invalid(f'cannot read {text[place : place + 40].strip()!r}; write values with spaces as name:"value"')
        place = match.end()
        yield match[1] or "id", match[2]


def _read(name: str, word: str, value: str) -> list[str]:
    read = re.sub(r"\\(.)", r"\1", value[1:-1]) if value.startswith('"') else value
    if name in _FLAGS:
        if read.lower() not in _FLAG_WORDS:
            raise Invalid(f"expected {word}:yes, got {word}:{read[:40]}")
        return ["true"]
    if not read:
        raise Invalid(f"{word}: has no value")
    if name in LISTS and not value.startswith('"'):
        return [each for each in read.split(",") if each]
    return [read]


def _spell(value: Value) -> str:
    """Write a value so that it can be read again."""
    if isinstance(value, tuple):
        return ",".join(value)
    return value if _PLAIN.fullmatch(value) else '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def query_of(filters: Any) -> Query:
    """Return the query of parameters that an address gave by name: a struct of filters."""
    given = {name: getattr(filters, name) for name in ORDER}
    lists = {name: tuple(each for one in given[name] or () for each in one.split(",")) for name in LISTS}
    flags = {name: "true" if given[name] else None for name in _FLAGS}
    return Query({**given, **lists, **flags})
