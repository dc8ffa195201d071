"""The assignors of Kafka's consumers, as pure functions.

The leader of a group calls one assignor with the subscriptions of all members. Members can be other
Kafka clients. Range and round robin give the same result as in Java, so it does not matter which
member leads.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from types import MappingProxyType

from protocol.client.assignment import (
    Assignment,
    MemberSubscription,
    encode_generation,
    encode_sticky_data,
)
from protocol.client.sticky import assign_sticky, withhold_moving
from protocol.types import TopicPartition

Members = Sequence[MemberSubscription]
PartitionCounts = Mapping[str, int]


def assign_range(members: Members, partition_counts: PartitionCounts) -> Assignment:
    """Give each member consecutive partitions of each topic. The first members get one more."""
    assignment: Assignment = {member.member_id: [] for member in members}
    subscribers: dict[str, list[str]] = defaultdict(list)
    for member in sorted(members, key=lambda member: member.order):
        for topic in member.topics:
            subscribers[topic].append(member.member_id)
    for topic in sorted(subscribers):
        ids = subscribers[topic]
        least, extra = divmod(partition_counts.get(topic, 0), len(ids))
        start = 0
        for index, member_id in enumerate(ids):
            end = start + least + (index < extra)
            assignment[member_id] += [TopicPartition(topic, p) for p in range(start, end)]
            start = end
    return assignment


def assign_round_robin(members: Members, partition_counts: PartitionCounts) -> Assignment:
    """Give the partitions of all topics one by one to the next member that subscribes to the
    topic."""
    assignment: Assignment = {member.member_id: [] for member in members}
    topics = sorted({topic for member in members for topic in member.topics})
    wants = {member.member_id: frozenset(member.topics) for member in members}
    turns = cycle([member.member_id for member in sorted(members, key=lambda m: m.order)])
    for topic in topics:
        for partition in range(partition_counts.get(topic, 0)):
            # The loop ends, because at least one member subscribes to the topic.
            member_id = next(turns)
            while topic not in wants[member_id]:
                member_id = next(turns)
            assignment[member_id].append(TopicPartition(topic, partition))
    return assignment


def assign_cooperative_sticky(members: Members, partition_counts: PartitionCounts) -> Assignment:
    """Assign as the sticky strategy does, but in two steps.

    A partition that moves to another member stays unassigned until its owner has released it.
    """
    return withhold_moving(members, assign_sticky(members, partition_counts))


@dataclass(frozen=True, slots=True)
class Assignor:
    """One assignment strategy, by the name that all members must share (KIP-429).

    `is_cooperative`: members keep their partitions while they rejoin. `user_data` encodes a
    member's last partitions and their generation for its subscription. `trusts_user_data`: the
    leader reads a member's owned partitions from the user data.
    """

    name: str
    assign: Callable[[Members, PartitionCounts], Assignment]
    is_cooperative: bool = False
    user_data: Callable[[Collection[TopicPartition], int], bytes] | None = None
    trusts_user_data: bool = False


def _generation_only(owned: Collection[TopicPartition], generation_id: int) -> bytes:
    return encode_generation(generation_id)


RANGE = Assignor("range", assign_range)
ROUND_ROBIN = Assignor("roundrobin", assign_round_robin)
STICKY = Assignor("sticky", assign_sticky, user_data=encode_sticky_data, trusts_user_data=True)
COOPERATIVE_STICKY = Assignor(
    "cooperative-sticky",
    assign_cooperative_sticky,
    is_cooperative=True,
    user_data=_generation_only,
)

ASSIGNORS: Mapping[str, Assignor] = MappingProxyType(
    {assignor.name: assignor for assignor in (RANGE, ROUND_ROBIN, STICKY, COOPERATIVE_STICKY)}
)
"""All assignors by name, as in `partition.assignment.strategy`."""
