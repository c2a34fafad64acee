"""All routes of the web: the resources of the API, and the pages."""

from __future__ import annotations

from typing import Any

from holdfast.web.openapi import add_specification
from holdfast.web.pages import queues as queue_pages
from holdfast.web.resource import Resources
from holdfast.web.resources import (
    checks,
    config,
    failures,
    functions,
    health,
    info,
    items,
    job_actions,
    jobs,
    limits,
    plans,
    queues,
    schedules,
    statistics,
    subscriptions,
    tags,
    workers,
)
from holdfast.web.routing import Route, RouteTable

NOUNS = (
    health, info, jobs, job_actions, items, queues, limits, schedules, workers, failures, statistics, plans, tags,
    subscriptions, functions, config, checks,
)  # fmt: skip

RESOURCES = Resources(route for noun in NOUNS for route in noun.routes)
add_specification(RESOURCES)
PAGES = RouteTable([*queue_pages.pages])
ROUTES: RouteTable[Route[Any]] = RouteTable([*RESOURCES, *PAGES])
