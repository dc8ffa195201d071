"""The Kafka APIs, the versions that Millrace offers of each, and their message classes.

Clients are offered all versions that common clients need: up to those of Kafka 3.5, without gaps.
Brokers use one version of each API among themselves (decision 0031). To add a message, add its
class to a module of this folder, and that module's name here.
"""

from collections.abc import Mapping
from enum import IntEnum
from importlib import import_module
from types import MappingProxyType

from protocol.errors import UnknownVersion
from protocol.wire.schema import NEVER_FLEXIBLE, Message


class ApiKey(IntEnum):
    """The number of an API, with its `valid_versions` and `flexible_from`.

    `valid_versions` are offered to clients and used by our own client. For an API that only brokers
    use, they are the versions between brokers. A message class can support more versions.
    """

    valid_versions: range
    flexible_from: int

    def __new__(cls, key: int, first: int = 0, last: int = 0, flexible_from: int = 0) -> "ApiKey":
        member = int.__new__(cls, key)
        member._value_ = key
        member.valid_versions = range(first, last + 1)
        member.flexible_from = flexible_from
        return member

    # librdkafka compresses only if Produce is offered from version 0 on. Versions 0 to 2 are then
    # refused.
    PRODUCE = 0, 0, 9, 9
    FETCH = 1, 4, 12, 12
    LIST_OFFSETS = 2, 1, 7, 6
    METADATA = 3, 0, 12, 9
    OFFSET_COMMIT = 8, 2, 8, 8
    OFFSET_FETCH = 9, 1, 8, 6
    FIND_COORDINATOR = 10, 0, 4, 3
    JOIN_GROUP = 11, 0, 9, 6
    HEARTBEAT = 12, 0, 4, 4
    LEAVE_GROUP = 13, 0, 5, 4
    SYNC_GROUP = 14, 0, 5, 4
    DESCRIBE_GROUPS = 15, 0, 5, 5
    LIST_GROUPS = 16, 0, 4, 3
    SASL_HANDSHAKE = 17, 0, 1, NEVER_FLEXIBLE
    API_VERSIONS = 18, 0, 4, 3
    CREATE_TOPICS = 19, 2, 7, 5
    DELETE_TOPICS = 20, 1, 6, 4
    DELETE_RECORDS = 21, 0, 2, 2
    INIT_PRODUCER_ID = 22, 0, 4, 2
    OFFSET_FOR_LEADER_EPOCH = 23, 2, 4, 4
    ADD_PARTITIONS_TO_TXN = 24, 0, 3, 3
    ADD_OFFSETS_TO_TXN = 25, 0, 3, 3
    END_TXN = 26, 0, 3, 3
    WRITE_TXN_MARKERS = 27, 1, 1, 1
    TXN_OFFSET_COMMIT = 28, 0, 3, 3
    DESCRIBE_ACLS = 29, 1, 3, 2
    CREATE_ACLS = 30, 1, 3, 2
    DELETE_ACLS = 31, 1, 3, 2
    DESCRIBE_CONFIGS = 32, 1, 4, 4
    ALTER_CONFIGS = 33, 0, 2, 2
    ALTER_REPLICA_LOG_DIRS = 34, 1, 2, 2
    DESCRIBE_LOG_DIRS = 35, 1, 4, 2
    SASL_AUTHENTICATE = 36, 0, 2, 2
    CREATE_PARTITIONS = 37, 0, 3, 2
    DELETE_GROUPS = 42, 0, 2, 2
    ELECT_LEADERS = 43, 0, 2, 2
    INCREMENTAL_ALTER_CONFIGS = 44, 0, 1, 1
    ALTER_PARTITION_REASSIGNMENTS = 45, 0, 1, 0
    LIST_PARTITION_REASSIGNMENTS = 46, 0, 0, 0
    OFFSET_DELETE = 47, 0, 0, NEVER_FLEXIBLE
    DESCRIBE_CLIENT_QUOTAS = 48, 0, 1, 1
    ALTER_CLIENT_QUOTAS = 49, 0, 1, 1
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50, 0, 0, 0
    ALTER_USER_SCRAM_CREDENTIALS = 51, 0, 0, 0
    VOTE = 52, 2, 2, 0
    BEGIN_QUORUM_EPOCH = 53, 1, 1, 1
    END_QUORUM_EPOCH = 54, 1, 1, 1
    DESCRIBE_QUORUM = 55, 0, 2, 0
    ALTER_PARTITION = 56, 3, 3, 0
    UPDATE_FEATURES = 57, 0, 1, 0
    ENVELOPE = 58, 0, 0, 0
    FETCH_SNAPSHOT = 59, 1, 1, 0
    DESCRIBE_CLUSTER = 60, 0, 2, 0
    DESCRIBE_PRODUCERS = 61, 0, 0, 0
    BROKER_REGISTRATION = 62, 4, 4, 0
    BROKER_HEARTBEAT = 63, 1, 1, 0
    UNREGISTER_BROKER = 64, 0, 0, 0
    DESCRIBE_TRANSACTIONS = 65, 0, 0, 0
    LIST_TRANSACTIONS = 66, 0, 1, 0
    ALLOCATE_PRODUCER_IDS = 67, 0, 0, 0
    LIST_CONFIG_RESOURCES = 74, 0, 0, 0
    DESCRIBE_TOPIC_PARTITIONS = 75, 0, 0, 0
    ADD_RAFT_VOTER = 80, 0, 1, 0
    REMOVE_RAFT_VOTER = 81, 0, 0, 0
    UPDATE_RAFT_VOTER = 82, 0, 0, 0
    # Our own key, far above the numbers that Kafka assigns.
    REPLICA_REPORT = 20_000, 0, 0, 0


