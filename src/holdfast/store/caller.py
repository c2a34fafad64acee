"""Who calls: operators and programs name themselves in calls that somebody may ask about later.

Calls of workers name their executor anyway; an enqueue, which is frequent, names nobody. A program that serves several
users says for whom it acts:

    with acting_as("ada@example.org"):
        jobs.pause("mail")
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache

from holdfast.constants import MAX_CALLER
from holdfast.errors import Invalid
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


_acting_as: ContextVar[str | None] = ContextVar("holdfast_acting_as", default=None)
_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9_.@-]", re.ASCII)


@contextmanager
def acting_as(name: str) -> Iterator[None]:
    """Name a user as the caller of everything that is called in this block, in place of the user of the process.

    The block covers the asyncio tasks that start in it, and threads that run in a copy of its context, as those of
    `asyncio.to_thread` do; other tasks and threads are not affected. In the name, anything but letters, digits and
    `_.@-` becomes `-`, and it is cut after 64 characters.

    Raises:
        Invalid: the name is empty.
    """
    if not isinstance(name, str) or not name:
        raise Invalid(f"expected the name of a user, got {name!r}")
    token = _acting_as.set(_NOT_IN_A_NAME.sub("-", name)[:MAX_CALLER])
    try:
        yield
    finally:
        _acting_as.reset(token)


def caller_name() -> str:
    """Return who calls: whom this context acts for, or else the user and the host of this process, as `ada@web1`."""
    return _acting_as.get() or _name_of_process()


@cache
def _name_of_process() -> str:
    return f"{re.sub(r'[^A-Za-z0-9_.-]', '-', _user())}@{node_name()}"[:MAX_CALLER]


def _user() -> str:
    import pwd

    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:  # a container may run as a user without a name
        return str(os.geteuid())
