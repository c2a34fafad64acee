"""Where the server of a namespace is, as Sentinels or the nodes of a cluster know it.

A plain URL leads to the server by itself. With a topology, `Route.find` asks before a connection is opened, and the
answer is kept until a connection fails, or its server turns out not to be the primary, or redirects.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from holdfast.store.redis_client import key_slot, new_seed_connection
from holdfast.store.server_errors import STORE_ERRORS, redirection

if TYPE_CHECKING:
    from holdfast.store.address import Address, Target, Topology

ASK_TIMEOUT = 0.5  # seconds for each seed: the next one may answer
MAX_NODES = 100  # of a cluster, that are asked besides the seeds

Place = tuple[str, int]


class Route:
    """The way to the server of an address. Threads may share it."""

    def __init__(self, target: Target, address: Address) -> None:
        self._locator = Locator(target, target.topology, address.key) if target.topology else None
        self._lock = threading.Lock()
        self._place: Place | None = None
        self._doubtful: Place | None = None  # where the last failure was

    @property
    def is_fixed(self) -> bool:
        """Whether the URL itself says where the server is."""
        return self._locator is None

    def find(self) -> Place | None:
        """Return where the server is now; None: where the URL says. It may ask servers, which takes time.

        Raises:
            ConnectionError: nobody knows.
        """
        if self._locator is None:
            return None
        with self._lock:
            if self._place is None:
                self._place = self._locator.find(self._doubtful)
            return self._place

    def failed(self, error: BaseException) -> None:
        """Ask again before the next connection, unless a node of the cluster has redirected to another one."""
        if self._locator is None:
            return
        moved = redirection(error)
        if moved:
            host, port = moved
            self._doubtful, self._place = None, (host or (self._place or ("", 0))[0], port)
        else:
            self._doubtful, self._place = self._place or self._doubtful, None


class Locator:
    """Asks the seeds of a topology, one after the other."""

    def __init__(self, target: Target, topology: Topology, key: str) -> None:
        self._target, self._topology = target, topology
        self._slot = key_slot(key.encode())
        self._seeds = list(topology.seeds)
        self._ask = self._ask_sentinel if topology.name == "sentinel" else self._ask_node

    def find(self, doubtful: Place | None = None) -> Place:
        """Return where the server is, preferably another place than one where it seems to be no longer.

        Raises:
            ConnectionError: no seed has answered, or none knows.
        """
        reasons: list[str] = []
        known: Place | None = None
        for seed in list(self._seeds):
            try:
                place = self._ask(seed)
            except STORE_ERRORS as error:
                reasons.append(f"{_name(seed)}: {error}")
                continue
            if place != doubtful:
                self._prefer(seed)
                return place
            known = place
        if known is None:
            raise ConnectionError("; ".join(reasons))
        return known

    def _prefer(self, seed: Place) -> None:
        """Ask a seed that knew the answer first, the next time."""
        self._seeds.sort(key=lambda each: each != seed)

    def _request(self, seed: Place, *command: str) -> Any:
        connection = new_seed_connection(self._target, seed, ASK_TIMEOUT)
        try:
            connection.connect()
            connection.send_command(*command)
            return connection.read_response()
        finally:
            connection.disconnect()

    def _ask_sentinel(self, seed: Place) -> Place:
        service = self._topology.service
        reply = self._request(seed, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", service)
        if not reply:
            raise ConnectionError(f"the Sentinel watches no service {service!r}")
        host, port = reply
        return host.decode(), int(port)

    def _ask_node(self, seed: Place) -> Place:
        found: Place | None = None
        nodes = []
        for first, last, *servers in self._request(seed, "CLUSTER", "SLOTS"):
            places = list(_places(servers, seed))
            nodes += places
            if first <= self._slot <= last and places:
                found = places[0]
        given = self._topology.seeds
        self._seeds = [*self._seeds, *(each for each in dict.fromkeys(nodes) if each not in self._seeds)]
        self._seeds = self._seeds[: len(given) + MAX_NODES]
        if found is None:
            raise ConnectionError(f"no node of the cluster serves slot {self._slot}")
        return found


def _places(servers: list[Any], seed: Place) -> Iterator[Place]:
    """Yield where the servers of a slot are, the primary first; one without a host is on that of the seed."""
    for host, port, *_ in servers:
        yield host.decode() if host else seed[0], int(port)


def _name(place: Place) -> str:
    host, port = place
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
