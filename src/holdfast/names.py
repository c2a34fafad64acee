"""Names and ids: creates ids, and checks the names that users choose.

id                         16 base62 characters, or one that the user chose; a suffix such as ~7 names partition 7
queue, namespace, group    letters, digits, `_`, `.` and `-`
task, schedule, batch      these characters and `:`, as in My::Job::Class
tag                        any printable text
scope                      a path, /tenant/7, whose parts have the characters of an id
"""

from __future__ import annotations

import os
import re
import struct
import sys
import time
from functools import lru_cache
from pathlib import PurePath

from holdfast.constants import MAX_ID, MAX_KEY, MAX_NAME, MAX_SCOPE, MAX_SCOPE_DEPTH, MAX_TAG
from holdfast.errors import Invalid

PROGRAM_TASK = "holdfast.program"  # the task of all programs
DEFAULT_NAMESPACE = "default"

_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"  # in the order of ASCII: ids sort by time
_PAIRS = tuple(high + low for high in _DIGITS for low in _DIGITS)
_TWO, _FOUR, _EIGHT = 62**2, 62**4, 62**8  # a number below _EIGHT has eight digits

# Random numbers of the system, read in blocks. Forked processes must never make the same id.
_BLOCK = "256Q"
_unused: list[int] = []
os.register_at_fork(after_in_child=_unused.clear)

MAX_NODE_NAME = 24  # characters

_ID = re.compile(rf"[A-Za-z0-9._:@/-]{{1,{MAX_ID}}}(?:~[0-9]{{1,5}})?", re.ASCII)
_WORD = re.compile(r"[A-Za-z0-9._:@/-]+", re.ASCII)
_LIMIT = re.compile(rf"[A-Za-z0-9_.-]{{1,{MAX_KEY}}}(?::[A-Za-z0-9._@/-]{{1,{MAX_KEY}}})?", re.ASCII)
_SCOPE = re.compile(rf"(?:/[A-Za-z0-9._:@-]+){{1,{MAX_SCOPE_DEPTH}}}", re.ASCII)
HANDLER_PREFIX = "on:"  # of the ids of handlers' jobs, whose events call no handler
_NAME = re.compile(rf"[A-Za-z0-9_.-]{{1,{MAX_NAME}}}", re.ASCII)
_TASK = re.compile(rf"[A-Za-z0-9_.:-]{{1,{MAX_NAME}}}", re.ASCII)


