"""Commands that change jobs: cancel, retry, delete, move, release, fail, depend, attach, note."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

import click

from holdfast import errors
from holdfast.cli.bulk import Action, Answer, OnIds, expand_ids, run_action, selection_options
from holdfast.cli.client import Client, pass_client
from holdfast.cli.command import command
from holdfast.cli.completers import complete_ids, complete_queue, complete_tag
from holdfast.cli.job_options import job_options, read_fields
from holdfast.cli.options import Integer, duration_option
from holdfast.cli.output import Fact
from holdfast.cli.suggestions import note_new_queue, suggesting_ids
from holdfast.client.jobs import read_reply
from holdfast.constants import MAX_DURATION, MAX_PRIORITY, MIN_PRIORITY
from holdfast.job.marks import check_tags
from holdfast.records.job_actions import ATTACHED, CHANGED_JOBS, NOTED
from holdfast.store import Command, commands

_id = click.argument("id", shell_complete=complete_ids)
_ids = click.argument("ids", nargs=-1, metavar="[ID...]", shell_complete=complete_ids)
_reason = click.option("--reason", default="", help="Reason, stored with the job.")


def _command_on(client: Client, verb: str, make: Callable[[Sequence[str]], Command[list[str]]]) -> OnIds:
    """Return a function that sends a command of the store, and reads its answers."""

    def act(ids: Sequence[str]) -> Iterable[Answer]:
        replies = client.app.store.run(make(ids))
        return [(id, read_reply(verb, id, reply)) for id, reply in zip(ids, replies, strict=True)]

    return act


def _method_on(method: Callable[[Sequence[str]], Sequence[str | errors.HoldfastError]]) -> OnIds:
    """Return a function that calls a method of the client."""
    return lambda ids: zip(ids, method(ids), strict=True)


@command(
    "cancel",
    "holdfast cancel 0QwErTyUiOpAsDfG --reason 'wrong file'",
    "holdfast cancel 0QwErTyUiOpAsDfG --dependents",
    "holdfast cancel --all -Q mail -s waiting --task tasks.send",
    output=CHANGED_JOBS,
)
@_ids
@selection_options("cancel")
@click.option("--dependents", is_flag=True, help="Also all jobs that wait for them, recursively; up to 1,000 in all.")
@click.option("--unless-awaited", is_flag=True, help="Refuse a job that others wait for, unless those are named, too.")
@_reason
@pass_client
def cancel(
    client: Client, /, ids: Sequence[str], *, dependents: bool, unless_awaited: bool, reason: str, **selection: Any
) -> int:
    """Cancel jobs; running ones are stopped.

    A running job is `cancelling` until its worker has stopped it; any other is `cancelled` at once. Exit code 1 if one
    has ended, or others wait for it and --unless-awaited is given; 3 if one does not exist. The rest are cancelled.
    """
    for name, given in (("--dependents", dependents), ("--unless-awaited", unless_awaited)):
        if given and selection["all"]:
            raise click.UsageError(f"{name} and --all cannot be combined: {name} needs IDs.")
    if dependents and unless_awaited:
        raise click.UsageError(
            "--dependents and --unless-awaited cannot be combined: the first cancels jobs that wait for these, too,"
            " the second refuses because of them."
        )

    def act(ids: Sequence[str]) -> Iterable[Answer]:
        if dependents:
            return client.app.cancel_with_dependents(*ids, reason=reason).items()
        return zip(ids, client.app.cancel_many(ids, reason=reason, unless_awaited=unless_awaited), strict=True)

    cancel_all = partial(client.app.cancel_all, reason=reason)
    return run_action(client, Action("cancel", act, cancel_all, in_chunks=not unless_awaited), ids, selection)


@command(
    "retry",
    "holdfast retry 0QwErTyUiOpAsDfG",
    "holdfast jobs --state failed | holdfast retry",
    "holdfast retry --all -Q mail --group ConnectionError --yes",
    "holdfast retry --all --group MemoryError --to large --yes",
    "holdfast retry 0QwErTyUiOpAsDfG --from-start",
    output=CHANGED_JOBS,
)
@_ids
@selection_options("retry")
@click.option("--force", is_flag=True, help="Also jobs that did their work but could not record it: it is repeated.")
@click.option(
    "--to", metavar="QUEUE", shell_complete=complete_queue, help="Queue to run the jobs in, instead of theirs."
)
@click.option(
    "--from-start", is_flag=True, help="Delete checkpoint, progress and kept steps first: the work starts over."
)
@pass_client
def retry(
    client: Client, /, ids: Sequence[str], *, force: bool, to: str | None, from_start: bool, **selection: Any
) -> int:
    """Run ended jobs again, from their checkpoints.

    They continue where they were, and do not repeat kept steps (`once`); with --from-start, all is done again. A job
    of a pipeline starts its current stage. Their budgets are restored.

    Exit code 1 if one has not ended, 3 if one does not exist; the rest are retried. Jobs of the groups
    result-not-stored, result-too-big and step-not-kept did their work but could not record it: only --force retries
    them.
    """
    if to is not None:
        note_new_queue(client.app, to)
    retry_many = _method_on(partial(client.app.retry_many, force=force, to=to, from_start=from_start))
    retry_all = partial(client.app.retry_all, force=force, to=to, from_start=from_start)
    return run_action(client, Action("retry", retry_many, retry_all), ids, selection)


@command(
    "delete", "holdfast delete 0QwErTyUiOpAsDfG", "holdfast delete --all --state cancelled", output=CHANGED_JOBS
)  # fmt: skip
@_ids
@selection_options("delete")
@pass_client
def delete(client: Client, /, ids: Sequence[str], **selection: Any) -> int:
    """Delete ended jobs with their results and history.

    Exit code 1 if one has not ended or others wait for it, 3 if one does not exist; the rest are deleted.
    """
    action = Action("delete", _method_on(client.app.delete_many), client.app.delete_all)
    return run_action(client, action, ids, selection)


@command(
    "move",
    "holdfast move 0QwErTyUiOpAsDfG --to urgent",
    "holdfast move --all -Q mail -s waiting --priority -10",
    output=CHANGED_JOBS,
)
@_ids
@selection_options("move")
@click.option("--to", metavar="QUEUE", shell_complete=complete_queue, help="Queue to move the jobs to.")
@click.option(
    "--priority",
    type=Integer(MIN_PRIORITY, MAX_PRIORITY),
    metavar="NUMBER",
    help="-256 to 255; lower runs first.",
)
@click.option(
    "--new-tag", "tags", multiple=True, metavar="TAG", shell_complete=complete_tag,
    help="Tag of the jobs from now on, instead of those that they have; repeatable.",
)  # fmt: skip
@pass_client
def move(
    client: Client, /, ids: Sequence[str], *, to: str | None, priority: int | None, tags: Sequence[str],
    **selection: Any,
) -> int:  # fmt: skip
    """Move jobs to another queue, or change their priority. They keep their tags unless others are given.

    A running job cannot move, but its priority can change. Exit code 1 if one has ended, or is running and --to is
    given; 3 if one does not exist. The rest are moved.
    """
    if to is None and priority is None:
        raise click.UsageError("expected --to QUEUE, --priority NUMBER, or both.")
    if to is not None:
        note_new_queue(client.app, to)
    new = check_tags("tags", tags) or None
    make = partial(commands.move, queue=to, priority=priority, tags=new)
    move_all = partial(client.app.move_all, to=to, priority=priority, tags=new)
    return run_action(client, Action("move", _command_on(client, "move", make), move_all), ids, selection)


@command(
    "release",
    "holdfast release 0QwErTyUiOpAsDfG --delay 10m --reason 'node7 is slow'",
    "holdfast release --all -Q video --yes",
    output=CHANGED_JOBS,
)
@_ids
@selection_options("release")
@duration_option("--delay", help="Run them after this time: 30s, 1h30m.", maximum=MAX_DURATION)
@_reason
@pass_client
def release(client: Client, /, ids: Sequence[str], *, delay: timedelta | None, reason: str, **selection: Any) -> int:
    """Requeue running jobs for other workers.

    No budget is charged, and checkpoints are kept. Exit code 1 if one is not running, 3 if one does not exist; the rest
    are requeued.
    """
    wait = None if delay is None else delay // timedelta(milliseconds=1)
    make = partial(commands.release, delay=wait, reason=reason)
    release_all = partial(client.app.release_all, delay=delay or 0, reason=reason)
    return run_action(client, Action("release", _command_on(client, "release", make), release_all), ids, selection)


@command(
    "fail",
    "holdfast fail 0QwErTyUiOpAsDfG --with-group bad-file --reason 'cannot be read'",
    "holdfast jobs -Q mail -s blocked | holdfast fail",
    "holdfast fail --all -Q mail --tag old --with-group given-up",
    output=CHANGED_JOBS,
)
@_ids
@selection_options("fail", without=["group", "fingerprint"])  # pending jobs have no failure
@click.option("--with-group", "group", metavar="GROUP", help="Group of the failure. Default: operator.")
@_reason
@pass_client
def fail(client: Client, /, ids: Sequence[str], *, group: str | None, reason: str, **selection: Any) -> int:
    """Mark pending jobs as failed; running ones are stopped.

    Exit code 1 if one has ended, 3 if one does not exist; the rest are failed.
    """
    make = partial(commands.fail, group=group, reason=reason)
    fail_all = partial(client.app.fail_all, with_group=group, reason=reason)
    return run_action(client, Action("fail", _command_on(client, "fail", make), fail_all), ids, selection)


@command(
    "depend",
    "holdfast depend 0QwErTyUiOpAsDfG --on 0QwErTyUzXcVbNmL",
    "holdfast depend 0QwErTyUiOpAsDfG --not-on 0QwErTyUzXcVbNmL --on-failed run",
    "holdfast jobs -Q map -s pending | holdfast depend 0QwErTyUiOpAsDfG --on -",
    output=CHANGED_JOBS,
)
@_id
@click.option(
    "--on", "add", multiple=True, metavar="ID", shell_complete=complete_ids,
    help="Add a dependency; repeatable; - reads ids from standard input.",
)  # fmt: skip
@click.option(
    "--not-on", "remove", multiple=True, metavar="ID", shell_complete=complete_ids,
    help="Remove a dependency; repeatable.",
)  # fmt: skip
@job_options(["on_failed"])
@pass_client
def depend(client: Client, id: str, add: Sequence[str], remove: Sequence[str], on_failed: str | None) -> None:
    """Add or remove dependencies of a job, and print its state.

    The job must not have started. It is blocked until its dependencies have succeeded; `show` lists those that have
    not. Exit code 1 if it is running or has ended, or would wait for itself; 3 if one of the jobs does not exist.
    """
    if not (add or remove or on_failed):
        raise click.UsageError("expected --on ID, --not-on ID, or --on-failed.")
    others = expand_ids(add)
    with suggesting_ids(client.app, id, *others):
        state = client.app.depend(id, add=others, remove=remove, on_failed=on_failed)  # type: ignore[arg-type]
    client.output.one({"id": id, "state": state}, CHANGED_JOBS)


@command(
    "attach",
    "holdfast attach 0QwErTyUiOpAsDfG ticket=4711 owner=ann",
    "holdfast attach 0QwErTyUiOpAsDfG --remove ticket",
    output=ATTACHED,
)
@_id
@click.argument("words", nargs=-1, metavar="[NAME=TEXT]...", callback=read_fields)
@click.option("--remove", multiple=True, metavar="NAME", help="Remove this field; repeatable.")
@pass_client
def attach(client: Client, id: str, words: dict[str, str] | None, remove: Sequence[str]) -> None:
    """Attach fields to a job, and print all that it has.

    Holdfast does not interpret them: a ticket, an owner, an invoice. A job has up to 64 fields of up to 4 KiB. In a
    pipe, the columns are name and text.
    """
    with suggesting_ids(client.app, id):
        fields = client.app.attach(id, words or {}, remove=remove)
    if client.output.mode == "json":
        client.output.json({"id": id, "fields": fields})
    else:
        client.output.facts(Fact(name, fields[name]) for name in sorted(fields))


@command("note", "holdfast note 0QwErTyUiOpAsDfG 'sent again by hand'", output=NOTED)
@_id
@click.argument("words", nargs=-1, required=True, metavar="TEXT...")
@pass_client
def note(client: Client, id: str, words: Sequence[str]) -> None:
    """Add a note to the history of a job.

    `show` prints it. Up to 1,000 bytes.
    """
    text = " ".join(words)
    with suggesting_ids(client.app, id):
        client.app.note(id, text)
    client.output.one({"id": id, "note": text}, NOTED)
