"""The command that shows what a job printed."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import click

from holdfast.cli.complaints import note
from holdfast.cli.completers import complete_ids
from holdfast.cli.exits import NotFound
from holdfast.cli.fields import LOG
from holdfast.cli.lookup import saying_which
from holdfast.cli.output import write
from holdfast.cli.records import failure_record
from holdfast.cli.session import Session, command, pass_session
from holdfast.cli.watch import follow_option, pause
from holdfast.client.logs import Following, follow
from holdfast.job.job import Attempt, Job
from holdfast.job.logs import Log, LogPart, gap
from holdfast.job.retry_text import what_follows
from holdfast.text import indented, listed, printable


@command(
    "logs", "holdfast logs 0QwErTyUiOpAsDfG", "holdfast logs 0QwErTyUiOpAsDfG -f --tail 10",
    "holdfast logs 0QwErTyUiOpAsDfG --attempt 1 > attempt-1.log", fields=LOG,
)  # fmt: skip
@click.argument("id", shell_complete=complete_ids)
@follow_option("Go on as the job prints more, until it has ended.")
@click.option("--attempt", type=click.IntRange(1), metavar="NUMBER", help="Of this attempt, instead of the last.")
@click.option("--tail", type=click.IntRange(0), metavar="NUMBER", help="Only the last so many lines.")
@pass_session
def logs(session: Session, id: str, watch: bool, attempt: int | None, tail: int | None) -> None:
    """Show what a job printed, and wrote by `current_job().log`.

    Of each of the last 10 attempts the beginning and the end are kept: 64 and 192 KiB. A line says how much is left out
    between them. When piped, these are the very bytes; on a terminal, characters that it would obey are shown escaped.
    Of a failed attempt, its traceback and what follows stand after them.

    With --json, an object; with --follow, an object on each line, with what is new.
    """
    with saying_which(session.app, id):
        if watch:
            with suppress(KeyboardInterrupt):
                _follow(session, id, attempt, tail)
            return
        _show(session, id, session.app.logs(id, attempt=attempt), tail, attempt)


def _show(session: Session, id: str, log: Log, tail: int | None, attempt: int | None) -> None:
    data = log.data if tail is None else b"".join(log.data.splitlines(keepends=True)[-tail:] if tail else [])
    job = session.app.get(id)
    failed = _failed(job, log.attempt, is_chosen=attempt is not None)
    if session.output.mode == "json":
        failure = next((each.failure for each in job.attempts if each.number == log.attempt), None)
        record = _record(id, log.attempt, log.attempts, data, log.left_out)
        session.output.json({**record, "failure": failure_record(failure)})
        return
    _write(data, data.decode(errors="replace"))
    if data and not data.endswith(b"\n") and (failed or sys.stdout.isatty()):
        sys.stdout.write("\n")
    _write_failures(session, job, failed)
    if log.attempt not in log.attempts:
        note(_why_nothing(session, id, log))
    elif others := [number for number in log.attempts if number != log.attempt]:
        note(f"this is attempt {log.attempt}; --attempt shows {listed([str(number) for number in others])}")


def _failed(job: Job[Any], shown: int, *, is_chosen: bool) -> list[Attempt]:
    """Return the attempts whose failures are shown: the one whose log is, and the last, which may have printed nothing.

    If one was chosen, only that.
    """
    wanted = {shown} if is_chosen else {shown, job.attempt}
    return [attempt for attempt in job.attempts if attempt.number in wanted and attempt.failure]


def _write_failures(session: Session, job: Job[Any], attempts: Sequence[Attempt]) -> None:
    """Write why attempts failed, as lines that cannot be taken for what they printed."""
    for attempt in attempts:
        if attempt.failure:
            is_last, crashed = attempt.number == job.attempt, attempt.outcome == "crash"
            follows = what_follows(job, session.now(), crashed=crashed) if is_last else ""
            words = printable(attempt.text).removesuffix(": ")
            write(f"[holdfast: attempt {attempt.number} failed: {words}{f'; {follows}' if follows else ''}]")
            if attempt.failure.traceback:
                write(indented(attempt.failure.traceback))
    sys.stdout.flush()


def _why_nothing(session: Session, id: str, log: Log) -> str:
    """Say why there is nothing to show.

    Raises:
        NotFound: an attempt was asked for that has not been.
    """
    job = session.app.get(id)
    if log.attempt > job.attempt:
        raise NotFound(f"job {id} has no attempt {log.attempt}: it is {job.state}, and has had {job.attempt}")
    if not log.attempt:
        return f"job {id} has printed nothing: it is {job.state}{'' if job.attempt else ', and has not run yet'}"
    others = f"; there are those of {listed([str(number) for number in log.attempts], 'and')}" if log.attempts else ""
    return f"there is no log of attempt {log.attempt}: it printed nothing, or was too long ago{others}"


def _follow(session: Session, id: str, attempt: int | None, tail: int | None) -> None:
    last = None
    for part in follow(session.app.store, Following(id, attempt, tail), pause):
        if session.output.mode == "json":
            session.output.stream(_record(id, part.attempt, None, part.data, part.left_out), [])
            continue
        if last is not None and part.attempt != last:
            sys.stdout.flush()
            _write_failed(session, id, last)
            note(f"attempt {part.attempt} begins")
        last = part.attempt
        _write_part(part)
    if session.output.mode != "json":
        _write_failed(session, id, attempt or last)


def _write_failed(session: Session, id: str, number: int | None) -> None:
    """Write why an attempt failed that was followed to its end; without a number, the last."""
    job = session.app.get(id)
    number = job.attempt if number is None else number
    _write_failures(session, job, [each for each in job.attempts if each.number == number])


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


def _record(id: str, attempt: int, attempts: list[int] | None, data: bytes, left_out: int) -> dict[str, object]:
    record = {"id": id, "attempt": attempt, "attempts": attempts, "left_out_bytes": left_out}
    return {**record, "text": data.decode(errors="replace")}
