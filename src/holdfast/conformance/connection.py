"""RESP over a socket: all that a client of the protocol needs to send commands and read replies.

It shares nothing with the store's connections, as one in another language would not.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from holdfast.errors import StoreUnavailable
from holdfast.server import keeper
from holdfast.store import Address
from holdfast.store.topology import Route

TIMEOUT = 30.0  # seconds for which a reply may take


class Refusal(NamedTuple):
    """An error that the server replied with."""

    code: str
    message: str

    def __str__(self) -> str:
        return f"the error {self.code} {self.message}".rstrip()


class Connection:
    """A connection to one server; commands are sent one at a time."""

    def __init__(self, kind: str, options: dict[str, Any]) -> None:
        self._socket = _connect(kind, options)
        self._reader = self._socket.makefile("rb")
        if "password" in options:
            self._expect_ok("AUTH", *(options[name] for name in ("username", "password") if name in options))
        if options.get("db"):
            self._expect_ok("SELECT", str(options["db"]))

    def send(self, *parts: str | bytes) -> Any:
        """Send a command; return its reply: a number, bytes, a list, None or a `Refusal`."""
        encoded = [part.encode() if isinstance(part, str) else part for part in parts]
        framed = (b"$%d\r\n%s\r\n" % (len(part), part) for part in encoded)
        self._socket.sendall(b"*%d\r\n%s" % (len(encoded), b"".join(framed)))
        return self._read()

    def close(self) -> None:
        self._reader.close()
        self._socket.close()

    def _read(self) -> Any:
        line = self._reader.readline()
        if not line.endswith(b"\r\n"):
            raise ConnectionError("the server closed the connection")
        kind, rest = line[:1], line[1:-2]
        if kind == b"-":
            return Refusal(*rest.decode(errors="replace").partition(" ")[::2])
        if kind == b":":
            return int(rest)
        if kind == b"+":
            return rest
        size = int(rest)
        if size < 0:
            return None
        return [self._read() for _ in range(size)] if kind == b"*" else self._reader.read(size + 2)[:-2]

    def _expect_ok(self, *parts: str) -> None:
        reply = self.send(*parts)
        if isinstance(reply, Refusal):
            self.close()
            raise ConnectionError(f"{parts[0]}: {reply.message}")


@contextmanager
def open_connection(address: Address) -> Iterator[Connection]:
    """Connect to the server at an address.

    Raises:
        StoreUnavailable: it cannot be reached, or the connection was lost.
    """
    try:
        target = address.connect_to()
        place = Route(target, address).find()
        where = {"host": place[0], "port": place[1]} if place else {}
        connection = Connection(target.kind, {**target.options, **where})
        try:
            yield connection
        finally:
            connection.close()
    except (OSError, keeper.UntrustedPeer) as error:
        raise StoreUnavailable(f"cannot use {address.display}: {error}") from error


def _connect(kind: str, options: dict[str, Any]) -> socket.socket:
    if "path" in options:
        made = socket.socket(socket.AF_UNIX)
        made.settimeout(TIMEOUT)
        made.connect(options["path"])
        if kind == "embedded":
            keeper.check_peer(made, options["users"])
        return made
    host = options.get("host", "localhost")
    made = socket.create_connection((host, options.get("port", 6379)), TIMEOUT)
    return _secure(made, host, options) if kind == "tls" else made


def _secure(plain: socket.socket, host: str, options: dict[str, Any]) -> socket.socket:
    context = ssl.create_default_context(cafile=options.get("ssl_ca_certs"), capath=options.get("ssl_ca_path"))
    if options.get("ssl_cert_reqs") == "none":
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if "ssl_certfile" in options:
        context.load_cert_chain(options["ssl_certfile"], options.get("ssl_keyfile"), options.get("ssl_password"))
    return context.wrap_socket(plain, server_hostname=host)
