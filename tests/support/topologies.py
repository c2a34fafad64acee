"""Servers with replicas that Sentinels watch, and clusters: real processes on free loopback ports."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from signal import SIGCONT, SIGKILL, SIGSTOP
from typing import Any

import redis

from holdfast.server import keeper
from holdfast.server.binary import find_binary
from tests.support.outages import eventually
from tests.support.servers import _free_port

SERVICE = "jobs"
DOWN_AFTER = 1500  # milliseconds without an answer: less is not rare on a busy machine
TRIES = 5


@dataclass(eq=False)
class Node:
    """A process of a topology: a server, or a Sentinel."""

    process: subprocess.Popen[bytes]
    port: int
    client: redis.Redis
    start: Callable[[], subprocess.Popen[bytes]]

    def restart(self) -> None:
        """Start it again, if it was killed."""
        if self.process.poll() is not None:
            self.process = self.start()
            eventually(partial(_answers, self.client))

    def kill(self) -> None:
        self.process.send_signal(SIGKILL)
        self.process.wait()

    def freeze(self) -> None:
        self.process.send_signal(SIGSTOP)

    def thaw(self) -> None:
        self.process.send_signal(SIGCONT)

    def ask(self, *command: Any) -> Any:
        return self.client.execute_command(*command)

    @property
    def is_primary(self) -> bool:
        with suppress(redis.RedisError):
            return bool(self.client.info("replication")["role"] == "master")
        return False

    @property
    def offset(self) -> int:
        """How far a server has come in the stream of replicated commands."""
        info = self.client.info("replication")
        return int(info["master_repl_offset" if info["role"] == "master" else "slave_repl_offset"])

    @property
    def replicas(self) -> int:
        return int(self.client.info("replication")["connected_slaves"])


@contextmanager
def node(
    folder: Path, name: str, *options: str, config: str | None = None, password: str | None = None
) -> Iterator[Node]:
    """Start a server, or a Sentinel with a file of its own; on another port if one that it needs is taken."""
    for _ in range(TRIES):
        made = _make(folder, name, options, config, password)
        eventually(partial(_has_begun, made))
        if made.process.poll() is None:
            break
        made.client.close()
    else:
        raise AssertionError((folder / f"{name}.log").read_text())
    try:
        yield made
    finally:
        made.thaw()
        made.kill()
        made.client.close()


def _has_begun(node: Node) -> bool:
    return _answers(node.client) or node.process.poll() is not None


def _make(folder: Path, name: str, options: Sequence[str], config: str | None, password: str | None) -> Node:
    port = _free_port()
    line = [str(find_binary())]
    if config is not None:
        (folder / f"{name}.conf").write_text(f"port {port}\nbind 127.0.0.1\ndir {folder}\n{config}")
        line += [f"{folder}/{name}.conf", *options]
    else:
        line += ["--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder), "--save", "", *options]
        line += ["--dbfilename", f"{name}.rdb", "--repl-diskless-sync-delay", "0"]

    def start() -> subprocess.Popen[bytes]:
        with (folder / f"{name}.log").open("ab") as log:
            return subprocess.Popen(line, stdout=log, stderr=log, env={**keeper.ENVIRONMENT, **os.environ})

    return Node(start(), port, redis.Redis(port=port, password=password, socket_timeout=2), start)


def _answers(client: redis.Redis) -> bool:
    with suppress(redis.RedisError):
        return bool(client.ping())
    return False


class Watched:
    """A primary and its replicas, watched by three Sentinels."""

    def __init__(self, servers: list[Node], sentinels: list[Node]) -> None:
        self.servers, self.sentinels = servers, sentinels

    @property
    def url(self) -> str:
        return f"redis+sentinel://{','.join(f'127.0.0.1:{each.port}' for each in self.sentinels)}/{SERVICE}"

    @property
    def primary(self) -> Node:
        """The server that the Sentinels name."""
        _, port = self.sentinels[0].ask("SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE)
        return next(each for each in self.servers if each.port == int(port))

    def lose(self, primary: Node, fate: str) -> None:
        """Have a primary killed, frozen or demoted, and wait until the Sentinels name another."""
        if fate == "demoted":
            eventually(self._is_begun)
        else:
            (primary.kill if fate == "killed" else primary.freeze)()
        eventually(lambda: self.primary is not primary and self.primary.is_primary)
        if fate == "demoted":
            eventually(lambda: not primary.is_primary)  # until then it accepts writes, which are lost

    def _is_begun(self) -> bool:
        with suppress(redis.ResponseError):  # INPROG, or no replica is good enough yet
            return bool(self.sentinels[0].ask("SENTINEL", "FAILOVER", SERVICE))
        return False

    def catch_up(self) -> None:
        """Wait until every replica has what the primary has."""
        offset = self.primary.offset
        eventually(lambda: all(each.offset >= offset for each in self.servers))

    def heal(self) -> None:
        """Bring back what was killed or frozen, and wait until all replicas follow the primary."""
        for each in (*self.servers, *self.sentinels):
            each.thaw()
            each.restart()
        eventually(lambda: self.primary.is_primary and all(map(self._follows, self.servers)))

    def _follows(self, server: Node) -> bool:
        """Whether a server is the primary, or has all that the primary had when it began to follow it."""
        info = server.client.info("replication")
        follows = info.get("master_port") == self.primary.port and info.get("master_link_status") == "up"
        return server is self.primary or bool(follows and not info["master_sync_in_progress"])


@contextmanager
def sentinels(*, replicas: int = 2) -> Iterator[Watched]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hfs-", ignore_cleanup_errors=True)))
        servers = [stack.enter_context(node(folder, f"server{number}")) for number in range(replicas + 1)]
        primary, *others = servers
        for each in others:
            each.client.replicaof("127.0.0.1", primary.port)
        eventually(lambda: primary.replicas == replicas)
        config = (
            f"sentinel monitor {SERVICE} 127.0.0.1 {primary.port} 2\n"
            f"sentinel down-after-milliseconds {SERVICE} {DOWN_AFTER}\nsentinel failover-timeout {SERVICE} 2000\n"
        )
        watching = [
            stack.enter_context(node(folder, f"sentinel{number}", "--sentinel", config=config)) for number in range(3)
        ]
        for each in watching:
            eventually(partial(_knows_all, each, replicas))
        yield Watched(servers, watching)


def _knows_all(sentinel: Node, replicas: int) -> bool:
    info = sentinel.client.sentinel_master(SERVICE)
    return bool(info["num-slaves"] == replicas and info["num-other-sentinels"] == 2)


class Cluster:
    """Primaries that share the slots evenly."""

    def __init__(self, nodes: list[Node]) -> None:
        self.nodes = nodes

    @property
    def url(self) -> str:
        return f"redis+cluster://{','.join(f'127.0.0.1:{each.port}' for each in self.nodes)}"

    def slot(self, namespace: str) -> int:
        return int(self.nodes[0].ask("CLUSTER", "KEYSLOT", f"{{{namespace}}}"))

    def owner(self, slot: int) -> Node:
        """The node that serves a slot, as itself knows."""
        for each in self.nodes:
            for first, last, (_, port, *_), *_ in each.ask("CLUSTER", "SLOTS"):
                if first <= slot <= last and port == each.port:
                    return each
        raise AssertionError(f"nobody serves slot {slot}")

    def namespace_of(self, node: Node) -> str:
        """A namespace whose keys are on a node."""
        names = (f"n{number}" for number in range(1000))
        return next(name for name in names if self.owner(self.slot(name)) is node)

    def move(self, slot: int, to: Node) -> None:
        """Move a slot at once, as Valkey 9 does."""
        owner = self.owner(slot)
        owner.ask("CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", slot, slot, "NODE", to.ask("CLUSTER", "MYID"))
        eventually(lambda: self.owner(slot) is to)


@contextmanager
def cluster(count: int = 3) -> Iterator[Cluster]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hfc-", ignore_cleanup_errors=True)))
        options = ("--cluster-enabled", "yes", "--cluster-node-timeout", "1000")
        nodes = [
            stack.enter_context(node(folder, f"n{number}", *options, "--cluster-config-file", f"n{number}.conf"))
            for number in range(count)
        ]
        bounds = [16384 * place // count for place in range(count + 1)]
        for place, each in enumerate(nodes):
            each.ask("CLUSTER", "ADDSLOTSRANGE", bounds[place], bounds[place + 1] - 1)
            each.ask("CLUSTER", "SET-CONFIG-EPOCH", place + 1)
        for each in nodes[1:]:
            nodes[0].ask("CLUSTER", "MEET", "127.0.0.1", each.port)
        for each in nodes:
            eventually(partial(_is_whole, each, count))
        yield Cluster(nodes)


def _is_whole(node: Node, count: int) -> bool:
    info = node.ask("CLUSTER", "INFO").decode()
    known = ("cluster_state:ok", "cluster_slots_ok:16384", f"cluster_known_nodes:{count}\r")
    return all(each in info for each in known)
