"""Forks: new jobs with the call of another one, which start from what that one has saved."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

import msgspec

from holdfast import errors
from holdfast.client.queries import App, read
from holdfast.job.job import Job
from holdfast.job.option_table import BY_NAME, check_options, not_for
from holdfast.job.options import UNREADABLE_RUN_OPTIONS, CheckedOptions, JobOptions, RunOptions
from holdfast.job.retries import BUDGETS
from holdfast.names import check_id, check_new_id, new_id
from holdfast.running.current import running_id
from holdfast.store import Steps, commands

_CHANGES_RUN = {option.name for option in BY_NAME.values() if option.goes_to == "worker"}
_CHANGES_RUN |= {"retries", "backoff", *BUDGETS.values()}  # which may come with a policy
_BY_ID = "; give it an id: a second call with the same id returns the first fork"
_INSTEAD = {
    "runner": ": it is an option of the task",
    "when_unreachable": ": it is stored in the server, or not at all",
}
_RUN = [name for name in RunOptions.__struct_fields__ if name in CheckedOptions.__struct_fields__]


def fork(self: App, id: str, /, *, from_start: bool = False, **options: Unpack[JobOptions]) -> Steps[Job[Any]]:
    """Store a new job with the call of another, which starts from its checkpoint and kept steps. Return the new job.

    again = jobs.fork("import-7", id="import-7-bis", queue="large", memory="8G")

    The other job may be in any state, and does not change. The new one has its arguments and options, except the unique
    key, batch, dependencies, due time and deadline; options that are given replace those, `fields` are added. With
    `from_start` it starts from the beginning. While a fork with this `id` exists, a second call returns it, with
    `created=False`.

    Raises:
        JobNotFound: no job has this id.
        WrongState: the job has saved neither a checkpoint nor steps, and `from_start` is not given.
        JobExists: another job, which is no fork of this one, has the new id.
        Invalid: an option is invalid, or cannot be given to a fork.
        JobUnreadable: the record of the job, or what it saved, is damaged.
    """
    given = {name: value for name, value in options.items() if value is not None}
    _check(given)
    chosen: Any = given.pop("id", new_id())
    new = check_new_id(chosen)
    changed: dict[str, Any] = {}
    run = None
    if given:
        (fields,) = yield commands.get([check_id(id)], brief=True)
        changed, run = _changes(id, fields or {}, given)
    adder = running_id() if "batch" in changed else None
    command = commands.fork(check_id(id), new, from_start=from_start, set=changed, run=run, adder=adder)
    reply = yield command
    return msgspec.structs.replace(read(self, reply.job), created=reply.created)


def _check(given: Mapping[str, Any]) -> None:
    check_options(given)
    for name in not_for("fork"):
        if name in given:
            raise errors.Invalid(f"{name} cannot be given to a fork{_INSTEAD.get(name, _BY_ID)}")


def _changes(id: str, fields: Mapping[str, Any], given: dict[str, Any]) -> tuple[dict[str, Any], str | None]:
    """Return what the new job has instead of the options of the other, and the run options that this was made from."""
    text = fields.get("run", "")
    stored = RunOptions.decode(text.encode())
    if stored is UNREADABLE_RUN_OPTIONS and _CHANGES_RUN & given.keys():
        raise errors.Invalid(
            f"a newer release wrote options of job {id}: upgrade this one, or fork it without {', '.join(given)}"
        )
    known = {name: getattr(stored, name) or None for name in _RUN}
    before = CheckedOptions(timeout=fields.get("timeout") or None, **known)
    after = before.replace(**given)
    names = [*given, "deadline_at"]
    values = {name: getattr(after, name) for name in names if name == "deadline_at" or BY_NAME[name].goes_to == "job"}
    changed = {name: value for name, value in values.items() if value is not None}
    if not _CHANGES_RUN & given.keys():
        return changed, None
    run = msgspec.structs.replace(after.run, carry=stored.carry).encode() or ""
    return {**changed, "run": run}, text
