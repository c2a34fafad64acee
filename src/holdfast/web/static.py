"""Static files: style sheets, scripts and the icon. Their address has their version, so browsers may keep them."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib import resources
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from holdfast.web.problems import Problem

PREFIX = "/static/"
_TYPES = {
    "css": "text/css",
    "js": "text/javascript",
    "svg": "image/svg+xml",
    "webmanifest": "application/manifest+json",
}


class _File(NamedTuple):
    content: bytes
    media_type: str


@cache
def _files() -> dict[str, _File]:
    folder = resources.files("holdfast.web") / "static"
    found = {each.name: each.read_bytes() for each in folder.iterdir() if each.is_file()}
    return {name: _File(content, _TYPES[name.rpartition(".")[2]]) for name, content in found.items()}


@cache
def version() -> str:
    """Return a text that changes with any of the files."""
    total = hashlib.blake2b(digest_size=6)
    for name, file in sorted(_files().items()):
        total.update(name.encode() + file.content)
    return total.hexdigest()


def static_path(name: str) -> str:
    """Return the path of a file. Modules import each other by relative paths, which stay below the version."""
    if name not in _files():
        raise KeyError(name)
    return f"{PREFIX}{version()}/{name}"


def answer_static(request: Request, path: str) -> Response | None:
    """Answer a request for a static file; None: it is for something else."""
    if not path.startswith(PREFIX) or request.method not in ("GET", "HEAD"):
        return None
    found_version, _, name = path.removeprefix(PREFIX).partition("/")
    file = _files().get(name)
    if file is None:
        raise Problem(404, "NOTFOUND", "there is no such file")
    is_current = found_version == version()
    kept = "public, max-age=31536000, immutable" if is_current else "no-cache"
    return Response(file.content, headers={"Cache-Control": kept}, media_type=file.media_type)
