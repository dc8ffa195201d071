"""The checks of `network:`, the section that opens listeners with TLS.

This module is pure. If clients need not log in, such a listener must be on the loopback.
"""

import ipaddress
import re

from appliance.config.document import Document
from appliance.config.faults import found_text
from appliance.config.model import KAFKA, MillConfig

HOST_LENGTH_MAX = 253
_LABEL = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?")


def is_loopback(host: str) -> bool:
    """Return whether an address can be reached only from this machine."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _is_host(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        labels = name.split(".")
        return len(name) <= HOST_LENGTH_MAX and all(map(_LABEL.fullmatch, labels))
    return True


def check_network(config: MillConfig, document: Document) -> None:
    """Append the faults of the section."""
    network = config.network
    for index, name in enumerate(network.open):
        if name != KAFKA:
            expected = f"{KAFKA}: nothing else can be opened yet"
            document.add(("network", "open", index), found_text(name), expected)
    if not is_loopback(network.listen):
        document.add(
            ("network", "listen"),
            found_text(network.listen),
            "a loopback address such as 127.0.0.1:"
            " other machines must not reach the brokers before there is authentication",
        )
    for index, name in enumerate(network.names):
        if not _is_host(name):
            expected = "a host name or an IP address, without a port"
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
    if not network.opens_kafka:
        return
    if config.cluster.bootstrap_servers is not None:
        expected = "[]: the brokers of cluster.bootstrap_servers are not this mill's"
        document.add(("network", "open"), f"[{KAFKA}]", expected)
    elif not network.names:
        document.add(
            ("network", "open"),
            f"[{KAFKA}] without network.names",
            "the names or addresses that clients dial, such as names: [localhost]",
        )


def refuse_network(config: MillConfig, document: Document) -> None:
    """Append a fault if a mill in containers opens a listener with TLS.

    A broker in a container listens on all of its addresses.
    """
    if config.network.open:
        found = f"[{', '.join(config.network.open)}]"
        document.add(("network", "open"), found, "[]: it is not offered in containers yet")
