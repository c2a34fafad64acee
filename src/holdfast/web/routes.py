"""All routes of the web: the resources of the API, and the pages."""

from __future__ import annotations

from holdfast.web.pages import queues as queue_pages
from holdfast.web.resources import health, metrics, queues
from holdfast.web.routing import RouteTable

RESOURCES = RouteTable([*health.routes, *metrics.routes, *queues.routes])
PAGES = RouteTable([*queue_pages.pages])
ROUTES = RouteTable([*RESOURCES, *PAGES])
