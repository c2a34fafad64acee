"""Tells systemd how a worker is, if it wants to know (`Type=notify`): that it is ready, and that it stops."""

from __future__ import annotations

import os
import socket
from contextlib import suppress

READY = "READY=1"  # the app is imported, the store is there
STOPPING = "STOPPING=1"


def notify(words: str) -> None:
    """Say a word to systemd. Elsewhere there is nobody to hear it."""
    path = os.environ.get("NOTIFY_SOCKET", "")
    if not path:
        return
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as to:
        to.sendto(words.encode(), f"\0{path[1:]}" if path.startswith("@") else path)
