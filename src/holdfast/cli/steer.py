"""Commands that steer jobs, one or very many: cancel, retry, delete, move, release, fail; and what one waits for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta

import click

from holdfast import commands, errors
from holdfast.cli.completers import complete_ids, complete_queue
from holdfast.cli.enqueue import ON_FAILED
from holdfast.cli.fields import ANSWER
from holdfast.cli.lookup import note_new_queue, saying_which
from holdfast.cli.many import Act, Answer, id_and, optional_ids, steer
from holdfast.cli.session import Session, command, duration_option, pass_session
from holdfast.commands import Command

REFUSALS = {
    "move": "has ended and cannot be moved, or runs and cannot change its queue",
    "release": "does not run, so it cannot be released",
    "fail": "has ended already and cannot be failed",
}

_ids = click.argument("ids", nargs=-1, metavar="[ID...]", shell_complete=complete_ids)
_reason = click.option("--reason", default="", help="Why; it is kept with the job.")


def _act(session: Session, verb: str, make: Callable[[Sequence[str]], Command[list[str]]]) -> Act:
    """Return what runs a command on jobs, and reads its answers."""

    def act(part: Sequence[str]) -> Iterable[Answer]:
        replies = session.app.store.run(make(part))
        return [(id, _read(verb, id, reply)) for id, reply in zip(part, replies, strict=True)]

    return act


def _read(verb: str, id: str, reply: str) -> str | errors.HoldfastError:
    kind = errors.BY_CODE.get(reply)
    words = REFUSALS[verb] if kind is errors.WrongState else "does not exist; it may have been deleted"
    return kind(f"job {id} {words}") if kind else reply


@command(
    "cancel",
    "holdfast cancel 0QwErTyUiOpAsDfG --reason 'wrong file'",
    "holdfast cancel 0QwErTyUiOpAsDfG --dependents",
    "holdfast jobs --queue mail --state waiting | holdfast cancel",
    fields=ANSWER,
)
@_ids
@click.option("--dependents", is_flag=True, help="With all jobs that wait for them, and so on; up to 1,000 in all.")
@_reason
@pass_session
def cancel(session: Session, ids: Sequence[str], *, dependents: bool, reason: str) -> int:
    """Stop jobs.

    A job that runs is `cancelling` until its worker has stopped it; any other is `cancelled` at once. Exit code 1 if
    one has ended already, 3 if one does not exist; the others are cancelled all the same.

    Without an ID, ids are read from the standard input: the first column of each line.
    """

    def act(part: Sequence[str]) -> Iterable[Answer]:
        if dependents:
            return session.app.cancel_with_dependents(*part, reason=reason).items()
        return zip(part, session.app.cancel_many(part, reason=reason), strict=True)

    return steer(session, "cancel", ids, act)


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
    return steer(session, "retry", ids, lambda part: zip(part, session.app.retry_many(part), strict=True))


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

    Exit code 1 if one has not ended or others wait for it, 3 if one does not exist; the others are removed all the
    same.

    Without an ID, ids are read from the standard input: the first column of each line.
    """
    return steer(session, "delete", ids, lambda part: zip(part, session.app.delete_many(part), strict=True))


@command(
    "move",
    "holdfast move 0QwErTyUiOpAsDfG --to urgent",
    "holdfast jobs --queue mail --state waiting | holdfast move --priority -10",
    fields=ANSWER,
)
@_ids
@click.option("--to", "queue", metavar="QUEUE", shell_complete=complete_queue, help="To this queue, as a new job.")
@click.option("--priority", type=click.IntRange(-256, 255), metavar="NUMBER", help="-256 to 255; lower runs first.")
@pass_session
def move(session: Session, ids: Sequence[str], queue: str | None, priority: int | None) -> int:
    """Move jobs to another queue, or change their priority.

    Of a job that runs only the priority can be changed. Exit code 1 if one has ended, or runs and was to change its
    queue, 3 if one does not exist; the others are moved all the same.

    Without an ID, ids are read from the standard input: the first column of each line.
    """
    if queue is None and priority is None:
        raise click.UsageError("say where to: --to QUEUE, --priority NUMBER, or both.")
    if queue is not None:
        note_new_queue(session.app, queue)
    make = lambda part: commands.move(part, queue=queue, priority=priority)  # noqa: E731
    return steer(session, "move", ids, _act(session, "move", make))


