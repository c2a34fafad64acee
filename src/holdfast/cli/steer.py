"""Commands that steer jobs, one or very many: cancel, retry, delete, move, release, fail; and what one waits for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

import click

from holdfast import errors
from holdfast.cli.completers import complete_ids, complete_queue
from holdfast.cli.enqueue import ON_FAILED
from holdfast.cli.fields import ANSWER
from holdfast.cli.lookup import note_new_queue, saying_which
from holdfast.cli.many import Action, Answer, choosing, id_and, optional_ids, steer
from holdfast.cli.session import Session, command, duration_option, pass_session
from holdfast.client.jobs import read_answer
from holdfast.constants import MAX_DURATION, MAX_PRIORITY, MIN_PRIORITY
from holdfast.store import Command, commands

Act = Callable[[Sequence[str]], Iterable[Answer]]

_ids = click.argument("ids", nargs=-1, metavar="[ID...]", shell_complete=complete_ids)
_reason = click.option("--reason", default="", help="Why; it is kept with the job.")


def _act(session: Session, verb: str, make: Callable[[Sequence[str]], Command[list[str]]]) -> Act:
    """Return what runs a command on jobs, and reads its answers."""

    def act(part: Sequence[str]) -> Iterable[Answer]:
        replies = session.app.store.run(make(part))
        return [(id, read_answer(verb, id, reply)) for id, reply in zip(part, replies, strict=True)]

    return act


def _answers_of(many: Callable[[Sequence[str]], Sequence[str | errors.HoldfastError]]) -> Act:
    """Return what does something to jobs by a verb of the client, and says of each what came of it."""
    return lambda part: zip(part, many(part), strict=True)


@command(
    "cancel",
    "holdfast cancel 0QwErTyUiOpAsDfG --reason 'wrong file'",
    "holdfast cancel 0QwErTyUiOpAsDfG --dependents",
    "holdfast cancel --all --queue mail --state waiting --task tasks.send",
    fields=ANSWER,
)
@_ids
@choosing("cancel")
@click.option("--dependents", is_flag=True, help="With all jobs that wait for them, and so on; up to 1,000 in all.")
@click.option("--unless-awaited", is_flag=True, help="But not jobs that others wait for, unless these are named too.")
@_reason
@pass_session
def cancel(
    session: Session, /, ids: Sequence[str], *, dependents: bool, unless_awaited: bool, reason: str, **how: Any
) -> int:
    """Stop jobs.

    A job that runs is `cancelling` until its worker has stopped it; any other is `cancelled` at once. Exit code 1 if
    one has ended already, or others wait for it and --unless-awaited is given, 3 if one does not exist; the others are
    cancelled all the same.
    """
    for name, given in (("--dependents", dependents), ("--unless-awaited", unless_awaited)):
        if given and how["all"]:
            raise click.UsageError(f"{name} is for jobs that are named by ids, not for --all.")
    if dependents and unless_awaited:
        raise click.UsageError("--dependents cancels all that wait, so --unless-awaited cannot be given too.")

    def act(part: Sequence[str]) -> Iterable[Answer]:
        if dependents:
            return session.app.cancel_with_dependents(*part, reason=reason).items()
        return zip(part, session.app.cancel_many(part, reason=reason, unless_awaited=unless_awaited), strict=True)

    all_of_a_kind = partial(session.app.cancel_all, reason=reason)
    return steer(session, Action("cancel", act, all_of_a_kind, in_parts=not unless_awaited), ids, how)


@command(
    "retry",
    "holdfast retry 0QwErTyUiOpAsDfG",
    "holdfast jobs --state failed | holdfast retry",
    "holdfast retry --all --queue mail --group ConnectionError --yes",
    fields=ANSWER,
)
@_ids
@choosing("retry", group=True)
@click.option("--force", is_flag=True, help="Also those whose work was done, only not recorded: it is done again.")
@pass_session
def retry(session: Session, /, ids: Sequence[str], *, force: bool, **how: Any) -> int:
    """Run jobs that have ended once more.

    All their budgets are as new; checkpoints are kept. Exit code 1 if one has not ended, 3 if one does not
    exist; the others are retried all the same. Jobs of the groups result-not-stored, result-too-big and step-not-kept
    have done their work, and only could not record it: they are retried with --force only.
    """
    retry_many = _answers_of(partial(session.app.retry_many, force=force))
    return steer(session, Action("retry", retry_many, partial(session.app.retry_all, force=force)), ids, how)


@command(
    "delete",
    "holdfast delete 0QwErTyUiOpAsDfG",
    "holdfast delete --all --state cancelled",
    fields=ANSWER,
)
@_ids
@choosing("delete", group=True)
@pass_session
def delete(session: Session, /, ids: Sequence[str], **how: Any) -> int:
    """Remove jobs that have ended, with their results and history.

    Exit code 1 if one has not ended or others wait for it, 3 if one does not exist; the others are removed all the
    same.
    """
    return steer(session, Action("delete", _answers_of(session.app.delete_many), session.app.delete_all), ids, how)


@command(
    "move",
    "holdfast move 0QwErTyUiOpAsDfG --to urgent",
    "holdfast move --all --queue mail --state waiting --priority -10",
    fields=ANSWER,
)
@_ids
@choosing("move")
@click.option("--to", metavar="QUEUE", shell_complete=complete_queue, help="To this queue, as a new job.")
@click.option(
    "--priority",
    type=click.IntRange(MIN_PRIORITY, MAX_PRIORITY),
    metavar="NUMBER",
    help="-256 to 255; lower runs first.",
)
@pass_session
def move(session: Session, /, ids: Sequence[str], *, to: str | None, priority: int | None, **how: Any) -> int:
    """Move jobs to another queue, or change their priority.

    Of a job that runs only the priority can be changed. Exit code 1 if one has ended, or runs and was to change its
    queue, 3 if one does not exist; the others are moved all the same.
    """
    if to is None and priority is None:
        raise click.UsageError("say where to: --to QUEUE, --priority NUMBER, or both.")
    if to is not None:
        note_new_queue(session.app, to)
    make = partial(commands.move, queue=to, priority=priority)
    move_all = partial(session.app.move_all, to=to, priority=priority)
    return steer(session, Action("move", _act(session, "move", make), move_all), ids, how)


@command(
    "release",
    "holdfast release 0QwErTyUiOpAsDfG --delay 10m --reason 'node7 is slow'",
    "holdfast release --all --queue video --yes",
    fields=ANSWER,
)
@_ids
@choosing("release")
@duration_option("--delay", "Run them after this time: 30s, 1h30m.", most=MAX_DURATION)
@_reason
@pass_session
def release(session: Session, /, ids: Sequence[str], *, delay: timedelta | None, reason: str, **how: Any) -> int:
    """Take running jobs from their workers, for others to run. No budget is charged, and checkpoints are kept.

    Exit code 1 if one does not run, 3 if one does not exist; the others are released all the same.
    """
    wait = None if delay is None else delay // timedelta(milliseconds=1)
    make = partial(commands.release, delay=wait, reason=reason)
    release_all = partial(session.app.release_all, delay=delay or 0, reason=reason)
    return steer(session, Action("release", _act(session, "release", make), release_all), ids, how)


@command(
    "fail",
    "holdfast fail 0QwErTyUiOpAsDfG --group bad-file --reason 'cannot be read'",
    "holdfast jobs --queue mail --state blocked | holdfast fail",
    fields=ANSWER,
)
@_ids
@choosing("fail")
@click.option("--group", help="Group of the failure; else `operator`.")
@_reason
@pass_session
def fail(session: Session, /, ids: Sequence[str], *, group: str | None, reason: str, **how: Any) -> int:
    """End jobs as failed, wherever they are; what runs is stopped.

    Exit code 1 if one has ended already, 3 if one does not exist; the others are failed all the same.
    """
    make = partial(commands.fail, group=group, reason=reason)
    fail_all = partial(session.app.fail_all, with_group=group, reason=reason)
    return steer(session, Action("fail", _act(session, "fail", make), fail_all), ids, how)


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
    """Have a job wait for more jobs, or for fewer.

    Its state is printed. It must not have started. It is blocked until all that it waits for have succeeded; `show`
    says which have not. Exit code 1 if it runs or has ended, or would wait for itself, 3 if one of the jobs does not
    exist.
    """
    if not (add or remove or on_failed):
        raise click.UsageError("say what to wait for: --on ID, --not-on ID, or --on-failed.")
    others = optional_ids(add)
    with saying_which(session.app, id, *others):
        state = session.app.depend(id, add=others, remove=remove, on_failed=on_failed)  # type: ignore[arg-type]
    session.output.one({"id": id, "answer": state}, id_and("answer"))
