"""Pages to look at with the week of `make web` in them, and the server that shows them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

from bench.week import fill_week

from holdfast import Holdfast
from holdfast.testing import running_server
from holdfast.web.security.users import LOCAL
from holdfast.web.site import Site
from tests.web.browser.pages import Example, Find
from tests.web.serving import Web, serve


def find_job(**filters: Any) -> Find:
    """Find the id of the newest job that matches."""

    def find(app: Holdfast) -> str:
        return next(iter(app.list(newest=True, limit=1, **filters))).id

    return find


def _training(app: Holdfast) -> str:
    """The longer of the two trainings, which has survived a node and a lack of memory."""
    return app.tracked().jobs[0].id


def _failure(app: Holdfast) -> str:
    return next(iter(app.failures(by="fingerprint"))).name


def _busy_worker(app: Holdfast) -> str:
    return next(each.name for each in app.workers() if each.held)


def _operation(app: Holdfast) -> str:
    return app.operations()[0].id


EXAMPLES = {
    "overview": Example("/"),
    "overview-30d": Example("/", query="period=30d"),
    "queues": Example("/queues"),
    "queue-video": Example("/queues/{queue}", {"queue": "video"}),
    "queue-imports": Example("/queues/{queue}", {"queue": "imports"}),
    "queue-billing": Example("/queues/{queue}", {"queue": "billing"}),
    "jobs": Example("/jobs"),
    "jobs-failed": Example("/jobs", query="q=state:failed+queue:billing"),
    "jobs-selected": Example("/jobs", query="state=failed&all=true"),
    "job-running": Example("/jobs/{id}", {"id": _training}),
    "job-waiting": Example("/jobs/{id}", {"id": find_job(queue="video", state="waiting")}),
    "job-paused": Example("/jobs/{id}", {"id": find_job(queue="imports", state="waiting")}),
    "job-throttled": Example("/jobs/{id}", {"id": find_job(queue="webhooks", state="throttled")}),
    "job-scheduled": Example("/jobs/{id}", {"id": find_job(state="scheduled")}),
    "job-blocked": Example("/jobs/{id}", {"id": find_job(state="blocked")}),
    "job-failed": Example("/jobs/{id}", {"id": find_job(queue="billing", state="failed")}),
    "job-succeeded": Example("/jobs/{id}", {"id": find_job(queue="video", state="succeeded")}),
    "job-cancelled": Example("/jobs/{id}", {"id": find_job(state="cancelled")}),
    "job-graph": Example("/jobs/{id}/graph", {"id": _training}),
    "failures": Example("/failures"),
    "failure": Example("/failures/{failure}", {"failure": _failure}),
    "workers": Example("/workers"),
    "nodes": Example("/workers", query="by=node"),
    "worker": Example("/workers/{worker}", {"worker": _busy_worker}),
    "schedules": Example("/schedules"),
    "schedule": Example("/schedules/{schedule}", {"schedule": lambda app: app.schedules()[0].name}),
    "limits": Example("/limits"),
    "limit": Example("/limits/{limit}", {"limit": lambda app: app.limits()[0].name}),
    "events": Example("/events"),
    "batches": Example("/batches"),
    "batch": Example("/batches/{batch}", {"batch": "catalogue-migration"}),
    "tags": Example("/tags"),
    "scopes": Example("/tags", query="show=scopes"),
    "tracked": Example("/tags", query="show=tracked"),
    "subscriptions": Example("/subscriptions"),
    "settings": Example("/settings"),
    "doctor": Example("/doctor"),
    "check": Example("/check"),
    "planner": Example("/planner"),
    "planner-forecast": Example("/planner", query="forecast=true&queue=video&workers=%2B10"),
    "operations": Example("/operations"),
    "operation": Example("/operations/{operation}", {"operation": _operation}),
    "operation-new": Example("/operations/new", query="action=retry&state=failed&queue=billing"),
    "find": Example("/find", query="q=mail"),
}


@contextmanager
def serving_week() -> Iterator[Web]:
    """Serve the week of a shop, which goes on meanwhile."""
    with running_server() as url, closing(Holdfast(url, namespace="shop")) as app, fill_week(app, scale=0.4) as week:
        ended = threading.Event()
        life = threading.Thread(target=week.live, args=(ended,))
        life.start()
        try:
            with closing(Holdfast(url, namespace="shop")) as reader, serve(Site(reader, lambda _: LOCAL)) as web:
                yield web
        finally:
            ended.set()
            life.join()
