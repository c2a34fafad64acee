"""The theme of pages, light or dark, which a browser keeps in a cookie; without it, the system decides."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from holdfast.web.paths import root_of

COOKIE = "holdfast-theme"
THEMES = ("light", "dark")
YEAR = 365 * 86_400  # seconds


def read_theme(request: Request) -> str:
    """Return the theme that the user chose, or nothing."""
    found = request.cookies.get(COOKIE, "")
    return found if found in THEMES else ""


def keep_theme(request: Request, response: Response, theme: str) -> None:
    """Keep a theme for all later pages; anything else than light and dark stands for that of the system."""
    path = root_of(request.scope) or "/"
    if theme in THEMES:
        secure = request.scope["scheme"] == "https"
        response.set_cookie(COOKIE, theme, max_age=YEAR, path=path, secure=secure, httponly=True, samesite="strict")
    else:
        response.delete_cookie(COOKIE, path=path, samesite="strict")
