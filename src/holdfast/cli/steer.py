"""Commands that steer jobs, one or very many: cancel, retry, delete."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence

import click

from holdfast.cli.complaints import complain, note
from holdfast.cli.completers import complete_ids
from holdfast.cli.exits import exit_code
from holdfast.cli.fields import ANSWER
from holdfast.cli.lookup import Ids
from holdfast.cli.meter import in_parts, meter
from holdfast.cli.output import Column
from holdfast.cli.records import Record
from holdfast.cli.session import Session, command, pass_session
from holdfast.errors import HoldfastError, JobNotFound

MOST_QUESTIONS = 3  # so many unknown ids are looked for

_ids = click.argument("ids", nargs=-1, metavar="[ID...]", shell_complete=complete_ids)


@command(
    "cancel",
    "holdfast cancel 0QwErTyUiOpAsDfG --reason 'wrong file'",
    "holdfast jobs --queue mail --state waiting | holdfast cancel",
    fields=ANSWER,
)
@_ids
@click.option("--reason", default="", help="Why; it is kept with the job.")
@pass_session
def cancel(session: Session, ids: Sequence[str], reason: str) -> int:
    """Stop jobs.

    A job that runs is `cancelling` until its worker has stopped it; any other is `cancelled` at once. Exit code 1 if
    one has ended already, 3 if one does not exist; the others are cancelled all the same.

    Without an ID, ids are read from the standard input: the first column of each line.
    """
    return _steer(session, "cancel", ids, lambda part: session.app.cancel_many(part, reason=reason))


@command(
    "retry",
    "holdfast retry 0QwErTyUiOpAsDfG",
    "holdfast jobs --state failed | holdfast retry",
    "holdfast jobs --state failed | cut -f1 | xargs holdfast retry",
    fields=ANSWER,
)
@_ids
@pass_session
def retry(session: Session, ids: Sequence[str]) -> int:
    """Run jobs that have ended once more.

    All their budgets are as new; checkpoints are kept. Exit code 1 if one has not ended, 3 if one does not
    exist; the others are retried all the same.

    Without an ID, ids are read from the standard input: the first column of each line.
    """
    return _steer(session, "retry", ids, session.app.retry_many)


@command(
    "delete",
    "holdfast delete 0QwErTyUiOpAsDfG",
    "holdfast jobs --state cancelled | holdfast delete",
    fields=ANSWER,
)
@_ids
@pass_session
def delete(session: Session, ids: Sequence[str]) -> int:
    """Remove jobs that have ended, with their results and history.

    Exit code 1 if one has not ended, 3 if one does not exist; the others are removed all the same.

    Without an ID, ids are read from the standard input: the first column of each line.
    """
    return _steer(session, "delete", ids, session.app.delete_many)


def given_ids(ids: Sequence[str]) -> list[str]:
    """Return ids from the command line, or from the standard input if there are none, or a dash."""
    if ids and list(ids) != ["-"]:
        return list(dict.fromkeys(ids))
    if sys.stdin is None:
        return []
    if sys.stdin.isatty() and not ids:
        raise click.UsageError("no ID is given: name some, or pipe them in, one on each line.")
    lines = sys.stdin.buffer.read().decode(errors="replace").splitlines()
    return list(dict.fromkeys(line.split("\t")[0].strip() for line in lines if line.strip()))


Act = Callable[[Sequence[str]], list[str | HoldfastError]]


def _steer(session: Session, verb: str, words: Sequence[str], act: Act) -> int:
    """Do something with each job, say what became of it, and return the exit code of the first refusal."""
    ids = given_ids(words)
    if not ids:
        note(f"nothing to {verb}: no ids came")
    refusals: list[HoldfastError] = []
    columns = [
        Column("ID", lambda row: row["id"], whole=True),
        Column("STATE", lambda row: row["answer"], coloured=True),
    ]
    session.output.list(_answers(session, verb, ids, act, refusals), columns, "nothing was changed")
    return exit_code(refusals[0]) if refusals else 0


def _answers(
    session: Session, verb: str, ids: Sequence[str], act: Act, refusals: list[HoldfastError]
) -> Iterator[Record]:
    with meter(verb, len(ids)) as advance:
        for part in in_parts(ids):
            for id, answer in zip(part, act(part), strict=True):
                if isinstance(answer, str):
                    yield {"id": id, "answer": answer}
                else:
                    refusals.append(answer)
                    _complain(session, answer, id, is_early=len(refusals) <= MOST_QUESTIONS)
            advance(len(part))


def _complain(session: Session, error: HoldfastError, id: str, *, is_early: bool) -> None:
    """Say what was refused; of the first few ids that are none, also what they may have been meant for."""
    question = Ids(session.app).did_you_mean(id) if is_early and isinstance(error, JobNotFound) else ""
    complain(f"{error}{question}", error.code, id=id)
