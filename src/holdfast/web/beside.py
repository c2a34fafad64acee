"""Put the dashboard beside another ASGI application that mounts nothing, such as Django's.

application = holdfast.web.beside(get_asgi_application(), "/jobs", jobs, auth=user_of)
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, Literal

from holdfast.errors import Invalid
from holdfast.web.application import Message, Receive, Send, app
from holdfast.web.paths import path_of
from holdfast.web.security.users import Authenticate

if TYPE_CHECKING:
    from holdfast.app import Holdfast

Asgi = Callable[[Any, Any, Any], Awaitable[Any]]


def beside(
    application: Asgi, path: str, jobs: Holdfast, *, auth: Authenticate | Literal["open"] | None = None,
    redact: Iterable[str] = (),
) -> Asgi:  # fmt: skip
    """Return an ASGI application with the dashboard below a path, and another application everywhere else.

    `auth` and `redact` are those of `app`. Middleware of the other application is not asked about requests of the
    dashboard.

    Raises:
        Invalid: something is not what it must be.
    """
    if not callable(application):
        raise Invalid(f"expected an ASGI application, got {application!r}")
    if not path.startswith("/") or not path.strip("/"):
        raise Invalid(f"expected a path such as /jobs, got {path!r}")
    path = path.rstrip("/")
    dashboard = app(jobs, auth=auth, redact=redact)

    async def answer(scope: Message, receive: Receive, send: Send) -> None:
        found = path_of(scope) if scope["type"] in ("http", "websocket") else ""
        if found != path and not found.startswith(f"{path}/"):
            await application(scope, receive, send)
            return
        root = str(scope.get("root_path") or "").rstrip("/") + path
        rest = found.removeprefix(path)
        await dashboard({**scope, "root_path": root, "path": root + rest, "raw_path": b""}, receive, send)

    return answer
