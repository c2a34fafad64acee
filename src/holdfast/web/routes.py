"""All routes of the web: the resources of the API, and the pages."""

from __future__ import annotations

from typing import Any

from holdfast.web.openapi import add_specification
from holdfast.web.pages import batches as batch_pages
from holdfast.web.pages import check as check_pages
from holdfast.web.pages import doctor as doctor_pages
from holdfast.web.pages import events as event_pages
from holdfast.web.pages import find as find_pages
from holdfast.web.pages import job as job_pages
from holdfast.web.pages import jobs as jobs_pages
from holdfast.web.pages import limits as limit_pages
from holdfast.web.pages import operations as operation_pages
from holdfast.web.pages import planner as planner_pages
from holdfast.web.pages import queues as queue_pages
from holdfast.web.pages import schedules as schedule_pages
from holdfast.web.pages import session as session_pages
from holdfast.web.pages import settings as setting_pages
from holdfast.web.pages import subscriptions as subscription_pages
from holdfast.web.pages import tags as tag_pages
from holdfast.web.pages import theme as theme_pages
from holdfast.web.pages import workers as worker_pages
from holdfast.web.resource import Resources
from holdfast.web.resources import (
    batches,
    checks,
    config,
    events,
    failures,
    functions,
    health,
    info,
    items,
    job_actions,
    job_parts,
    job_views,
    jobs,
    limits,
    metrics,
    operations,
    plans,
    queues,
    schedules,
    session,
    statistics,
    subscriptions,
    tags,
    workers,
)
from holdfast.web.routing import Route, RouteTable

_NOUNS = (
    health,
    session,
    info,
    jobs,
    job_actions,
    job_parts,
    job_views,
    operations,
    batches,
    events,
    items,
    queues,
    limits,
    schedules,
    workers,
    failures,
    statistics,
    plans,
    tags,
    subscriptions,
    functions,
    config,
    checks,
    metrics,
)
_PAGES = (
    jobs_pages,
    job_pages,
    operation_pages,
    find_pages,
    queue_pages,
    worker_pages,
    schedule_pages,
    limit_pages,
    event_pages,
    batch_pages,
    tag_pages,
    subscription_pages,
    setting_pages,
    doctor_pages,
    check_pages,
    planner_pages,
    session_pages,
    theme_pages,
)
RESOURCES = Resources([route for noun in _NOUNS for route in noun.routes])
add_specification(RESOURCES)
PAGES = RouteTable([page for noun in _PAGES for page in noun.pages])
ROUTES: RouteTable[Route[Any]] = RouteTable([*RESOURCES, *PAGES])
