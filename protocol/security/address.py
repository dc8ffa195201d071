"""IP addresses as texts: the one form in which they are compared, and the form before a port.

This module is pure.
"""

from __future__ import annotations

from ipaddress import IPv6Address, ip_address


def normal_host(host: str) -> str:
    """Return an address in its shortest form, and an IPv4 address without its IPv6 prefix.

    Any other text is returned unchanged, so it matches no client.
    """
    try:
        address = ip_address(host)
    except ValueError:
        return host
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return str(address)


def bracketed(host: str) -> str:
    """Return a host as it is written before a port: an IPv6 address in brackets."""
    return f"[{host}]" if ":" in host else host


def is_address(host: str) -> bool:
    """Return True if a text is an IP address."""
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
