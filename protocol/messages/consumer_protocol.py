"""The data that consumers of one group exchange through JoinGroup and SyncGroup.

This module has only data classes. They are not message bodies, because the broker does not read
them. On the wire, an int16 with the version precedes each of them. A reader that gets a newer
version reads the fields it knows and ignores the rest.
"""

from protocol.wire.schema import NEVER_FLEXIBLE, Message, Struct, array, bytes_, int32, string

NO_API_KEY = -1


class ConsumerProtocolTopicPartition(Struct):
    """The partitions of one topic. Kafka's name is TopicPartition."""

    topic: str = string()
    partitions: list[int] = array(int32)


class ConsumerProtocolSubscription(
    Message, api_key=NO_API_KEY, versions=(0, 3), flexible=NEVER_FLEXIBLE
):
    """The subscription of one member.

    Version 1 adds owned partitions (KIP-429), 2 their generation, 3 the rack (KIP-881).
    """

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
    """The leader's assignment for one member. It is the same in all versions."""

    assigned_partitions: list[ConsumerProtocolTopicPartition] = array(
        ConsumerProtocolTopicPartition
    )
    user_data: bytes | None = bytes_(nullable=0, default=None)
