"""The listeners of a mill that other machines can reach, for `up`, `status` and `doctor`."""

from appliance.checks.startup import Check, CheckLevel
from appliance.config.network import is_loopback
from appliance.mill.parts import LINK_SETTING, NET_SETTING, page_url
from appliance.mill.settings import Mill
from monitor.config.settings import split_address
from protocol.security.address import bracketed

WHAT = "open to other machines"
TITLES = {"redis": "Redis", "mysql": "MySQL"}


def opened_text(mill: Mill) -> str:
    """Return the addresses, the ports and the names under which other machines reach the mill.
    Return an empty text if nothing is open to them."""
    return "; ".join(filter(None, [_listeners(mill), _page(mill)]))


def _listeners(mill: Mill) -> str:
    network = mill.config.network
    if not network.listening or is_loopback(network.listen):
        return ""
    host, hosts = bracketed(network.listen), mill.config.cluster.hosts
    names, found = list(network.names), []
    if network.opens_kafka:
        found.append(f"Kafka with TLS and logins at {host}, ports {_ports_of(mill, NET_SETTING)}")
    if hosts is not None:
        links = f"the other brokers with certificates at port {_ports_of(mill, LINK_SETTING)}"
        found.append(links)
        names = [one for number, one in hosts.items() if number == mill.placement.broker] + names
    for part in mill.parts:
        if part.is_open:
            [(_, port)] = part.ports
            found.append(f"{TITLES[part.name]} with TLS and a password at {host}, port {port}")
    return f"{'; '.join(found)}; names {', '.join(names)}"


def _ports_of(mill: Mill, setting: str) -> str:
    return ", ".join(str(port) for part in mill.parts for key, port in part.ports if key == setting)


def _page(mill: Mill) -> str:
    config = mill.config
    host, port = split_address(config.monitor.listen)
    if not config.network.opens_page or is_loopback(host):
        return ""
    return f"the page with HTTPS and logins at {bracketed(host)}, port {port}: {page_url(config)}"


def check(mill: Mill) -> Check:
    """Report what is open to other machines."""
    return Check(CheckLevel.OK, WHAT, opened_text(mill) or "nothing")
