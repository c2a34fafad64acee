"""The server that all peers share, its statistics, and the ways to reach it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import redis
from tests.support.servers import _free_port, running_server

from bench import children
from bench.relay import counts
from holdfast.server import keeper

ROOT = Path(__file__).parent.parent
APPEND_ONLY = ("--appendonly", "yes", "--appendfsync", "everysec", "--auto-aof-rewrite-percentage", "0")
# As the embedded server is set up, but for where it listens and what it writes.
LIKE_OURS = tuple(
    part
    for name, value in keeper.SETTINGS.items()
    if not name.startswith(("append", "port", "unixsocket"))
    for part in (f"--{name}", value)
)


@dataclass(frozen=True)
class Look:
    """What the server had done, and held, at one time."""

    cpu: float  # seconds of its main thread
    memory: int  # bytes, less what scripts and clients take
    calls: dict[str, tuple[int, int]]  # of each command, those inside scripts too: how many, and microseconds


@dataclass(frozen=True)
class Spent:
    """What the server did between two looks."""

    cpu: float
    calls: dict[str, tuple[int, int]]

    def microseconds(self, jobs: int) -> float:
        return self.cpu * 1e6 / max(1, jobs)

    def commands(self, jobs: int) -> float:
        return sum(number for number, _ in self.calls.values()) / max(1, jobs)

    def by_command(self, jobs: int) -> dict[str, list[float]]:
        """Calls and microseconds per job of each command, the most expensive first."""
        rows = sorted(self.calls.items(), key=lambda row: -row[1][1])
        return {name: [calls / max(1, jobs), spent / max(1, jobs)] for name, (calls, spent) in rows if calls or spent}


def between(before: Look, after: Look) -> Spent:
    calls = {}
    for name, (number, spent) in after.calls.items():
        earlier = before.calls.get(name, (0, 0))
        if name not in ("info", "ping"):
            calls[name] = (number - earlier[0], spent - earlier[1])
    return Spent(after.cpu - before.cpu, calls)


@dataclass
class Server:
    """A server, by the URL of its unix socket, or of its port."""

    url: str
    client: Any

    def clear(self) -> None:
        """Forget all but scripts: loading them is not what is measured."""
        for line in ("FLUSHALL SYNC", "CONFIG RESETSTAT", "MEMORY PURGE"):
            self.client.execute_command(*line.split())

    def look(self) -> Look:
        info = self.client.info("cpu", "memory", "commandstats")
        memory = info["used_memory"] - info["used_memory_scripts"] - info["mem_clients_normal"]
        calls = {
            name.removeprefix("cmdstat_"): (row["calls"], row["usec"])
            for name, row in info.items()
            if name.startswith("cmdstat_")
        }
        return Look(info["used_cpu_user_main_thread"] + info["used_cpu_sys_main_thread"], memory, calls)

    @property
    def is_rehashing(self) -> bool:
        """Whether it is still moving its keys to a larger table."""
        return bool(self.client.info("memory").get("mem_overhead_db_hashtable_rehashing", 0))

    @property
    def is_quiet(self) -> bool:
        """Whether its memory is what it holds: no client is left but this one, whose buffers would count."""
        return self.client.info("clients")["connected_clients"] == 1 and not self.is_rehashing

    def about(self) -> str:
        info = self.client.info("server")
        name = info.get("server_name", "redis")
        return f"{name} {info.get(f'{name}_version', info['redis_version'])}"


@contextmanager
def serving(*, transport: str = "unix", append_only: bool = False) -> Iterator[Server]:
    """Start a server, without a snapshot."""
    options = LIKE_OURS + (APPEND_ONLY if append_only else ())
    port = _free_port() if transport == "tcp" else 0
    if port:
        options += ("--port", str(port), "--bind", "127.0.0.1")
    with running_server(options=options) as socket:
        client = redis.Redis.from_url(socket)
        try:
            yield Server(f"redis://127.0.0.1:{port}/0" if port else socket, client)
        finally:
            client.close()


@dataclass(frozen=True)
class Way:
    """A way to a server: itself, or through a relay that counts."""

    url: str
    control: str = ""

    def counts(self) -> dict[str, int]:
        return counts(self.control)


@contextmanager
def way_to(server: Server, folder: Path, name: str, milliseconds: float) -> Iterator[Way]:
    """Start a relay, which is a process of its own."""
    control = str(folder / f"{name}.c")
    if server.url.startswith("unix://"):
        listen, target = str(folder / name), server.url.removeprefix("unix://")
        url = f"unix://{listen}"
    else:
        listen, target = f"127.0.0.1:{_free_port()}", server.url.removeprefix("redis://").removesuffix("/0")
        url = f"redis://{listen}/0"
    line = [sys.executable, "-m", "bench.relay", listen, target, control, str(milliseconds)]
    environment = {"PYTHONPATH": str(ROOT)}
    relay = children.start(line, env=environment, cwd=ROOT, log=folder / f"{name}.log")
    try:
        if not children.wait_until(lambda: answers(url), timeout=20, every=0.02):
            raise children.Failed(f"the relay does not answer: {children.last_line(folder / f'{name}.log')}")
        yield Way(url, control)
    finally:
        children.kill(relay)


def answers(url: str) -> bool:
    """Whether there is a server."""
    with redis.Redis.from_url(url, socket_timeout=5) as client:
        try:
            return bool(client.ping())
        except redis.RedisError:
            return False
