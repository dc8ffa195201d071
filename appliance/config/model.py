"""The model of the whole configuration file; each package defines its own section.

This module has only data classes. It defines the sections `cluster`, `topics`, `network`,
`security` and `ports`. The other packages define all other sections.
"""

from collections.abc import Mapping
from typing import Annotated

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PlainValidator,
    WithJsonSchema,
    field_validator,
)

from appliance.config.cluster_hosts import Hosts
from appliance.config.cluster_security import ClusterSecuritySection
from appliance.config.faults import found_text
from appliance.config.network_section import NetworkSection
from broker.controller.credentials import NAME_EXPECTED, USER_NAME
from collector.config.input_section import check_topic_name
from collector.config.settings import CollectorSection
from monitor.config.settings import MonitorSection
from sinks.config import SinksSection
from stream.config.settings import StreamSection

Scalar = bool | int | float | str

BROKER_COUNTS = (1, 3)
"""The possible numbers of brokers.

With two brokers, neither could continue alone, because one of two is not a majority.
"""

BROKER_ID_MAX = 9
"""The highest id of a bundled broker. The ports of a broker are the first port of each kind plus
its id minus 1."""


def _parse_brokers(value: object) -> int | tuple[int, ...]:
    """Return the number of brokers, or their ids. Raises ValueError."""
    stated = _number_of(value)
    if stated is not None:
        return stated
    if not isinstance(value, list | tuple):
        raise ValueError(f"found {found_text(value)}, expected 1 or 3, or a list of broker ids")
    ids: list[int] = []
    for one in value:
        number = _number_of(one)
        if number is None or not 1 <= number <= BROKER_ID_MAX:
            raise ValueError(
                f"found {found_text(one)} in the list of broker ids, expected ids from 1 to "
                f"{BROKER_ID_MAX}"
            )
        if number in ids:
            raise ValueError(f"found broker {number} twice, expected each id once")
        ids.append(number)
    least = max(BROKER_COUNTS)
    if len(ids) < least:
        count = "no id" if not ids else "1 id" if len(ids) == 1 else f"{len(ids)} ids"
        raise ValueError(f"found {count}, expected the ids of at least {least} brokers")
    return tuple(ids)


def _number_of(value: object) -> int | None:
    """Return a whole number; None if the value is not one. A value from an environment variable is
    a text."""
    if isinstance(value, str) and value.isascii() and value.isdigit():
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


Brokers = Annotated[
    int | tuple[int, ...],
    PlainValidator(_parse_brokers),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "enum": list(BROKER_COUNTS)},
                {
                    "type": "array",
                    "items": {"type": "integer", "minimum": 1, "maximum": BROKER_ID_MAX},
                    "minItems": max(BROKER_COUNTS),
                    "uniqueItems": True,
                },
            ]
        }
    ),
]


PLACE_MAX = 99
"""The highest place of a broker in the ranges of ports."""


def _parse_places(value: object) -> dict[int, int]:
    """Return the places of brokers with other ports, in ascending order of the ids. Raises
    ValueError."""
    expected = f"the place of a broker by its id, such as {{3: 13}}, from 1 to {PLACE_MAX}"
    if not isinstance(value, Mapping):
        raise ValueError(f"found {found_text(value)}, expected {expected}")
    places: dict[int, int] = {}
    for key, place in value.items():
        number, wanted = _number_of(key), _number_of(place)
        if number is None or not 1 <= number <= BROKER_ID_MAX or number in places:
            raise ValueError(f"found the key {found_text(key)}, expected {expected}")
        if wanted is None or not 1 <= wanted <= PLACE_MAX:
            raise ValueError(f"found {found_text(place)} for broker {number}, expected {expected}")
        places[number] = wanted
    return dict(sorted(places.items()))


Places = Annotated[
    Mapping[int, int],
    PlainValidator(_parse_places),
    WithJsonSchema(
        {
            "type": "object",
            "patternProperties": {
                "^[1-9]$": {"type": "integer", "minimum": 1, "maximum": PLACE_MAX}
            },
            "additionalProperties": False,
        }
    ),
]


