"""Find things by name, and suggest similar names if nothing has the name that was given."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from holdfast.errors import NotFound
from holdfast.text import did_you_mean

T = TypeVar("T")

MAX_NAMES = 10  # of things that exist, in a message


def find(kind: str, known: Mapping[str, T], name: str) -> T:
    """Return the thing of this name.

    Raises:
        NotFound: nothing has it; the message suggests similar names.
    """
    if name in known:
        return known[name]
    existing = f"; existing {kind}s: {', '.join(sorted(known)[:MAX_NAMES])}" if known else f"; there are no {kind}s"
    raise NotFound(f"{kind} {name} does not exist{did_you_mean(name, known) or existing}")
