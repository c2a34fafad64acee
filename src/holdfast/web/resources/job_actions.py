"""Actions on jobs: on one by its id, or on several; `operations` acts on all that match filters."""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from typing import Annotated, Any

import msgspec

from holdfast.constants import MAX_BATCH, MAX_NOTE, MAX_PRIORITY, MAX_TAGS_PER_JOB, MIN_PRIORITY
from holdfast.errors import HoldfastError, Invalid, JobExists, JobNotFound, ResultTimeout
from holdfast.job.job import Job
from holdfast.job.option_table import OnFailed
from holdfast.records.job_actions import ATTACHED, CHANGED_JOBS, FORKED, NOTED, STACK
from holdfast.records.table import Record, Table, field
from holdfast.records.tags import MARKED
from holdfast.store import new_token
from holdfast.text import pluralize
from holdfast.web.call import Call
from holdfast.web.new_jobs import DurationText, ForkOptions, check_batch, given_options
from holdfast.web.paths import encode_name
from holdfast.web.problems import Problem
from holdfast.web.resource import API, Listed, ListOf, Resources, about

routes = Resources()

ANSWERS = Table(
    "answer",
    field("id", str, "id of the job"),
    field("state", str | None, "its new state, or what was done; null: nothing"),
    field("code", str | None, "why nothing was done, as the code of a problem"),
    field("detail", str | None, "why nothing was done"),
    name="JobAnswer",
)

Ids = Annotated[list[str], about("ids of jobs", min_length=1, max_length=MAX_BATCH)]
Tags = Annotated[list[str], about("the tags", min_length=1, max_length=MAX_TAGS_PER_JOB)]
Priority = Annotated[int, about("lower runs first", ge=MIN_PRIORITY, le=MAX_PRIORITY)]
Reason = Annotated[str, about("for the history of the job")]
Failed = Annotated[OnFailed, about("if one of those that it waits for fails or is cancelled")]
Replies = Sequence[str | HoldfastError]


TAKEN = "the id or the unique key of a job is taken"  # for those who may not see by which job


