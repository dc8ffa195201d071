"""What consumers of one group tell each other through JoinGroup and SyncGroup.

Floor: messages. Data only. These are no API bodies: the broker passes them on unread. On the wire
an int16 with the version stands before each; who reads a version newer than it knows reads what it
knows and ignores the rest.
"""

from protocol.wire.schema import NEVER_FLEXIBLE, Message, Struct, array, bytes_, int32, string

NO_API_KEY = -1


class ConsumerProtocolTopicPartition(Struct):
    """One topic's partitions. Officially TopicPartition."""

    topic: str = string()
    partitions: list[int] = array(int32)


class ConsumerProtocolSubscription(
    Message, api_key=NO_API_KEY, versions=(0, 3), flexible=NEVER_FLEXIBLE
):
    """One member's wishes. 1 adds what it owns (KIP-429), 2 since when, 3 its rack (KIP-881)."""

    topics: list[str] = array(string)
    user_data: bytes | None = bytes_(nullable=0, default=None)
    owned_partitions: list[ConsumerProtocolTopicPartition] = array(
        ConsumerProtocolTopicPartition, since=1, ignorable=True
    )
    generation_id: int = int32(since=2, default=-1, ignorable=True)
    rack_id: str | None = string(since=3, nullable=3, default=None, ignorable=True)


class ConsumerProtocolAssignment(
    Message, api_key=NO_API_KEY, versions=(0, 3), flexible=NEVER_FLEXIBLE
):
    """What the leader of the group gives one member; the same in all versions."""

    assigned_partitions: list[ConsumerProtocolTopicPartition] = array(
        ConsumerProtocolTopicPartition
    )
    user_data: bytes | None = bytes_(nullable=0, default=None)
