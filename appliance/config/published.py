"""The addresses at which compose publishes ports, and the checks of the configuration for them.

This module is pure. A container cannot see where compose publishes its ports, so the compose files
say it in the environment: `docker-compose.yml` publishes on the loopback only, and each file
`docker-compose.open*.yml` publishes one thing more. The configuration must open the same, because
the parts refuse to start otherwise (decision 0238).
"""

from collections.abc import Mapping
from dataclasses import dataclass

from appliance.config.containers import is_container
from appliance.config.document import Document
from appliance.config.faults import Path, found_text
from appliance.config.model import MillConfig
from appliance.config.network_section import KAFKA, PAGE
from monitor.config.settings import split_address
from protocol.security.address import bracketed, normal_host

KAFKA_AT = "MILLRACE_PUBLISHED_KAFKA"
PAGE_AT = "MILLRACE_PUBLISHED_PAGE"

BASE_FILE = "docker-compose.yml"
FILES = {KAFKA: "docker-compose.open.yml", PAGE: "docker-compose.open-page.yml"}
"""The compose file that publishes each name of `network.open`."""

Address = tuple[str, int]


class WrongAddress(ValueError):
    """Raised if the value of a variable is not `host:port`."""

    def __init__(self, variable: str, text: str) -> None:
        self.variable = variable
        super().__init__(text)


@dataclass(frozen=True, slots=True)
class Published:
    """The places at which compose publishes ports beyond the loopback."""

    kafka: Address | None = None
    """The address of this machine, and the port of NET of broker 1; None if NET is not
    published."""
    page: Address | None = None
    """The address of this machine and the port of the page; None if only the loopback has it."""


def published_of(environ: Mapping[str, str]) -> Published | None:
    """Return what compose publishes; None if the parts are no containers. Raises WrongAddress."""
    if not is_container(environ):
        return None
    return Published(_address(environ, KAFKA_AT), _address(environ, PAGE_AT))


def _address(environ: Mapping[str, str], variable: str) -> Address | None:
    text = environ.get(variable)
    try:
        return split_address(text) if text else None
    except ValueError as error:
        raise WrongAddress(variable, str(error)) from error


def check_published(config: MillConfig, document: Document, published: Published) -> None:
    """Append a fault for each thing that the file opens and compose does not publish, and if
    compose publishes a page that is not opened."""
    places = {KAFKA: published.kafka, PAGE: published.page}
    for index, name in enumerate(config.network.open):
        path = ("network", "open", index)
        if name not in places:
            known = " or ".join(places)
            document.add(path, found_text(name), f"{known}: no more is offered in containers yet")
        elif places[name] is None:
            document.add(
                path,
                found_text(name),
                f"no {name} here, because compose publishes it on 127.0.0.1 only; or"
                f" {_file_hint(config)}",
            )
    if config.network.opens_kafka and published.kafka is not None:
        _check_net(config, document, *published.kafka)
    if published.page is not None:
        _check_page(config, document, published.page)


def _file_hint(config: MillConfig) -> str:
    """Return the line with which each compose command uses the files that this configuration
    needs."""
    files = [BASE_FILE, *(file for name, file in FILES.items() if name in config.network.open)]
    return f"COMPOSE_FILE={':'.join(files)} in the file .env beside {BASE_FILE}"


def _listen_hint(host: str) -> str:
    return f"MILLRACE_LISTEN={bracketed(host)} in the file .env beside {BASE_FILE}"


def _check_net(config: MillConfig, document: Document, host: str, port: int) -> None:
    """Append a fault if compose publishes NET at another address or port. Clients dial the port
    that brokers advertise, so it must be the same inside and outside."""
    listen, first = config.network.listen, config.ports.net
    _check_host(document, ("network", "listen"), listen, host)
    if first != port:
        document.add(
            ("ports", "net"),
            str(first),
            f"{port}, the first port that compose publishes; or other ports in {FILES[KAFKA]}",
        )


def _check_page(config: MillConfig, document: Document, at: Address) -> None:
    """Append a fault if compose publishes a page that is not opened, because it would have neither
    HTTPS nor a login, or if it publishes the page at another address."""
    host, port = at
    if not config.network.opens_page:
        document.add(
            ("network", "open"),
            f"[{', '.join(config.network.open)}], and {FILES[PAGE]} publishes the page at"
            f" {bracketed(host)}:{port}",
            f"{PAGE} in this list; or start the mill without {FILES[PAGE]}",
        )
        return
    listen, own_port = split_address(config.monitor.listen)
    _check_host(document, ("monitor", "listen"), listen, host)
    if own_port != port:
        document.add(
            ("monitor", "listen"),
            str(own_port),
            f"port {port}, which compose publishes; or another port in {FILES[PAGE]}",
        )


def _check_host(document: Document, path: Path, stated: str, published: str) -> None:
    if normal_host(stated) != normal_host(published):
        document.add(
            path,
            found_text(stated),
            f"{published}, where compose publishes the ports; or {_listen_hint(stated)}",
        )
