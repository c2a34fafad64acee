"""A primary and a replica behind one address, which changes over to the other as a managed endpoint does."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import redis

from holdfast.server import keeper
from holdfast.server.binary import find_binary
from tests.support.outages import eventually
from tests.support.servers import _free_port


@dataclass
class Server:
    """A server with a socket for its clients and a port for its replica."""

    path: str
    port: int
    client: redis.Redis

    @property
    def offset(self) -> int:
        return int(self.client.info("replication")["master_repl_offset"])

    @property
    def is_in_step(self) -> bool:
        """Whether it is a replica that has a link to its primary."""
        return bool(self.client.info("replication").get("master_link_status") == "up")


@contextmanager
def server(folder: Path, name: str) -> Iterator[Server]:
    path, port = f"{folder}/{name}", _free_port()
    line = [str(find_binary()), "--unixsocket", path, "--port", str(port), "--bind", "127.0.0.1"]
    line += ["--dir", str(folder), "--dbfilename", f"{name}.rdb", "--save", "", "--repl-diskless-sync-delay", "0"]
    with (folder / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(line, stdout=log, stderr=log, env={**keeper.ENVIRONMENT, **os.environ})
    with redis.Redis(unix_socket_path=path) as client:
        try:
            eventually(lambda: _answers(client))
            yield Server(path, port, client)
        finally:
            process.kill()
            process.wait()


def _answers(client: redis.Redis) -> bool:
    with suppress(redis.RedisError):
        return bool(client.ping())
    return False


@dataclass(eq=False)
class _Way:
    """A connection that somebody has made: whose it is, and where it leads."""

    pid: int
    target: str
    ends: tuple[socket.socket, socket.socket]


class Endpoint:
    """One address: new connections lead to the present target, and those that are open stay where they are."""

    def __init__(self, folder: Path, target: str) -> None:
        self.target = target
        self.url = f"unix://{folder}/e"
        self.accepted = 0
        self._ways: list[_Way] = []
        self._threads: list[threading.Thread] = []
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(f"{folder}/e")
        self._listener.listen(100)
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def open(self, target: str, pid: int) -> int:
        """How many connections a process has that lead to a target."""
        return sum(way.target == target and way.pid == pid for way in list(self._ways))

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._accepting.join()  # so that no more come
        self._listener.close()
        for way in list(self._ways):
            self._cut(way)
        for thread in self._threads:
            thread.join()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                one, _ = self._listener.accept()
                pid, _, _ = struct.unpack("3i", one.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
                other, target = socket.socket(socket.AF_UNIX), self.target
                other.connect(target)
                self.accepted += 1
                way = _Way(pid, target, (one, other))
                self._ways.append(way)
                for source, sink in ((one, other), (other, one)):
                    self._threads.append(threading.Thread(target=self._pass_on, args=(way, source, sink), daemon=True))
                    self._threads[-1].start()

    def _pass_on(self, way: _Way, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                sink.sendall(data)
        self._cut(way)
        source.close()

    def _cut(self, way: _Way) -> None:
        with suppress(ValueError):  # the other direction was faster
            self._ways.remove(way)
        for end in way.ends:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


class Pair:
    """Two servers, of which one is the primary, behind one address."""

    def __init__(self, folder: Path, primary: Server, replica: Server) -> None:
        self.primary, self.replica = primary, replica
        self.endpoint = Endpoint(folder, primary.path)
        self.url = self.endpoint.url
        self._follow()

    def _follow(self) -> None:
        self.replica.client.replicaof("127.0.0.1", self.primary.port)
        eventually(lambda: self.replica.is_in_step)

    def fail_over(self) -> None:
        """Promote the replica, point new connections at it, and demote the old primary with its connections open.

        Writes pause until the replica has all of them, so nothing that was acknowledged is lost.
        """
        old, new = self.primary, self.replica
        old.client.client_pause(60_000, all=False)
        eventually(lambda: old.offset == new.offset)
        new.client.execute_command("REPLICAOF", "NO", "ONE")
        self.endpoint.target = new.path
        self.primary, self.replica = new, old
        old.client.replicaof("127.0.0.1", new.port)
        old.client.client_unpause()

    def settle(self) -> None:
        """Wait until the demoted server follows the new primary: then it may be promoted in its turn."""
        eventually(lambda: self.replica.is_in_step)


@contextmanager
def pair() -> Iterator[Pair]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hff-", ignore_cleanup_errors=True)))
        made = Pair(folder, *(stack.enter_context(server(folder, name)) for name in "ab"))
        stack.callback(made.endpoint.close)
        yield made
