"""Changes of the voter set by the leader: when a change is allowed, its record, and its result.

This module is pure. Voters change one at a time (KIP-853), so that any majority of one set shares a
voter with any majority of the next set. A voter set is valid once its record is appended, so four
rules keep two valid sets from having majorities without a common voter:

1. A change waits until a record of the leader's own epoch is committed. Otherwise a change of an
   earlier leader could still come back.
2. A change waits until the record of the set before is committed.
3. A change adds or removes one voter.
4. The leader sends the record to other replicas only when the record is durable on its own disk.
   Otherwise a leader that was the only voter could lose the record, and elect itself while the
   others elect another leader.

An update of a voter's addresses follows the first two rules and the fourth. Its set has the same
members, so it needs no majority that has caught up.

A voter joins only when it has caught up, because the new set could not commit without it. For the
same reason a change needs a majority of the new set that has caught up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from broker.quorum.control_records import build_control_batch, voters_record
from broker.quorum.events import (
    AddVoter,
    ChangeVoters,
    RemoveVoter,
    UpdateVoter,
    VoterChange,
    VoterChangeResult,
)
from broker.quorum.replica import NEVER_MS, MetadataReplica
from broker.quorum.voters import KRAFT_VERSION, Endpoint, ReplicaKey, Voter, VoterSet
from protocol.errors import ErrorCode
from protocol.types import NO_OFFSET, uuid_to_base64


@dataclass(frozen=True, slots=True)
class _PendingChange:
    """An appended change whose caller waits for the commit, or only for the leader's own disk."""

    change_id: int
    offset: int
    deadline_ms: int
    waits_for_commit: bool


class VoterChangeRefused(Exception):
    """The change is not allowed. Nothing was appended."""

    def __init__(self, error: ErrorCode, reason: str) -> None:
        super().__init__(reason)
        self.error = error
        self.reason = reason


