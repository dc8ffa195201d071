"""The state of a metadata replica that does not depend on its role: identity, vote, log, voters.

This module is pure. All roles share one `MetadataReplica`, and add their work to its outbox.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from random import Random

from broker.quorum.control_records import voter_sets_in
from broker.quorum.events import Request
from broker.quorum.log_view import LogView
from broker.quorum.ready import Barrier, ReadyBuilder, Send
from broker.quorum.vote_file import ElectionState
from broker.quorum.voters import ReplicaKey, VoterHistory
from protocol.errors import CorruptBatch, ErrorCode
from protocol.types import NO_NODE
from protocol.wire.records import patch, read_header

NEVER_MS = 2**62
"""A deadline that never comes."""


@dataclass(frozen=True, slots=True)
class QuorumTiming:
    """How long a replica waits, in lived ms. Values without a reason here are Kafka's."""

    fetch_timeout_ms: int = 2_000
    """A voter without an answer of its leader for this long takes it for lost."""
    fetch_max_wait_ms: int = 500
    """How long a leader can hold a Fetch that finds nothing new."""
    election_timeout_ms: int = 1_000
    """How long a candidate waits for votes, from when its own vote is durable."""
    rank_wait_ms: int = 150
    """The n-th remaining voter waits n times as long: enough for a vote with its fsync."""
    retry_wait_max_ms: int = 2_000
    """The limit of the wait, which doubles with each failed election. A random part up to the same
    length is added.
    """
    check_quorum_ms: int = 3_000
    """A leader resigns if no majority has fetched for this long."""
    begin_epoch_interval_ms: int = 500
    """How often a leader announces itself to a voter that does not fetch."""
    backoff_ms: int = 50
    """Wait before a failed or refused Fetch is repeated."""
    full_disk_wait_ms: int = 1_000
    """Wait before a Fetch of batches that a full disk rejected."""
    request_timeout_ms: int = 2_000
    """A request to another replica fails after this time."""
    fetch_bytes: int = 1 << 20
    """The limit of a Fetch response or of a piece of a snapshot."""


@dataclass(slots=True)
class MetadataReplica:
    """The state that outlives a role. `election` is ahead of the vote file; see `Barrier`."""

    me: ReplicaKey
    cluster_id: str
    election: ElectionState
    log: LogView
    voters: VoterHistory
    chance: Random
    timing: QuorumTiming = field(default_factory=QuorumTiming)
    bootstrap: Sequence[int] = ()
    """The nodes to ask for the leader while no voters are known."""
    out: ReadyBuilder = field(default_factory=ReadyBuilder)
    failed_tries: int = 0
    """Failed elections since there was a leader."""
    storing: bool = False
    """Whether a fetched snapshot is being checked and stored."""
    request_count: int = 0

    @property
    def epoch(self) -> int:
        """The newest epoch known here."""
        return self.election.epoch

    @property
    def is_voter(self) -> bool:
        """True if this node, with this disk, is in the current voter set."""
        return self.me in self.voters.latest

    def adopt(self, epoch: int) -> None:
        """Adopt a newer epoch, in which this replica has not voted yet."""
        if epoch > self.epoch:
            self.election = self.out.vote = ElectionState(epoch)

    def vote_for(self, candidate: ReplicaKey) -> None:
        """Give the epoch's only vote."""
        assert self.election.voted in (None, candidate), "a second vote in one epoch"
        if self.election.voted is None:
            self.election = self.out.vote = replace(self.election, voted=candidate)

    def know_leader(self, leader_id: int) -> None:
        """Note the leader of the epoch. A vote file that is written anyway names it too.

        Safety does not depend on that, because a voter that has forgotten the leader asks for it.
        """
        self.election = replace(self.election, leader_id=leader_id)
        if self.out.vote:
            self.out.vote = self.election

    def send(self, node_id: int, request: Request, barrier: Barrier) -> int:
        """Send a request to another node. Return its id, which is never reused."""
        self.request_count += 1
        timeout_ms = self.timing.request_timeout_ms
        self.out.sends.append(Send(self.request_count, node_id, request, barrier, timeout_ms))
        return self.request_count

    def append_own(self, batches: Iterable[bytes | bytearray]) -> None:
        """Append batches as the epoch's leader; offset and epoch are written into each batch."""
        for batch in batches:
            stamped = bytearray(batch)
            patch(stamped, self.log.end_offset, self.epoch)
            self._append(bytes(stamped))

    def append_fetched(self, batches: Sequence[bytes]) -> bool:
        """Append a leader's batches unchanged. Return False if one does not follow the log.

        The batches before it are appended, it and the rest are not. The log checks a batch's
        checksum before it writes.
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
            raise CorruptBatch(f"a batch ends {header.last_offset_delta} behind its beginning")
        sets = voter_sets_in(batch) if header.is_control else ()
        self.log.append(header)
        for offset, voters in sets:
            self.voters.append(offset, voters)
        self.out.append.append(batch)

    def truncate_to(self, offset: int) -> None:
        """Remove everything from the offset on, and the voter sets named there."""
        self.log.truncate_to(offset)
        self.voters.truncate_to(offset)
        self.out.truncate_to = offset

    def rank_wait_ms(self, lost_leader_id: int = NO_NODE) -> int:
        """Return how long this voter lets others go first. An observer does not wait."""
        rank = self.voters.latest.rank(self.me, lost_leader_id) if self.is_voter else 0
        return rank * self.timing.rank_wait_ms

    def retry_wait_ms(self) -> int:
        """Return the wait after a failed election: it doubles, and a random part up to the same
        length is added.

        Otherwise, two candidates whose votes take longer than the other one waits would tie
        forever.
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
