"""The web process that is measured: its processor time, its memory, and requests to it."""

from __future__ import annotations

import http.client
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from bench.children import kill
from bench.server import ROOT


class WebProcess:
    """`holdfast web`, in a process of its own."""

    def __init__(self, pid: int, url: str) -> None:
        self.pid = pid
        self.host, self.port = urlsplit(url).hostname or "", urlsplit(url).port or 0
        self._connection = http.client.HTTPConnection(self.host, self.port, timeout=600)

    def cpu(self) -> float:
        """Return the milliseconds that its threads have run."""
        found = 0
        for thread in Path(f"/proc/{self.pid}/task").iterdir():
            found += int((thread / "schedstat").read_text().split()[0])
        return found / 1e6

    def memory(self) -> float:
        """Return its resident memory in MiB."""
        return self._status("VmRSS")

    def most_memory(self) -> float:
        """Return its largest resident memory since `forget_memory`, in MiB."""
        return self._status("VmHWM")

    def forget_memory(self) -> None:
        Path(f"/proc/{self.pid}/clear_refs").write_text("5")

    def _status(self, name: str) -> float:
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(f"{name}:"))

    def get(self, path: str, accept: str = "*/*") -> tuple[int, bytes]:
        """Make a request on a kept connection, and return the status and the content."""
        return self.ask("GET", path, accept=accept)

    def ask(self, method: str, path: str, body: bytes | None = None, accept: str = "*/*") -> tuple[int, bytes]:
        headers = {"Accept": accept} | ({"Content-Type": "application/json"} if body is not None else {})
        self._connection.request(method, path, body, headers)
        response = self._connection.getresponse()
        return response.status, response.read()

    def close(self) -> None:
        self._connection.close()


@contextmanager
def serving_web(store: str) -> Iterator[WebProcess]:
    """Serve the dashboard of a store on a free port of this machine."""
    line = [sys.executable, "-m", "holdfast", "web", "--url", store, "--port", "0"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    process = subprocess.Popen(line, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        assert process.stdout is not None
        web = WebProcess(process.pid, process.stdout.readline().decode().strip())
        yield web
        web.close()
    finally:
        kill(process)
        if process.stdout:
            process.stdout.close()
