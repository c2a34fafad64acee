"""All routes of the web: the resources of the API, and the pages."""

from __future__ import annotations

from typing import Any

from holdfast.web.openapi import add_specification
from holdfast.web.pages import queues as queue_pages
from holdfast.web.pages import session as session_pages
from holdfast.web.pages import theme as theme_pages
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
    queue_pages,
    session_pages,
    theme_pages,
)
RESOURCES = Resources([route for noun in _NOUNS for route in noun.routes])
add_specification(RESOURCES)
PAGES = RouteTable([page for noun in _PAGES for page in noun.pages])
ROUTES: RouteTable[Route[Any]] = RouteTable([*RESOURCES, *PAGES])
