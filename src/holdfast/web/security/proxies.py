"""Proxies in front of the server: what they say about the client is believed only if it comes from their addresses.

Host is never taken from X-Forwarded-Host: a proxy passes Host on. All that is read is X-Forwarded-Proto (http or
https), X-Forwarded-For (the client's address, for the limit of attempts and the audit log), and the header that names
the user, if the file of users names one.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence

from holdfast.errors import Invalid
from holdfast.web.paths import Scope

PROXIED = "holdfast.proxied"  # in the scope of requests that a trusted proxy has sent

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class Proxies:
    """The addresses and networks of trusted proxies."""

    def __init__(self, addresses: Iterable[str] = ()) -> None:
        self._networks = [_read_network(each) for each in addresses]

    def __bool__(self) -> bool:
        return bool(self._networks)

    def __contains__(self, address: Address | None) -> bool:
        return address is not None and any(
            address.version == network.version and address in network for network in self._networks
        )

    def believed(self, scope: Scope) -> Scope:
        """Return the scope of a request with the scheme and the client that a trusted proxy reports."""
        client = scope.get("client")
        peer = read_address(client[0]) if client else None
        if peer not in self:
            return scope
        scheme = _values(scope, b"x-forwarded-proto")[-1:]
        return {
            **scope,
            PROXIED: True,
            "scheme": scheme[0] if scheme in (["http"], ["https"]) else "http",
            "client": (self._client(_values(scope, b"x-forwarded-for")) or str(peer), 0),
        }

    def _client(self, addresses: Sequence[str]) -> str | None:
        """Return the last address that is not a proxy's: each proxy appends the one from which it got the request."""
        for each in reversed(addresses):
            address = read_address(each)
            if address not in self:
                return str(address) if address else None
        return None


def read_address(text: str) -> Address | None:
    """Return an address; one of IPv4 that is written as IPv6 becomes the former. None: it is not an address."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


def _read_network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    try:
        network = ipaddress.ip_network(text)
    except ValueError:
        raise Invalid(f"expected the address of a proxy, such as 127.0.0.1 or 10.1.0.0/16, got {text!r}") from None
    if network.prefixlen == 0:
        raise Invalid(
            f"{text} is every address; name the addresses of your proxies, because their headers are believed"
        )
    return network


def _values(scope: Scope, name: bytes) -> list[str]:
    """Return the values of a header that may be a list."""
    sent = [value.decode("latin-1") for key, value in scope["headers"] if key == name]
    return [each.strip() for each in ",".join(sent).split(",") if each.strip()]
