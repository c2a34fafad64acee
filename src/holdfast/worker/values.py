"""What a worker can be told, by name, and how each value is read. A value that cannot be is refused as Invalid."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, get_args

from holdfast.constants import LEAST_LEASE, MOST_LEASE
from holdfast.errors import Invalid
from holdfast.names import LONGEST_NODE, check_name
from holdfast.units import CENTURY, SECOND, milliseconds, size_in_bytes
from holdfast.worker.queue_order import MOST_WEIGHT, Order
from holdfast.worker.queue_patterns import NOT, check_together, check_word
from holdfast.worker.settings import SyncRunner

Read = Callable[[Any, str], Any]  # of a value and its name

ORDERS: tuple[str, ...] = get_args(Order)
RUNNERS: tuple[str, ...] = get_args(SyncRunner)
LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")


def read_queues(value: Any, what: str) -> dict[str, int]:
    """Read "a,b", "a=5,b=1", a list of such texts, or a table: names and weights, the first name first.

    Names may be patterns; what these exclude, as in "video-*,!video-test", weighs nothing.
    """
    if isinstance(value, Mapping):
        pairs = list(value.items())
    else:
        words = value.split(",") if isinstance(value, str) else value
        if not isinstance(words, list | tuple) or not all(isinstance(word, str) for word in words):
            raise Invalid(
                f'{what} is {value!r}; it must be names of queues: ["a", "b"], or with weights: {{a = 5, b = 1}}'
            )
        pairs = [_name_and_weight(word, what) for word in words]
    names = [check_word(name) for name, _ in pairs]
    if not names:
        raise Invalid(f"{what} is empty; name at least one queue")
    if double := next((name for name in names if names.count(name) > 1), None):
        raise Invalid(f"{what} names {double} twice")
    check_together(names, what)
    return {name: _weight(name, weight) for name, weight in pairs}


def _name_and_weight(word: str, what: str) -> tuple[str, Any]:
    name, equals, weight = (part.strip() for part in word.partition("="))
    if equals and not weight.isdecimal():
        raise Invalid(f"{what} has {word!r}; a weight is a number: {name}=5")
    return name, int(weight) if equals else int(not name.startswith(NOT))


def _weight(name: str, value: Any) -> int:
    if name.startswith(NOT):
        if value != 0:
            raise Invalid(f"the weight of {name} is {value!r}; what is excluded has none, or 0")
        return 0
    number: int = _count(1, MOST_WEIGHT)(value, f"the weight of {name}")
    return number


def read_node(value: Any, what: str) -> str:
    text = _text(value, what)
    if len(text) > LONGEST_NODE:
        raise Invalid(f"{what} is {value!r}, which is too long; it must be up to {LONGEST_NODE} characters")
    return check_name(text, what) if text else ""


def _text(value: Any, what: str) -> str:
    if not isinstance(value, str):
        raise Invalid(f"{what} is {value!r}; it must be text")
    return value


def _name(value: Any, what: str) -> str:
    return check_name(_text(value, what), what)


def _flag(value: Any, what: str) -> bool:
    if not isinstance(value, bool):
        raise Invalid(f"{what} is {value!r}; it must be true or false")
    return value


def _size(value: Any, what: str) -> int:
    if not isinstance(value, str | int):
        raise Invalid(f'{what} is {value!r}; it must be a size: "512M", "2G", or a number of bytes')
    return size_in_bytes(value, what=what)


def _count(least: int, most: int = 1_000_000_000) -> Read:
    def read(value: Any, what: str) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise Invalid(f"{what} is {value!r}; it must be a whole number from {least} to {most}")
        return value

    return read


def _duration(least: int, most: int = CENTURY) -> Read:
    return lambda value, what: milliseconds(value, what=what, least=least, most=most)


def _choice(*words: str) -> Read:
    def read(value: Any, what: str) -> str:
        if value not in words:
            raise Invalid(f"{what} is {value!r}; it must be {', '.join(words[:-1])} or {words[-1]}")
        return str(value)

    return read


OF_POOL: dict[str, Read] = {
    "queues": read_queues,
    "order": _choice(*ORDERS),
    "executors": _count(1, 1000),
    "processes": _count(1, 100_000),
    "concurrency": _count(1, 100_000),
    "runner": _choice(*RUNNERS),
    "max_jobs": _count(1),
    "max_jobs_per_executor": _count(1),
    "max_age": _duration(SECOND),
    "max_memory": _size,
}
OF_WORKER: dict[str, Read] = {
    "app": _text,
    "lease": _duration(LEAST_LEASE, MOST_LEASE),
    "stop_within": _duration(0),
    "node": read_node,
    "log_level": _choice(*LEVELS),
    "burst": _flag,
    "reload": _flag,
    "show_output": _flag,
    "accept_data_loss": _flag,
    "allow_exec": _flag,
}
NAME_OF_POOL = _name