class Body(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of an action."""


class Cancel(Body, frozen=True):
    reason: Reason = ""
    unless_awaited: Annotated[bool, about("refuse if other jobs wait for it")] = False


class CancelMany(Cancel, frozen=True, kw_only=True):
    ids: Ids


class CancelTree(Body, frozen=True):
    reason: Reason = ""


class Retry(Body, frozen=True):
    force: Annotated[bool, about("even if its work was done, and only its result could not be stored")] = False
    to: Annotated[str | None, about("the queue to run in, instead of its own")] = None
    from_start: Annotated[bool, about("without its checkpoint and kept steps")] = False


class RetryMany(Retry, frozen=True, kw_only=True):
    ids: Ids


class Release(Body, frozen=True):
    delay: Annotated[DurationText, about("how long the job waits")] = 0
    reason: Reason = ""


class Fail(Body, frozen=True):
    group: Annotated[str | None, about("group of the failure; `operator`, unless given")] = None
    reason: Reason = ""


class Move(Body, frozen=True):
    queue: Annotated[str | None, about("the queue to move to")] = None
    priority: Priority | None = None
    tags: Annotated[list[str] | None, about("its tags from now on, instead of those that it has")] = None


class Fork(ForkOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):  # type: ignore[misc, call-arg]
    from_start: Annotated[bool, about("without the checkpoint and the kept steps of the other job")] = False


class Stack(Body, frozen=True):
    timeout: Annotated[float, about("seconds to wait for the worker", gt=0, le=30)] = 10


class Depend(Body, frozen=True):
    add: Annotated[list[str], about("ids of jobs to wait for")] = msgspec.field(default_factory=list)
    remove: Annotated[list[str], about("ids of jobs to wait for no longer")] = msgspec.field(default_factory=list)
    on_failed: Failed | None = None


class DependQuery(msgspec.Struct, frozen=True):
    on_failed: Failed | None = None


class NewNote(Body, frozen=True):
    text: Annotated[str, about("up to 1,000 bytes", min_length=1, max_length=MAX_NOTE)]


class FieldText(Body, frozen=True):
    name: Annotated[str, about("name of the field")]
    text: Annotated[str, about("its text, up to 4 KiB")]


class Named(Body, frozen=True):
    ids: Ids


class Tagged(Body, frozen=True):
    tags: Tags


class TaggedMany(Tagged, frozen=True):
    ids: Ids


# One job


@routes.post("/jobs/{id}:cancel", reply=CHANGED_JOBS, scope="job", client="cancel")
async def cancel_job(call: Call, id: str, body: Cancel) -> Record:
    """Cancel a job: it is `cancelled`, or `cancelling` while its worker stops it."""
    return _changed(id, await call.app.acancel(id, reason=body.reason, unless_awaited=body.unless_awaited))


@routes.post("/jobs/{id}:cancel-tree", reply=ListOf(ANSWERS), scope="all", client="cancel_with_dependents")
async def cancel_tree(call: Call, id: str, body: CancelTree) -> Listed:
    """Cancel a job and all jobs that wait for it, directly or not; up to 1,000, atomically."""
    return _answers(await call.app.acancel_with_dependents(id, reason=body.reason))


@routes.post("/jobs/{id}:retry", reply=CHANGED_JOBS, scope="job", client="retry")
async def retry_job(call: Call, id: str, body: Retry) -> Record:
    """Run an ended job again, from its checkpoint or from the start."""
    _check_target(call, body.to)
    [reply] = await call.app.aretry_many([id], force=body.force, to=body.to, from_start=body.from_start)
    return _changed(id, _state_of(reply))


@routes.post("/jobs/{id}:release", reply=CHANGED_JOBS, scope="job", client="release")
async def release_job(call: Call, id: str, body: Release) -> Record:
    """Requeue a running job for another worker, without counting an attempt."""
    return _changed(id, await call.app.arelease(id, delay=body.delay, reason=body.reason))


@routes.post("/jobs/{id}:fail", reply=CHANGED_JOBS, scope="job", client="fail")
async def fail_job(call: Call, id: str, body: Fail) -> Record:
    """Fail a job that has not ended; a running one is stopped."""
    return _changed(id, await call.app.afail(id, group=body.group, reason=body.reason))


@routes.post("/jobs/{id}:move", reply=CHANGED_JOBS, scope="job", client="move")
async def move_job(call: Call, id: str, body: Move) -> Record:
    """Move a job to the end of another queue, or change its priority."""
    if body.queue is None and body.priority is None:
        raise Invalid("expected `queue`, `priority`, or both")
    _check_target(call, body.queue)
    return _changed(id, await call.app.amove(id, queue=body.queue, priority=body.priority, tags=body.tags))


@routes.post("/jobs/{id}:fork", reply=FORKED, scope="job", status=(201, 200), client="fork")
async def fork_job(call: Call, id: str, body: Fork) -> Record:
    """Store a new job with the call of this one, which starts from its checkpoint and kept steps.

    The answer is 201 if the new job was stored now, and 200 if a fork with this `id` existed.
    """
    options: Any = given_options(body)
    _check_target(call, body.queue)
    check_batch(call, body.batch)
    await check_jobs(call, body.after or ())
    job = await call.app.afork(id, from_start=body.from_start, **{"id": new_token(), **options})
    await check_existing(call, [job])
    call.audited["job"] = job.id
    call.respond(201 if job.created else 200, Location=call.url(f"{API}/jobs/{encode_name(job.id)}"))
    return FORKED.record(job)


@routes.post("/jobs/{id}:stack", reply=STACK, scope="job", role="operator", client="stack")
async def show_stack(call: Call, id: str, body: Stack) -> Record:
    """Show the stack of each thread of a running job's process, without stopping it."""
    call.check_data()
    try:
        return {"id": id, "stack": await call.app.astack(id, timeout=body.timeout)}
    except ResultTimeout as error:
        raise Problem(504, "TIMEOUT", str(error)) from None


# Dependencies


@routes.post("/jobs/{id}:depend", reply=CHANGED_JOBS, scope="job", client="depend")
async def change_dependencies(call: Call, id: str, body: Depend) -> Record:
    """Add or remove dependencies of a job that has not started."""
    await check_jobs(call, body.add)
    state = await call.app.adepend(id, add=body.add, remove=body.remove, on_failed=body.on_failed)
    return _changed(id, state)


@routes.put("/jobs/{id}/after/{other}", reply=CHANGED_JOBS, scope="job", client="depend")
async def add_dependency(call: Call, id: str, other: str, query: DependQuery) -> Record:
    """Let a job wait for another one to end."""
    await check_jobs(call, [other])
    return _changed(id, await call.app.adepend(id, add=other, on_failed=query.on_failed))


@routes.delete("/jobs/{id}/after/{other}", reply=CHANGED_JOBS, scope="job", client="depend")
async def remove_dependency(call: Call, id: str, other: str) -> Record:
    """Let a job no longer wait for another one."""
    return _changed(id, await call.app.adepend(id, remove=other))


# Notes, fields, tags


@routes.post("/jobs/{id}/notes", reply=NOTED, scope="job", client="note")
async def add_note(call: Call, id: str, body: NewNote) -> Record:
    """Add a note to the history of a job."""
    await call.app.anote(id, body.text)
    return {"id": id, "note": body.text}


@routes.patch("/jobs/{id}/fields", reply=ATTACHED, scope="job", client="attach")
async def change_fields(call: Call, id: str, body: dict[str, str | None]) -> Record:
    """Attach fields to a job; null removes one. The answer has all its fields."""
    texts = {name: text for name, text in body.items() if text is not None}
    return await _attach(call, id, texts, [name for name, text in body.items() if text is None])


@routes.post("/jobs/{id}/fields", reply=ATTACHED, scope="job", client="attach")
async def set_field(call: Call, id: str, body: FieldText) -> Record:
    """Attach a field to a job. The answer has all its fields."""
    return await _attach(call, id, {body.name: body.text}, [])


async def _attach(call: Call, id: str, texts: Mapping[str, str], removed: Sequence[str]) -> Record:
    return {"id": id, "fields": await call.app.aattach(id, texts, remove=removed)}


@routes.post("/jobs/{id}:tag", reply=MARKED, scope="job", client="tag")
async def tag_job(call: Call, id: str, body: Tagged) -> Record:
    """Add tags to a job in any state."""
    return _marked(id, "tagged", await call.app.atag(id, *body.tags))


@routes.post("/jobs/{id}:untag", reply=MARKED, scope="job", client="untag")
async def untag_job(call: Call, id: str, body: Tagged) -> Record:
    """Remove tags from a job."""
    return _marked(id, "untagged", await call.app.auntag(id, *body.tags))


@routes.put("/jobs/{id}/tags/{tag}", reply=MARKED, scope="job", client="tag")
async def add_tag(call: Call, id: str, tag: str) -> Record:
    """Add a tag to a job in any state."""
    return _marked(id, "tagged", await call.app.atag(id, tag))


@routes.delete("/jobs/{id}/tags/{tag}", reply=MARKED, scope="job", client="untag")
async def remove_tag(call: Call, id: str, tag: str) -> Record:
    """Remove a tag from a job."""
    return _marked(id, "untagged", await call.app.auntag(id, tag))


@routes.post("/jobs/{id}:track", reply=MARKED, scope="job", client="track")
async def track_job(call: Call, id: str) -> Record:
    """Track a job: it is listed as tracked, and its events say so."""
    await call.app.atrack(id)
    return _marked(id, "tracked", True)


@routes.post("/jobs/{id}:untrack", reply=MARKED, scope="none", client="untrack")
async def untrack_job(call: Call, id: str) -> Record:
    """Track a job no longer; also one that was deleted."""
    try:
        await call.check_job(id)
    except JobNotFound:  # it may have been deleted, and is perhaps that of another queue
        call.check_all_queues()
    await call.app.auntrack(id)
    return _marked(id, "untracked", True)


# Several jobs


@routes.post("/jobs:cancel", reply=ListOf(ANSWERS), scope="none", client="cancel_many")
async def cancel_jobs(call: Call, body: CancelMany) -> Listed:
    """Cancel up to 1,000 jobs. Those that cannot be cancelled are refused; the others are."""
    cancel = lambda ids: call.app.acancel_many(ids, reason=body.reason, unless_awaited=body.unless_awaited)  # noqa: E731
    return await _act(call, "Cancelled", body.ids, cancel)


@routes.post("/jobs:retry", reply=ListOf(ANSWERS), scope="none", client="retry_many")
async def retry_jobs(call: Call, body: RetryMany) -> Listed:
    """Run up to 1,000 ended jobs again."""
    _check_target(call, body.to)
    retry = lambda ids: call.app.aretry_many(ids, force=body.force, to=body.to, from_start=body.from_start)  # noqa: E731
    return await _act(call, "Retried", body.ids, retry)


@routes.post("/jobs:delete", reply=ListOf(ANSWERS), scope="none", client="delete_many")
async def delete_jobs(call: Call, body: Named) -> Listed:
    """Delete up to 1,000 ended jobs."""
    return await _act(call, "Deleted", body.ids, call.app.adelete_many)


@routes.post("/jobs:tag", reply=ListOf(ANSWERS), scope="none", client="tag_many")
async def tag_jobs(call: Call, body: TaggedMany) -> Listed:
    """Add tags to up to 1,000 jobs."""
    return await _act(call, "Tagged", body.ids, lambda ids: call.app.atag_many(ids, *body.tags))


@routes.post("/jobs:untag", reply=ListOf(ANSWERS), scope="none", client="untag_many")
async def untag_jobs(call: Call, body: TaggedMany) -> Listed:
    """Remove tags from up to 1,000 jobs."""
    return await _act(call, "Untagged", body.ids, lambda ids: call.app.auntag_many(ids, *body.tags))


async def _act(
    call: Call, done: str, ids: Sequence[str], method: Callable[[Sequence[str]], Coroutine[Any, Any, Replies]]
) -> Listed:
    """Act on the jobs that the user may change; the others do not exist for them."""
    wanted = list(dict.fromkeys(ids))
    known = [id for id, queue in (await queues_of(call, wanted)).items() if queue is not None]
    replies = dict(zip(known, await method(known), strict=True)) if known else {}
    call.audited |= {"count": sum(isinstance(each, str) for each in replies.values()), "jobs": " ".join(wanted)}
    answers = _answers({id: replies.get(id) or JobNotFound(f"job {id} does not exist") for id in wanted})
    call.message = _summary(done, answers.items)
    return answers


def _summary(done: str, answers: Sequence[Record]) -> str:
    """Say what an action on several jobs did: Retried 48 jobs. 2 refused: job x has not ended"""
    refused = [each["detail"] for each in answers if each["code"]]
    more = f" {len(refused):,} refused: {refused[0]}" if refused else ""
    return f"{done} {pluralize(len(answers) - len(refused), 'job')}.{more}"


def _answers(replies: Mapping[str, str | HoldfastError]) -> Listed:
    return Listed(items=[_answer(id, reply) for id, reply in replies.items()])


def _answer(id: str, reply: str | HoldfastError) -> Record:
    if isinstance(reply, HoldfastError):
        return {"id": id, "state": None, "code": reply.code, "detail": str(reply)}
    return {"id": id, "state": reply, "code": None, "detail": None}


# Rights


async def queues_of(call: Call, ids: Sequence[str]) -> dict[str, str | None]:
    """Return the queue of each job; None if the user may not see it.

    Those who may see all queues are not asked about: the queue is empty then, also of a job that does not exist.
    """
    if call.user.has_all_queues:
        return dict.fromkeys(ids, "")
    found = await call.app.aget_many(ids)
    return {
        id: job.queue if job and not job.unreadable and call.user.has_queue(job.queue) else None
        for id, job in zip(ids, found, strict=True)
    }


async def check_jobs(call: Call, ids: Sequence[str], *, new: Collection[str] = ()) -> None:
    """Raise JobNotFound if one of the jobs is in a queue that the user may not see; `new` ones need not exist yet."""
    if call.user.has_all_queues or not ids:
        return
    wanted = list(dict.fromkeys(ids))
    for id, job in zip(wanted, await call.app.aget_many(wanted), strict=True):
        is_visible = job is not None and not job.unreadable and call.user.has_queue(job.queue)
        if not is_visible and (job is not None or id not in new):
            raise JobNotFound(f"job {id} does not exist")


async def check_existing(call: Call, jobs: Sequence[Job[Any]]) -> None:
    """Raise JobExists if the job of an enqueue already existed in a queue that the user may not see."""
    known = [job.id for job in jobs if not job.created]
    if known and None in (await queues_of(call, known)).values():
        raise JobExists(TAKEN)


def _check_target(call: Call, queue: str | None) -> None:
    if queue is not None:
        call.check_queue(queue)


# Replies


def _changed(id: str, state: str) -> Record:
    return {"id": id, "state": state}


def _marked(id: str, done: str, changed: bool) -> Record:
    return {"id": id, "done": done if changed else "unchanged"}


def _state_of(reply: str | HoldfastError) -> str:
    if isinstance(reply, HoldfastError):
        raise reply
    return reply
