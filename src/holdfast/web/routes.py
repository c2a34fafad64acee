"""All routes of the web: the resources of the API, and the pages."""

from __future__ import annotations

from typing import Any

from holdfast.web.openapi import add_specification
from holdfast.web.pages import batches as batches_pages
from holdfast.web.pages import check as check_pages
from holdfast.web.pages import doctor as doctor_pages
from holdfast.web.pages import events as events_pages
from holdfast.web.pages import failures as failures_pages
from holdfast.web.pages import find as find_pages
from holdfast.web.pages import job as job_pages
from holdfast.web.pages import jobs as jobs_pages
from holdfast.web.pages import limits as limits_pages
from holdfast.web.pages import operations as operations_pages
from holdfast.web.pages import overview as overview_pages
from holdfast.web.pages import planner as planner_pages
from holdfast.web.pages import queues as queues_pages
from holdfast.web.pages import schedules as schedules_pages
from holdfast.web.pages import session as session_pages
from holdfast.web.pages import settings as settings_pages
from holdfast.web.pages import subscriptions as subscriptions_pages
from holdfast.web.pages import tags as tags_pages
from holdfast.web.pages import theme as theme_pages
from holdfast.web.pages import workers as workers_pages
from holdfast.web.resource import Resources
from holdfast.web.resources import (
    attention,
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
    health, session, info, jobs, job_actions, job_parts, job_views, operations, batches, events, items, queues,
    limits, schedules, workers, failures, statistics, plans, tags, subscriptions, functions, config, checks,
    metrics, attention,
)  # fmt: skip
_PAGES = (
    overview_pages, jobs_pages, job_pages, operations_pages, find_pages, queues_pages, failures_pages,
    workers_pages, schedules_pages, limits_pages, events_pages, batches_pages, tags_pages, subscriptions_pages,
    settings_pages, doctor_pages, check_pages, planner_pages, session_pages, theme_pages,
)  # fmt: skip
RESOURCES = Resources([route for noun in _NOUNS for route in noun.routes])
add_specification(RESOURCES)
PAGES = RouteTable([page for noun in _PAGES for page in noun.pages])
ROUTES: RouteTable[Route[Any]] = RouteTable([*RESOURCES, *PAGES])
