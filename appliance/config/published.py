"""The addresses at which compose publishes ports, and the checks of the configuration for them.

This module is pure. A container cannot see where compose publishes its ports, so the compose files
say it in the environment: `docker-compose.yml` publishes on the loopback only, and each file
`docker-compose.open*.yml` publishes one thing more. The configuration must open the same, because
the parts refuse to start otherwise (decision 0238). `docker-compose.hosts.yml` starts only one of
the brokers, and the configuration must have hosts (decision 0245).
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from appliance.config.containers import HOST_PROFILE, HOST_VARIABLE, host_broker, is_container
from appliance.config.document import Document
from appliance.config.faults import Path, found_text
from appliance.config.model import MillConfig
from appliance.config.network_section import KAFKA, PAGE, SERVERS
from monitor.config.settings import split_address
from protocol.security.address import bracketed, normal_host

KAFKA_AT = "MILLRACE_PUBLISHED_KAFKA"
PAGE_AT = "MILLRACE_PUBLISHED_PAGE"
LINKS_AT = "MILLRACE_PUBLISHED_BROKER"
SERVERS_AT = {"redis": "MILLRACE_PUBLISHED_REDIS", "mysql": "MILLRACE_PUBLISHED_MYSQL"}

BASE_FILE = "docker-compose.yml"
FILES = {
    KAFKA: "docker-compose.open.yml",
    PAGE: "docker-compose.open-page.yml",
    **{name: f"docker-compose.open-{name}.yml" for name in SERVERS},
}
"""The compose file that publishes each name of `network.open`."""

HOSTS_FILE = "docker-compose.hosts.yml"
"""The compose file for brokers on several hosts: it publishes NET and the brokers' listener for
each other."""
BROKERS = (1, 2, 3)
"""The brokers that have containers in the compose files. The other parts are beside the first."""
HOSTS: Path = ("cluster", "hosts")

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
    links: Address | None = None
    """The address of this machine, and the port of BROKER of broker 1; None if compose starts all
    brokers on this machine."""
    broker: int | None = None
    """The only broker that compose starts on this machine; None if `links` is None."""

    @property
    def has_other_parts(self) -> bool:
        """True if compose starts the parts that are not brokers on this machine."""
        return self.links is None or self.broker == BROKERS[0]


def published_of(environ: Mapping[str, str]) -> Published | None:
    """Return what compose publishes; None if the parts are no containers. Raises WrongAddress."""
    if not is_container(environ):
        return None
    links, broker = _address(environ, LINKS_AT), host_broker(environ)
    if links is not None and broker not in BROKERS:
        known = ", ".join(f"{HOST_PROFILE}{one}" for one in BROKERS)
        raise WrongAddress(
            HOST_VARIABLE,
            f"found {found_text(environ.get(HOST_VARIABLE, ''))}, expected one of {known}: write"
            f" COMPOSE_PROFILES={HOST_PROFILE}N into the file .env beside {BASE_FILE}, where N is"
            " the broker of this host in cluster.hosts",
        )
    servers = {name: _address(environ, variable) for name, variable in SERVERS_AT.items()}
    return Published(
        kafka=_address(environ, KAFKA_AT),
        page=_address(environ, PAGE_AT),
        servers={name: at for name, at in servers.items() if at is not None},
        links=links,
        broker=broker if links is not None else None,
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
    here = tuple(FILES) if published.has_other_parts else (KAFKA,)
    for index, name in enumerate(config.network.open):
        if name in here and places.get(name) is None:
            document.add(
                ("network", "open", index),
                found_text(name),
                f"no {name} here, because compose publishes it on 127.0.0.1 only; or"
                f" {_file_hint(config, here)}",
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


def check_published_hosts(config: MillConfig, document: Document, published: Published) -> None:
    """Append a fault if the file and compose do not agree whether the brokers are on several
    hosts, or which broker this host has."""
    hosts, links = config.cluster.hosts, published.links
    if hosts is None:
        if links is not None:
            document.add(
                HOSTS,
                f"null, and {HOSTS_FILE} publishes the ports of broker {published.broker} for other"
                " hosts",
                f"the host of each broker; or start the mill without {HOSTS_FILE}",
            )
        return
    if links is None:
        document.add(
            HOSTS,
            "hosts",
            "null, because compose starts all brokers on this machine; or"
            f" {_file_hint(config, FILES)}, and COMPOSE_PROFILES={HOST_PROFILE}N, where N is the"
            " broker of this host",
        )
        return
    if tuple(hosts) != BROKERS:
        document.add(
            HOSTS,
            f"hosts of the brokers {', '.join(map(str, hosts))}",
            f"the brokers {', '.join(map(str, BROKERS))}: the compose files have containers of no"
            " others",
        )
    port = links[1]
    if config.ports.broker != port:
        document.add(
            ("ports", "broker"),
            str(config.ports.broker),
            f"{port}, the first port that compose publishes; or other ports in {HOSTS_FILE}",
        )


def _file_hint(config: MillConfig, names: Collection[str]) -> str:
    """Return the line with which each compose command uses the files that this configuration
    needs. `names` are the names of `network.open` that compose can publish on this machine."""
    needed = {name: FILES[name] for name in FILES if name in config.network.open and name in names}
    if config.cluster.hosts is not None:
        needed[KAFKA] = HOSTS_FILE
    files = [BASE_FILE, *needed.values()]
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
            f"{port}, the first port that compose publishes; or other ports in"
            f" {FILES[KAFKA] if config.cluster.hosts is None else HOSTS_FILE}",
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
