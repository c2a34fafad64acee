"""Limits that Python and the function library both know: written here, and put before the library as Lua.

What is over a limit is refused by the library. Python looks first only where it can say so sooner: when a task saves,
returns or declares something that the library would refuse later.
"""

from __future__ import annotations

MAX_PAYLOAD = 1 << 20  # bytes
MAX_RESULT = 1 << 20
MAX_CHECKPOINT = 256 << 10
MAX_ERROR = 256 << 10
MAX_STEP_RESULT = 64 << 10  # of `once`
LOG_BLOCK = 8192  # bytes
LOG_HEAD = 8  # blocks of a log that are kept: so many first ones
LOG_TAIL = 24  # and so many last ones
MAX_RUN_OPTIONS = 1024  # how a worker is to run a job, as text
MAX_PROGRESS = 1024
MAX_NOTE = 1000
MAX_NOTES = 100  # that one call may save
MAX_DURATION = 10 * 365 * 86_400_000  # milliseconds, of anything that is scheduled, and of a time-out
MAX_BACKOFF = 30 * 86_400_000
MIN_LEASE = 1000  # milliseconds
MAX_LEASE = 3_600_000
MAX_IDLE_WAIT = 5000  # milliseconds that an idle executor blocks at most


def as_lua() -> str:
    """Return all limits as one table of Lua."""
    numbers = ", ".join(f"{name} = {value}" for name, value in globals().items() if name.isupper())
    return f"local LIMITS = {{ {numbers} }}"