_MODULES = {
    ApiKey.PRODUCE: "produce",
    ApiKey.FETCH: "fetch",
    ApiKey.LIST_OFFSETS: "list_offsets",
    ApiKey.METADATA: "metadata",
    ApiKey.OFFSET_COMMIT: "offsets",
    ApiKey.OFFSET_FETCH: "offsets",
    ApiKey.FIND_COORDINATOR: "cluster",
    ApiKey.JOIN_GROUP: "group",
    ApiKey.HEARTBEAT: "group",
    ApiKey.LEAVE_GROUP: "group",
    ApiKey.SYNC_GROUP: "group",
    ApiKey.DESCRIBE_GROUPS: "group",
    ApiKey.LIST_GROUPS: "group",
    ApiKey.SASL_HANDSHAKE: "sasl",
    ApiKey.API_VERSIONS: "cluster",
    ApiKey.CREATE_TOPICS: "topics",
    ApiKey.DELETE_TOPICS: "topics",
    ApiKey.DELETE_RECORDS: "topics",
    ApiKey.INIT_PRODUCER_ID: "producer_ids",
    ApiKey.OFFSET_FOR_LEADER_EPOCH: "list_offsets",
    ApiKey.ADD_PARTITIONS_TO_TXN: "transactions",
    ApiKey.ADD_OFFSETS_TO_TXN: "transactions",
    ApiKey.END_TXN: "transactions",
    ApiKey.WRITE_TXN_MARKERS: "transactions",
    ApiKey.TXN_OFFSET_COMMIT: "transactions",
    ApiKey.DESCRIBE_ACLS: "acls",
    ApiKey.CREATE_ACLS: "acls",
    ApiKey.DELETE_ACLS: "acls",
    ApiKey.DESCRIBE_CONFIGS: "configs",
    ApiKey.ALTER_CONFIGS: "configs",
    ApiKey.ALTER_REPLICA_LOG_DIRS: "log_dirs",
    ApiKey.DESCRIBE_LOG_DIRS: "log_dirs",
    ApiKey.SASL_AUTHENTICATE: "sasl",
    ApiKey.CREATE_PARTITIONS: "topics",
    ApiKey.DELETE_GROUPS: "group",
    ApiKey.ELECT_LEADERS: "elections",
    ApiKey.INCREMENTAL_ALTER_CONFIGS: "configs",
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: "elections",
    ApiKey.LIST_PARTITION_REASSIGNMENTS: "elections",
    ApiKey.OFFSET_DELETE: "offsets",
    ApiKey.DESCRIBE_CLIENT_QUOTAS: "quotas",
    ApiKey.ALTER_CLIENT_QUOTAS: "quotas",
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: "scram",
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: "scram",
    ApiKey.VOTE: "quorum",
    ApiKey.BEGIN_QUORUM_EPOCH: "quorum",
    ApiKey.END_QUORUM_EPOCH: "quorum",
    ApiKey.DESCRIBE_QUORUM: "voters",
    ApiKey.ALTER_PARTITION: "membership",
    ApiKey.UPDATE_FEATURES: "features",
    ApiKey.ENVELOPE: "membership",
    ApiKey.FETCH_SNAPSHOT: "quorum",
    ApiKey.DESCRIBE_CLUSTER: "cluster",
    ApiKey.DESCRIBE_PRODUCERS: "transactions",
    ApiKey.BROKER_REGISTRATION: "membership",
    ApiKey.BROKER_HEARTBEAT: "membership",
    ApiKey.UNREGISTER_BROKER: "membership",
    ApiKey.DESCRIBE_TRANSACTIONS: "transactions",
    ApiKey.LIST_TRANSACTIONS: "transactions",
    ApiKey.ALLOCATE_PRODUCER_IDS: "producer_ids",
    ApiKey.LIST_CONFIG_RESOURCES: "configs",
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: "metadata",
    ApiKey.ADD_RAFT_VOTER: "voters",
    ApiKey.REMOVE_RAFT_VOTER: "voters",
    ApiKey.UPDATE_RAFT_VOTER: "voters",
    ApiKey.REPLICA_REPORT: "replica_report",
}
"""The module in `protocol.messages` that has the classes of each key."""

