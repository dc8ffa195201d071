"""The state of a metadata replica that does not depend on its role: identity, vote, log, voters.

This module is pure. All roles of a replica share one `MetadataReplica`, and add their work to its
outbox.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from random import Random

from broker.quorum.catch_up import CatchUp
from broker.quorum.control_records import voter_sets_in
from broker.quorum.events import Request
from broker.quorum.log_view import LogView
from broker.quorum.ready import Barrier, ReadyBuilder, Send
from broker.quorum.vote_file import ElectionState
from broker.quorum.voters import ReplicaKey, VoterHistory
from protocol.errors import CorruptBatch, ErrorCode
from protocol.types import NO_NODE, ZERO_UUID
from protocol.wire.records import patch, read_header

NEVER_MS = 2**62
"""A deadline that never comes."""


@dataclass(frozen=True, slots=True)
class QuorumTiming:
    """The timeouts and waits of a replica, in lived ms.

    Values without an explanation here are Kafka's.
    """

    fetch_timeout_ms: int = 2_000
    """A voter that gets no answer from its leader for this time takes the leader for lost."""
    fetch_max_wait_ms: int = 500
    """The longest time for which a leader can keep a Fetch that finds no new batches."""
    election_timeout_ms: int = 1_000
    """The time for which a candidate waits for votes, from when its own vote is durable."""
    rank_wait_ms: int = 150
    """The wait per rank: the n-th remaining voter waits n times as long.

    It is enough for a vote with its fsync.
    """
    retry_wait_max_ms: int = 2_000
    """The limit of the wait after a failed election.

    The wait doubles with each failed election, and a random time up to the same length is added.
    """
    check_quorum_ms: int = 3_000
    """A leader resigns if no majority of voters has fetched for this time."""
    caught_up_ms: int = 1_000
    """A replica has caught up if it had all of the leader's records within this time.

    An observer that has all records fetches every `fetch_max_wait_ms`.
    """
    begin_epoch_interval_ms: int = 500
    """The interval at which a leader announces its epoch to a voter that does not fetch."""
    backoff_ms: int = 50
    """The wait before a failed or refused Fetch is repeated."""
    full_disk_wait_ms: int = 1_000
    """The wait before a Fetch is repeated whose batches could not be written to a full disk."""
    request_timeout_ms: int = 2_000
    """A request to another replica fails after this time."""
    fetch_bytes: int = 1 << 20
    """The largest size of a Fetch response, or of the bytes in one FetchSnapshot response."""


@dataclass(slots=True)
class MetadataReplica:
    """The state of a replica that stays when its role changes.

    `election` is ahead of the vote file; see `Barrier`.
    """

    me: ReplicaKey
    cluster_id: str
    election: ElectionState
    log: LogView
    voters: VoterHistory
    chance: Random
    timing: QuorumTiming = field(default_factory=QuorumTiming)
    bootstrap: Sequence[int] = ()
    """The nodes that this replica asks for the leader while it knows no voters."""
    catch_up: CatchUp | None = None
    """The state of a disk that can be an old copy, until it has caught up; None for other disks.

    In the meantime this replica neither votes nor starts an election (guard 62).
    """
    out: ReadyBuilder = field(default_factory=ReadyBuilder)
    failed_tries: int = 0
    """The number of failed elections since the last leader."""
    storing: bool = False
    """True while a fetched snapshot is being checked and stored."""
    request_count: int = 0

    @property
    def epoch(self) -> int:
        """The newest epoch that this replica knows."""
        return self.election.epoch

    @property
    def is_voter(self) -> bool:
        """True if this node, with this disk, is in the current voter set."""
        return self.me in self.voters.latest

    @property
    def may_lead(self) -> bool:
        """True if this node, with this disk, may start an election.

        A voter that has appended the record of its own removal may start elections until it knows
        that the record is committed (Raft dissertation, 4.2.2). Its log can be the longest, so the
        other voters can need this node as leader to commit the record. A disk that can be an old
        copy must catch up first.
        """
        if self.catch_up is not None:
            return False
        if self.is_voter:
            return True
        is_open = self.voters.latest_offset >= self.log.committed_offset
        return is_open and self.me in self.voters.previous

    @property
    def fetch_key(self) -> ReplicaKey:
        """The key in the fetches of this replica.

        A disk that can be an old copy fetches without its directory, so the leader counts it as an
        observer. Otherwise the copy could acknowledge records of a leader that the true disk has
        helped to depose with its vote in a newer epoch.
        """
        return self.me if self.catch_up is None else ReplicaKey(self.me.node_id, ZERO_UUID)

    def adopt(self, epoch: int) -> None:
        """Adopt a newer epoch, in which this replica has not voted yet."""
        if epoch > self.epoch:
            self.election = self.out.vote = ElectionState(epoch)

    def vote_for(self, candidate: ReplicaKey) -> None:
        """Set the vote of this replica in its epoch. A replica votes once in each epoch."""
        assert self.election.voted in (None, candidate), "a second vote in one epoch"
        if self.election.voted is None:
            self.election = self.out.vote = replace(self.election, voted=candidate)

    def know_leader(self, leader_id: int) -> None:
        """Record the leader of the epoch. The next write of the vote file includes it.

        The leader need not be in the vote file at once, because a voter that has forgotten the
        leader asks for it.
        """
        self.election = replace(self.election, leader_id=leader_id)
        if self.out.vote:
            self.out.vote = self.election

    def send(self, node_id: int, request: Request, barrier: Barrier) -> int:
        """Add a request to another node to the outbox.

        Return the id of the request, which is never reused.
        """
        self.request_count += 1
        timeout_ms = self.timing.request_timeout_ms
        self.out.sends.append(Send(self.request_count, node_id, request, barrier, timeout_ms))
        return self.request_count

    def append_own(self, batches: Iterable[bytes | bytearray]) -> None:
        """Append batches as the epoch's leader.

        The offset and the epoch are written into each batch.
        """
        for batch in batches:
            stamped = bytearray(batch)
            patch(stamped, self.log.end_offset, self.epoch)
            self._append(bytes(stamped))

    def append_fetched(self, batches: Sequence[bytes]) -> bool:
        """Append a leader's batches unchanged. Return False if a batch does not follow the end of
        the log.

        In this case only the batches before that batch are appended. The log checks the checksum of
        each batch before the write.
        """
        for batch in batches:
            header = read_header(batch)
            follows = header.base_offset == self.log.end_offset
            in_order = self.log.last_epoch <= header.partition_leader_epoch <= self.epoch
            if not (follows and in_order and header.size_bytes == len(batch)):
                return False
            self._append(batch)
        return True

    def _append(self, batch: bytes) -> None:
        header = read_header(batch)
        if header.last_offset_delta < 0:
            raise CorruptBatch(
                f"the batch at offset {header.base_offset} has last offset delta"
                f" {header.last_offset_delta}, expected at least 0"
            )
        sets = voter_sets_in(batch) if header.is_control else ()
        self.log.append(header)
        for offset, voters in sets:
            self.voters.append(offset, voters)
        self.out.append.append(batch)

    def truncate_to(self, offset: int) -> None:
        """Remove all records from the offset on, and the voter sets that they name."""
        self.log.truncate_to(offset)
        self.voters.truncate_to(offset)
        self.out.truncate_to = offset

    def rank_wait_ms(self, lost_leader_id: int = NO_NODE) -> int:
        """Return the time for which this voter lets other voters start an election first.

        An observer does not wait.
        """
        rank = self.voters.latest.rank(self.me, lost_leader_id) if self.may_lead else 0
        return rank * self.timing.rank_wait_ms

    def retry_wait_ms(self) -> int:
        """Return the wait after a failed election: it doubles each time, and a random time up to
        the same length is added.

        Without the random time, two candidates with the same wait could prevent each other's
        election forever.
        """
        wait_ms = self.timing.rank_wait_ms << min(self.failed_tries, 16)
        wait_ms = min(wait_ms, self.timing.retry_wait_max_ms)
        self.failed_tries += 1
        return wait_ms + self.chance.randrange(wait_ms + 1)

    def misaddressed(self, cluster_id: str, voter: ReplicaKey | None = None) -> ErrorCode:
        """Return the error for a request to another cluster, node or disk; NONE if it is for this
        one.
        """
        if cluster_id != self.cluster_id:
            return ErrorCode.INCONSISTENT_CLUSTER_ID
        if voter is not None and voter != self.me:
            return ErrorCode.INVALID_VOTER_KEY
        return ErrorCode.NONE
