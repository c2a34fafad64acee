"""Operations: actions on all jobs that match filters, in bounded steps that this process drives in the background."""

from __future__ import annotations

import asyncio
import logging
from typing import Annotated, Any, Literal

from holdfast.app import Holdfast
from holdfast.client.events import RETRY_INTERVAL
from holdfast.client.operations import DEFAULT_STATES, Operation
from holdfast.errors import HoldfastError, Invalid, OperationNotFound, StoreUnavailable
from holdfast.records.operations import OPERATIONS, filter_text
from holdfast.records.table import Record, Table, field, optional
from holdfast.web.background import background_of
from holdfast.web.call import Call
from holdfast.web.filters import Filters, given_filters, narrowed
from holdfast.web.lists import ListQuery, cut_by_place
from holdfast.web.new_jobs import DurationText
from holdfast.web.paths import encode_name
from holdfast.web.resource import API, Listed, ListOf, Resources, about
from holdfast.web.resources.job_actions import Body, Priority

routes = Resources()
log = logging.getLogger("holdfast.web")

STARTED = Table(
    "operation",
    field("matched", int | None, "number of jobs that match now, of a dry run"),
    field("operation", optional(OPERATIONS), "the operation that was started; null: it is a dry run"),
    name="StartedOperation",
)
# The arguments of each action.
ARGUMENTS: dict[str, tuple[str, ...]] = {
    "cancel": ("reason",),
    "retry": ("force", "to", "from_start"),
    "delete": (),
    "move": ("to", "priority", "tags"),
    "release": ("delay", "reason"),
    "fail": ("with_group", "reason"),
    "tag": ("tags",),
    "untag": ("tags",),
}
METHODS = tuple(f"{action}_all" for action in ARGUMENTS)


