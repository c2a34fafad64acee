"""A way to the server that counts round trips and bytes, and may hold back each reply: `python -m bench.relay`.

    python -m bench.relay LISTEN TARGET CONTROL MILLISECONDS

The places are unix sockets or host:port. A connection to CONTROL, a unix socket, receives the counts as JSON. Only
replies are held back: for a client that is a round trip that takes so much longer, as on a network. The event loop of
Python cannot wait half a millisecond, so each connection has threads.

A round trip is counted when a client speaks after it was spoken to: what it sends at once counts as one.
"""

from __future__ import annotations

import json
import socket
import sys
import threading
import time
from contextlib import suppress
from queue import SimpleQueue

SIZE = 1 << 18  # bytes


def connected(place: str) -> socket.socket:
    if ":" not in place:
        end = socket.socket(socket.AF_UNIX)
        end.connect(place)
        return end
    host, _, port = place.rpartition(":")
    end = socket.create_connection((host, int(port)))
    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return end


def listening(place: str) -> socket.socket:
    if ":" in place:
        host, _, port = place.rpartition(":")
        return socket.create_server((host, int(port)), backlog=1024)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(place)
    listener.listen(1024)
    return listener


class Connection:
    """One client's: each count is written by one thread only."""

    def __init__(self, client: socket.socket, server: socket.socket, delay: float) -> None:
        self.trips, self.sent, self.received = 0, 0, 0
        self._is_answered = True
        self._client, self._server, self._delay = client, server, delay
        self._held: SimpleQueue[tuple[float, bytes]] = SimpleQueue()

    def start(self) -> None:
        for duty in (self._pass_requests, self._pass_replies, self._release):
            threading.Thread(target=duty, daemon=True).start()

    def _pass_requests(self) -> None:
        with suppress(OSError):
            while data := self._client.recv(SIZE):
                if self._is_answered:
                    self.trips += 1
                    self._is_answered = False
                self.sent += len(data)
                self._server.sendall(data)
        _close(self._server)

    def _pass_replies(self) -> None:
        with suppress(OSError):
            while data := self._server.recv(SIZE):
                self.received += len(data)
                self._is_answered = True
                if self._delay:
                    self._held.put((time.monotonic() + self._delay, data))
                else:
                    self._client.sendall(data)
        self._held.put((0.0, b""))

    def _release(self) -> None:
        with suppress(OSError):
            while True:
                due, data = self._held.get()
                if not data:
                    break
                if (wait := due - time.monotonic()) > 0:
                    time.sleep(wait)
                self._client.sendall(data)
        _close(self._client)


def _close(end: socket.socket) -> None:
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)


def _tell(control: str, connections: list[Connection]) -> None:
    listener = listening(control)
    while True:
        asker, _ = listener.accept()
        names = ("trips", "sent", "received")
        counts = {name: sum(getattr(each, name) for each in connections) for name in names}
        with suppress(OSError):
            asker.sendall(json.dumps(counts).encode())
        asker.close()


def counts(control: str) -> dict[str, int]:
    """Ask a relay what it has counted."""
    with connected(control) as end:
        end.settimeout(10)
        answer: dict[str, int] = json.loads(end.makefile().read())
        return answer


def main(listen: str, target: str, control: str, milliseconds: str) -> None:
    sys.setswitchinterval(0.0005)
    connections: list[Connection] = []
    threading.Thread(target=_tell, args=(control, connections), daemon=True).start()
    listener = listening(listen)
    while True:
        client, _ = listener.accept()
        if ":" in listen:
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connections.append(Connection(client, connected(target), float(milliseconds) / 1000))
        connections[-1].start()  # not before it is counted with the others


if __name__ == "__main__":
    main(*sys.argv[1:])
