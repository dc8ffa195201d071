"""The parts of a mill: the parts that a configuration needs, their addresses and their order.

This module is pure. Databases and brokers start first, together with the monitor, so that the
monitor can show if one of them does not start. The collector and the stream start afterwards. Parts
that produce work stop first, and parts that store results stop last.
"""

from dataclasses import dataclass, replace
from enum import StrEnum

from appliance.config.model import MillConfig
from appliance.config.replication import REPLICAS
from monitor.config.settings import split_address
from protocol.security.address import bracketed

BROKER_PREFIX = "broker-"
"""The beginning of a broker's part name, before its node id."""

NET_SETTING = "ports.net"
"""The setting of the ports of the brokers' listener with TLS."""
LINK_SETTING = "ports.broker"
"""The setting of the ports of the brokers' listener for each other."""

ENTRY_USER = "mill"
"""The user as which the mill's own parts enter brokers on several hosts."""
ENTRY_MECHANISM = "SCRAM-SHA-512"
ENTRY_KEEPER = "entry"
"""The name with which `millrace run` keeps this user in a container. It is no part."""

PAGE_SETTING = "monitor.listen"
"""The setting of the page's address."""

LOOPBACK = "127.0.0.1"
ANYWHERE = "0.0.0.0"

REDIS_IN_CONTAINER = 6379
MYSQL_IN_CONTAINER = 3306


MONITOR = "monitor"


class ProbeKind(StrEnum):
    """The ways to ask a part whether it works."""

    HTTP = "http"
    REDIS = "redis"
    MYSQL = "mysql"


@dataclass(frozen=True, slots=True)
class Part:
    """One process of the mill. `ports` maps the name of a setting to the port that it sets."""

    name: str
    probe: ProbeKind
    host: str
    port: int
    ports: tuple[tuple[str, int], ...]
    start_rank: int
    stop_rank: int
    start_timeout_ms: int
    stop_timeout_ms: int
    takes_turns: bool = False
    """True if this is one of several parts that can do each other's work, such as brokers.

    No two such parts are stopped at the same time.
    """
    is_open: bool = False
    """True for a server that other machines reach with TLS. Its port is open at `network.listen`,
    and the mill's own parts use its Unix socket.
    """

    @property
    def address(self) -> str:
        """Return the address to which the probe connects, as text for people."""
        return f"{self.host}:{self.port}"

    def keeps_addresses_of(self, other: "Part") -> bool:
        """Return True if the part has the addresses of the other one.

        Either of them can have further ports, such as that of a listener that a change opens.
        """
        mine, theirs = dict(self.ports), dict(other.ports)
        return replace(self, ports=()) == replace(other, ports=()) and all(
            mine[setting] == theirs[setting] for setting in mine.keys() & theirs.keys()
        )


@dataclass(frozen=True, slots=True)
class Placement:
    """The placement of the parts: as child processes on this machine, or each in a container."""

    in_containers: bool = False
    broker: int | None = None
    """The broker of this machine if the brokers are on several hosts (`cluster.hosts`); None if
    this machine is none of the hosts."""

    @property
    def bind_host(self) -> str:
        """The address that the parts listen on."""
        return ANYWHERE if self.in_containers else LOOPBACK

    def host_of(self, part: str) -> str:
        """Return the host name by which other parts reach a part."""
        return part if self.in_containers else LOOPBACK


def broker_ids(config: MillConfig) -> tuple[int, ...]:
    """Return the ids of the bundled brokers; empty if the mill uses an existing cluster."""
    return config.cluster.broker_ids if config.cluster.bootstrap_servers is None else ()


def local_broker_ids(config: MillConfig, placement: Placement) -> tuple[int, ...]:
    """Return the ids of the bundled brokers that run on this machine."""
    ids = broker_ids(config)
    return ids if config.cluster.hosts is None else tuple(n for n in ids if n == placement.broker)


def main_broker(config: MillConfig) -> int:
    """Return the broker beside which all other parts run, if the brokers are on several hosts."""
    return config.cluster.broker_ids[0]


def has_other_parts(config: MillConfig, placement: Placement) -> bool:
    """Return True if the parts that are not brokers run on this machine."""
    return config.cluster.hosts is None or placement.broker == main_broker(config)


def listen_host(config: MillConfig, placement: Placement, setting: str) -> str:
    """Return the address on which the port of a setting is opened."""
    if setting == PAGE_SETTING and config.network.opens_page:
        return split_address(config.monitor.listen)[0]
    is_open = setting == NET_SETTING or (
        setting == LINK_SETTING and config.cluster.hosts is not None
    )
    return config.network.listen if is_open else placement.bind_host


def broker_names(config: MillConfig) -> tuple[str, ...]:
    """Return the names of the bundled brokers' parts; empty if the mill uses an existing
    cluster."""
    return tuple(f"{BROKER_PREFIX}{number}" for number in broker_ids(config))


def first_voters(config: MillConfig) -> tuple[int, ...]:
    """Return the brokers that vote in a new cluster. All other brokers join the cluster afterwards.

    An even number of voters survives no more failures than one voter less.
    """
    return broker_ids(config)[:REPLICAS]


def bundles_redis(config: MillConfig) -> bool:
    """Return whether this mill runs its own Redis server."""
    return config.sinks.redis is not None and config.sinks.redis.host is None


def bundles_mysql(config: MillConfig) -> bool:
    """Return whether this mill runs its own MySQL server."""
    return config.sinks.mysql is not None and config.sinks.mysql.host is None


