"""The warning of `enqueue` that no worker will run the job: none is live, serves its queue, or knows its task."""

from __future__ import annotations

from contextlib import suppress

from holdfast import Holdfast
from holdfast.cli.errors import print_note
from holdfast.errors import HoldfastError
from holdfast.job.explanation import Explanation, Reason

CODES = ("no-worker", "unserved", "draining", "unknown-task", "no-exec")


def warn_without_worker(app: Holdfast, id: str | None, path: str | None) -> None:
    """Warn if no worker will run a job that was just stored; `path` names the app. Never fails: it is stored."""
    if id is None:
        return
    with suppress(HoldfastError):
        [found] = app.explain_many([id])
        if reason := _reason(found):
            start = "" if reason.text.endswith("?") else f"; start one: `{reason.hint.replace('APP', path or 'APP')}`"
            print_note(f"the job waits: {reason.text}{start}")


def _reason(found: Explanation | None) -> Explanation | Reason | None:
    """Return which reason is a worker that is missing, if any is."""
    reasons: list[Explanation | Reason] = [found, *found.also] if found else []
    return next((each for each in reasons if each.code in CODES), None)
