"""The model of the whole configuration file; each room defines its own section.

Data only. `cluster`, `topics`, `network` and `ports` belong to the appliance, the rest to the
rooms.
"""

from pydantic import BaseModel, ConfigDict, Field, field_validator

from collector.config.settings import CollectorSection, check_topic_name
from monitor.config.settings import MonitorSection
from sinks.config import SinksSection
from stream.config.settings import StreamSection

KAFKA = "kafka"
"""The brokers, in `network.open`."""

Scalar = bool | int | float | str


class _FileModel(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ClusterSection(_FileModel):
    """The section `cluster:`: the bundled brokers, or an existing Kafka cluster instead."""

    brokers: int = 1
    bootstrap_servers: str | None = None
    settings: dict[str, Scalar] = Field(default_factory=dict)

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

    name: str
    partitions: int | None = Field(default=None, ge=1, le=10_000)
    replication: int | None = Field(default=None, ge=1, le=7)
    settings: dict[str, Scalar] = Field(default_factory=dict)

    @field_validator("name")
    @classmethod
    def _name(cls, name: str) -> str:
        return check_topic_name(name)


class NetworkTls(_FileModel):
    """Files of the user's own, in PEM format; null: those of the mill's own CA."""

    certificate: str | None = None
    key: str | None = None
    ca: str | None = None


class NetworkSection(_FileModel):
    """`network:`, the listeners with TLS; without it there is none."""

    open: tuple[str, ...] = ()
    listen: str = "127.0.0.1"
    names: tuple[str, ...] = ()
    tls: NetworkTls = Field(default_factory=NetworkTls)

    @property
    def opens_kafka(self) -> bool:
        """True if the brokers have a listener with TLS."""
        return KAFKA in self.open


class PortsSection(_FileModel):
    """The section `ports:`, for a second mill on one machine.

    Broker N listens on the broker ports plus N-1.
    """

    host: int = Field(default=9092, ge=1, le=65535)
    mill: int = Field(default=19092, ge=1, le=65535)
    broker: int = Field(default=29092, ge=1, le=65535)
    net: int = Field(default=9192, ge=1, le=65535)
    collector: int = Field(default=8091, ge=1, le=65535)
    stream: int = Field(default=8092, ge=1, le=65535)
    broker_status: int = Field(default=8093, ge=1, le=65535)
    redis: int = Field(default=6380, ge=1, le=65535)
    mysql: int = Field(default=3307, ge=1, le=65535)


class MillConfig(_FileModel):
    """The checked content of `configs/millrace.yaml`."""

    cluster: ClusterSection = Field(default_factory=ClusterSection)
    topics: tuple[TopicSection, ...] = ()
    collector: CollectorSection = Field(default_factory=CollectorSection)
    stream: StreamSection = Field(default_factory=StreamSection)
    sinks: SinksSection = Field(default_factory=SinksSection)
    monitor: MonitorSection = Field(default_factory=MonitorSection)
    network: NetworkSection = Field(default_factory=NetworkSection)
    ports: PortsSection = Field(default_factory=PortsSection)
