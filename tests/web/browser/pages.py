"""All pages, each with examples of its parameters. A new page is covered by all browser tests by a line here."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from holdfast import Holdfast
from holdfast.web.routes import PAGES
from holdfast.web.routing import Route
from tests.web.browser import components

Find = Callable[[Holdfast], str]  # finds a name that is known only once the store is filled


@dataclass(frozen=True)
class Example:
    """A page with parameters: names of its path, and a query."""

    path: str
    names: dict[str, str | Find] = field(default_factory=dict)
    query: str = ""

    def url(self, app: Holdfast) -> str:
        names = {name: found if isinstance(found, str) else found(app) for name, found in self.names.items()}
        url = Route("GET", self.path, "viewer", components.components_page).url(**names)
        return f"{url}?{self.query}" if self.query else url

    @property
    def name(self) -> str:
        """A name for tests and files: queues-queue-mail."""
        names = [name for name in self.names.values() if isinstance(name, str)]
        words = [*re.sub("[{}]", "", self.path).split("/"), *names, self.query]
        return re.sub(r"[^\w.]+", "-", "-".join(words)).strip("-") or "overview"


def _failure(app: Holdfast) -> str:
    return next(iter(app.failures(by="fingerprint"))).name


def _operation(app: Holdfast) -> str:
    return app.operations()[0].id


FINGERPRINT = "a4a548b61817d52b"  # of what billing.charge_card raises, see data.py

EXAMPLES = (
    Example("/failures/{failure}", {"failure": _failure}),
    Example("/operations/{operation}", {"operation": _operation}),
    Example("/jobs"),
    Example("/jobs", query="q=state:failed+queue:billing"),
    Example("/jobs", query="state=failed&all=true"),
    Example("/jobs", query="q=statt:x"),
    Example("/jobs/{id}", {"id": "training"}),
    Example("/jobs/{id}", {"id": "report"}),
    Example("/jobs/{id}", {"id": "stopped"}),
    Example("/jobs/{id}/graph", {"id": "training"}),
    Example("/operations"),
    Example("/operations/new", query="action=retry&state=failed"),
    Example("/find", query="q=mail"),
    Example("/"),
    Example("/", query="period=30d"),
    Example("/queues"),
    Example("/find", query="q=%22%3Cb%3Enothing"),
    Example("/queues/{queue}", {"queue": "mail"}),
    Example("/queues/{queue}", {"queue": "billing"}),
    Example("/queues/{queue}", {"queue": "video"}),
    Example("/failures"),
    Example("/failures", query="queue=billing&period=1h"),
    Example("/failures/{failure}", {"failure": FINGERPRINT}),
    Example("/failures/{failure}", {"failure": "tests.web.browser.data.ConnectTimeout"}),
    Example("/sign-in"),
    Example("/components"),
)


def page_paths() -> set[str]:
    """Return the paths of the pages that the application has."""
    return {route.path for route in PAGES if route.method == "GET"}
