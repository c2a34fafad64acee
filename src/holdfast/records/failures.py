"""Failures: failed jobs by group, fingerprint, task or queue, and what is known about a fingerprint."""

from __future__ import annotations

import shlex
from typing import Any

from holdfast.job.failures import FailureGroup
from holdfast.records.table import Table, Time, column, field, list_of

_FILTERS = {"group": "--group", "fingerprint": "--fingerprint", "task": "--task", "queue": "-Q"}


def retry_command(group: FailureGroup, queue: str | None = None) -> str:
    """Return the command that retries the failed jobs of a group."""
    words = ["holdfast", "retry", "--all", _FILTERS[group.by], group.name]
    return shlex.join([*words, "-Q", queue] if queue else words)


def _or_none(name: str) -> Any:
    return lambda group: getattr(group, name) or None


FAILURES = Table(
    "failure",
    column("name", str, "the group, fingerprint, task or queue", whole=True),
    column("count", int, "number of failed jobs", right=True, whole=True),
    column(
        "first_seen", Time | None,
        "when the first of these jobs failed; of a fingerprint, when the error was first seen",
        title="FIRST SEEN", right=True,
    ),
    column(
        "last_seen", Time | None, "when the last one failed; of a fingerprint, when the error was last seen",
        right=True,
    ),
    column("example", str, "id of the job that failed last"),
    field("by", str, "group, fingerprint, task or queue"),
    field("retry", str, "command that retries these jobs", retry_command),
)  # fmt: skip
FINGERPRINTS = FAILURES.extended(
    column("type", str | None, "of a fingerprint: type of the error", _or_none("type")),
    column(
        "place", str | None, "of a fingerprint: innermost function of user code, as module:function",
        _or_none("place"),
    ),
    column("message", str | None, "of a fingerprint: message of an example", _or_none("message"), wraps=True),
    field("task", str | None, "of a fingerprint: task of the job that had the error first", _or_none("task")),
    field(
        "revision", int | None, "of a fingerprint: revision of the app when the error was first seen",
        _or_none("revision"),
    ),
    field(
        "errors", int | None, "of a fingerprint: how often the error was seen, also before a retry",
        _or_none("errors"),
    ),
    name="Fingerprint",
)  # fmt: skip
FAILURE_DETAILS = FINGERPRINTS.extended(
    field("notes", list[str], "notes of the example's exception"),
    field("traceback", str | None, "traceback of the example"),
    field(
        "traceback_of", tuple[str, int] | None,
        "the example: id of its job, which may no longer exist, and number of the attempt",
        lambda found: list(found.traceback_of) if found.traceback_of else None,
    ),
    name="FailureDetails",
)  # fmt: skip
FAILURE_TRENDS = Table(
    "trend",
    field("name", str, "the group, fingerprint or task"),
    field("since", Time, "when the first bucket begins"),
    field("step_seconds", float, "how long each bucket is"),
    field("counts", list[int], "number of jobs that failed in each bucket and are failed now"),
    name="FailureTrend",
)
EXAMPLES = Table(
    "example",
    field("id", str, "id of the job"),
    field("task", str, "name of its task"),
    field("queue", str, "name of its queue"),
    field("since", Time | None, "when it failed"),
    field("group", str, "group of its failure"),
    field("fingerprint", str, "fingerprint of its failure"),
    name="FailureExample",
)
FAILURE_WITH_EXAMPLES = FAILURE_DETAILS.extended(
    field("examples", list_of(EXAMPLES), "jobs that failed last; of each: id, task, queue, since, group, fingerprint"),
    name="FailureWithExamples",
)
