"""What a replica of the metadata log is, whatever its role: identity, vote, log, voters.

Floor: quorum. Pure. The roles share one `Replica` and write what is to be done into its outbox.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from random import Random

from broker.quorum.control_records import voter_sets_in
from broker.quorum.events import Request
from broker.quorum.log_view import LogView
from broker.quorum.ready import Barrier, Outbox, Send
from broker.quorum.vote_file import ElectionState
from broker.quorum.voters import ReplicaKey, VoterHistory
from protocol.errors import CorruptBatch, ErrorCode
from protocol.types import NO_NODE
from protocol.wire.records import patch, read_header

NEVER_MS = 2**62
"""A deadline that does not come."""


@dataclass(frozen=True, slots=True)
class Timing:
    """How long a replica waits, in milliseconds of its own life; what has no reason is Kafka's."""

    fetch_timeout_ms: int = 2_000
    """Without an answer of the leader for so long a voter takes it for lost."""
    fetch_max_wait_ms: int = 500
    """How long a leader may hold a Fetch that finds nothing new."""
    election_timeout_ms: int = 1_000
    """How long a candidate waits for votes, from its own being durable."""
    rank_wait_ms: int = 150
    """The n-th of the voters left waits n times as long: enough for a vote with its fsync."""
    retry_wait_max_ms: int = 2_000
    """The wait doubles with every failed try up to here, and as much again is left to chance."""
    check_quorum_ms: int = 3_000
    """A leader that no majority has fetched from for so long resigns."""
    begin_epoch_interval_ms: int = 500
    """A leader makes itself known so often to a voter that does not fetch."""
    backoff_ms: int = 50
    """Before a Fetch is repeated that failed or was refused."""
    full_disk_wait_ms: int = 1_000
    """Before fetching again what a full disk could not take."""
    request_timeout_ms: int = 2_000
    """After which a request to another replica counts as failed."""
    fetch_bytes: int = 1 << 20
    """Of a Fetch or a piece of a snapshot."""


@dataclass(slots=True)
class Replica:
    """The state that outlives a role. `election` is ahead of the vote file: see `Barrier`."""

    me: ReplicaKey
    cluster_id: str
    election: ElectionState
    log: LogView
    voters: VoterHistory
    chance: Random
    timing: Timing = field(default_factory=Timing)
    bootstrap: Sequence[int] = ()
    """Nodes to ask for the leader while no voters are known."""
    out: Outbox = field(default_factory=Outbox)
    failed_tries: int = 0
    """Elections tried in vain since there was a leader."""
    storing: bool = False
    """A fetched snapshot is being checked and stored."""
    request_count: int = 0

    @property
    def epoch(self) -> int:
        """The newest epoch known here."""
        return self.election.epoch

    @property
    def is_voter(self) -> bool:
        """Whether this node, with this disk, is in the set that holds."""
        return self.me in self.voters.latest

    def adopt(self, epoch: int) -> None:
        """Go on in a newer epoch, in which nothing is promised yet."""
        if epoch > self.epoch:
            self.election = self.out.vote = ElectionState(epoch)

    def vote_for(self, candidate: ReplicaKey) -> None:
        """Give the epoch's one vote."""
        assert self.election.voted in (None, candidate), "a second vote in one epoch"
        if self.election.voted is None:
            self.election = self.out.vote = replace(self.election, voted=candidate)

    def know_leader(self, leader_id: int) -> None:
        """Note who leads the epoch; a file that is written anyway names it too.

        A safe start does not need it: a voter that has forgotten the leader asks.
        """
        self.election = replace(self.election, leader_id=leader_id)
        if self.out.vote:
            self.out.vote = self.election

    def send(self, node_id: int, request: Request, barrier: Barrier) -> int:
        """Ask another node; returns the request's id, never used twice."""
        self.request_count += 1
        timeout_ms = self.timing.request_timeout_ms
        self.out.sends.append(Send(self.request_count, node_id, request, barrier, timeout_ms))
        return self.request_count

    def append_own(self, batches: Iterable[bytes | bytearray]) -> None:
        """Append as the epoch's leader: offset and epoch are written into each batch."""
        for batch in batches:
            stamped = bytearray(batch)
            patch(stamped, self.log.end_offset, self.epoch)
            self._append(bytes(stamped))

    def append_fetched(self, batches: Sequence[bytes]) -> bool:
        """Append a leader's batches as they are; False when one does not follow the log.

        Those before it are appended, it and the rest are not. A batch's checksum is the log's to
        check, before it writes.
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
        """Drop all from the offset on, and the voter sets that were named there."""
        self.log.truncate_to(offset)
        self.voters.truncate_to(offset)
        self.out.truncate_to = offset

    def rank_wait_ms(self, lost_leader_id: int = NO_NODE) -> int:
        """How long this voter lets others go first; an observer, which only asks, does not wait."""
        rank = self.voters.latest.rank(self.me, lost_leader_id) if self.is_voter else 0
        return rank * self.timing.rank_wait_ms

    def retry_wait_ms(self) -> int:
        """How long to wait after a try in vain: doubling, and as much again by chance.

        Two candidates of which each needs longer for its vote than the other waits would else tie
        for ever.
        """
        wait_ms = self.timing.rank_wait_ms << min(self.failed_tries, 16)
        wait_ms = min(wait_ms, self.timing.retry_wait_max_ms)
        self.failed_tries += 1
        return wait_ms + self.chance.randrange(wait_ms + 1)

    def misaddressed(self, cluster_id: str, voter: ReplicaKey | None = None) -> ErrorCode:
        """The error for a request to another cluster, node or disk; NONE if it is meant for us."""
        if cluster_id != self.cluster_id:
            return ErrorCode.INCONSISTENT_CLUSTER_ID
        if voter is not None and voter != self.me:
            return ErrorCode.INVALID_VOTER_KEY
        return ErrorCode.NONE
