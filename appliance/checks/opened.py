"""The listeners of a mill that other machines can reach, for `up`, `status` and `doctor`."""

from appliance.checks.startup import Check, CheckLevel
from appliance.config.network import is_loopback
from appliance.mill.parts import NET_SETTING
from appliance.mill.settings import Mill
from protocol.security.address import bracketed

WHAT = "open to other machines"
TITLES = {"redis": "Redis", "mysql": "MySQL"}


def opened_text(mill: Mill) -> str:
    """Return the address, the ports and the names under which other machines reach the mill.
    Return an empty text if nothing is open to them."""
    network = mill.config.network
    if not network.open or is_loopback(network.listen):
        return ""
    host = bracketed(network.listen)
    found = []
    if network.opens_kafka:
        ports = [str(port) for part in mill.parts for key, port in part.ports if key == NET_SETTING]
        found.append(f"Kafka with TLS and logins at {host}, ports {', '.join(ports)}")
    for part in mill.parts:
        if part.is_open:
            found.append(f"{TITLES[part.name]} with TLS and a password at {host}, port {part.port}")
    return f"{'; '.join(found)}; names {', '.join(network.names)}"


def check(mill: Mill) -> Check:
    """Report what is open to other machines."""
    return Check(CheckLevel.OK, WHAT, opened_text(mill) or "nothing")
