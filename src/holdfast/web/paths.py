"""Names and ids in paths: as they are if they are plain, or else `=` and base64url.

Ids may hold `/ : @ .` and more, which routers, proxies and browsers would change: `/jobs/a%2Fresult` would be routed
to a part of job `a`.
"""

from __future__ import annotations

import base64
import binascii
import re

from holdfast.errors import NotFound

_PLAIN = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*", re.ASCII)


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
