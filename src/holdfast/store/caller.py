"""Who calls: operators and programs name themselves in calls that somebody may ask about later.

Calls of workers name their executor anyway; an enqueue, which is frequent, names nobody.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache

from holdfast.constants import MAX_CALLER
from holdfast.names import node_name

# Functions of the Lua library whose events name the caller.
NAMES_CALLER = frozenset(
    {
        "call",
        "cancel",
        "cancel_batch",
        "close_batch",
        "configure",
        "delete",
        "delete_batch",
        "depend",
        "fail",
        "fork",
        "move",
        "note",
        "pause",
        "pause_schedule",
        "pause_subscription",
        "release",
        "release_slot",
        "remove_limit",
        "request",
        "reset_limit",
        "reset_schedule",
        "resume",
        "resume_schedule",
        "resume_subscription",
        "retry",
        "schedule",
        "set_limit",
        "set_share_weight",
        "start_operation",
        "track",
        "trigger",
        "unschedule",
        "unsubscribe",
        "untrack",
    }
)


_acting: ContextVar[str | None] = ContextVar("acting", default=None)


@contextmanager
def acting_as(name: str) -> Iterator[None]:
    """Name somebody else as the caller of the calls that are made meanwhile, in this task or thread."""
    token = _acting.set(re.sub(r"[^A-Za-z0-9_.@-]", "-", name)[:MAX_CALLER])
    try:
        yield
    finally:
        _acting.reset(token)


def caller_name() -> str:
    return _acting.get() or _process_name()


@cache
def _process_name() -> str:
    """Return the user and the host of this process, as events show them: `ada@web1`."""
    return f"{re.sub(r'[^A-Za-z0-9_.-]', '-', _user())}@{node_name()}"[:MAX_CALLER]


def _user() -> str:
    import pwd

    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:  # a container may run as a user without a name
        return str(os.geteuid())
