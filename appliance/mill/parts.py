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
    return ",".join(
        f"{placement.host_of(f'{BROKER_PREFIX}{number}')}:{config.ports.mill + number - 1}"
        for number in broker_ids(config)
    )


def voters(config: MillConfig, placement: Placement) -> dict[int, tuple[str, int]]:
    """Return each broker's address for the other brokers, by node id; empty for a single broker."""
    ids = broker_ids(config)
    if len(ids) == 1:
        return {}
    return {
        number: (placement.host_of(f"{BROKER_PREFIX}{number}"), config.ports.broker + number - 1)
        for number in ids
    }


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
    first = config.ports.broker_status
    ids = sorted({*range(1, REPLICAS + 1), *broker_ids(config)})
    brokers = {f"{BROKER_PREFIX}{number}": first + number - 1 for number in ids}
    return {**brokers, "collector": config.ports.collector, "stream": config.ports.stream}


def parts_of(config: MillConfig, placement: Placement) -> tuple[Part, ...]:
    """Return the parts in the order in which they start."""
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
            )
        )
    return found


def _brokers(config: MillConfig, placement: Placement) -> list[Part]:
    ids = broker_ids(config)
    settings = ["broker_status", "host", "mill"]
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
                    (f"ports.{setting}", getattr(config.ports, setting) + number - 1)
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
        for number in ids
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
