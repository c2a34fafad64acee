"""`holdfast wait`: wait until jobs have ended, one or many."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from datetime import timedelta

import click

from holdfast.cli.bulk import chunks, progress_bar, read_ids
from holdfast.cli.client import Client, pass_client
from holdfast.cli.command import command
from holdfast.cli.completers import complete_ids
from holdfast.cli.errors import print_error, print_note
from holdfast.cli.exit_codes import NOT_FOUND, REFUSED
from holdfast.cli.options import duration_option
from holdfast.cli.suggestions import JobIds
from holdfast.client.explain import TIMEOUT_BUDGET
from holdfast.client.results import NOT_AWAITED, UNREADABLE
from holdfast.constants import MAX_BATCH
from holdfast.errors import HoldfastError, JobNotFound, ResultTimeout, StoreUnavailable
from holdfast.job.explanation import UNREADABLE_REASONS, read_explanation
from holdfast.job.job import FINAL
from holdfast.names import new_id
from holdfast.records.job_actions import ENDED_JOBS
from holdfast.store import Store, commands
from holdfast.store.deadline import Deadline
from holdfast.text import pluralize

DELETED = "deleted"  # besides the states of jobs
RECHECK_INTERVAL = 5.0  # seconds: a notification may be lost
MAX_EXPLAINED = 3  # jobs of which a timeout says why they have not ended


@command(
    "wait", "holdfast wait 0QwErTyUiOpAsDfG --timeout 1h", "holdfast jobs -Q mail -s pending | holdfast wait",
    output=ENDED_JOBS,
)  # fmt: skip
@click.argument("ids", nargs=-1, metavar="[ID...]", shell_complete=complete_ids)
@duration_option("--timeout", help="Stop waiting after this time.")
@pass_client
def wait(client: Client, ids: Sequence[str], timeout: timedelta | None) -> int:
    """Wait until jobs have ended, and print each as it ends.

    Exit code 1 if one failed, was cancelled or cannot be read, 3 if one does not exist, 5 if --timeout elapses first.
    With --json, an object per line. Without an ID, ids are read from standard input: the first column of each line.
    """
    wanted = read_ids(ids)
    if not wanted:
        print_note("nothing to wait for: standard input contains no ids")
        return 0
    return wait_for(client, client.app.store, wanted, timeout)


def wait_for(client: Client, store: Store, ids: Sequence[str], timeout: timedelta | None) -> int:
    """Wait for jobs, print how each ended, and return the exit code."""
    codes = {0}
    with progress_bar("wait", len(ids), minimum=2) as advance:
        for id, state in ended_jobs(store, ids, timeout):
            if state in FINAL:
                client.output.stream({"id": id, "state": state}, ENDED_JOBS)
            elif state in UNREADABLE:
                print_error(f"job {id} cannot be read: {UNREADABLE_REASONS[state]}", state, id=id)
            elif state == DELETED:
                print_error(f"job {id} was deleted meanwhile, so its outcome is unknown", JobNotFound.code, id=id)
            else:
                print_error(f"job {id} does not exist{JobIds(client.app).did_you_mean(id)}", JobNotFound.code, id=id)
            codes.add(0 if state == "succeeded" else REFUSED if state in (*FINAL, *UNREADABLE) else NOT_FOUND)
            advance(1)
    return max(codes)


def ended_jobs(store: Store, ids: Sequence[str], timeout: timedelta | None) -> Iterator[tuple[str, str]]:
    """Yield each job with its state when it has ended.

    The state is empty if the job does not exist, DELETED if it did when the wait began, and NEWER or DAMAGED if it
    cannot be read.

    Raises:
        ResultTimeout: the timeout elapsed.
    """
    deadline = float("inf") if timeout is None else time.monotonic() + timeout.total_seconds()
    left, to_check = dict.fromkeys(ids, False), list[str]()  # whether each was found
    inbox, key, recheck_at = new_id(), b"", 0.0
    while left:
        if not to_check:
            to_check, recheck_at = list(left), time.monotonic() + RECHECK_INTERVAL
        for chunk in chunks(to_check):
            waiting = store.run(commands.add_waiter(chunk, inbox))
            key = waiting.inbox_key
            for id, state in zip(chunk, waiting.states, strict=True):
                if state not in NOT_AWAITED:
                    left[id] = True
                else:
                    yield id, DELETED if left.pop(id) and not state else state
        if left and time.monotonic() >= deadline:
            unended = f"{len(left):,} of {pluralize(len(ids), 'job')}"
            why = _why_late(store, list(left)[:MAX_EXPLAINED])
            raise ResultTimeout(f"--timeout elapsed before {unended} ended; the jobs are not affected{why}")
        to_check = _wait_for_notifications(store, key, left, min(recheck_at, deadline)) if left else []


def _why_late(store: Store, ids: Sequence[str]) -> str:
    """Return why jobs have not ended: asked once, with little time, and never an error of its own."""
    try:
        rows = store.run(commands.explain(ids).within(Deadline(TIMEOUT_BUDGET)))
    except StoreUnavailable:
        return "; the server has stopped answering"
    except HoldfastError:
        return ""
    found = [read_explanation(row, store.address.home) for row in rows if row]
    return "".join(f"; {each.id} is {each.state}: {each.text}" for each in found)


def _wait_for_notifications(store: Store, key: bytes, left: dict[str, bool], until: float) -> list[str]:
    """Wait for notifications until `until`; return the ids of jobs that ended. Empty: check all jobs again."""
    while (seconds := until - time.monotonic()) > 0:
        seconds = max(seconds, 0.01)
        popped = store.execute("BLPOP", key, seconds, blocks=seconds)
        more = store.execute("LPOP", key, MAX_BATCH) or [] if popped else []
        ids = dict.fromkeys(each.decode() for each in (popped[1], *more)) if popped else {}
        if known := [id for id in ids if id in left]:
            return known
    return []
