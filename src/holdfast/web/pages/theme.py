"""The switch between the light and the dark theme: a form, so that it works without scripts."""

from __future__ import annotations

from starlette.responses import Response

from holdfast.web import api
from holdfast.web.call import Call
from holdfast.web.pages.page import Pages
from holdfast.web.theme import keep_theme

pages = Pages()


@pages.post("/theme", role="public")
async def set_theme(call: Call) -> Response:
    """Choose a theme: light, dark, or system."""
    form = api.read_form(await api.read_body(call.request))
    response = api.back(call, {"_next": form.get("_next") or call.url("/")})
    keep_theme(call.request, response, str(form.get("theme")))
    return response
