"""How a case writes what is sent and received, and where a reply differs from it.

"text"                 these bytes, as UTF-8            {"$hex": "00ff"}          these bytes
7, null                an integer, nil                  {"$repeat": ["x", 100]}   a text 100 times
[1, 2]                 a list of exactly these          {"$json": ...}            JSON with this value
[1, "..."]             further elements are ignored     {"$set": [1, 2]}          a list in any order
{"$any": true}         anything but an error
{"state": "waiting"}   a list of names and values, or an object; further names are ignored
[1, {"$rest": {...}}]  a list whose rest has names and values
"${name}"              the value of a variable; in a reply, a variable without a value gets it there
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from itertools import permutations
from typing import Any, NamedTuple

from holdfast.conformance.connection import Refusal

MORE = "..."
_VARIABLE = re.compile(r"\$\{(\w+)\}")
_MAX_SHOWN = 500  # characters of a value in a message

Variables = dict[str, Any]


class Difference(NamedTuple):
    """Where a reply differs, what is expected there, and what is there."""

    place: str
    expected: Any
    actual: Any

    def __str__(self) -> str:
        return f"{self.place}: expected {show(self.expected)}, got {show(self.actual)}"


def show(value: Any) -> str:
    """Write a value on one line, cut if it is long."""
    text = str(value) if isinstance(value, Refusal) else json.dumps(readable(value), ensure_ascii=False)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}... ({len(text)} characters)"


def readable(value: Any) -> Any:
    """Write a reply as a case does: bytes are text, or hexadecimal digits if they are not UTF-8."""
    if isinstance(value, list):
        return [readable(each) for each in value]
    if isinstance(value, dict):
        return {name: readable(each) for name, each in value.items()}
    if not isinstance(value, bytes):
        return value
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"$hex": value.hex()}


def encode(value: Any) -> bytes:
    """Return the bytes of a blob, or of a part of a command, as a case writes them."""
    match value:
        case {"$hex": digits}:
            return bytes.fromhex(digits)
        case {"$repeat": [text, number]}:
            return str(text).encode() * int(number)
        case {"$json": content}:
            return json.dumps(content, separators=(",", ":"), ensure_ascii=False).encode()
    return str(value).encode()


def fill_in(value: Any, variables: Mapping[str, Any]) -> Any:
    """Replace `${name}` everywhere, also in the names of objects."""
    if isinstance(value, str):
        whole = _VARIABLE.fullmatch(value)
        return variables[whole[1]] if whole else _VARIABLE.sub(lambda found: str(variables[found[1]]), value)
    if isinstance(value, list):
        return [fill_in(each, variables) for each in value]
    if isinstance(value, dict):
        return {fill_in(name, variables): fill_in(each, variables) for name, each in value.items()}
    return value


def expand(value: Any) -> Any:
    """Replace `$repeat` and `$json` in arguments by the texts that they stand for."""
    if isinstance(value, list):
        return [expand(each) for each in value]
    if isinstance(value, dict):
        if value.keys() & {"$repeat", "$json"}:
            return encode(value).decode()
        return {name: expand(each) for name, each in value.items()}
    return value


def find_difference(expected: Any, actual: Any, variables: Variables, place: str = "reply") -> Difference | None:
    """Return the first difference between a reply and what a case expects; bind variables on the way."""
    if isinstance(expected, str):
        return _compare_text(expected, actual, variables, place)
    if isinstance(expected, list):
        return _compare_list(expected, actual, variables, place)
    if isinstance(expected, dict):
        return _compare_object(expected, actual, variables, place)
    is_same = type(expected) is type(actual) and expected == actual
    return None if is_same else Difference(place, expected, actual)


def _compare_text(expected: str, actual: Any, variables: Variables, place: str) -> Difference | None:
    if isinstance(actual, Refusal):
        return Difference(place, expected, actual)
    whole = _VARIABLE.fullmatch(expected)
    if whole and whole[1] not in variables:
        variables[whole[1]] = readable(actual)
        return None
    wanted = fill_in(expected, variables)
    if not isinstance(wanted, str):
        return find_difference(wanted, actual, variables, place)
    return None if readable(actual) == wanted else Difference(place, wanted, actual)


def _compare_list(expected: list[Any], actual: Any, variables: Variables, place: str) -> Difference | None:
    if not isinstance(actual, list):
        return Difference(place, expected, actual)
    last = expected[-1] if expected else None
    rest = last["$rest"] if isinstance(last, dict) and "$rest" in last else None
    is_open = last == MORE or rest is not None
    wanted = expected[:-1] if is_open else expected
    for index, each in enumerate(wanted):
        if index == len(actual):
            return Difference(f"{place}[{index}]", each, "nothing: the list ends")
        if found := find_difference(each, actual[index], variables, f"{place}[{index}]"):
            return found
    if len(actual) > len(wanted) and not is_open:
        return Difference(f"{place}[{len(wanted)}]", "the end of the list", actual[len(wanted)])
    return None if rest is None else _compare_names(rest, actual[len(wanted) :], variables, place)


def _compare_object(expected: dict[str, Any], actual: Any, variables: Variables, place: str) -> Difference | None:
    match expected:
        case {"$hex": _} | {"$repeat": _}:
            data = actual.encode() if isinstance(actual, str) else actual
            return None if data == encode(expected) else Difference(place, expected, actual)
        case {"$json": content}:
            return _compare_json(content, actual, variables, place)
        case {"$set": members}:
            return _compare_set(members, actual, variables, place)
        case {"$any": _} if not isinstance(actual, Refusal):
            return None
    return _compare_names(expected, actual, variables, place)


def _compare_names(expected: dict[str, Any], actual: Any, variables: Variables, place: str) -> Difference | None:
    named = actual if isinstance(actual, dict) else read_names(actual)
    if named is None:
        return Difference(place, expected, actual)
    for written, each in expected.items():
        name = fill_in(written, variables)
        if name not in named:
            return Difference(f"{place}.{name}", each, f"no such name among {', '.join(named)}")
        if found := find_difference(each, named[name], variables, f"{place}.{name}"):
            return found
    return None


def _compare_json(content: Any, actual: Any, variables: Variables, place: str) -> Difference | None:
    try:
        return find_difference(content, json.loads(actual), variables, place)
    except (TypeError, ValueError):
        return Difference(place, {"$json": content}, actual)


def _compare_set(members: list[Any], actual: Any, variables: Variables, place: str) -> Difference | None:
    if isinstance(actual, list) and len(actual) == len(members):
        for order in permutations(members):
            tried = dict(variables)
            if _compare_list(list(order), actual, tried, place) is None:
                variables.update(tried)
                return None
    return Difference(place, {"$set": members}, actual)


def read_names(value: Any) -> dict[str, Any] | None:
    """Read a list of names and values; None if it is none."""
    if not isinstance(value, list) or len(value) % 2 or not all(isinstance(each, bytes) for each in value[::2]):
        return None
    return {name.decode(errors="replace"): each for name, each in zip(value[::2], value[1::2], strict=True)}
