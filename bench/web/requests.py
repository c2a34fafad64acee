"""What is measured: each page, and each resource that is read, with names that `store.fill` has made.

A route without a line here is an error: `check_routes`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from bench.web.store import CHAIN, HEAVY, MANY, worker_name
from holdfast import Holdfast
from holdfast.web.resource import API, ResourceRoute
from holdfast.web.routes import ROUTES
from holdfast.web.routing import Route

Find = Callable[[Holdfast], str]  # finds a name that is known only once the store is filled

QUEUE, PAUSED, LIMITED, LIMIT = "mail-0", "exports-4", "limited-0", "api-000"


@dataclass(frozen=True)
class Request:
    """A request of a route: names of its path, and its query."""

    path: str
    names: Mapping[str, str | Find] = field(default_factory=dict)
    query: Mapping[str, Any] = field(default_factory=dict)
    note: str = ""  # what tells it from others of the route

    @property
    def route(self) -> Route[Any]:
        return next(route for route in ROUTES if route.method == "GET" and route.path == self.path)

    @property
    def is_page(self) -> bool:
        return not isinstance(self.route, ResourceRoute)

    @property
    def title(self) -> str:
        return f"{self.path.removeprefix(API)}{f' ({self.note})' * bool(self.note)}"

    def url(self, app: Holdfast) -> str:
        names = {name: _found(value, app) for name, value in self.names.items()}
        query = {name: _found(value, app) for name, value in self.query.items()}
        return self.route.url(**names) + (f"?{urlencode(query, doseq=True)}" if query else "")


def _found(value: Any, app: Holdfast) -> Any:
    return value(app) if callable(value) else value


def job(**filters: Any) -> Find:
    """Find a job."""
    return lambda app: app.page(limit=1, **filters).rows[0].id


def error(app: Holdfast) -> str:
    return next(iter(app.failures(by="fingerprint"))).name


def operation(app: Holdfast) -> str:
    return app.operations()[0].id


WAITING, RUNNING = job(state="waiting", newest=True), job(state="running", queue="running-0")
FAILED, SUCCEEDED = job(state="failed", newest=True), job(state="succeeded", newest=True)
BLOCKED, THROTTLED = job(state="blocked", newest=True), job(state="throttled", queue=LIMITED)
STATES = {"waiting": WAITING, "running": RUNNING, "failed": FAILED, "blocked": BLOCKED, "throttled": THROTTLED}
JOBS: dict[str, str | Find] = {**STATES, "heavy": HEAVY, "10,000 dependents": MANY}
WORKER = worker_name(0)

PAGES = (
    Request("/"),
    Request("/", query={"period": "30d"}, note="30 days"),
    Request("/queues"),
    Request("/queues/{queue}", {"queue": QUEUE}),
    Request("/queues/{queue}", {"queue": LIMITED}, note="throttled jobs"),
    Request("/queues/{queue}", {"queue": "running-0"}, note="200 workers"),
    Request("/jobs"),
    Request("/jobs", query={"q": f"state:failed queue:{QUEUE}"}, note="state and queue"),
    Request("/jobs", query={"q": "tag:customer:7 task:mail.send"}, note="tag and task"),
    Request("/jobs", query={"q": "task:none.such"}, note="no match"),
    Request("/jobs", query={"state": "failed", "all": "true"}, note="all selected"),
    *(Request("/jobs/{id}", {"id": found}, note=name) for name, found in JOBS.items()),
    Request("/jobs/{id}/graph", {"id": MANY}, note="10,000 dependents"),
    Request("/jobs/{id}/graph", {"id": f"{CHAIN}-200"}, note="chain of 400"),
    Request("/operations/new", query={"action": "retry", "state": "failed"}),
    Request("/operations"),
    Request("/operations/{operation}", {"operation": operation}),
    Request("/find", query={"q": "mail"}),
    Request("/find", query={"q": "no such thing"}, note="nothing"),
    Request("/failures"),
    Request("/failures", query={"queue": QUEUE, "period": "1h"}, note="queue"),
    Request("/failures/{failure}", {"failure": error}),
    Request("/workers"),
    Request("/workers", query={"by": "node"}, note="nodes"),
    Request("/workers/{worker}", {"worker": WORKER}),
    Request("/schedules"),
    Request("/schedules/{schedule}", {"schedule": "nightly-000"}),
    Request("/limits"),
    Request("/limits/{limit}", {"limit": LIMIT}),
    Request("/events"),
    Request("/events", query={"type": "paused", "queue": "none"}, note="no match"),
    Request("/batches"),
    Request("/batches/{batch}", {"batch": "import-0001"}),
    Request("/tags"),
    Request("/tags", query={"show": "scopes"}, note="scopes"),
    Request("/tags", query={"show": "tracked"}, note="tracked"),
    Request("/subscriptions"),
    Request("/settings"),
    Request("/doctor"),
    Request("/check"),
    Request("/planner"),
    Request("/sign-in"),
)


def _of_api(path: str, names: Mapping[str, str | Find] | None = None, note: str = "", **query: Any) -> Request:
    return Request(API + path, names or {}, query, note)


_HEAVY = {"id": HEAVY}

RESOURCES = (
    _of_api("/health/live"),
    _of_api("/health/ready"),
    _of_api("/session"),
    _of_api("/info"),
    _of_api("/tasks"),
    _of_api("/status"),
    _of_api("/server"),
    _of_api("/outbox"),
    _of_api("/jobs"),
    _of_api("/jobs", note="state and queue", state="failed", queue=QUEUE),
    _of_api("/jobs", note="no match", task="none.such"),
    _of_api("/jobs:show", id=[HEAVY, MANY]),
    _of_api("/jobs:export"),
    _of_api("/jobs:count"),
    _of_api("/jobs:count", note="task in a queue", task="mail.send", queue=QUEUE),
    _of_api("/jobs/{id}", {"id": WAITING}),
    _of_api("/jobs/{id}", _HEAVY, note="heavy"),
    _of_api("/jobs/{id}/result", {"id": SUCCEEDED}),
    *(_of_api("/jobs/{id}/explain", {"id": found}, note=name) for name, found in STATES.items()),
    _of_api("/jobs/{id}/timeline", _HEAVY, note="heavy"),
    _of_api("/jobs/{id}/graph", {"id": f"{CHAIN}-200"}, note="chain of 400"),
    _of_api("/jobs/{id}/usage", _HEAVY, note="heavy"),
    _of_api("/jobs/{id}/log", _HEAVY, note="heavy"),
    _of_api("/jobs/{id}/attempts/{attempt}/log", {**_HEAVY, "attempt": "latest"}, note="heavy"),
    _of_api("/jobs/{id}/payload", _HEAVY, note="heavy"),
    _of_api("/jobs/{id}/checkpoint", _HEAVY, note="heavy"),
    _of_api("/jobs:show", id=[HEAVY, MANY]),
    _of_api("/jobs/{id}/stored", _HEAVY, note="heavy"),
    _of_api("/jobs/{id}/comparison", {"id": RUNNING}),
    _of_api("/stats/tasks"),
    _of_api("/operations"),
    _of_api("/operations/{operation}", {"operation": operation}),
    _of_api("/batches"),
    _of_api("/batches/{batch}", {"batch": "import-0001"}),
    _of_api("/events", limit=100),
    _of_api("/events", note="from the start, no match", cursor="start", queue="none"),
    _of_api("/queues"),
    _of_api("/queues/{queue}", {"queue": QUEUE}),
    _of_api("/queues/{queue}:peek", {"queue": QUEUE}, limit=100),
    _of_api("/queues/{queue}/load", {"queue": QUEUE}),
    _of_api("/load"),
    _of_api("/limits"),
    _of_api("/limits/{limit}", {"limit": LIMIT}),
    _of_api("/limits/{limit}/keys", {"limit": LIMIT}),
    _of_api("/limits/{limit}/holders", {"limit": LIMIT}),
    _of_api("/limits/{limit}/parked", {"limit": LIMIT}),
    _of_api("/schedules"),
    _of_api("/schedules/{schedule}", {"schedule": "nightly-000"}),
    _of_api("/workers"),
    _of_api("/workers:summary"),
    _of_api("/workers/{worker}", {"worker": WORKER}),
    _of_api("/nodes"),
    _of_api("/stalled"),
    _of_api("/failures", by="fingerprint"),
    _of_api("/failures:trends", name=error),
    _of_api("/failures/{failure}", {"failure": error}),
    _of_api("/stats"),
    _of_api("/stats/queues"),
    _of_api("/queues/{queue}/stats/tasks", {"queue": QUEUE}),
    _of_api("/stats/series"),
    _of_api("/stats/series/queues", queue=[QUEUE, PAUSED]),
    _of_api("/stats/trends", queue=[QUEUE, PAUSED]),
    _of_api("/plan", queue=QUEUE),
    _of_api("/tags"),
    _of_api("/scopes"),
    _of_api("/tracked"),
    _of_api("/subscriptions"),
    _of_api("/subscriptions/{subscription}", {"subscription": "audit-00"}),
    _of_api("/config"),
    _of_api("/queues/{queue}/config", {"queue": QUEUE}),
    _of_api("/doctor"),
    _of_api("/memory", seconds=0.1),
    _of_api("/check/history"),
    Request("/metrics"),
    _of_api("/autoscale/{queue}", {"queue": QUEUE}),
    _of_api("/attention"),
    _of_api("/openapi.json"),
)


def check_routes(requests: Iterable[Request] = PAGES + RESOURCES) -> None:
    """Raise an error unless there is a request for each route that reads."""
    missing = {route.path for route in ROUTES if route.method == "GET"} - {request.path for request in requests}
    if missing:
        raise LookupError(f"not measured, as bench.web.requests has no line for it: {', '.join(sorted(missing))}")
