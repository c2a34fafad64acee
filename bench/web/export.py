"""An export of all jobs, as lines, and the memory of the web process meanwhile."""

from __future__ import annotations

import http.client
import time
from dataclasses import dataclass

from bench.server import Server, between
from bench.web.process import WebProcess

PART = 1 << 16  # bytes


@dataclass(frozen=True)
class Export:
    """What an export took."""

    records: int
    megabytes: float
    seconds: float
    before: float  # MiB of the web process
    most: float
    after: float
    web: float  # seconds of CPU of the web process
    store: float  # and of the server
    longest: float  # call of the store, in milliseconds


def export(web: WebProcess, server: Server, path: str) -> Export:
    """Read a list to its end, as a client that keeps nothing."""
    server.client.config_set("slowlog-log-slower-than", 200)
    server.client.config_set("slowlog-max-len", 20_000)
    server.client.slowlog_reset()
    memory, cpu, look, began = web.memory(), web.cpu(), server.look(), time.monotonic()
    web.forget_memory()
    connection = http.client.HTTPConnection(web.host, web.port, timeout=600)
    connection.request("GET", path, headers={"Accept": "application/x-ndjson"})
    response = connection.getresponse()
    records, size, last = 0, 0, b""
    while part := response.read(PART):
        records += part.count(b"\n")
        size += len(part)
        last = (last + part)[-200:]
    connection.close()
    cursors = -(-records // 101)  # one after each slice of 100
    if not last.endswith(b'{"next":null}\n'):
        raise RuntimeError(f"the export broke off: {last!r}")
    calls = [each["duration"] for each in server.client.slowlog_get(20_000) if each["command"].startswith(b"FCALL")]
    return Export(
        records=records - cursors, megabytes=size / 1e6, seconds=time.monotonic() - began, before=memory,
        most=web.most_memory(), after=web.memory(), web=(web.cpu() - cpu) / 1000,
        store=between(look, server.look()).cpu, longest=max(calls, default=0) / 1000,
    )  # fmt: skip
