"""Paths: where the application is mounted, and names and ids in paths.

Names are written as they are if they are plain, or else as `=` and base64url. Ids may hold `/ : @ .` and more, which
routers, proxies and browsers would change: `/jobs/a%2Fresult` would be routed to a part of job `a`.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import MutableMapping
from typing import Any
from urllib.parse import quote, unquote_to_bytes

from holdfast.errors import NotFound

Scope = MutableMapping[str, Any]  # of ASGI

_PLAIN = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*", re.ASCII)
_SAFE = "/:@!$&'()*+,=~"  # characters of a path that stay as they are; `;` would end the path of a cookie


def encode_name(name: str) -> str:
    """Return a name as a segment of a path."""
    if _PLAIN.fullmatch(name):
        return name
    return "=" + base64.urlsafe_b64encode(name.encode()).decode().rstrip("=")


def decode_name(segment: str) -> str:
    """Return the name that a segment of a path stands for."""
    if not segment.startswith("="):
        if _PLAIN.fullmatch(segment):
            return segment
        raise NotFound(f"the name {segment[:60]!r} in the path must be written as `=` and its base64url")
    text = segment[1:]
    try:
        name = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError):
        raise NotFound(f"the name {segment[:60]!r} in the path is not base64url of UTF-8") from None
    if not name:
        raise NotFound("a name in the path is empty")
    return name


def root_of(scope: Scope) -> str:
    """Return the path at which the application is mounted, as browsers write it, or an empty text.

    It may have parts that the client chose, if a route with parameters leads to the application.
    """
    root = quote(str(scope.get("root_path") or "").rstrip("/"), safe=_SAFE)
    return f"/{root.lstrip('/')}" if root else ""


def address_of(scope: Scope) -> str:
    """Return the path and query of a request as browsers write them, whatever frameworks and proxies have removed."""
    query = scope.get("query_string", b"").decode("latin-1")
    address = root_of(scope) + quote(path_of(scope), safe=_SAFE)
    return f"{address}?{query}" if query else address


def path_of(scope: Scope) -> str:
    """Return the path below the place where the application is mounted.

    The path of a scope begins with the root path, by the rules of ASGI; but some servers and frameworks remove it from
    the path. Which of the two it is matters if the rest begins with the same words.
    """
    path, root = str(scope["path"]), str(scope.get("root_path") or "").rstrip("/")
    if _is_below(path, root):
        return path if _is_shortened(scope, path, root) else path[len(root) :] or "/"
    # A proxy has removed the first part of the root path, and Starlette the part that leads here is in the path.
    outer = str(scope.get("app_root_path") or "").rstrip("/")
    inner = root.removeprefix(outer)
    return path[len(inner) :] or "/" if outer and _is_below(path, inner) else path or "/"


def _is_below(path: str, root: str) -> bool:
    return bool(root) and (path == root or path.startswith(f"{root}/"))


def _is_shortened(scope: Scope, path: str, root: str) -> bool:
    raw = scope.get("raw_path")
    if not raw:
        return False
    whole = unquote_to_bytes(raw.partition(b"?")[0]).decode("utf-8", "replace")
    return whole == root + path
