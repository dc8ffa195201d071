"""The role of a replica that fetches from the epoch's leader, as a voter or an observer.

This module is pure. Only one request is in flight, and only the answer to this request is accepted,
because a late answer could truncate a correct log. The next Fetch waits for the disk, because it
claims that all records below its offset are durable.
"""

from __future__ import annotations

from broker.quorum.election import fetch_request
from broker.quorum.events import (
    Answer,
    FetchAnswer,
    FetchSnapshot,
    FetchSnapshotAnswer,
    SnapshotStored,
)
from broker.quorum.ready import Barrier, SnapshotPiece
from broker.quorum.replica import NEVER_MS, MetadataReplica
from broker.quorum.roles import Move, ToProspective, ToUnattached
from broker.quorum.snapshot import SnapshotId
from broker.quorum.voters import VoterHistory
from protocol.errors import ErrorCode, WireError
from protocol.types import NO_NODE


class Follower:
    """The role of a replica that follows one leader in one epoch."""

    def __init__(
        self, replica: MetadataReplica, leader_id: int, wait_ms: int | None, now_ms: int
    ) -> None:
        self._replica = replica
        self.leader_id = leader_id
        self._request_id: int | None = None
        self._fetch_at_ms = now_ms
        self._lost_at_ms = now_ms + replica.timing.fetch_timeout_ms
        self._try_at_ms: int | None = None
        """The time at which to request pre-votes; None while the leader is assumed to be alive."""
        if wait_ms is not None:
            self._try_at_ms = now_ms + wait_ms
        self._has_fetched = False
        self._piece_of: SnapshotId | None = None
        self._position = 0

    @property
    def deadline_ms(self) -> int:
        lost_ms = self._lost_at_ms if self._try_at_ms is None else self._try_at_ms
        return min(lost_ms, self._fetch_at_ms if self._may_fetch else NEVER_MS)

    @property
    def grants_pre_votes(self) -> bool:
        """True if this replica grants pre-votes. It does not grant them while the leader answers.

        Only answers of the leader itself count, not the reports of other replicas about the leader.
        """
        return self._try_at_ms is not None or not self._has_fetched

    @property
    def _may_fetch(self) -> bool:
        return self._request_id is None and not self._replica.storing

    def begin(self, now_ms: int) -> Move | None:
        return self.tick(now_ms)

    def tick(self, now_ms: int) -> Move | None:
        replica = self._replica
        if replica.storing:
            # A slow disk of this node does not mean that the leader is dead, so extend the
            # deadline.
            self._lost_at_ms = max(self._lost_at_ms, now_ms + replica.timing.fetch_timeout_ms)
            if self._try_at_ms is not None:
                self._try_at_ms = max(self._try_at_ms, now_ms + replica.timing.backoff_ms)
        if self._try_at_ms is None and now_ms >= self._lost_at_ms:
            if not replica.may_lead:
                return ToUnattached(replica.epoch, 0)
            self._try_at_ms = now_ms + replica.rank_wait_ms(self.leader_id)
        if self._try_at_ms is not None and now_ms >= self._try_at_ms:
            return ToProspective(self.leader_id)
        if self._may_fetch and now_ms >= self._fetch_at_ms:
            self._request_id = replica.send(self.leader_id, fetch_request(replica), Barrier.SYNC)
        return None

    def leader_is_lost(self, wait_ms: int, now_ms: int) -> Move | None:
        """Grant pre-votes, and request pre-votes after the wait, because the leader is lost."""
        if not self._replica.may_lead:
            return None
        try_at_ms = now_ms + wait_ms
        is_sooner = self._try_at_ms is None or try_at_ms < self._try_at_ms
        self._try_at_ms = try_at_ms if is_sooner else self._try_at_ms
        return self.tick(now_ms)

    def answered(self, request_id: int, answer: Answer, now_ms: int) -> Move | None:
        if request_id != self._request_id:
            return None
        self._request_id = None
        replica = self._replica
        is_leaders = (answer.leader_id, answer.leader_epoch) == (self.leader_id, replica.epoch)
        if answer.error is ErrorCode.NONE and is_leaders:
            if isinstance(answer, FetchAnswer) and self._take(answer):
                self._leader_lives(now_ms)
                return self.tick(now_ms)
            if isinstance(answer, FetchSnapshotAnswer) and self._take_piece(answer):
                self._leader_lives(now_ms)
                return self.tick(now_ms)
        self._back_off(now_ms)
        is_same_epoch = answer.leader_epoch == replica.epoch and answer.leader_id == NO_NODE
        is_resigned = answer.error is ErrorCode.NOT_LEADER_OR_FOLLOWER and is_same_epoch
        # If `_try_at_ms` is set, this replica already waits after a lost pre-vote. It must not
        # shorten that wait, because the former leader can have the longest log and starts an
        # election after its own wait.
        if is_resigned and self._try_at_ms is None:
            # The node that answered does not lead this epoch any more, because it resigned or
            # restarted. No node leads an epoch twice, so the epoch has no leader.
            return self.leader_is_lost(replica.rank_wait_ms(self.leader_id), now_ms)
        return None

    def failed(self, request_id: int, now_ms: int) -> Move | None:
        if request_id == self._request_id:
            self._request_id = None
            self._back_off(now_ms)
        return None

    def disk_is_full(self, now_ms: int) -> None:
        """Fetch again after a wait, because the batches of the last answer could not be appended.

        The Fetch that would have followed these batches is never sent.
        """
        self._request_id = None
        self._fetch_at_ms = now_ms + self._replica.timing.full_disk_wait_ms

    def stored(self, event: SnapshotStored, now_ms: int) -> Move | None:
        """Continue at the end of the fetched snapshot, which has replaced the log."""
        self._leader_lives(now_ms)
        return self.tick(now_ms)

    def spoiled(self, now_ms: int) -> None:
        """Send a new Fetch, because the fetched snapshot was incomplete.

        The answer says what to fetch.
        """
        self._back_off(now_ms)

    def leave(self, leader_id: int) -> None:
        pass

    def _leader_lives(self, now_ms: int) -> None:
        self._has_fetched = True
        self._try_at_ms = None
        self._lost_at_ms = now_ms + self._replica.timing.fetch_timeout_ms
        self._fetch_at_ms = now_ms
        self._replica.failed_tries = 0

    def _back_off(self, now_ms: int) -> None:
        self._piece_of = None
        self._fetch_at_ms = now_ms + self._replica.timing.backoff_ms

    def _take(self, answer: FetchAnswer) -> bool:
        """Apply an answer.

        Return False if the answer is invalid. In this case the follower fetches again.
        """
        replica = self._replica
        if answer.diverging is not None:
            common_end = replica.log.common_end(answer.diverging)
            if common_end >= replica.log.end_offset:
                return False
            replica.truncate_to(common_end)
            return True
        if answer.snapshot_id is not None:
            if answer.snapshot_id.end_offset < replica.log.committed_offset:
                return False
            self._ask_piece(answer.snapshot_id, 0)
            return True
        try:
            follows = replica.append_fetched(answer.batches)
        except WireError:
            return False
        log = replica.log
        known = min(answer.high_watermark, log.end_offset)
        log.committed_offset = max(log.committed_offset, known)
        if replica.catch_up is not None and replica.catch_up.fetched(
            log, replica.epoch, answer.high_watermark, is_at_end=not answer.batches
        ):
            replica.catch_up = None
        return follows

    def _take_piece(self, answer: FetchSnapshotAnswer) -> bool:
        expected = (self._piece_of, self._position)
        if (answer.snapshot_id, answer.position) != expected:
            return False
        end = answer.position + len(answer.data)
        if not answer.data or end > answer.size_bytes:
            return False
        piece = SnapshotPiece(answer.snapshot_id, answer.position, answer.data)
        self._replica.out.piece = piece
        if end < answer.size_bytes:
            self._ask_piece(answer.snapshot_id, end)
            return True
        self._replica.out.snapshot = answer.snapshot_id
        self._replica.storing = True
        self._piece_of = None
        return True

    def _ask_piece(self, snapshot_id: SnapshotId, position: int) -> None:
        replica = self._replica
        self._piece_of, self._position = snapshot_id, position
        request = FetchSnapshot(
            replica.cluster_id,
            replica.fetch_key,
            replica.epoch,
            snapshot_id,
            position,
            replica.timing.fetch_bytes,
        )
        self._request_id = replica.send(self.leader_id, request, Barrier.NOW)


def install(replica: MetadataReplica, event: SnapshotStored) -> None:
    """Replace the log by a fetched snapshot that is durable."""
    replica.storing = False
    replica.log.reset_to(event.snapshot_id)
    replica.voters = VoterHistory(event.voters)
