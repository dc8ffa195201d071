"""List and describe groups: their members, committed offsets and lag."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from protocol.client.admin_types import GroupDescription, MemberDescription, OffsetAt
from protocol.client.assignment import decode_assignment
from protocol.client.cluster import Cluster
from protocol.client.group import OffsetAndMetadata, fetch_offsets
from protocol.client.group_admin import describe_groups
from protocol.client.group_offset_reset import DEAD
from protocol.client.offsets_by_time import list_offsets
from protocol.errors import ApiError, WireError
from protocol.types import LATEST_TIMESTAMP, TopicPartition

STATES = (
    *("PreparingRebalance", "CompletingRebalance", "Stable", "Dead", "Empty"),
    *("Assigning", "Reconciling"),
)
REBALANCING = frozenset({"PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling"})
CONSUMER_PROTOCOL = "consumer"


@dataclass(frozen=True, slots=True)
class GroupRow:
    """The state of one partition of one group.

    An offset is None if it is unknown. The member is None if the partition has no reader.
    """

    group_id: str
    topic: str
    partition: int
    leader_epoch: int | None
    current_offset: int | None
    log_end_offset: int | None
    member: MemberDescription | None

    @property
    def lag(self) -> int | None:
        """Return the lag. It is None if an offset is unknown, or if the commit is past the end of
        the log.
        """
        if self.current_offset is None or self.log_end_offset is None:
            return None
        lag = self.log_end_offset - self.current_offset
        return lag if lag >= 0 else None

    @property
    def is_past_end(self) -> bool:
        """Return whether an offset past the log's end is committed."""
        return (
            self.current_offset is not None
            and self.log_end_offset is not None
            and self.current_offset > self.log_end_offset
        )


@dataclass(frozen=True, slots=True)
class Group:
    """A group, with its members' partitions and all its committed offsets."""

    description: GroupDescription
    assignments: Mapping[str, frozenset[TopicPartition]]
    rows: tuple[GroupRow, ...]

    @property
    def group_id(self) -> str:
        """The group's id."""
        return self.description.group_id

    @property
    def state(self) -> str:
        """The state, in the coordinator's words."""
        return self.description.state

    @property
    def exists(self) -> bool:
        """True if the group exists: it has members, or only commits."""
        return self.state not in (DEAD, "") or bool(self.rows)


async def describe(cluster: Cluster, group_ids: Collection[str]) -> list[Group]:
    """Describe these groups, in the given order. Raises ApiError if a group cannot be described."""
    found = await describe_groups(cluster, group_ids)
    groups = []
    for group_id in group_ids:
        one = found[group_id]
        if one.error:
            raise ApiError(one.error, f"group {group_id!r}: {one.error.description}")
        assignments = _assignments(one)
        groups.append(Group(one, assignments, await _rows(cluster, one, assignments)))
    return groups


def _assignments(one: GroupDescription) -> dict[str, frozenset[TopicPartition]]:
    """Return the partitions of each member. The set is empty if the group does not use the consumer
    protocol."""
    found: dict[str, frozenset[TopicPartition]] = {}
    for member in one.members:
        tps: frozenset[TopicPartition] = frozenset()
        if one.protocol_type == CONSUMER_PROTOCOL and member.assignment:
            try:
                tps = decode_assignment(member.assignment)
            except WireError:
                tps = frozenset()
        found[member.member_id] = tps
    return found


async def _rows(
    cluster: Cluster,
    one: GroupDescription,
    assignments: Mapping[str, frozenset[TopicPartition]],
) -> tuple[GroupRow, ...]:
    commits = await fetch_offsets(cluster, one.group_id)
    owners = {tp: member for member in one.members for tp in assignments.get(member.member_id, ())}
    tps = sorted({*commits, *owners})
    ends = await ends_of(cluster, tps)
    return tuple(_row(one.group_id, tp, commits.get(tp), ends[tp], owners.get(tp)) for tp in tps)


async def ends_of(
    cluster: Cluster, tps: Collection[TopicPartition]
) -> dict[TopicPartition, OffsetAt]:
    """Return the end offset of each log, or its error."""
    if not tps:
        return {}
    return await list_offsets(cluster, dict.fromkeys(tps, LATEST_TIMESTAMP))


def _row(
    group_id: str,
    tp: TopicPartition,
    commit: OffsetAndMetadata | None,
    end: OffsetAt,
    owner: MemberDescription | None,
) -> GroupRow:
    epoch = None if commit is None or commit.leader_epoch < 0 else commit.leader_epoch
    return GroupRow(
        group_id,
        tp.topic,
        tp.partition,
        epoch,
        None if commit is None else commit.offset,
        None if end.error else end.offset,
        owner,
    )