UNSERVED = frozenset(
    {
        ApiKey.VOTE,
        ApiKey.BEGIN_QUORUM_EPOCH,
        ApiKey.END_QUORUM_EPOCH,
        ApiKey.ALTER_PARTITION,
        ApiKey.ENVELOPE,
        ApiKey.FETCH_SNAPSHOT,
        ApiKey.BROKER_REGISTRATION,
        ApiKey.BROKER_HEARTBEAT,
        ApiKey.ALLOCATE_PRODUCER_IDS,
        ApiKey.UPDATE_RAFT_VOTER,
        ApiKey.REPLICA_REPORT,
    }
)
"""The keys that have message classes but are not offered to clients, because only brokers use
them."""

BETWEEN_BROKERS: Mapping[ApiKey, range] = MappingProxyType(
    {key: key.valid_versions for key in _MODULES if key in UNSERVED}
    | {
        ApiKey.API_VERSIONS: ApiKey.API_VERSIONS.valid_versions,
        ApiKey.FETCH: range(18, 19),
        ApiKey.ADD_PARTITIONS_TO_TXN: range(4, 5),
        ApiKey.WRITE_TXN_MARKERS: ApiKey.WRITE_TXN_MARKERS.valid_versions,
    }
)
"""The versions of requests between brokers, on the listener BROKER.

Every broker with which this release can form a cluster must understand the first version of each
range, because brokers use it until they know each other's ranges. The last version can be raised
in any release.
"""

FORWARDED: Mapping[ApiKey, range] = MappingProxyType(
    {
        ApiKey.CREATE_TOPICS: range(7, 8),
        ApiKey.DELETE_TOPICS: range(6, 7),
        ApiKey.CREATE_ACLS: range(3, 4),
        ApiKey.DELETE_ACLS: range(3, 4),
        ApiKey.ALTER_CONFIGS: range(2, 3),
        ApiKey.CREATE_PARTITIONS: range(3, 4),
        ApiKey.ELECT_LEADERS: range(2, 3),
        ApiKey.INCREMENTAL_ALTER_CONFIGS: range(1, 2),
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: range(1, 2),
        ApiKey.ALTER_CLIENT_QUOTAS: range(1, 2),
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS: range(1),
        ApiKey.DESCRIBE_QUORUM: range(2, 3),
        ApiKey.UPDATE_FEATURES: range(1, 2),
        ApiKey.UNREGISTER_BROKER: range(1),
        ApiKey.ADD_RAFT_VOTER: range(1, 2),
        ApiKey.REMOVE_RAFT_VOTER: range(1),
    }
)
"""The requests of clients that brokers forward in an Envelope, with their versions there. Only the
active controller can answer them. The rule for the first version is the same as above."""

SERVED: Mapping[ApiKey, range] = MappingProxyType(
    {key: key.valid_versions for key in _MODULES if key not in UNSERVED}
)
"""The versions of requests that a broker of this release accepts from clients, as ApiVersions
lists."""

DECLARED: tuple[ApiKey, ...] = tuple(_MODULES)
"""Every key that has message classes."""


def client_versions(key: ApiKey) -> range:
    """Return the versions of an API that clients can use; empty if it has no message classes."""
    offered, known = key.valid_versions, request_class(key).valid_versions
    return range(max(offered[0], known[0]), min(offered[-1], known[-1]) + 1)


_classes: dict[tuple[int, str], type[Message]] = {}


def request_class(api_key: int) -> type[Message]:
    """Return the class of an API's request. Raises UnknownVersion if there is none."""
    return _classes.get((api_key, "Request")) or _find_class(api_key, "Request")


def response_class(api_key: int) -> type[Message]:
    """Return the class of an API's response. Raises UnknownVersion if there is none."""
    return _classes.get((api_key, "Response")) or _find_class(api_key, "Response")


def _find_class(api_key: int, side: str) -> type[Message]:
    try:
        key = ApiKey(api_key)
        module = _MODULES[key]
    except (ValueError, KeyError):
        raise UnknownVersion(f"API key {api_key} is not known") from None
    name = "".join(word.capitalize() for word in key.name.split("_")) + side
    found: type[Message] = getattr(import_module(f"protocol.messages.{module}"), name)
    _classes[api_key, side] = found
    return found
