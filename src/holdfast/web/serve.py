"""`holdfast web`: serve the dashboard and the API with uvicorn."""

from __future__ import annotations

import socket

import uvicorn

from holdfast.web.application import Application


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens at an address; port 0 takes a free one. Raises OSError.

    It has the protocol, which `socket.create_server` leaves out: otherwise asyncio does not turn off Nagle's algorithm,
    and each answer on a kept connection takes 40 ms.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind((host, port))
        listener.listen(512)
    except OSError:
        listener.close()
        raise
    return listener


def make_server(application: Application, *, root_path: str = "", trusted_proxies: str = "") -> uvicorn.Server:
    """Return a server of an application; `server.run(sockets=[...])` serves until a signal.

    Headers about the client and the scheme are believed only of `trusted_proxies`, addresses separated by commas.
    """
    return uvicorn.Server(
        uvicorn.Config(
            application,
            root_path=root_path,
            proxy_headers=bool(trusted_proxies),
            forwarded_allow_ips=trusted_proxies or None,
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=5,
            h11_max_incomplete_event_size=64 << 10,
        )
    )
