"""Headers of all answers: nothing is loaded from elsewhere, framed, sniffed or kept by caches."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

POLICY = "; ".join(
    (
        "default-src 'none'",
        *(f"{kind} 'self'" for kind in ("script-src", "style-src", "img-src", "connect-src", "form-action")),
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Frame-Options": "DENY",
}


def add_headers(_: Request, response: Response) -> None:
    for name, value in HEADERS.items():
        response.headers.setdefault(name, value)
    response.headers.setdefault("Cache-Control", "no-store")
