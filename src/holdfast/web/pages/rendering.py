"""Templates: Jinja2 with all values escaped, and the functions and filters that they share."""

from __future__ import annotations

from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from holdfast.version import __version__
from holdfast.web.call import Call
from holdfast.web.flash import read_flash
from holdfast.web.paths import encode_name
from holdfast.web.static import static_path


@cache
def environment() -> Environment:
    found = Environment(
        loader=PackageLoader("holdfast.web.pages"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    found.filters["segment"] = encode_name
    return found


def render(call: Call, template: str, **variables: Any) -> str:
    """Render a template. Each knows the call, `url` of a path, `static` of a file, and the message to be shown."""
    return (
        environment()
        .get_template(template)
        .render(
            call=call,
            user=call.user,
            site=call.site,
            path=call.request.scope["path"],
            url=call.url,
            static=lambda name: call.url(static_path(name)),
            message=read_flash(call.request),
            version=__version__,
            **variables,
        )
    )
