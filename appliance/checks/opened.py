"""The listeners of a mill that other machines can reach, for `up`, `status` and `doctor`."""

from appliance.checks.startup import Check, CheckLevel
from appliance.config.network import is_loopback
from appliance.mill.parts import NET_SETTING, page_url
from appliance.mill.settings import Mill
from monitor.config.settings import split_address
from protocol.security.address import bracketed

WHAT = "open to other machines"


def opened_text(mill: Mill) -> str:
    """Return the addresses, the ports and the names under which other machines reach the mill.
    Return an empty text if nothing is open to them."""
    return "; ".join(filter(None, [_brokers(mill), _page(mill)]))


def _brokers(mill: Mill) -> str:
    network = mill.config.network
    if not network.opens_kafka or is_loopback(network.listen):
        return ""
    ports = [str(port) for part in mill.parts for key, port in part.ports if key == NET_SETTING]
    host = bracketed(network.listen)
    names = ", ".join(network.names)
    return f"Kafka with TLS and logins at {host}, ports {', '.join(ports)}; names {names}"


def _page(mill: Mill) -> str:
    config = mill.config
    host, port = split_address(config.monitor.listen)
    if not config.network.opens_page or is_loopback(host):
        return ""
    return f"the page with HTTPS and logins at {bracketed(host)}, port {port}: {page_url(config)}"


def check(mill: Mill) -> Check:
    """Report what is open to other machines."""
    return Check(CheckLevel.OK, WHAT, opened_text(mill) or "nothing")
