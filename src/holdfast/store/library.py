"""The function library, the core of Holdfast: `lua/*.lua`, joined into one text.

The names of the library and its functions contain a digest of the text, so each release calls exactly its own
functions, and old and new releases run side by side on one server.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cache

from holdfast import constants
from holdfast.events import types

# In order of dependency. `globals` is shared by all; every other file is wrapped in its own scope, because a chunk of
# Lua may have at most 200 local names, and a function may refer to at most 60 names outside of it.
PARTS = (
    "globals",
    "keys",
    "call",
    "settings",
    "record",
    "emit",
    "unique_keys",
    "fields",
    "expiry",
    "marks",
    "transitions",
    "errors",
    "fingerprints",
    "failures",
    "queue_sets",
    "throughput",
    "statistics",
    "folding",
    "shares",
    "limits",
    "notify",
    "lease",
    "deadlines",
    "dependencies",
    "repair",
    "mark_repair",
    "prune",
    "timers",
    "claim",
    "pools",
    "renew",
    "requeue_orphaned",
    "get",
    "filters",
    "find",
    "list_newest",
    "list",
    "list_failures",
    "enqueue",
    "actions",
    "schedules",
    "batches",
    "batch_lists",
    "save",
    "detach",
    "marking",
    "steps",
    "log",
    "worker_requests",
    "backoff",
    "finish",
    "cancel",
    "retry",
    "delete",
    "depend",
    "move",
    "release",
    "fail",
    "queues",
    "overdue",
    "queue_load",
    "stats",
    "upkeep",
    "workers",
    "add_waiter",
    "events",
    "subscriptions",
    "configure",
    "limit_definitions",
    "limit_usage",
    "attach",
    "operations",
    "work_queue",
    "work_queue_clean",
    "work_queue_bridge",
)


def join(texts: Mapping[str, str]) -> str:
    """Join the texts of all parts, without the header that names the library."""
    common, *scoped = (texts[part] for part in PARTS)
    return "\n".join((constants.as_lua(), types.as_lua(), common, *(f"do\n{text}\nend" for text in scoped)))


@cache
def _source() -> str:
    from importlib.resources import files

    folder = files("holdfast.store") / "lua"
    return join({part: (folder / f"{part}.lua").read_text("utf-8") for part in PARTS})


@cache
def digest() -> str:
    return hashlib.sha256(_source().encode()).hexdigest()[:12]


@cache
def library() -> str:
    """Return the text to load into the server."""
    return f"#!lua name=holdfast_{digest()}\nlocal DIGEST = '{digest()}'\n{_source()}"


@cache
def function(name: str) -> str:
    """Return the full name of a function on the server."""
    return f"hf_{digest()}_{name}"
