"""The addresses at which compose publishes ports, and the checks of the configuration for them.

This module is pure. A container cannot see where compose publishes its ports, so the compose files
say it in the environment: `docker-compose.yml` publishes on the loopback only, and each file
`docker-compose.open*.yml` publishes one thing more. The configuration must open the same, because
the parts refuse to start otherwise (decision 0238).
"""

from collections.abc import Mapping
from dataclasses import dataclass

from appliance.config.document import Document
from appliance.config.faults import found_text
from appliance.config.model import MillConfig
from appliance.config.network_section import KAFKA
from monitor.config.settings import split_address
from protocol.security.address import bracketed, normal_host

IN_CONTAINERS = "MILLRACE_PUBLISHED"
LOOPBACK_ONLY = "loopback"
KAFKA_AT = "MILLRACE_PUBLISHED_KAFKA"

OPEN_FILE = "docker-compose.open.yml"
COMPOSE_FILES = f"COMPOSE_FILE=docker-compose.yml:{OPEN_FILE}"
"""The line of `.env` with which each `docker compose` command uses both files."""


@dataclass(frozen=True, slots=True)
class Published:
    """The places at which compose publishes ports beyond the loopback."""

    kafka: tuple[str, int] | None = None
    """The address of this machine, and the port of NET of broker 1; None if NET is not
    published."""


def published_of(environ: Mapping[str, str]) -> Published | None:
    """Return what compose publishes; None if the parts are no containers. Raises ValueError if an
    address is not `host:port`."""
    if environ.get(IN_CONTAINERS) != LOOPBACK_ONLY:
        return None
    text = environ.get(KAFKA_AT)
    return Published(None if not text else split_address(text))


def check_published(config: MillConfig, document: Document, published: Published) -> None:
    """Append a fault for each thing that the file opens and compose does not publish."""
    network = config.network
    for index, name in enumerate(network.open):
        path = ("network", "open", index)
        if name != KAFKA:
            document.add(path, found_text(name), f"[{KAFKA}]: no more is offered in containers yet")
        elif published.kafka is None:
            document.add(
                path,
                found_text(name),
                "no such entry, because compose publishes on 127.0.0.1 only; or the line"
                f" {COMPOSE_FILES} in the file .env beside docker-compose.yml",
            )
        else:
            _check_net(config, document, *published.kafka)


def _check_net(config: MillConfig, document: Document, host: str, port: int) -> None:
    """Append a fault if compose publishes NET at another address or port. Clients dial the port
    that brokers advertise, so it must be the same inside and outside."""
    listen, first = config.network.listen, config.ports.net
    if normal_host(listen) != normal_host(host):
        document.add(
            ("network", "listen"),
            found_text(listen),
            f"{host}, where compose publishes the ports; or the line"
            f" MILLRACE_LISTEN={bracketed(listen)} in the file .env beside docker-compose.yml",
        )
    if first != port:
        document.add(
            ("ports", "net"),
            str(first),
            f"{port}, the first port that compose publishes; or other ports in {OPEN_FILE}",
        )
