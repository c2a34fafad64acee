"""The page of a request that cannot be answered. Somebody who is not signed in gets the page to sign in."""

from __future__ import annotations

from starlette.responses import HTMLResponse, Response

from holdfast.web.call import Call
from holdfast.web.pages.rendering import render
from holdfast.web.pages.session import sign_in
from holdfast.web.paths import address_of
from holdfast.web.problems import Problem
from holdfast.web.security.guard import SAFE
from holdfast.web.security.users import NOBODY

RETRY_AFTER = "5"  # seconds after which a page is loaded again that needed the store


def error_page(call: Call, problem: Problem) -> Response:
    if call.site.accounts and call.user is NOBODY and problem.status in (401, 429):
        return _sign_in_page(call, problem)
    layout = "bare.html" if call.user is NOBODY else "base.html"  # what a stranger may see of the site
    is_form, headers = call.request.method not in SAFE, dict(problem.headers)
    if problem.status == 503 and not is_form:
        headers["Refresh"] = RETRY_AFTER
    content = render(call, "error.html", title=problem.title, problem=problem, layout=layout, is_form=is_form)
    return HTMLResponse(content, problem.status, headers)


def _sign_in_page(call: Call, problem: Problem) -> Response:
    """Return the page to sign in, which leads to where the request or its form wanted to go.

    Browsers send no SameSite=Strict cookie with a link from another site, so somebody who follows one may be signed in
    after all: the page loads itself once more, as a page of this site.
    """
    is_form, headers = call.request.method not in SAFE, dict(problem.headers)
    if is_form:
        target, name, detail = str(call.form.get("_next", "")), str(call.form.get("name", "")), problem.detail
    else:
        target, name, detail = address_of(call.request.scope), "", ""
    if not is_form and call.request.headers.get("sec-fetch-site") == "cross-site":
        headers["Refresh"] = "0"
    page = sign_in(call, target, detail=detail, name=name, status=problem.status)
    return HTMLResponse(render(call, page.template, title=page.title, **page.variables), page.status, headers)
