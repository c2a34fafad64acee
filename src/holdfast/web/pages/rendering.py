"""Templates: Jinja2 with all values escaped, and the functions and filters that they share.

Every template knows: call, user, site, path; `url(path)`, `static(file)`, `here` (this page, to return to), `now`;
`command(...)` and `curl(...)`, the commands behind an action; `may(role, queue)`; STATES, BAR_STATES and BUDGETS.
Filters: segment (a name in a path), number, ordinal, size, percent, duration, short_duration, json (of a value),
stored_json (of JSON as it is stored), cut(length), verbatim; of times: ago, due, span, clock, to_minute, exact, iso.
Macros of the components are in templates/parts.

All text is escaped, and its invisible characters (bidi marks, escape sequences) are made visible. Values of form fields
must stay what they are: they pass through `verbatim`, which only escapes HTML.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache, partial
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, pass_context
from jinja2.runtime import Context
from markupsafe import Markup, escape

from holdfast.job.retries import BUDGETS
from holdfast.records.formatting import json_text
from holdfast.text import printable
from holdfast.version import __version__
from holdfast.web.call import Call
from holdfast.web.flash import read_flash
from holdfast.web.pages import formats
from holdfast.web.pages.charts import BAR_STATES, sparkline, state_bar
from holdfast.web.pages.commands import command_line, curl_line, in_namespace
from holdfast.web.paths import address_of, encode_name
from holdfast.web.routing import Role
from holdfast.web.static import static_path
from holdfast.web.theme import read_theme

STATES = ("waiting", "scheduled", "blocked", "throttled", "running", "succeeded", "failed", "cancelled")


@cache
def environment() -> Environment:
    found = Environment(
        loader=PackageLoader("holdfast.web.pages"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
        finalize=_visible,
    )
    for name in (
        "number",
        "ordinal",
        "size",
        "percent",
        "duration",
        "short_duration",
        "iso",
        "exact",
        "stored_json",
        "cut",
    ):
        found.filters[name] = getattr(formats, name)
    for name in ("ago", "due", "span", "clock", "to_minute"):
        found.filters[name] = _since_now(getattr(formats, name))
    found.filters["in_namespace"] = _in_namespace
    found.filters.update(segment=encode_name, json=partial(json_text, indent=2), verbatim=_verbatim)
    found.globals.update(STATES=STATES, BUDGETS=BUDGETS, BAR_STATES=BAR_STATES, command=command_line)
    found.globals.update(state_bar=state_bar, sparkline=sparkline)
    return found


def _visible(value: Any) -> Any:
    """Return text without invisible characters, which could reorder or hide what stands beside them."""
    return printable(value, lines=True, tabs=True) if type(value) is str else value


def _verbatim(value: Any) -> Markup:
    """Escape HTML alone: for values of form fields, which must be sent back as they are."""
    return escape(value)


def _since_now(read: Callable[[formats.Time, datetime], str]) -> Callable[[Context, formats.Time], str]:
    return pass_context(lambda context, value: read(value, context["now"]))


@pass_context
def _in_namespace(context: Context, line: str) -> str:
    return in_namespace(line, context["call"].app.address.namespace)


def render(call: Call, template: str, **variables: Any) -> str:
    """Render a template."""
    return environment().get_template(template).render(shared_variables(call) | variables)


def shared_variables(call: Call) -> dict[str, Any]:
    """Return what every template knows."""
    request = call.request

    def may(role: Role, queue: str | None = None) -> bool:
        """Tell whether the user has a role, and rights on a queue."""
        return call.user.has_role(role) and (queue is None or call.user.has_queue(queue))

    return {
        "call": call,
        "user": call.user,
        "site": call.site,
        "path": request.scope["path"],
        "here": here_of(call),
        "url": call.url,
        "static": lambda name: call.url(static_path(name)),
        "curl": lambda method, path, body=None: curl_line(request, call.user, method, call.url(path), body),
        "may": may,
        "message": read_flash(request),
        "theme": read_theme(request),
        "now": datetime.now(UTC),
        "version": __version__,
    }


def here_of(call: Call) -> str:
    """Return the address of the page that is shown, for forms to return to; of an answer to a form, the first page."""
    if call.request.method not in ("GET", "HEAD"):
        return call.url("/")
    return address_of(call.request.scope)
