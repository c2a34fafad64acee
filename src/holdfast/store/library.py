"""The function library, the core of Holdfast: `lua/*.lua`, joined into one text.

The names of the library and its functions contain a digest of the text, so each release calls exactly its own
functions, and old and new releases run side by side on one server.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
    "outcomes",
    "budgets",
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
    "gate",
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
    "sample",
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
    "fork",
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
    "front",
    "staff",
    "explain",
    "attach",
    "operations",
    "work_queue",
    "work_queue_clean",
    "work_queue_bridge",
    "check",
    "check_jobs",
    "check_indexes",
    "check_dependencies",
    "check_limits",
    "check_marks",
    "check_batches",
    "check_lists",
    "check_statistics",
    "check_meta",
    "check_walk",
    "extension",
    "libraries",
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


# With the app's own Lua


@dataclass(frozen=True, slots=True)
class ExtendedLibrary:
    """The library with Lua files of an app behind it; its own digest, and so its own functions."""

    digest: str
    text: str

    def function(self, name: str) -> str:
        return f"hf_{self.digest}_{name}"


_extended: dict[str, ExtendedLibrary] = {}  # those of this process, by digest


def extend(files: Sequence[tuple[str, str]]) -> ExtendedLibrary:
    """Return the library with these files, each a name and a text; see `lua/extension.lua`."""
    rows = ", ".join(f"{{ {_quote(name)}, {_quote(text)} }}" for name, text in files)
    source = f"{_source()}\ncore.extension_files = {{ {rows} }}\n"
    made = hashlib.sha256(source.encode()).hexdigest()[:12]
    library = ExtendedLibrary(made, f"#!lua name=holdfast_{made}\nlocal DIGEST = '{made}'\n{source}")
    return _extended.setdefault(made, library)


def digests() -> set[str]:
    """Return the digests of the libraries that this process uses."""
    return {digest(), *_extended}


def text_with(function: str) -> str:
    """Return the text of the library that has a function, by its full name."""
    extended = _extended.get(function.split("_")[1])
    return extended.text if extended else library()


def _quote(text: str) -> str:
    """Return a text as a long string of Lua, in which nothing is escaped."""
    level = next("=" * count for count in range(len(text) + 2) if f"]{'=' * count}]" not in f"{text}]")
    return f"[{level}[\n{text}]{level}]"