class NewOperation(Body, frozen=True, kw_only=True):
    action: Annotated[
        Literal["cancel", "retry", "delete", "move", "release", "fail", "tag", "untag"],
        about("what is done to each job"),
    ]
    filter: Annotated[Filters, about("which jobs; one filter at least")]
    dry_run: Annotated[bool, about("only count the jobs that match")] = False
    reason: Annotated[str | None, about("of cancel, release and fail: for the history of the jobs")] = None
    force: Annotated[bool | None, about("of retry: also jobs whose work was done")] = None
    from_start: Annotated[bool | None, about("of retry: without checkpoints and kept steps")] = None
    to: Annotated[str | None, about("of move and retry: the queue of the jobs from now on")] = None
    priority: Annotated[Priority | None, about("of move")] = None
    tags: Annotated[list[str] | None, about("of tag and untag; of move: instead of those that the jobs have")] = None
    delay: Annotated[DurationText | None, about("of release: how long the jobs wait")] = None
    with_group: Annotated[str | None, about("of fail: group of the failures; `operator`, unless given")] = None

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of the action; others are refused, as they would be ignored."""
        names = sorted({name for each in ARGUMENTS.values() for name in each})
        given = {name: value for name in names if (value := getattr(self, name)) not in (None, "")}
        for name in given:
            if name not in ARGUMENTS[self.action]:
                raise Invalid(f"{self.action} has no argument {name!r}; known: {', '.join(ARGUMENTS[self.action])}")
        return given


@routes.post("/operations", reply=STARTED, scope="none", status=(202, 200), client=METHODS)
async def start_operation(call: Call, body: NewOperation) -> Record:
    """Act on all jobs that match a filter, or count them (dry run, 200).

    The answer is 202 with the place of the operation, which shows its progress. Without a `state`, it concerns the
    states in which the action is possible; jobs that match only later are left out.
    """
    arguments, filters = body.arguments(), given_filters(body.filter)
    if body.to is not None:
        call.check_queue(body.to)
    if not filters:
        raise Invalid("an operation needs a filter")
    visible = await narrowed(call, filters)
    call.audited |= {"does": body.action, "filter": filter_text(visible or filters)}
    if body.dry_run or visible is None:
        call.audited["count"] = 0
        call.respond(200)
        return {"matched": await _count(call, body.action, visible), "operation": None}
    operation = await _start(call.app, body.action, arguments, visible)
    call.audited |= {"operation": operation.id, "count": None}  # its record counts them
    _drive(call, operation)
    return {"matched": None, "operation": OPERATIONS.record(operation)}


async def _count(call: Call, action: str, filters: dict[str, Any] | None) -> int:
    if filters is None:
        return 0
    defaults = {"state": list(DEFAULT_STATES[action])} if action in DEFAULT_STATES else {}
    return await call.app.acount(**{**defaults, **filters})


async def _start(app: Holdfast, action: str, arguments: dict[str, Any], filters: dict[str, Any]) -> Operation:
    method = getattr(app, f"a{action}_all")
    tags = [arguments.pop("tags", [])] if action in ("tag", "untag") else []
    operation: Operation = await method(*tags, **arguments, **filters, wait=False)
    return operation


def _drive(call: Call, operation: Operation) -> None:
    """Drive an operation in the background until it is done or stopped. If this process ends, workers continue it.

    The call is answered with the place of the operation, which shows its progress.
    """
    call.respond(202, Location=call.url(f"{API}/operations/{encode_name(operation.id)}"))
    if operation.state == "running":
        background_of(call.app).start(f"operation {operation.id}", drive_on(call.app, operation.id))


async def drive_on(app: Holdfast, id: str) -> None:
    """Drive an operation, also through outages of the store."""
    while True:
        try:
            await app.adrive_operation(id)
            return
        except StoreUnavailable:
            await asyncio.sleep(RETRY_INTERVAL)
        except HoldfastError as error:
            log.warning("operation %s is no longer driven: %s", id, error)
            return


@routes.get("/operations", reply=ListOf(OPERATIONS), scope="visible", client="operations")
async def list_operations(call: Call, query: ListQuery) -> Listed:
    """List the operations that run, and the last that have ended, the latest first."""
    found = cut_by_place([each for each in await call.app.aoperations() if _is_visible(call, each)], query)
    return Listed(items=OPERATIONS.records(found.values), next=found.next)


@routes.get("/operations/{operation}", reply=OPERATIONS, scope="none", client=("operation", "drive_operation"))
async def show_operation(call: Call, operation: str) -> Record:
    """Show an operation: its filter, its progress, and the number of jobs for each answer."""
    return OPERATIONS.record(await _find(call, operation))


@routes.delete("/operations/{operation}", reply=OPERATIONS, scope="none", client="stop_operation")
async def stop_operation(call: Call, operation: str) -> Record:
    """Stop an operation before its next step, unless it is done. What was done stays done."""
    await _find(call, operation)
    return OPERATIONS.record(await call.app.astop_operation(operation))


@routes.post(
    "/operations/{operation}:resume", reply=OPERATIONS, scope="none", status=202, client="resume_operation"
)  # fmt: skip
async def resume_operation(call: Call, operation: str) -> Record:
    """Let an operation continue that was stopped, or whose web process has ended while there are no workers."""
    stopped = await _find(call, operation)
    for target in filter(None, map(stopped.arguments.get, ("to", "queue"))):  # of retry, and of move
        call.check_queue(target)
    found = await call.app.aresume_operation(operation)
    _drive(call, found)
    return OPERATIONS.record(found)


async def _find(call: Call, id: str) -> Operation:
    """Return an operation.

    Raises:
        OperationNotFound: there is none, or it concerns queues on which the user has no rights.
    """
    found = await call.app.aoperation(id)
    if not _is_visible(call, found):
        raise OperationNotFound(f"operation {id} does not exist")
    return found


def _is_visible(call: Call, operation: Operation) -> bool:
    queues = operation.filter.get("queues") or []
    return call.user.has_all_queues or (bool(queues) and all(map(call.user.has_queue, queues)))
