"""The leader's work for its group: who gets what, and whether that still holds.

Floor: client. Pure. `group_core` decides when; a member that is not the leader has nothing here.
"""

from collections.abc import Mapping

from protocol.client.assignment import (
    MemberSubscription,
    decode_subscription,
    encode_assignment,
)
from protocol.client.assignors import Assignor
from protocol.messages.group import JoinGroupResponse


class GroupLeader:
    """What one member knows of the others as their leader, from one JoinGroup to the next.

    `assignments`: what SyncGroup brings to the coordinator; None until `assign`.
    """

    def __init__(self) -> None:
        self.is_leader = False
        self.assignments: dict[str, bytes] | None = None
        self._assignor: Assignor | None = None
        self._members: tuple[MemberSubscription, ...] = ()
        self._counts: dict[str, int] = {}
        self._skips_assignment = False

    def begin(self, response: JoinGroupResponse, assignor: Assignor) -> None:
        """Take the members that came together; WireError for one whose metadata is nonsense."""
        self.is_leader = response.leader == response.member_id
        self.assignments = None
        self._assignor = assignor
        self._members = tuple(
            decode_subscription(
                member.member_id,
                member.metadata,
                member.group_instance_id,
                trusts_user_data=assignor.trusts_user_data,
            )
            for member in response.members
        )
        self._counts = {}
        self._skips_assignment = response.skip_assignment

    def end(self) -> None:
        """Lead no longer: somebody else answers for the group's topics."""
        self.is_leader = False
        self._counts = {}

    def assign(self, partition_counts: Mapping[str, int]) -> None:
        """Share the members' topics out; those that do not exist have no partitions."""
        # Those that do not exist are watched as well: they may come.
        self._counts = {topic: partition_counts.get(topic, 0) for topic in self.topics}
        self.assignments = {}
        if not self._skips_assignment:
            assert self._assignor is not None
            given = self._assignor.assign(self._members, self._counts)
            self.assignments = {id_: encode_assignment(tps) for id_, tps in given.items()}

    @property
    def topics(self) -> frozenset[str]:
        """All that any member wants."""
        return frozenset(topic for member in self._members for topic in member.topics)

    @property
    def watched_topics(self) -> frozenset[str]:
        """Whose partition counts `has_changed` wants."""
        return frozenset(self._counts)

    def has_changed(self, partition_counts: Mapping[str, int]) -> bool:
        """Whether a topic has grown, come or gone since it was shared out."""
        seen = {topic: partition_counts.get(topic, 0) for topic in self._counts}
        return self.is_leader and seen != self._counts