def bootstrap_servers(config: MillConfig, placement: Placement) -> str:
    """Return the bootstrap servers for the mill's own parts."""
    if config.cluster.bootstrap_servers is not None:
        return config.cluster.bootstrap_servers
    if config.cluster.hosts is not None:
        return ",".join(net_addresses(config).values())
    return ",".join(
        f"{placement.host_of(f'{BROKER_PREFIX}{number}')}:{config.ports.of_broker('mill', number)}"
        for number in broker_ids(config)
    )


def local_entry(config: MillConfig, placement: Placement, number: int) -> str:
    """Return the address of a broker's listener that needs no login on the broker's own machine:
    HOST, and in containers MILL."""
    listener = "mill" if placement.in_containers else "host"
    host = placement.host_of(f"{BROKER_PREFIX}{number}")
    return f"{host}:{config.ports.of_broker(listener, number)}"


def net_addresses(config: MillConfig) -> dict[int, str]:
    """Return `host:port` of the listener with logins of each broker, if they are on several
    hosts."""
    return {
        number: f"{bracketed(host)}:{config.ports.of_broker('net', number)}"
        for number, host in (config.cluster.hosts or {}).items()
    }


def voters(config: MillConfig, placement: Placement) -> dict[int, tuple[str, int]]:
    """Return each broker's address for the other brokers, by node id; empty for a single broker."""
    ids = broker_ids(config)
    if len(ids) == 1:
        return {}
    hosts = config.cluster.hosts
    if hosts is None:
        hosts = {number: placement.host_of(f"{BROKER_PREFIX}{number}") for number in ids}
    return {number: (hosts[number], config.ports.of_broker("broker", number)) for number in ids}


def monitor_port(config: MillConfig) -> int:
    """The port of the page."""
    return split_address(config.monitor.listen)[1]


def page_url(config: MillConfig) -> str:
    """Return the address of the page for people."""
    if config.network.opens_page:
        return f"https://{bracketed(config.network.names[0])}:{monitor_port(config)}"
    return f"http://{config.monitor.listen}"


def status_ports(config: MillConfig) -> dict[str, int]:
    """Return the port of the health check of each optional part, whether or not the part is
    configured."""
    ids = sorted({*range(1, REPLICAS + 1), *broker_ids(config)})
    ports = config.ports
    brokers = {
        f"{BROKER_PREFIX}{number}": ports.of_broker("broker_status", number) for number in ids
    }
    return {**brokers, "collector": config.ports.collector, "stream": config.ports.stream}


def parts_of(config: MillConfig, placement: Placement) -> tuple[Part, ...]:
    """Return the parts of this machine in the order in which they start.

    If the brokers are on several hosts, every host but the main one has only its broker.
    """
    if not has_other_parts(config, placement):
        return tuple(_brokers(config, placement))
    found = [*_servers(config, placement), *_brokers(config, placement)]
    ports = config.ports
    if config.collector.inputs:
        found.append(
            _http("collector", placement, (("ports.collector", ports.collector),), 1, 0, 60_000)
        )
    if config.stream.metrics:
        found.append(_http("stream", placement, (("ports.stream", ports.stream),), 1, 1, 240_000))
    found.append(_http(MONITOR, placement, ((PAGE_SETTING, monitor_port(config)),), 0, 0, 60_000))
    return tuple(found)


def _servers(config: MillConfig, placement: Placement) -> list[Part]:
    found = []
    if bundles_mysql(config):
        found.append(
            Part(
                name="mysql",
                probe=ProbeKind.MYSQL,
                host=placement.host_of("mysql"),
                port=MYSQL_IN_CONTAINER if placement.in_containers else config.ports.mysql,
                ports=(("ports.mysql", config.ports.mysql),),
                start_rank=0,
                stop_rank=3,
                start_timeout_ms=180_000,
                stop_timeout_ms=60_000,
                is_open="mysql" in config.network.open,
            )
        )
    if bundles_redis(config):
        found.append(
            Part(
                name="redis",
                probe=ProbeKind.REDIS,
                host=placement.host_of("redis"),
                port=REDIS_IN_CONTAINER if placement.in_containers else config.ports.redis,
                ports=(("ports.redis", config.ports.redis),),
                start_rank=0,
                stop_rank=3,
                start_timeout_ms=60_000,
                stop_timeout_ms=20_000,
                is_open="redis" in config.network.open,
            )
        )
    return found


def _brokers(config: MillConfig, placement: Placement) -> list[Part]:
    ids = broker_ids(config)
    settings = ["broker_status", "host"]
    if config.cluster.hosts is None:
        settings.append("mill")
    if len(ids) > 1:
        settings.append("broker")
    if config.network.opens_kafka:
        settings.append("net")
    return [
        replace(
            _http(
                f"{BROKER_PREFIX}{number}",
                placement,
                tuple(
                    (f"ports.{setting}", config.ports.of_broker(setting, number))
                    for setting in settings
                ),
                0,
                2,
                # Recovery after a power cut reads whole segments, so a broker may take ten minutes
                # to start.
                600_000,
            ),
            takes_turns=len(ids) > 1,
        )
        for number in local_broker_ids(config, placement)
    ]


def _http(
    name: str,
    placement: Placement,
    ports: tuple[tuple[str, int], ...],
    start_rank: int,
    stop_rank: int,
    start_timeout_ms: int,
) -> Part:
    return Part(
        name=name,
        probe=ProbeKind.HTTP,
        host=placement.host_of(name),
        port=ports[0][1],
        ports=ports,
        start_rank=start_rank,
        stop_rank=stop_rank,
        start_timeout_ms=start_timeout_ms,
        # A broker of a cluster first moves its leaderships, which can take 30 s.
        stop_timeout_ms=40_000,
    )
