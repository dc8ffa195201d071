"""The addresses at which compose publishes ports, and the checks of the configuration for them.

This module is pure. A container cannot see where compose publishes its ports, so the compose files
say it in the environment: `docker-compose.yml` publishes on the loopback only, and each file
`docker-compose.open*.yml` publishes one thing more. The configuration must open the same, because
the parts refuse to start otherwise (decision 0238).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from appliance.config.containers import is_container
from appliance.config.document import Document
from appliance.config.faults import Path, found_text
from appliance.config.model import MillConfig
from appliance.config.network_section import KAFKA, PAGE, SERVERS
from monitor.config.settings import split_address
from protocol.security.address import bracketed, normal_host

KAFKA_AT = "MILLRACE_PUBLISHED_KAFKA"
PAGE_AT = "MILLRACE_PUBLISHED_PAGE"
SERVERS_AT = {"redis": "MILLRACE_PUBLISHED_REDIS", "mysql": "MILLRACE_PUBLISHED_MYSQL"}

BASE_FILE = "docker-compose.yml"
FILES = {
    KAFKA: "docker-compose.open.yml",
    PAGE: "docker-compose.open-page.yml",
    **{name: f"docker-compose.open-{name}.yml" for name in SERVERS},
}
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
    servers: Mapping[str, Address] = field(default_factory=dict)
    """The address of this machine and the port of each bundled server that is published."""


def published_of(environ: Mapping[str, str]) -> Published | None:
    """Return what compose publishes; None if the parts are no containers. Raises WrongAddress."""
    if not is_container(environ):
        return None
    found = {name: _address(environ, variable) for name, variable in SERVERS_AT.items()}
    return Published(
        _address(environ, KAFKA_AT),
        _address(environ, PAGE_AT),
        {name: at for name, at in found.items() if at is not None},
    )


def _address(environ: Mapping[str, str], variable: str) -> Address | None:
    text = environ.get(variable)
    try:
        return split_address(text) if text else None
    except ValueError as error:
        raise WrongAddress(variable, str(error)) from error


def check_published(config: MillConfig, document: Document, published: Published) -> None:
    """Append a fault for each thing that the file opens and compose does not publish, and if
    compose publishes a page or a server that is not opened."""
    places = {KAFKA: published.kafka, PAGE: published.page, **published.servers}
    for index, name in enumerate(config.network.open):
        if name in FILES and places.get(name) is None:
            document.add(
                ("network", "open", index),
                found_text(name),
                f"no {name} here, because compose publishes it on 127.0.0.1 only; or"
                f" {_file_hint(config)}",
            )
    listening = {name: at for name, at in places.items() if name in config.network.listening}
    for host in dict.fromkeys(at[0] for at in listening.values() if at is not None):
        _check_host(document, ("network", "listen"), config.network.listen, host)
    if config.network.opens_kafka and published.kafka is not None:
        _check_net(config, document, published.kafka[1])
    if published.page is not None:
        _check_page(config, document, published.page)
    for name, at in published.servers.items():
        _check_server(config, document, name, at)


def _file_hint(config: MillConfig) -> str:
    """Return the line with which each compose command uses the files that this configuration
    needs."""
    files = [BASE_FILE, *(file for name, file in FILES.items() if name in config.network.open)]
    return f"COMPOSE_FILE={':'.join(files)} in the file .env beside {BASE_FILE}"


def _listen_hint(host: str) -> str:
    return f"MILLRACE_LISTEN={bracketed(host)} in the file .env beside {BASE_FILE}"


def _check_net(config: MillConfig, document: Document, port: int) -> None:
    """Append a fault if compose publishes NET at another port. Clients dial the port that brokers
    advertise, so it must be the same inside and outside."""
    first = config.ports.net
    if first != port:
        document.add(
            ("ports", "net"),
            str(first),
            f"{port}, the first port that compose publishes; or other ports in {FILES[KAFKA]}",
        )


def _check_page(config: MillConfig, document: Document, at: Address) -> None:
    """Append a fault if compose publishes a page that is not opened, because it would have neither
    HTTPS nor a login, or if it publishes the page at another address."""
    if _is_closed(config, document, PAGE, "the page", at):
        return
    host, port = at
    listen, own_port = split_address(config.monitor.listen)
    _check_host(document, ("monitor", "listen"), listen, host)
    if own_port != port:
        document.add(
            ("monitor", "listen"),
            str(own_port),
            f"port {port}, which compose publishes; or another port in {FILES[PAGE]}",
        )


def _check_server(config: MillConfig, document: Document, name: str, at: Address) -> None:
    """Append a fault if compose publishes a server that is not opened, because it would have no
    TLS, or if it publishes the server at another port."""
    if _is_closed(config, document, name, name, at):
        return
    port, stated = at[1], getattr(config.ports, name)
    if stated != port:
        document.add(
            ("ports", name),
            str(stated),
            f"{port}, which compose publishes; or another port in {FILES[name]}",
        )


def _is_closed(config: MillConfig, document: Document, name: str, title: str, at: Address) -> bool:
    """Return whether compose publishes a thing that is not opened. Append a fault in this case."""
    if name in config.network.open:
        return False
    document.add(
        ("network", "open"),
        f"[{', '.join(config.network.open)}], and {FILES[name]} publishes {title} at"
        f" {bracketed(at[0])}:{at[1]}",
        f"{name} in this list; or start the mill without {FILES[name]}",
    )
    return True


def _check_host(document: Document, path: Path, stated: str, published: str) -> None:
    if normal_host(stated) != normal_host(published):
        document.add(
            path,
            found_text(stated),
            f"{published}, where compose publishes the ports; or {_listen_hint(stated)}",
        )