class VoterChanges:
    """The changes of the voter set in one epoch of a leader."""

    def __init__(
        self, replica: MetadataReplica, has_caught_up: Callable[[ReplicaKey, int], bool]
    ) -> None:
        """`has_caught_up(key, now_ms)` returns True if the replica has had all of the leader's
        records a moment ago."""
        self._replica = replica
        self._has_caught_up = has_caught_up
        self._pending: _PendingChange | None = None
        self._own_offset = NO_OFFSET
        """The offset of the newest record of voters that this leader has appended."""

    @property
    def deadline_ms(self) -> int:
        """The time at which the waiting caller gets a timeout."""
        return self._pending.deadline_ms if self._pending else NEVER_MS

    @property
    def served_end_offset(self) -> int:
        """The end of the records that other replicas can fetch.

        A record of voters that is not durable here is not served (rule 4).
        """
        log = self._replica.log
        is_durable = self._own_offset < log.durable_end_offset
        return log.end_offset if is_durable else min(log.end_offset, self._own_offset)

    def change(self, request: ChangeVoters, epoch_end_offset: int, now_ms: int) -> bool:
        """Append the record of a change, or refuse the change. Return True if it was appended.

        `epoch_end_offset` is the end of the epoch's first batch.
        """
        try:
            voters = self._after(request.change, epoch_end_offset, now_ms)
            voters = _with_addresses(voters, request.addresses)
        except VoterChangeRefused as refusal:
            self._report(request.change_id, refusal.error, refusal.reason)
            return False
        replica = self._replica
        if voters == replica.voters.latest:
            # An update whose answer was lost is sent again.
            self._report(request.change_id, ErrorCode.NONE)
            return False
        offset = self._own_offset = replica.log.end_offset
        batch = build_control_batch(
            [voters_record(voters)], base_offset=offset, epoch=replica.epoch
        )
        replica.append_own([batch])
        deadline_ms = now_ms + request.timeout_ms
        self._pending = _PendingChange(
            request.change_id, offset, deadline_ms, request.waits_for_commit
        )
        return True

    def synced(self) -> None:
        """Report the waiting change as done if it is durable on this node and its caller does not
        wait for the commit."""
        pending, log = self._pending, self._replica.log
        if pending is None or pending.waits_for_commit:
            return
        if pending.offset < log.durable_end_offset:
            self._end_pending(ErrorCode.NONE)

    def committed(self, committed_offset: int) -> None:
        """Report the waiting change as done if it is committed."""
        if self._pending and self._pending.offset < committed_offset:
            self._end_pending(ErrorCode.NONE)

    def unwritten(self, end_offset: int) -> None:
        """Drop a waiting change at the offset or above, because the disk has rejected its
        record."""
        if self._own_offset >= end_offset:
            self._own_offset = NO_OFFSET
        if self._pending and self._pending.offset >= end_offset:
            self._end_pending(ErrorCode.KAFKA_STORAGE_ERROR, "the leader's disk is full")

    def tick(self, now_ms: int) -> None:
        """Report a timeout to the caller whose deadline has passed. The change stays in the log."""
        if now_ms >= self.deadline_ms:
            self._end_pending(
                ErrorCode.REQUEST_TIMED_OUT,
                "the change is written but not committed yet; it can still be committed",
            )

    def leave(self) -> None:
        """Report to the waiting caller that this node does not lead any more."""
        if self._pending:
            self._end_pending(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                "the leader was lost; check whether the change was made",
            )

    def _end_pending(self, error: ErrorCode, reason: str = "") -> None:
        assert self._pending is not None
        self._report(self._pending.change_id, error, reason)
        self._pending = None

    def _report(self, change_id: int, error: ErrorCode, reason: str = "") -> None:
        self._replica.out.changes.append(VoterChangeResult(change_id, error, reason))

    def _after(self, change: VoterChange, epoch_end_offset: int, now_ms: int) -> VoterSet:
        """Return the voter set after a change. Raises VoterChangeRefused."""
        self._check_epoch_begun(epoch_end_offset)
        self._check_none_open()
        voters = self._replica.voters.latest
        match change:
            case AddVoter(voter):
                self._check_new(voter, voters, now_ms)
                after = VoterSet([*voters.voters, voter])
            case RemoveVoter(key):
                _check_present(key, voters)
                after = VoterSet(one for one in voters.voters if one.key != key)
                if not len(after):
                    raise VoterChangeRefused(
                        ErrorCode.INVALID_REQUEST,
                        f"node {key.node_id} is the only voter and cannot be removed",
                    )
            case UpdateVoter(voter):
                _check_present(voter.key, voters)
                _check_versions(voter)
                # The members stay, so the majority stays the same.
                return VoterSet(voter if one.key == voter.key else one for one in voters.voters)
        self._check_majority(after, now_ms)
        return after

    def _check_epoch_begun(self, epoch_end_offset: int) -> None:
        """Check rule 1."""
        if self._replica.log.committed_offset < epoch_end_offset:
            raise VoterChangeRefused(
                ErrorCode.REQUEST_TIMED_OUT,
                "the leader has committed no record of its epoch yet; try again",
            )

    def _check_none_open(self) -> None:
        """Check rule 2."""
        replica = self._replica
        if replica.voters.latest_offset >= replica.log.committed_offset:
            raise VoterChangeRefused(
                ErrorCode.REQUEST_TIMED_OUT,
                "an earlier change of the voters is not committed yet; try again",
            )

    def _check_new(self, voter: Voter, voters: VoterSet, now_ms: int) -> None:
        key = voter.key
        known = voters.voter(key.node_id)
        if known is not None:
            folder = uuid_to_base64(known.key.directory_id)
            raise VoterChangeRefused(
                ErrorCode.DUPLICATE_VOTER,
                f"node {key.node_id} is already a voter, with directory {folder}",
            )
        _check_versions(voter)
        if not self._has_caught_up(key, now_ms):
            raise VoterChangeRefused(
                ErrorCode.REQUEST_TIMED_OUT,
                f"node {key.node_id} with directory {uuid_to_base64(key.directory_id)} has not "
                "caught up with the leader; start it, and try again when it has caught up",
            )

    def _check_majority(self, voters: VoterSet, now_ms: int) -> None:
        me = self._replica.me
        ready = [key for key in voters if key == me or self._has_caught_up(key, now_ms)]
        if len(ready) < voters.majority:
            missing = ", ".join(str(key.node_id) for key in voters if key not in ready)
            raise VoterChangeRefused(
                ErrorCode.REQUEST_TIMED_OUT,
                f"the new voters would have no majority that has caught up: nodes {missing} have "
                "not; start them, and try again",
            )


def _with_addresses(
    voters: VoterSet, addresses: Mapping[ReplicaKey, tuple[Endpoint, ...]]
) -> VoterSet:
    return VoterSet(
        replace(one, endpoints=addresses.get(one.key, one.endpoints)) for one in voters.voters
    )


def _check_present(key: ReplicaKey, voters: VoterSet) -> None:
    """Check that a voter has this id and this directory, so that no other disk loses its vote."""
    if key in voters:
        return
    known = voters.voter(key.node_id)
    folder = uuid_to_base64(key.directory_id)
    reason = f"node {key.node_id} with directory {folder} is no voter"
    if known is not None:
        reason += f"; it votes with directory {uuid_to_base64(known.key.directory_id)}"
    raise VoterChangeRefused(ErrorCode.VOTER_NOT_FOUND, reason)


def _check_versions(voter: Voter) -> None:
    if not voter.kraft_version_min <= KRAFT_VERSION <= voter.kraft_version_max:
        raise VoterChangeRefused(
            ErrorCode.INVALID_REQUEST,
            f"node {voter.key.node_id} supports kraft.version {voter.kraft_version_min} to "
            f"{voter.kraft_version_max}, the quorum has {KRAFT_VERSION}",
        )
