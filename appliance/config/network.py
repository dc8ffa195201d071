"""The checks of `network:`, the section that opens listeners with TLS.

This module is pure. A listener beyond the loopback needs logins, a super user, and a name that
other machines can dial (decision 0200).
"""

import ipaddress
import re

from appliance.config.document import Document
from appliance.config.faults import found_text
from appliance.config.model import MillConfig
from appliance.config.network_section import KAFKA, PAGE, SERVERS

HOST_LENGTH_MAX = 253
LOCAL_NAMES = ("localhost.localdomain", "ip6-localhost", "ip6-loopback")
"""Names that the hosts files of distributions give to the loopback."""
_LABEL = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?")


def is_loopback(host: str) -> bool:
    """Return whether an address can be reached only from this machine."""
    if host == "localhost":
        return True
    address = _address(host)
    return address is not None and address.is_loopback


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Parse an IP address. Return None if the text is not one.

    An IPv4 address that is written as IPv6 (`::ffff:127.0.0.1`) is returned as IPv4.
    """
    try:
        found = ipaddress.ip_address(host)
    except ValueError:
        return None
    return getattr(found, "ipv4_mapped", None) or found


def leads_to_the_client(name: str) -> bool:
    """Return True if a client that dials the name reaches its own machine (RFC 6761 §6.3)."""
    lower = name.lower()
    return is_loopback(lower) or lower.endswith(".localhost") or lower in LOCAL_NAMES


def is_dialled_host(name: str) -> bool:
    """Return True if a client can dial the text as a host name or an IP address."""
    address = _address(name)
    if address is not None:
        return not address.is_unspecified
    return len(name) <= HOST_LENGTH_MAX and all(map(_LABEL.fullmatch, name.split(".")))


def check_network(config: MillConfig, document: Document) -> None:
    """Append the faults of the section."""
    network = config.network
    for index, name in enumerate(network.open):
        if name in SERVERS:
            _check_server(config, document, index, name)
        elif name not in (KAFKA, PAGE):
            expected = f"{KAFKA}, {PAGE}, {' or '.join(SERVERS)}: nothing else can be opened yet"
            document.add(("network", "open", index), found_text(name), expected)
    _check_listen(config, document)
    for index, name in enumerate(network.names):
        if not is_dialled_host(name):
            expected = "a host name or an IP address that clients can dial, without a port"
            document.add(("network", "names", index), found_text(name), expected)
    for given, other in (("certificate", "key"), ("key", "certificate")):
        if getattr(network.tls, given) and not getattr(network.tls, other):
            found = f"no {other} beside it"
            document.add(("network", "tls", given), found, "both certificate and key, or none")
    if network.tls.ca and not (network.tls.certificate or network.tls.key):
        expected = (
            "certificate and key as well, or none of the three:"
            " the mill's own certificates have its CA"
        )
        document.add(("network", "tls", "ca"), "no certificate beside it", expected)
    if network.opens_kafka and config.cluster.bootstrap_servers is not None:
        expected = "[]: the brokers of cluster.bootstrap_servers are not this mill's"
        document.add(("network", "open"), f"[{KAFKA}]", expected)
    elif (
        network.listening
        and not network.names
        and not (config.cluster.hosts is not None and network.listening == (KAFKA,))
    ):
        document.add(
            ("network", "open"),
            f"[{', '.join(network.open)}] without network.names",
            "the names or addresses that clients dial, such as names: [localhost]",
        )


def _check_server(config: MillConfig, document: Document, index: int, name: str) -> None:
    """Append a fault if the mill has no server of this name of its own."""
    section = getattr(config.sinks, name)
    if section is not None and section.host is None:
        return
    found = f"sinks.{name}: null" if section is None else f"sinks.{name}.host"
    document.add(
        ("network", "open", index),
        f"{found_text(name)} beside {found}",
        f"no {name} in this list: only the bundled server can be opened",
    )


def _check_listen(config: MillConfig, document: Document) -> None:
    """Append the faults of the listen address, and those of the keys that an address beyond the
    loopback needs. The check of the super users is in `cross`."""
    network = config.network
    if is_loopback(network.listen):
        return
    if _address(network.listen) is None:
        document.add(
            ("network", "listen"),
            found_text(network.listen),
            "an IP address of this machine, or 0.0.0.0 for all of its IPv4 addresses, or :: for all"
            " of its addresses",
        )
        return
    beside = f"beside network.listen: {network.listen}"
    if not network.listening:
        expected = f"[{KAFKA}], because nothing else listens there; or network.listen: 127.0.0.1"
        if network.opens_page:
            expected += " (the page listens at monitor.listen)"
        document.add(("network", "open"), f"[{', '.join(network.open)}] {beside}", expected)
    if network.has_users and network.login is None:
        expected = (
            "login: users, because other machines may reach the brokers only with a login;"
            " or network.listen: 127.0.0.1"
        )
        document.add(("network", "login"), f"null {beside}", expected)
    # With hosts, each broker advertises its own host, and the names are further ones.
    if config.cluster.hosts is None and network.names and leads_to_the_client(network.names[0]):
        document.add(
            ("network", "names", 0),
            f"{found_text(network.names[0])} {beside}",
            "a first name that clients on other machines can dial, such as mill.example.org: with"
            " this one they reach their own machine. This one may stand later in the list",
        )
