"""Inputs and results of administration: topics, settings, offsets, groups.

This module has only data classes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from protocol.client.metadata import BrokerInfo
from protocol.errors import ErrorCode
from protocol.types import NO_LEADER_EPOCH, NO_OFFSET, NO_TIMESTAMP


class ResourceType(IntEnum):
    """The kinds of resources that have settings."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigSource(IntEnum):
    """The sources of a setting, in order of precedence except for UNKNOWN."""

    UNKNOWN = 0
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    DYNAMIC_CLIENT_METRICS_CONFIG = 7
    DYNAMIC_GROUP_CONFIG = 8


@dataclass(frozen=True, slots=True)
class ConfigResource:
    """A resource with settings: a topic by name, a broker by id."""

    type: ResourceType
    name: str

    @classmethod
    def topic(cls, name: str) -> "ConfigResource":
        """Return the resource of a topic."""
        return cls(ResourceType.TOPIC, name)

    @classmethod
    def broker(cls, node_id: int) -> "ConfigResource":
        """Return the resource of a broker."""
        return cls(ResourceType.BROKER, str(node_id))


@dataclass(frozen=True, slots=True)
class ConfigSynonym:
    """A possible source of a setting, and the value that the source gives."""

    name: str
    value: str | None
    source: int


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One setting in effect. `source` is a ConfigSource, or an unknown number from a newer broker.

    `synonyms` are filled only if they were requested. They are in order of precedence.
    """

    name: str
    value: str | None
    source: int
    read_only: bool
    is_sensitive: bool
    synonyms: tuple[ConfigSynonym, ...] = ()

    @property
    def is_default(self) -> bool:
        """True if the value is the default."""
        return self.source == ConfigSource.DEFAULT_CONFIG


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """A topic to create. None means the cluster's default for partitions or replicas.

    `assignments` has the replica ids of each partition, starting with partition 0. It replaces
    `partitions` and `replication`.
    """

    name: str
    partitions: int | None = None
    replication: int | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    assignments: Sequence[Sequence[int]] = ()


@dataclass(frozen=True, slots=True)
class OffsetAt:
    """An offset found by time.

    An `offset` of -1 without an error means that no record is that recent.
    """

    offset: int = NO_OFFSET
    timestamp_ms: int = NO_TIMESTAMP
    leader_epoch: int = NO_LEADER_EPOCH
    error: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True)
class GroupListing:
    """One group as its coordinator lists it."""

    group_id: str
    protocol_type: str
    state: str
    coordinator_id: int


@dataclass(frozen=True, slots=True)
class ListedGroups:
    """The groups of all coordinators that answered, and the errors of all other coordinators by
    broker id."""

    groups: tuple[GroupListing, ...]
    failures: Mapping[int, str]


@dataclass(frozen=True, slots=True)
class MemberDescription:
    """One member of a group. Its subscription and assignment are bytes encoded by the client."""

    member_id: str
    client_id: str
    client_host: str
    group_instance_id: str | None
    metadata: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """One group. A group that does not exist has the state `Dead` and no error."""

    group_id: str
    state: str = ""
    protocol_type: str = ""
    protocol: str = ""
    members: tuple[MemberDescription, ...] = ()
    coordinator_id: int = -1
    error: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """The brokers of a cluster."""

    cluster_id: str | None
    controller_id: int
    brokers: Mapping[int, BrokerInfo]
