"""The page of a request that cannot be answered."""

from __future__ import annotations

from starlette.responses import HTMLResponse, Response

from holdfast.web.call import Call
from holdfast.web.pages.rendering import render
from holdfast.web.problems import Problem


def error_page(call: Call, problem: Problem) -> Response:
    content = render(call, "error.html", title=problem.title, problem=problem)
    return HTMLResponse(content, problem.status, problem.headers)
