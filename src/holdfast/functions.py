"""The function library that is the core of Holdfast: `lua/*.lua`, joined into one.

Its name and the names of its functions carry a digest of its text. So each release calls exactly its own functions, and
old and new releases run side by side on one server.
"""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.resources import files

from holdfast import limits

# What the others are built on, in order; then a file per verb.
PARTS = ("keys", "call", "record", "move", "wake", "lease", "time")
VERBS = (
    "enqueue",
    "claim",
    "renew",
    "save",
    "finish",
    "lose",
    "cancel",
    "retry",
    "delete",
    "get",
    "list",
    "queues",
    "workers",
    "wait",
    "events",
)


@cache
def _source() -> str:
    folder = files("holdfast") / "lua"
    parts = ((folder / f"{part}.lua").read_text("utf-8") for part in (*PARTS, *VERBS))
    return "\n".join((limits.as_lua(), *parts))


@cache
def digest() -> str:
    return hashlib.sha256(_source().encode()).hexdigest()[:12]


@cache
def library() -> str:
    """Return the text to load into the server."""
    return f"#!lua name=holdfast_{digest()}\nlocal DIGEST = '{digest()}'\n{_source()}"


@cache
def function(verb: str) -> str:
    """Return the name under which the server knows a verb."""
    return f"hf_{digest()}_{verb}"
