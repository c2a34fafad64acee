"""The result of a check, and access to the facts that checks read."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

from holdfast.doctor.probe import ServerFacts

Version = tuple[int, ...]


class Result(NamedTuple):
    """The result of a check: its level, what it means and what to do, in a sentence each. `ok` needs no advice."""

    level: str
    means: str
    advice: str = ""


ok, note, warning, danger = (partial(Result, level) for level in ("ok", "note", "warning", "danger"))

REQUESTS = {  # fact: the request that answers it, and the right that a user needs for it
    "info": ("INFO", "+info"),
    "settings": ("CONFIG GET", "+config|get"),
    "libraries": ("FUNCTION LIST", "+function|list"),
    "clock": ("TIME", "+time"),
    "ping": ("PING", "+ping"),
    "schema": ("a function of the library", "+fcall +function|load"),
    "undefined_limits": ("a function of the library", "+fcall +function|load"),
    "failure_limits": ("a function of the library", "+fcall +function|load"),
    "tags": ("a function of the library", "+fcall +function|load"),
    "check_history": ("a function of the library", "+fcall +function|load"),
    "event_bytes": ("MEMORY USAGE", "+memory|usage"),
    "undelivered": ("a function of the library", "+fcall +function|load"),
    "default_may_write": ("ACL DRYRUN", "+acl|dryrun"),
}


def unknown(about: str, fact: str) -> Result:
    """Report that a fact is unknown, and which right this user lacks."""
    request, right = REQUESTS[fact]
    return Result(
        "unknown",
        f"{about} is unknown: {request} was refused or failed.",
        f"Ask the operator of the server, or grant this user the right {right}.",
    )


def info_of(facts: ServerFacts) -> Mapping[str, str]:
    return facts.info or {}


def settings_of(facts: ServerFacts) -> Mapping[str, str]:
    return facts.settings or {}


def server_version(info: Mapping[str, str]) -> tuple[str, Version, str]:
    """Return a server's name and version, as numbers and as text. Valkey also reports a compatible Redis version."""
    name, text = ("Valkey", info["valkey_version"]) if "valkey_version" in info else ("Redis", info["redis_version"])
    return name, tuple(int(number) for number in re.findall(r"\d+", text.partition("-")[0])), text
