"""The service itself: its release, the status at a glance, the embedded server, upkeep, and the outbox."""

from __future__ import annotations

import asyncio
import time
from weakref import WeakKeyDictionary

from holdfast import Holdfast
from holdfast.doctor.result import server_version
from holdfast.errors import HoldfastError, NotFound, StoreUnavailable
from holdfast.job.options import DEFAULT_QUEUE
from holdfast.outbox.outbox import SendResult
from holdfast.records.info import APP_TASKS, INFO
from holdfast.records.outbox import OUTBOX, SENT, outbox_records
from holdfast.records.server import SERVER
from holdfast.records.status import STATUS, aserver_summary, astatus_record
from holdfast.records.table import Record
from holdfast.records.upkeep import UPKEEP
from holdfast.server import server as embedded
from holdfast.store import Steps
from holdfast.version import __version__
from holdfast.web.call import Call
from holdfast.web.lists import ListQuery, cut, cut_by_place
from holdfast.web.resource import Listed, ListOf, Resources
from holdfast.web.steps import run

routes = Resources()

SUMMARY_TTL = 30.0  # seconds: what a server guarantees changes rarely, and takes many requests to find out

_summaries: WeakKeyDictionary[Holdfast, tuple[float, Record]] = WeakKeyDictionary()


@routes.get("/info", reply=INFO, scope="none")
async def show_info(call: Call) -> Record:
    """Show the release of Holdfast, the namespace, the server, and the user of this request."""
    app, user = call.app, call.user
    queues = None if user.queues is None else list(user.queues)
    return {
        "version": __version__,
        "namespace": app.address.namespace,
        "server": await _server_name(app),
        "embedded": app.address.home is not None,
        "revision": app.revision,
        "functions": bool(app.extension.paths),
        "user": {"name": user.name, "role": user.role, "queues": queues, "sees_data": user.may_see_data},
    }


async def _server_name(app: Holdfast) -> str | None:
    try:
        name, _, version = server_version(await app.async_store.execute("INFO", "server"))
    except StoreUnavailable:
        raise
    except (HoldfastError, LookupError):  # this user may not ask
        return None
    return f"{name} {version}"


@routes.get("/tasks", reply=ListOf(APP_TASKS), scope="visible")
async def list_tasks(call: Call, query: ListQuery) -> Listed:
    """List the tasks of the app that the web process has imported. Without an app, there are none."""
    records = [
        {"task": name, "queue": task.effective_options.queue or DEFAULT_QUEUE} for name, task in call.app.tasks.items()
    ]
    found = cut(call.visible(records), query, lambda each: str(each["task"]))
    return Listed(items=found.values, next=found.next)


@routes.get("/status", reply=STATUS)
async def show_status(call: Call) -> Record:
    """Show the server, queues, workers and problems at a glance. The cost does not depend on the number of jobs."""
    known = _summaries.get(call.app)
    if known is None or known[0] < time.monotonic():
        known = _summaries[call.app] = (time.monotonic() + SUMMARY_TTL, await aserver_summary(call.app))
    return await astatus_record(call.app, known[1])


@routes.get("/server", reply=SERVER, role="operator", scope="none")
async def show_server(call: Call) -> Record:
    """Show whether the embedded server of the project is running, and where. 404 if another server is used."""
    home = call.app.address.home
    if home is None:
        raise NotFound("no embedded server is used: the address of a server was given")
    return SERVER.record(await asyncio.to_thread(embedded.status, home))


@routes.post("/upkeep", reply=UPKEEP, client="upkeep")
async def process_timers(call: Call) -> Record:
    """Process due timers, as workers do: needed only where all workers may be scaled to zero.

    Delayed jobs become waiting, schedules fire, deadlines and leases expire, throttled jobs get free slots of their
    limits, and expired records are removed.
    """
    return UPKEEP.record(await call.app.aupkeep())


# The outbox of the machine on which the web process runs


@routes.get("/outbox", reply=ListOf(OUTBOX))
async def list_outbox(call: Call, query: ListQuery) -> Listed:
    """List calls that wait on this machine because the store was unreachable, in the order of sending.

    Calls that the store has refused come last.
    """
    found = cut_by_place(await asyncio.to_thread(outbox_records, call.app), query)
    return Listed(items=found.values, next=found.next)


@routes.post("/outbox:send", reply=SENT, client="send_outbox")
async def send_outbox(call: Call) -> Record:
    """Send the calls in the outbox of this machine now. They are also sent automatically."""
    return SENT.record(await run(call, _send(call.app)))


def _send(app: Holdfast) -> Steps[SendResult]:
    result: SendResult = yield app.outage_policy.send()
    return result
