"""Waiting for jobs to end, one or very many."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from datetime import timedelta

import click

from holdfast.cli.complaints import complain, note
from holdfast.cli.completers import complete_ids
from holdfast.cli.exits import NOT_FOUND, REFUSED
from holdfast.cli.fields import WAITED
from holdfast.cli.lookup import Ids
from holdfast.cli.many import given_ids, id_and, in_parts, meter
from holdfast.cli.session import Session, command, duration_option, pass_session
from holdfast.constants import MAX_BATCH
from holdfast.errors import JobNotFound, ResultTimeout
from holdfast.job.job import FINAL
from holdfast.names import new_id
from holdfast.store import Store, commands

RECHECK = 5.0  # seconds: what a job's end announces is a hint, and may get lost


@command(
    "wait", "holdfast wait 0QwErTyUiOpAsDfG --timeout 1h", "holdfast jobs --queue mail --state pending | holdfast wait",
    fields=WAITED,
)  # fmt: skip
@click.argument("ids", nargs=-1, metavar="[ID...]", shell_complete=complete_ids)
@duration_option("--timeout", "Wait no longer than this.")
@pass_session
def wait(session: Session, ids: Sequence[str], timeout: timedelta | None) -> int:
    """Wait until jobs have ended, and print each as it ends.

    Exit code 1 if one failed or was cancelled, 3 if one does not exist, 5 if --timeout is over first. When piped, the
    columns are id and state. With --json, an object on each line. Without an ID, ids are read from the standard input:
    the first column of each line.
    """
    wanted = given_ids(ids)
    if not wanted:
        note("nothing to wait for: no ids came")
        return 0
    return wait_for(session, session.app.store, wanted, timeout)


def wait_for(session: Session, store: Store, ids: Sequence[str], timeout: timedelta | None) -> int:
    """Wait for jobs, say how each ended, and return the exit code."""
    columns, codes = id_and("state"), {0}
    with meter("wait", len(ids), least=2) as advance:
        for id, state in endings(store, ids, timeout):
            if state:
                session.output.stream({"id": id, "state": state}, columns)
            else:
                complain(f"there is no job {id}{Ids(session.app).did_you_mean(id)}", JobNotFound.code, id=id)
            codes.add(0 if state == "succeeded" else REFUSED if state else NOT_FOUND)
            advance(1)
    return max(codes)


def endings(store: Store, ids: Sequence[str], timeout: timedelta | None) -> Iterator[tuple[str, str]]:
    """Yield each job with its state when it has ended; the state is empty if there is no such job.

    Raises:
        ResultTimeout: time is over.
    """
    deadline = float("inf") if timeout is None else time.monotonic() + timeout.total_seconds()
    left, news = dict.fromkeys(ids), list[str]()
    inbox, key, look_again_at = new_id(), b"", 0.0
    while left:
        if not news:
            news, look_again_at = list(left), time.monotonic() + RECHECK
        for part in in_parts(news):
            waiting = store.run(commands.wait(part, inbox))
            key = waiting.inbox_key
            for id, state in zip(part, waiting.states, strict=True):
                if state in (*FINAL, ""):
                    del left[id]
                    yield id, state
        if left and time.monotonic() >= deadline:
            raise ResultTimeout(f"{len(left):,} of {len(ids):,} jobs have not ended in the time given; they go on")
        news = _announced(store, key, left, min(look_again_at, deadline)) if left else []


def _announced(store: Store, key: bytes, left: dict[str, None], until: float) -> list[str]:
    """Return the jobs whose end is announced; none when it is time to look at all of them again."""
    while (seconds := until - time.monotonic()) > 0:
        seconds = max(seconds, 0.01)
        popped = store.execute("BLPOP", key, seconds, blocks=seconds)
        more = store.execute("LPOP", key, MAX_BATCH) or [] if popped else []
        news = dict.fromkeys(each.decode() for each in (popped[1], *more)) if popped else {}
        if known := [id for id in news if id in left]:
            return known
    return []