class _FileModel(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ClusterSection(_FileModel):
    """The section `cluster:`: the bundled brokers, or an existing Kafka cluster instead."""

    brokers: Brokers = Field(
        default=1,
        description="bundled brokers, 1 or 3, see [three brokers](#three-brokers). The shipped"
        " file has 3. A list has the ids of three or more, see [more"
        " brokers](#more-brokers-or-other-ids)",
        examples=[3, [1, 2, 3, 4]],
    )
    hosts: Hosts = Field(
        default=None,
        description="the host of each bundled broker by its id, if they are on several machines,"
        " see [three hosts](../howto/three-hosts.md). null: all on this machine",
        examples=[{1: "mill-1.example.org", 2: "mill-2.example.org", 3: "mill-3.example.org"}],
    )
    bootstrap_servers: str | None = Field(
        default=None,
        description="`host:port,…` of an existing Kafka cluster, in place of the bundled brokers:"
        " see [kafka.md](../kafka.md)",
        examples=["kafka-1:9092,kafka-2:9092"],
    )
    security: ClusterSecuritySection | None = Field(
        default=None,
        description="TLS and the login for `bootstrap_servers`, see"
        " [kafka.md](../kafka.md#tls-and-logins). `{}` is TLS alone; null: neither",
        examples=[{"ca": "ca.pem", "user": "mill", "password": "${file:data/secrets/cluster}"}],
    )
    racks: tuple[str, ...] = Field(
        default=(),
        description="the rack of each bundled broker (`broker.rack`), in the order of their"
        " numbers, see [racks](#racks). Empty: no racks",
        examples=[["hall-1"]],
    )
    settings: dict[str, Scalar] = Field(
        default_factory=dict,
        description="[Kafka's own broker keys](#kafkas-own-keys)",
        examples=[{"num.partitions": 3}],
    )

    @property
    def broker_ids(self) -> tuple[int, ...]:
        """The ids of the bundled brokers, in ascending order. A number stands for the first ids."""
        if isinstance(self.brokers, int):
            return tuple(range(1, min(self.brokers, BROKER_ID_MAX) + 1))
        return tuple(sorted(self.brokers))

    @field_validator("bootstrap_servers")
    @classmethod
    def _bootstrap_servers(cls, value: str | None) -> str | None:
        if value is None:
            return None
        for server in value.split(","):
            host, _, port = server.strip().rpartition(":")
            if not host or not port.isdigit() or not 0 < int(port) < 65536:
                raise ValueError(f'found {value!r}, expected "host:port,host:port"')
        return ",".join(server.strip() for server in value.split(","))


class TopicSection(_FileModel):
    """One entry of `topics:`; None means the cluster's default."""

    name: str = Field(
        description="the topic's name: at most 249 letters, digits, `.`, `_` and `-`",
        examples=["logs.access"],
        json_schema_extra={"pattern": "^[A-Za-z0-9._-]{1,249}$"},
    )
    partitions: int | None = Field(
        default=None,
        ge=1,
        le=10_000,
        description="the number of partitions. null: the cluster's `num.partitions`",
        examples=[6],
    )
    replication: int | None = Field(
        default=None,
        ge=1,
        le=7,
        description="the number of replicas. null: the cluster's `default.replication.factor`",
        examples=[1],
    )
    settings: dict[str, Scalar] = Field(
        default_factory=dict,
        description="[Kafka's own topic keys](#kafkas-own-keys)",
        examples=[{"retention.ms": 604800000}],
    )

    @field_validator("name")
    @classmethod
    def _name(cls, name: str) -> str:
        return check_topic_name(name)


class SecuritySection(_FileModel):
    """The section `security:`, for the rights of users that log in."""

    super_users: tuple[str, ...] = Field(
        default=("admin",),
        description="users that may do everything, whatever the ACLs say; all others may do what"
        " `millrace acl allow` allows",
        examples=[["admin"]],
    )

    @field_validator("super_users")
    @classmethod
    def _super_users(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            if not USER_NAME.fullmatch(name):
                raise ValueError(f"found {name!r}, expected a user: {NAME_EXPECTED}")
        return names


class PortsSection(_FileModel):
    """The section `ports:`, for a second mill on one machine.

    Broker N listens on the broker ports plus N-1, unless `places` gives it another place.
    """

    host: int = Field(
        default=9092,
        ge=1,
        le=65535,
        description="brokers, for clients on this machine; broker N adds N-1",
        examples=[9192],
    )
    mill: int = Field(
        default=19092,
        ge=1,
        le=65535,
        description="brokers, for the mill's own parts; broker N adds N-1",
        examples=[19192],
    )
    broker: int = Field(
        default=29092,
        ge=1,
        le=65535,
        description="brokers, among themselves; broker N adds N-1",
        examples=[29192],
    )
    net: int = Field(
        default=9192,
        ge=1,
        le=65535,
        description="brokers, with TLS (`network.open`); broker N adds N-1",
        examples=[9292],
    )
    collector: int = Field(
        default=8091,
        ge=1,
        le=65535,
        description="the collector's `/healthz`, `/status` and `/metrics`",
        examples=[8191],
    )
    stream: int = Field(
        default=8092,
        ge=1,
        le=65535,
        description="the stream's `/healthz`, `/status` and `/metrics`",
        examples=[8192],
    )
    broker_status: int = Field(
        default=8093,
        ge=1,
        le=65535,
        description="the brokers' `/healthz`, `/status` and `/metrics`; broker N adds N-1",
        examples=[8193],
    )
    places: Places = Field(
        default_factory=dict,
        description="brokers with other ports: a broker's id and its place P, which has the first"
        " broker ports plus P-1, see [move a broker](../howto/move-a-broker.md)",
        examples=[{1: 13}],
    )
    redis: int = Field(
        default=6380,
        ge=1,
        le=65535,
        description="the bundled Redis",
        examples=[6480],
    )
    mysql: int = Field(
        default=3307,
        ge=1,
        le=65535,
        description="the bundled MySQL",
        examples=[3407],
    )

    def of_broker(self, kind: str, number: int) -> int:
        """Return the port of a broker. `kind` is the key of the ports' first one, such as
        `host`."""
        first: int = getattr(self, kind)
        return first + self.places.get(number, number) - 1


class MillConfig(_FileModel):
    """The checked content of `configs/millrace.yaml`."""

    cluster: ClusterSection = Field(
        default_factory=ClusterSection,
        description="the bundled brokers, or an existing Kafka cluster",
        examples=[{"brokers": 3}],
    )
    topics: tuple[TopicSection, ...] = Field(
        default=(),
        description="topics that are created if they are missing",
        examples=[[{"name": "logs.access", "partitions": 6}]],
    )
    collector: CollectorSection = Field(
        default_factory=CollectorSection,
        description="which files are read",
        examples=[{"compression": "zstd"}],
    )
    stream: StreamSection = Field(
        default_factory=StreamSection,
        description="how lines are read and counted, with Spark",
        examples=[{"trigger": "1s"}],
    )
    sinks: SinksSection = Field(
        default_factory=SinksSection,
        description="where counts are stored",
        examples=[{"redis": {}, "mysql": {}}],
    )
    monitor: MonitorSection = Field(
        default_factory=MonitorSection,
        description="the page, its API and the alerts",
        examples=[{"refresh": "5s"}],
    )
    network: NetworkSection = Field(
        default_factory=NetworkSection,
        description="listeners with TLS",
        examples=[{"open": ["kafka"], "names": ["localhost"]}],
    )
    security: SecuritySection = Field(
        default_factory=SecuritySection,
        description="rights of users that log in (`network.login`)",
        examples=[{"super_users": ["admin", "operator"]}],
    )
    ports: PortsSection = Field(
        default_factory=PortsSection,
        description="the ports of the mill's own parts, on 127.0.0.1",
        examples=[{"redis": 6480}],
    )
