"""All pages, each with examples of its parameters. A new page is covered by all browser tests by a line here."""

from __future__ import annotations

from dataclasses import dataclass, field

from holdfast.web.routes import PAGES
from holdfast.web.routing import Route
from tests.web.browser import components


@dataclass(frozen=True)
class Example:
    """A page with parameters: names of its path, and a query."""

    path: str
    names: dict[str, str] = field(default_factory=dict)
    query: str = ""

    @property
    def url(self) -> str:
        url = Route("GET", self.path, "viewer", components.components_page).url(**self.names)
        return f"{url}?{self.query}" if self.query else url

    @property
    def name(self) -> str:
        """A name for tests and files: queues-queue-mail."""
        words = [*self.path.strip("/").replace("{", "").replace("}", "").split("/"), *self.names.values()]
        return (
            "-".join([*filter(None, words), *filter(None, [self.query.replace("=", "-").replace("&", "-")])]) or "first"
        )


EXAMPLES = (
    Example("/queues"),
    Example("/sign-in"),
    Example("/components"),
)


def page_paths() -> set[str]:
    """Return the paths of the pages that the application has."""
    return {route.path for route in PAGES if route.method == "GET"}
