"""`holdfast logs`: the output of a job."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import click

from holdfast.cli.client import Client, pass_client
from holdfast.cli.command import command
from holdfast.cli.completers import complete_ids
from holdfast.cli.errors import print_note
from holdfast.cli.options import Integer
from holdfast.cli.output import write
from holdfast.cli.suggestions import suggesting_ids
from holdfast.cli.watch import follow_option, sleep
from holdfast.client.logs import LogReader, follow, last_lines
from holdfast.errors import NotFound
from holdfast.job.job import Job
from holdfast.job.logs import Log, LogPart, gap
from holdfast.job.next_step import describe_next_step
from holdfast.job.parts import Attempt
from holdfast.records.logs import LOG, log_record
from holdfast.text import indented, listed, printable


@command(
    "logs", "holdfast logs 0QwErTyUiOpAsDfG", "holdfast logs 0QwErTyUiOpAsDfG -f --tail 10",
    "holdfast logs 0QwErTyUiOpAsDfG --attempt 1 > attempt-1.log", output=LOG,
)  # fmt: skip
@click.argument("id", shell_complete=complete_ids)
@follow_option("Print new output until the job has ended.")
@click.option("--attempt", type=Integer(1), metavar="NUMBER", help="Number of the attempt. Default: the latest.")
@click.option("-n", "--tail", type=Integer(0), metavar="NUMBER", help="Print only the last lines, this many.")
@pass_client
def logs(client: Client, id: str, following: bool, attempt: int | None, tail: int | None) -> None:
    """Print the output of a job, or follow it.

    It consists of standard output, standard error and `current_job().log`. The first 64 and the last 192 KiB of each of
    the last 10 attempts are stored; a line between them has the number of omitted bytes. A pipe gets the original
    bytes; on a terminal, control characters are escaped. The output of a failed attempt is followed by its traceback
    and what happens next.

    With --json, an object; with --follow, an object per line with the new output.
    """
    with suggesting_ids(client.app, id):
        if following:
            with suppress(KeyboardInterrupt):
                _follow(client, id, attempt, tail)
            return
        _show(client, id, client.app.logs(id, attempt=attempt), tail, attempt)


def _show(client: Client, id: str, log: Log, tail: int | None, attempt: int | None) -> None:
    data = log.data if tail is None else last_lines(log.data, tail)
    job = client.app.get(id)
    failed = _failed(job, log.attempt, only=attempt is not None)
    if client.output.mode == "json":
        failure = next((each.failure for each in job.attempts if each.number == log.attempt), None)
        record = log_record(id, log.attempt, data, log.left_out, attempts=log.attempts, failure=failure)
        client.output.json(record)
        return
    _write(data, data.decode(errors="replace"))
    if data and not data.endswith(b"\n") and (failed or sys.stdout.isatty()):
        sys.stdout.write("\n")
    _write_failures(client, job, failed)
    if log.attempt not in log.attempts:
        print_note(_why_no_log(client, id, log))
    elif others := [number for number in log.attempts if number != log.attempt]:
        print_note(f"this is attempt {log.attempt}; --attempt shows {listed([str(number) for number in others])}")


def _failed(job: Job[Any], shown: int, *, only: bool) -> list[Attempt]:
    """Return the failed attempts to show: that of the log and the latest, which may have no log; or the chosen one."""
    wanted = {shown} if only else {shown, job.attempt}
    return [attempt for attempt in job.attempts if attempt.number in wanted and attempt.failure]


def _write_failures(client: Client, job: Job[Any], attempts: Sequence[Attempt]) -> None:
    """Write why attempts failed, in lines that cannot pass for output of the job."""
    for attempt in attempts:
        if attempt.failure:
            is_last = attempt.number == job.attempt
            follows = _what_follows(client, job, attempt) if is_last else ""
            words = printable(attempt.text).removesuffix(": ")
            write(f"[holdfast: attempt {attempt.number} failed: {words}{f'; {follows}' if follows else ''}]")
            if attempt.failure.traceback:
                write(indented(attempt.failure.traceback))
    sys.stdout.flush()


def _what_follows(client: Client, job: Job[Any], attempt: Attempt) -> str:
    group = attempt.failure.group if attempt.failure else ""
    return describe_next_step(job, client.now(), crashed=attempt.outcome == "crash", group=group)


def _why_no_log(client: Client, id: str, log: Log) -> str:
    """Return why there is no log.

    Raises:
        NotFound: the job has no such attempt.
    """
    job = client.app.get(id)
    if log.attempt > job.attempt:
        raise NotFound(
            f"job {id} has no attempt {log.attempt}; it is {job.state}, and its latest attempt is {job.attempt}"
        )
    if not log.attempt:
        return f"job {id} has no output; it is {job.state}{'' if job.attempt else ' and has not run yet'}"
    others = f"; attempts with a log: {listed([str(number) for number in log.attempts], 'and')}" if log.attempts else ""
    return f"attempt {log.attempt} has no log: it printed nothing, or its log has expired{others}"


def _follow(client: Client, id: str, attempt: int | None, tail: int | None) -> None:
    last = None
    for part in follow(client.app.store, LogReader(id, attempt, tail), sleep):
        if client.output.mode == "json":
            client.output.stream(log_record(id, part.attempt, part.data, part.left_out), LOG)
            continue
        if last is not None and part.attempt != last:
            sys.stdout.flush()
            _write_failed(client, id, last)
            print_note(f"attempt {part.attempt} starts")
        last = part.attempt
        _write_part(part)
    if client.output.mode != "json":
        _write_failed(client, id, attempt or last)


def _write_failed(client: Client, id: str, number: int | None) -> None:
    """Write why an attempt failed after following it to its end; without a number, the latest."""
    job = client.app.get(id)
    number = job.attempt if number is None else number
    _write_failures(client, job, [each for each in job.attempts if each.number == number])


def _write_part(part: LogPart) -> None:
    lost = gap(part.left_out, b"\n")
    _write(lost + part.data, lost.decode() + part.text)
    sys.stdout.flush()


def _write(data: bytes, text: str) -> None:
    if sys.stdout.isatty():
        sys.stdout.write(printable(text.replace("\r\n", "\n"), lines=True, tabs=True))
    else:
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
