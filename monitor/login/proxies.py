"""The headers in which a proxy names its client and the person that it has logged in.

This module is pure. Only the proxies of `monitor.proxies` are believed. The headers of all other
clients are dropped, also if a header is there twice.
"""

import hmac
import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from monitor.login.people import PageRole

USER_HEADER = b"x-forwarded-user"
GROUPS_HEADER = b"x-forwarded-groups"
SECRET_HEADER = b"millrace-proxy-secret"
FOR_HEADER, PROTO_HEADER = b"x-forwarded-for", b"x-forwarded-proto"
NAME_CHARS_MAX = 200

Headers = Sequence[tuple[bytes, bytes]]
_FORWARDED = (b"x-forwarded-", b"x-real-", b"x-auth-request-", b"forwarded", SECRET_HEADER)


@dataclass(frozen=True, slots=True)
class Proxies:
    """The addresses of the proxies that are believed."""

    networks: tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...]

    @classmethod
    def of(cls, texts: Iterable[str]) -> "Proxies":
        """Parse addresses and networks. Raise ValueError."""
        return cls(tuple(ipaddress.ip_network(text) for text in texts))

    def has(self, address: str) -> bool:
        """Return whether an address belongs to a proxy that is believed."""
        try:
            found = ipaddress.ip_address(address)
        except ValueError:
            return False
        plain = getattr(found, "ipv4_mapped", None) or found
        return any(plain in network for network in self.networks)

    def client_of(self, peer: str, headers: Headers) -> str:
        """Return the address of the client. It is the last one in X-Forwarded-For that is no
        proxy, because a client can write the ones before it."""
        hops = [
            hop.strip()
            for hop in b",".join(values_of(headers, FOR_HEADER)).decode("latin-1").split(",")
        ]
        for hop in reversed(hops):
            if not self.has(peer):
                break
            try:
                peer = str(ipaddress.ip_address(hop))
            except ValueError:
                break
        return peer

    def is_https(self, headers: Headers) -> bool:
        """Return whether the client of a proxy uses HTTPS."""
        return values_of(headers, PROTO_HEADER) == [b"https"]


def values_of(headers: Headers, name: bytes) -> list[bytes]:
    """Return the values of a header."""
    return [value for key, value in headers if key == name]


def without_forwarded(headers: Headers) -> list[tuple[bytes, bytes]]:
    """Return the headers without those that only a proxy may send."""
    # Some programs read `_` in the name of a header as `-`, so drop names with `_` too.
    return [
        (key, value)
        for key, value in headers
        if not key.lower().replace(b"_", b"-").startswith(_FORWARDED)
    ]


@dataclass(frozen=True, slots=True)
class ProxiedPerson:
    """The person that a proxy names, and the person's role."""

    name: str
    role: PageRole


def person_of(headers: Headers, secret: str, roles: Mapping[str, PageRole]) -> ProxiedPerson | str:
    """Return the person that a proxy names, or the reason why there is none.

    Each header must be there exactly once. A person gets the highest role of the person's groups,
    and is refused without such a group.
    """
    secrets = values_of(headers, SECRET_HEADER)
    if len(secrets) != 1 or not hmac.compare_digest(secrets[0], secret.encode()):
        return "the proxy does not send the secret of monitor.proxy_secret"
    users = values_of(headers, USER_HEADER)
    name = users[0].decode("utf-8", "replace").strip() if len(users) == 1 else ""
    if not name or len(name) > NAME_CHARS_MAX or not name.isprintable():
        return "the proxy does not name exactly one user in X-Forwarded-User"
    listed = values_of(headers, GROUPS_HEADER)
    if len(listed) > 1:
        return "the proxy sends X-Forwarded-Groups more than once"
    groups = [one.strip() for one in b",".join(listed).decode("utf-8", "replace").split(",")]
    found = [roles[group] for group in groups if group in roles]
    if not found:
        return "no group of the user is in monitor.proxy_roles"
    return ProxiedPerson(name, PageRole.OPERATOR if PageRole.OPERATOR in found else PageRole.VIEWER)
