"""`make web`: a week of a shop on an embedded server of its own, and the dashboard of it, until Ctrl-C."""

from __future__ import annotations

import argparse
import signal
import socket
import sys
import tempfile
import threading
import time
from contextlib import closing
from pathlib import Path

from bench.week import fill_week
from holdfast import Holdfast
from holdfast.server import server
from holdfast.store import socket_url
from holdfast.web.application import Application
from holdfast.web.security.users import LOCAL
from holdfast.web.serve import listen, make_server
from holdfast.web.site import Site

HOST = "127.0.0.1"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.week", description=__doc__)
    parser.add_argument("--port", type=int, default=8420)
    parser.add_argument("--days", type=float, default=7.0)
    parser.add_argument("--scale", type=float, default=0.4, help="multiplies the number of jobs")
    chosen = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends as Ctrl-C does: the server and its files go
    with tempfile.TemporaryDirectory(prefix="holdfast-week-") as folder, closing(listen(HOST, chosen.port)) as listener:
        try:
            _show(Path(folder), listener, chosen.days, chosen.scale)
        except KeyboardInterrupt:
            sys.exit(130)
        finally:
            server.stop(Path(folder))


def _show(home: Path, listener: socket.socket, days: float, scale: float) -> None:
    url = socket_url(server.ensure(home))
    began = time.monotonic()
    print(f"a shop runs its jobs of {days:g} days; this takes about a minute ...", flush=True)
    with closing(Holdfast(url, namespace="shop")) as app, fill_week(app, days=days, scale=scale) as week:
        count = sum(sum(queue.counts.values()) for queue in app.queues())
        print(f"{count:,} jobs, after {time.monotonic() - began:.0f} s; the shop stays open until Ctrl-C", flush=True)
        print(f"dashboard:     http://{HOST}:{listener.getsockname()[1]}/", flush=True)
        print(f"command line:  HOLDFAST_URL={url} HOLDFAST_NAMESPACE=shop holdfast status", flush=True)
        ended = threading.Event()
        life = threading.Thread(target=week.live, args=(ended,))
        life.start()
        try:
            site = Site(Holdfast(url, namespace="shop"), lambda _: LOCAL, local_only=True)
            make_server(Application(site)).run(sockets=[listener])
        finally:
            ended.set()
            life.join()


if __name__ == "__main__":
    main()
