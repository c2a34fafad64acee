"""Logs: the output of jobs."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.job.as_dict import failure_record
from holdfast.job.failure import Failure
from holdfast.records.jobs import JOB_FAILURES
from holdfast.records.table import Record, Table, field, optional

LOG = Table(
    "log",
    field("id", str, "id of the job"),
    field("attempt", int, "number of the attempt; 0 if none has printed anything"),
    field("attempts", list[int] | None, "attempts that have a log; null while it is followed"),
    field("left_out_bytes", int, "bytes omitted in the middle, or while it is followed before this part"),
    field("text", str, "output of the job"),
    field("failure", optional(JOB_FAILURES), "failure of this attempt, as in `show`; null while it is followed"),
)


def log_record(
    id: str, attempt: int, data: bytes, left_out: int, *, attempts: Sequence[int] | None = None,
    failure: Failure | None = None,
) -> Record:  # fmt: skip
    """Return a log, or the next part of one."""
    return {
        "id": id,
        "attempt": attempt,
        "attempts": attempts,
        "left_out_bytes": left_out,
        "text": data.decode(errors="replace"),
        "failure": failure_record(failure),
    }
