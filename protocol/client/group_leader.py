"""The work of a group's leader: assign partitions, and detect when they must be assigned again.

This module is pure. `group_core` decides when its methods are called.
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
    """The members of a group as its leader knows them, from one JoinGroup to the next.

    `assignments` is what SyncGroup sends to the coordinator; None until `assign`.
    """

    def __init__(self) -> None:
        self.is_leader = False
        self.assignments: dict[str, bytes] | None = None
        self._assignor: Assignor | None = None
        self._members: tuple[MemberSubscription, ...] = ()
        self._counts: dict[str, int] = {}
        self._skips_assignment = False

    def begin(self, response: JoinGroupResponse, assignor: Assignor) -> None:
        """Take the members from the answer to JoinGroup.

        Raises WireError for malformed metadata.
        """
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
        """Stop leading, because another member now leads the group and watches its topics."""
        self.is_leader = False
        self._counts = {}

    def assign(self, partition_counts: Mapping[str, int]) -> None:
        """Assign the partitions of the members' topics.

        Topics that do not exist have no partitions.
        """
        # Missing topics are watched as well, because they can be created.
        self._counts = {topic: partition_counts.get(topic, 0) for topic in self.topics}
        self.assignments = {}
        if not self._skips_assignment:
            assert self._assignor is not None
            given = self._assignor.assign(self._members, self._counts)
            self.assignments = {id_: encode_assignment(tps) for id_, tps in given.items()}

    @property
    def topics(self) -> frozenset[str]:
        """All topics of all members."""
        return frozenset(topic for member in self._members for topic in member.topics)

    @property
    def watched_topics(self) -> frozenset[str]:
        """The topics whose partition counts `has_changed` needs."""
        return frozenset(self._counts)

    def has_changed(self, partition_counts: Mapping[str, int]) -> bool:
        """Return whether a topic has grown, been created or been deleted since the assignment."""
        seen = {topic: partition_counts.get(topic, 0) for topic in self._counts}
        return self.is_leader and seen != self._counts
