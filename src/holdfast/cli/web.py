"""`holdfast web`: serve the dashboard and the REST API."""

from __future__ import annotations

import errno
import gc
import os
import signal
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.client import Client, pass_client
from holdfast.cli.command import Group, command
from holdfast.cli.errors import print_note
from holdfast.cli.options import Integer
from holdfast.cli.web_access import AUTH_FILE, auth_option, chosen_file, need_web, tokens, users
from holdfast.records.access import WEB

if TYPE_CHECKING:
    from holdfast.web.serve import Server
    from holdfast.web.site import Site

HOST, PORT = "127.0.0.1", 8420


@click.group(
    "web", cls=Group, default="serve",
    examples=("holdfast web", "holdfast web --port 9000", "holdfast web users add ada --role operator"),
)  # fmt: skip
def web() -> None:
    """Serve the dashboard and the REST API; manage their users and tokens.

    Without a command, they are served.
    """


@command(
    "serve",
    "holdfast web",
    "holdfast web --host 0.0.0.0 --auth web.toml --trusted-proxy 10.0.0.2",
    "holdfast web --auth web.toml --trusted-proxy 127.0.0.1 --root-path /jobs",
    output=WEB,
    shared=("url", "namespace", "json"),
    context_settings={"auto_envvar_prefix": "HOLDFAST_WEB"},
)
@click.option("--host", default=HOST, show_default=True, help="Address to listen at.")
@click.option(
    "--port", type=Integer(0, 65535), metavar="NUMBER", default=PORT, show_default=True, help="Port; 0: a free one."
)
@auth_option
@click.option(
    "--root-path", metavar="PATH", default="", help="Path below which a proxy serves it; the proxy removes it."
)
@click.option(
    "--trusted-proxy", "proxies", multiple=True, metavar="ADDRESS",
    help="Address or network of a proxy whose headers are believed; may be repeated.",
)  # fmt: skip
@click.option("--insecure-http", is_flag=True, help="Let people sign in over plain http; each page warns of it.")
@click.option(
    "--redact", multiple=True, metavar="NAME",
    help="Hide values of this name in arguments, results and other data; may be repeated.",
)  # fmt: skip
@pass_client
def serve(client: Client, /, host: str, port: int, auth: Path | None, root_path: str, **options: Any) -> None:
    """Serve the dashboard and the REST API until SIGTERM or Ctrl-C.

    Only this machine can reach it, and nobody signs in, unless there is a file of users and tokens. With another --host
    or behind a proxy, such a file is required. See docs/web-security.md.
    """
    need_web()
    from holdfast.web.serve import check_root_path, find_address, make_site

    address, root_path = find_address(host), check_root_path(root_path)
    site = make_site(client.app, address, auth=chosen_file(auth), **options)
    listener = _listen(address, port)
    server = _prepare(site, root_path)
    print_note(_how_to_sign_in(site, auth))
    client.output.value({"url": _url(listener), "sign_in": _ways(site)}, "url")
    sys.stdout.flush()
    server.run(sockets=[listener])


def _listen(address: str, port: int) -> socket.socket:
    from holdfast.web.serve import listen

    try:
        return listen(address, port)
    except OSError as error:
        where = f"port {port} of {address}"
        if error.errno == errno.EADDRINUSE:
            raise click.ClickException(f"{where} is in use; choose another one with --port") from None
        raise click.ClickException(f"cannot listen at {where}: {os.strerror(error.errno or 0)}") from None


def _url(listener: socket.socket) -> str:
    """Return the address to open in a browser."""
    host, port = listener.getsockname()[:2]
    if host in ("0.0.0.0", "::"):  # noqa: S104 - any of this machine's addresses
        host = socket.gethostname()
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/"


def _ways(site: Site) -> list[str]:
    if not site.accounts:
        return []
    entries = site.accounts.entries()
    ways = {
        "password": any(each.password for each in entries.users.values()),
        "token": bool(entries.tokens),
        "proxy": entries.proxy is not None,
    }
    return [way for way, is_there in ways.items() if is_there]


def _how_to_sign_in(site: Site, auth: Path | None) -> str:
    if not site.accounts:
        return "nobody signs in: only this machine can reach it, and everybody on this machine has all rights"
    file = auth or AUTH_FILE
    if site.local_only or site.proxies or site.notice:
        return f"users and tokens are those of {file}"
    return f"tokens are those of {file}; people can sign in only over https: see --trusted-proxy"


def _prepare(site: Site, root_path: str) -> Server:
    """Return a server that stops on SIGTERM and Ctrl-C, from now on; a second one closes open connections at once."""
    import logging

    from holdfast.web.application import Application
    from holdfast.web.serve import make_server
    from holdfast.worker.output.console import ConsoleStream, log_to

    log_to(ConsoleStream(2), "INFO")
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    server = make_server(Application(site), root_path=root_path)

    def stop(_: int, __: object) -> None:
        """Before the server listens to signals itself, and when it raises them again after it has stopped."""
        server.should_exit = True

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    gc.collect()
    gc.freeze()  # modules and routes live as long as the process: to look through them takes as long as a page
    return server


for each in (serve, users, tokens):
    web.add_command(each)
