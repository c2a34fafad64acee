"""`holdfast demo`: jobs that survive `kill -9`."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

import click

from holdfast.cli.command import command
from holdfast.cli.web import HOST, PORT

if TYPE_CHECKING:
    import socket

    from holdfast import Holdfast


@command("demo", "holdfast demo", "holdfast demo --keep", shared=())
@click.option(
    "--keep",
    is_flag=True,
    help="Use the server of this project, keep the jobs for inspection, and run until Ctrl-C, with the dashboard.",
)
def demo(keep: bool) -> int:
    """Watch jobs finish although their processes are killed again and again.

    The dashboard shows it in a browser, at the address that is printed, if `holdfast[web]` is installed.
    """
    from holdfast.demo import demo as demonstration

    return demonstration.run(keep=keep, dashboard=dashboard)


@contextmanager
def dashboard(app: Holdfast) -> Iterator[str]:
    """Serve the dashboard of an app meanwhile, to this machine only. Yield its address; "" if it is not installed."""
    try:
        from holdfast.web.application import Application
        from holdfast.web.serve import make_server, make_site
    except ImportError:
        yield ""
        return
    from holdfast import Holdfast

    own = Holdfast(app.url, namespace=app.address.namespace)  # connections of its own: it runs in another thread
    server = make_server(Application(make_site(own, HOST)))
    with closing(_listen()) as listener:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, name="dashboard", daemon=True)
        thread.start()
        try:
            yield f"http://{HOST}:{listener.getsockname()[1]}/"
        finally:
            server.should_exit = True
            thread.join()
            own.close()


def _listen() -> socket.socket:
    """Listen at the usual port of the dashboard, or at a free one."""
    from holdfast.web.serve import listen

    try:
        return listen(HOST, PORT)
    except OSError:
        return listen(HOST, 0)