def new_id() -> str:
    """Return a unique id: 45 bits of milliseconds, then 50 random bits."""
    try:
        random = _unused.pop()
    except IndexError:
        _unused.extend(struct.unpack(_BLOCK, os.urandom(struct.calcsize(_BLOCK))))
        return new_id()
    high, low = divmod((time.time_ns() // 1_000_000 << 50) | random >> 14, _EIGHT)
    return _eight_recent_digits(high) + _eight_digits(low)


def _eight_digits(number: int) -> str:
    a, b = number // _FOUR, number % _FOUR
    return _PAIRS[a // _TWO] + _PAIRS[a % _TWO] + _PAIRS[b // _TWO] + _PAIRS[b % _TWO]


_eight_recent_digits = lru_cache(8)(_eight_digits)  # ids of the same moment share them


def importable_module(module: str) -> str:
    """Return the name under which another process imports a module: that of `__main__` is the one of its file."""
    if module != "__main__":
        return module
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    return spec.name if spec else PurePath(getattr(main, "__file__", None) or "__main__").stem


def class_name(kind: type) -> str:
    """Return the full name of a class, as another process knows it; a builtin one has no module.

    Never raise, even if its metaclass does, and return text that UTF-8 can encode.
    """
    try:
        module, name = importable_module(kind.__module__), kind.__qualname__
    except Exception:
        module, name = "<unknown>", type.__dict__["__name__"].__get__(kind)
    return (name if module == "builtins" else f"{module}.{name}").encode("utf-8", "backslashreplace").decode()


def id_to_file_name(id: str) -> str:
    """Return an id as part of a file name, with commas for its slashes."""
    return id.replace("/", ",")


def file_name_to_id(name: str) -> str:
    """Return the id that `id_to_file_name` converted; ids have no commas."""
    return name.replace(",", "/")


def node_name() -> str:
    """Return the name of this host, as part of an executor's name."""
    import socket

    return re.sub(r"[^A-Za-z0-9_.-]", "-", socket.gethostname())[:MAX_NODE_NAME] or "node"


def check_id(value: str) -> str:
    """Return `value` if it is a valid job id; otherwise raise Invalid."""
    if isinstance(value, str) and _ID.fullmatch(value):
        return value
    if isinstance(getattr(value, "id", None), str):
        raise Invalid(f"expected the id of a job, got {_short_repr(value)}; pass its .id")
    raise Invalid(
        f"id is {_short_repr(value)}; it must be 1 to {MAX_ID} characters of A-Z a-z 0-9 . _ : @ / -, and may end in ~ "
        "and a number"
    )


def check_new_id(value: str) -> str:
    """Return `value` if a job that is enqueued may have it as its id; otherwise raise Invalid."""
    if check_id(value).startswith(HANDLER_PREFIX):
        raise Invalid(
            f"id is {value!r}; ids of handlers' jobs begin with {HANDLER_PREFIX}, and events of those call no handler"
        )
    return value


def check_own_key(value: str) -> str:
    """Return `value` if a key of the user's own may have this name; otherwise raise Invalid."""
    return _check_word(value, "key", MAX_ID)


def check_unique_key(value: str) -> str:
    """Return `value` if it is a valid unique key; otherwise raise Invalid."""
    return _check_word(value, "unique", MAX_ID)


def check_share(value: str) -> str:
    """Return `value` if it is a valid share key; otherwise raise Invalid."""
    return _check_word(value, "share", MAX_KEY)


def check_tag(value: str) -> str:
    """Return `value` if it is a valid tag; otherwise raise Invalid."""
    if isinstance(value, str) and value.isprintable() and value == value.strip() and value:
        if len(value.encode()) <= MAX_TAG:
            return value
        raise Invalid(f"tag {_short_repr(value)} is {len(value.encode())} bytes (limit {MAX_TAG})")
    raise Invalid(f"a tag is {_short_repr(value)}; it must be printable text, without spaces at its ends")


def check_scope(value: str) -> str:
    """Return `value` if it is a valid scope; otherwise raise Invalid."""
    if isinstance(value, str) and len(value) <= MAX_SCOPE and _SCOPE.fullmatch(value):
        return value
    raise Invalid(
        f"scope is {_short_repr(value)}; it must be a path such as /tenant/7: 1 to {MAX_SCOPE_DEPTH} parts of A-Z a-z "
        f"0-9 . _ : @ -, at most {MAX_SCOPE} characters"
    )


def check_step(value: str) -> str:
    """Return `value` if it is a valid step name; otherwise raise Invalid."""
    return _check_word(value, "the step", MAX_NAME)


def _check_word(value: str, what: str, max: int) -> str:
    if isinstance(value, str) and len(value) <= max and _WORD.fullmatch(value):
        return value
    raise Invalid(f"{what} is {_short_repr(value)}; it must be 1 to {max} characters of A-Z a-z 0-9 . _ : @ / -")


def check_limit(value: str) -> str:
    """Return `value` if it is a valid name of a limit, with or without a key; otherwise raise Invalid."""
    if isinstance(value, str) and _LIMIT.fullmatch(value):
        return value
    raise Invalid(f"a limit is {_short_repr(value)}; it must be a name, or a name and a key, such as api or api:acme")


def check_limit_name(value: str) -> str:
    """Return `value` if it is a valid name of a limit, without a key; otherwise raise Invalid."""
    if ":" in check_limit(value):
        name = value.partition(":")[0]
        raise Invalid(f"expected the name of a limit without a key, got {value!r}: {name} applies to each of its keys")
    return value


def check_queue(value: str) -> str:
    """Return `value` if it is a valid queue name; otherwise raise Invalid."""
    return check_name(value, "queue")


def check_task(value: str) -> str:
    """Return `value` if it is a valid task name; otherwise raise Invalid."""
    return _check_task(value, "task")


def check_schedule(value: str) -> str:
    """Return `value` if it is a valid schedule name; otherwise raise Invalid.

    A declared schedule has the name of its task.
    """
    return _check_task(value, "schedule")


def check_batch(value: str) -> str:
    """Return `value` if it is a valid name of a batch; otherwise raise Invalid."""
    return _check_task(value, "batch")


def check_subscription(value: str) -> str:
    """Return `value` if it is a valid name of a subscription, which is that of its task; otherwise raise Invalid."""
    return _check_task(value, "subscription")


def _check_task(value: str, what: str) -> str:
    if isinstance(value, str) and _TASK.fullmatch(value):
        return value
    raise Invalid(f"{what} is {_short_repr(value)}; it must be 1 to {MAX_NAME} characters of A-Z a-z 0-9 _ . : -")


def check_namespace(value: str) -> str:
    """Return `value` if it is a valid namespace; otherwise raise Invalid."""
    return check_name(value, "namespace")


def check_name(value: str, what: str) -> str:
    """Return `value` if it is a valid name; otherwise raise Invalid about `what`."""
    if isinstance(value, str) and _NAME.fullmatch(value):
        return value
    raise Invalid(f"{what} is {_short_repr(value)}; it must be 1 to {MAX_NAME} characters of A-Z a-z 0-9 _ . -")


def check_text(value: str, what: str) -> str:
    """Return `value` if it is text that can be stored; otherwise raise Invalid about `what`."""
    if not isinstance(value, str):
        raise Invalid(f"{what} is {_short_repr(value)}; it must be a str")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise Invalid(f"{what} is {_short_repr(value)}, which cannot be encoded as UTF-8") from None
    return value


def _short_repr(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}..."
