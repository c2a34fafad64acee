"""Failed jobs that have something in common: their group, their fingerprint, their task or their queue."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

import msgspec

FailuresBy = Literal["group", "fingerprint", "task", "queue"]


class FailureGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Failed jobs of one group, fingerprint, task or queue.

    The first fields are about jobs that are failed now. Those of a fingerprint also say what is known about the error,
    which jobs may have survived by a retry; they are empty for others, and if no such error was seen for long.
    """

    by: FailuresBy
    name: str  # of the group, task or queue; the fingerprint
    count: int  # failed jobs
    first_seen: datetime | None = None  # when the first of them failed; of a fingerprint, when the error was seen first
    last_seen: datetime | None = None
    example: str = ""  # id of the job that failed last
    type: str = ""  # of the error
    place: str = ""  # the innermost function of user code, as module:function; how a process crashed
    message: str = ""  # of an example
    task: str = ""  # of the job that had the error first
    revision: int = 0  # of the app when the error was seen first; 0: unknown
    errors: int = 0  # how often the error was seen


class FailureDetails(FailureGroup, frozen=True, kw_only=True):
    """What is known about a fingerprint, with the traceback of an example: one attempt of one job."""

    notes: tuple[str, ...] = ()
    traceback: str = ""
    traceback_of: tuple[str, int] | None = None  # id of its job, which may be gone, and number of the attempt
