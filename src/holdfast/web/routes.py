"""All routes of the web: the resources of the API, and the pages."""

from __future__ import annotations

from typing import Any

from holdfast.web.openapi import add_specification
from holdfast.web.pages import queues as queue_pages
from holdfast.web.resource import Resources
from holdfast.web.resources import health, job_actions, jobs, queues
from holdfast.web.routing import Route, RouteTable

RESOURCES = Resources([*health.routes, *jobs.routes, *job_actions.routes, *queues.routes])
add_specification(RESOURCES)
PAGES = RouteTable([*queue_pages.pages])
ROUTES: RouteTable[Route[Any]] = RouteTable([*RESOURCES, *PAGES])