@command(
    "release",
    "holdfast release 0QwErTyUiOpAsDfG --delay 10m --reason 'node7 is slow'",
    "holdfast jobs --queue video --state running | holdfast release",
    fields=ANSWER,
)
@_ids
@duration_option("--delay", "Run them after this time: 30s, 1h30m.")
@_reason
@pass_session
def release(session: Session, ids: Sequence[str], delay: timedelta | None, reason: str) -> int:
    """Take running jobs from their workers, for others to run. No budget is charged, and checkpoints are kept.

    Exit code 1 if one does not run, 3 if one does not exist; the others are released all the same.

    Without an ID, ids are read from the standard input: the first column of each line.
    """
    wait = None if delay is None else delay // timedelta(milliseconds=1)
    make = lambda part: commands.release(part, delay=wait, reason=reason)  # noqa: E731
    return steer(session, "release", ids, _act(session, "release", make))


@command(
    "fail",
    "holdfast fail 0QwErTyUiOpAsDfG --group bad-file --reason 'cannot be read'",
    "holdfast jobs --queue mail --state blocked | holdfast fail",
    fields=ANSWER,
)
@_ids
@click.option("--group", help="Group of the failure; else `operator`.")
@_reason
@pass_session
def fail(session: Session, ids: Sequence[str], group: str | None, reason: str) -> int:
    """End jobs as failed, wherever they are; what runs is stopped.

    Exit code 1 if one has ended already, 3 if one does not exist; the others are failed all the same.

    Without an ID, ids are read from the standard input: the first column of each line.
    """
    make = lambda part: commands.fail(part, group=group, reason=reason)  # noqa: E731
    return steer(session, "fail", ids, _act(session, "fail", make))


@command(
    "depend",
    "holdfast depend 0QwErTyUiOpAsDfG --on 0QwErTyUzXcVbNmL",
    "holdfast depend 0QwErTyUiOpAsDfG --not-on 0QwErTyUzXcVbNmL --on-failed run",
    "holdfast jobs --queue map --state pending | holdfast depend 0QwErTyUiOpAsDfG --on -",
    fields=ANSWER,
)
@click.argument("id", shell_complete=complete_ids)
@click.option(
    "--on", "add", multiple=True, metavar="ID", shell_complete=complete_ids,
    help="Wait for this job, too; may be given several times; - reads ids from the standard input.",
)  # fmt: skip
@click.option(
    "--not-on", "remove", multiple=True, metavar="ID", shell_complete=complete_ids,
    help="Do not wait for this job any more; may be given several times.",
)  # fmt: skip
@click.option("--on-failed", type=ON_FAILED, help="If one fails or is cancelled: stay blocked, be cancelled, or run.")
@pass_session
def depend(session: Session, id: str, add: Sequence[str], remove: Sequence[str], on_failed: str | None) -> None:
    """Have a job wait for more jobs, or for fewer, and print its state.

    It must not have started. It is blocked until all that it waits for have succeeded; `show` says which have not.
    Exit code 1 if it runs or has ended, or would wait for itself, 3 if one of the jobs does not exist.
    """
    if not (add or remove or on_failed):
        raise click.UsageError("say what to wait for: --on ID, --not-on ID, or --on-failed.")
    others = optional_ids(add)
    with saying_which(session.app, id, *others):
        state = session.app.depend(id, add=others, remove=remove, on_failed=on_failed)  # type: ignore[arg-type]
    session.output.one({"id": id, "answer": state}, id_and("answer"))
