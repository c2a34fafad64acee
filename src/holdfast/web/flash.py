"""A message that the next page shows once, in a cookie: what an action did."""

from __future__ import annotations

from urllib.parse import quote, unquote

from starlette.requests import Request
from starlette.responses import Response

from holdfast.web.paths import root_of

COOKIE = "holdfast-message"
MAX_LENGTH = 500
REFRESH = "holdfast-live"  # header of requests by which an open page follows the store: the message is not for them


def set_flash(request: Request, response: Response, message: str) -> None:
    response.set_cookie(
        COOKIE, quote(message[:MAX_LENGTH]), max_age=60, path=_path(request), secure=_is_secure(request),
        httponly=True, samesite="strict",
    )  # fmt: skip


def read_flash(request: Request) -> str:
    return "" if REFRESH in request.headers else unquote(request.cookies.get(COOKIE, ""))[:MAX_LENGTH]


def clear_flash(request: Request, response: Response) -> None:
    if COOKIE in request.cookies and REFRESH not in request.headers:
        response.delete_cookie(
            COOKIE, path=_path(request), secure=_is_secure(request), httponly=True, samesite="strict"
        )


def _path(request: Request) -> str:
    return root_of(request.scope) or "/"


def _is_secure(request: Request) -> bool:
    return bool(request.scope["scheme"] == "https")
