"""Our declarations, compared with Kafka's own definitions of its messages, field by field."""

import re
from typing import Any

from protocol.messages.membership import OUR_TAGS
from protocol.wire.schema import VERSION_MAX, Field, Message, Struct

RENAMED = {
    "ConsumerProtocolTopicPartition": "TopicPartition",
    "OffsetForLeaderEpochEndOffset": "EpochEndOffset",
    "AlterConfigsRequestConfig": "AlterableConfig",
    "AlterConfigsRequestResource": "AlterConfigsResource",
    "DescribeTransactionsTransactionState": "TransactionState",
    "ListTransactionsTransactionState": "TransactionState",
    "ActiveProducerState": "ProducerState",
    "ProducersTopicRequest": "TopicRequest",
    "ListedConfigResource": "ConfigResource",
    "QuotaFilterComponent": "ComponentData",
    "QuotaEntityPart": "EntityData",
    "QuotaValue": "ValueData",
    "DescribedQuota": "EntryData",
    "QuotaOperation": "OpData",
    "AlteredQuota": "EntryData",
    "AlteredQuotaResult": "EntryData",
    "SnapshotToFetch": "SnapshotId",
    "QuorumReplicaState": "ReplicaState",
    "QuorumLeaderEndpoint": "NodeEndpoint",
    "VoteRequestTopic": "TopicData",
    "VoteRequestPartition": "PartitionData",
    "VoteResponseTopic": "TopicData",
    "VoteResponsePartition": "PartitionData",
    "BeginQuorumEpochTopic": "TopicData",
    "BeginQuorumEpochPartition": "PartitionData",
    "EndQuorumEpochTopic": "TopicData",
    "EndQuorumEpochPartition": "PartitionData",
    "QuorumEpochTopic": "TopicData",
    "QuorumEpochPartition": "PartitionData",
    "FetchSnapshotTopic": "TopicSnapshot",
    "FetchSnapshotPartition": "PartitionSnapshot",
    "SnapshotTopic": "TopicSnapshot",
    "SnapshotPartition": "PartitionSnapshot",
    "SnapshotOfPartition": "SnapshotId",
    "SnapshotLeader": "LeaderIdAndEpoch",
    "DescribeQuorumRequestTopic": "TopicData",
    "DescribeQuorumRequestPartition": "PartitionData",
    "DescribeQuorumTopic": "TopicData",
    "DescribeQuorumPartition": "PartitionData",
    "QuorumListener": "Listener",
    "QuorumNode": "Node",
    "VoterVersions": "KRaftVersionFeature",
    "VoterUpdateLeader": "CurrentLeader",
    "RegistrationListener": "Listener",
    "RegistrationFeature": "Feature",
    "AlterPartitionRequestTopic": "TopicData",
    "AlterPartitionRequestPartition": "PartitionData",
    "AlterPartitionResponseTopic": "TopicData",
    "AlterPartitionResponsePartition": "PartitionData",
}

# Defaults in which we differ from Kafka's definitions on purpose. An unset error message or
# documentation is null, which is what Kafka's brokers send too. Lists of eligible leaders are
# empty, because Java clients fail on null.
OUR_DEFAULTS: dict[str, Any] = {
    "error_message": None,
    "documentation": None,
    "eligible_leader_replicas": [],
    "last_known_elr": [],
}


def assert_declared_alike(cls: type[Message], definition: Any) -> None:
    """Check that our class equals Kafka's definition of the same name.

    The check covers every version that both have, because an older definition has fewer versions.
    """
    assert definition["apiKey"] == cls.api_key
    assert_fields_alike(cls, definition)


def assert_fields_alike(cls: type[Message], definition: Any) -> None:
    """Check the fields of a message that is not the body of an API."""
    assert parse_range(definition["flexibleVersions"])[0] == cls.flexible_from
    least, most = parse_range(definition["validVersions"])
    assert least <= cls.valid_versions[0] or cls.api_key == 0
    last = min(cls.valid_versions[-1], most)
    assert cls.valid_versions[0] <= last
    compare_fields(cls, definition["fields"], cls.valid_versions[0], last)


def knows(definition: Any, cls: type[Message]) -> bool:
    """Return True if Kafka's definition has at least the first version of a class."""
    return bool(parse_range(definition["validVersions"])[1] >= cls.valid_versions[0])


def compare_fields(cls: type[Struct], definitions: Any, first: int, last: int) -> None:
    """Check that our fields equal Kafka's in order and in all properties, for these versions."""
    inside = [d for d in definitions if overlaps(parse_range(d["versions"]), (first, last))]
    fields = [
        f for f in cls.fields if overlaps((f.since, f.until), (first, last)) and not is_added(f)
    ]
    assert [snake(d["name"]) for d in inside] == [field.name for field in fields]
    for field, definition in zip(fields, inside, strict=True):
        compare_field(field, definition, first, last)


def is_added(field: Field) -> bool:
    """Return True if we have added the field to Kafka's message, for our protocol between
    brokers."""
    return field.tag is not None and field.tag >= OUR_TAGS


def compare_field(field: Field, definition: Any, first: int, last: int) -> None:
    where = f"{definition['name']}: {field}"
    since, until = parse_range(definition["versions"])
    carried = range(max(since, first), min(until, last) + 1)
    assert [v for v in range(first, last + 1) if field.in_version(v)] == list(carried), where
    nullable = parse_range(definition.get("nullableVersions", "none"))
    for version in carried:
        expected = nullable[0] <= version <= nullable[1]
        if definition.get("type") != "records":
            assert field.nullable_in(version) == expected, where
    # One definition has its tag as a string.
    tag = definition.get("tag")
    assert field.tag == (None if tag is None else int(tag)), where
    if len(carried) < last + 1 - first:
        assert field.ignorable == (definition.get("ignorable") is True), where
    compare_type(field, definition, carried)
    if field.kind not in ("array", "struct", "uuid", "records"):
        expected = OUR_DEFAULTS.get(field.name, default_of(definition))
        assert field.default == expected, where


def compare_type(field: Field, definition: Any, carried: range) -> None:
    kind = definition["type"]
    element: Any = field.element
    if kind.startswith("[]"):
        assert field.kind == "array"
        kind = kind[2:]
        if not isinstance(element, type):
            assert element.kind == kind
            return
    if isinstance(element, type):
        assert RENAMED.get(element.__name__, element.__name__) == kind
        compare_fields(element, definition["fields"], carried[0], carried[-1])
    else:
        assert field.kind == kind


def default_of(definition: Any) -> Any:
    default = definition.get("default")
    if default == "null":
        return None
    if definition["type"] == "string":
        return default or ""
    if definition["type"] == "bytes":
        return b""
    if definition["type"] == "bool":
        return str(default).lower() == "true"
    if definition["type"] == "float64":
        return float(default or 0)
    return int(str(default or 0), 0)


def parse_range(text: str) -> tuple[int, int]:
    if text == "none":
        return VERSION_MAX, -1
    first, separator, last = text.partition("-")
    if text.endswith("+"):
        return int(text[:-1]), VERSION_MAX
    return int(first), int(last if separator else first)


def overlaps(one: tuple[int, int], other: tuple[int, int]) -> bool:
    return one[0] <= other[1] and other[0] <= one[1]


def snake(name: str) -> str:
    name = re.sub(r"(.)([A-Z][a-z]+)", r"\1_\2", name)
    return re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name).lower()
