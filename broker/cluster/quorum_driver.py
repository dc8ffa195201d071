"""Runs the quorum's core: performs its outputs in order and reports their results to it.

`metadata_log` does the disk work. A message with a barrier waits until the disk work on which it
depends is done. Commits and role changes are reported between two steps of the core, never inside a
step. Time is lived time (`lived`). Messages to other nodes go through a `Messenger`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Protocol

from broker.cluster.lived import LivedAlarm
from broker.cluster.metadata_log import MetadataLog
from broker.cluster.snapshots import MetadataSnapshot
from broker.quorum.events import (
    ChangeVoters,
    Event,
    FetchAnswer,
    FetchSnapshotAnswer,
    LeaderDead,
    Propose,
    Received,
    RequestAnswered,
    RequestFailed,
    SnapshotSpoiled,
    SnapshotStored,
    Synced,
    Tick,
    Truncated,
    Unwritten,
    VoterChange,
    VoterChangeResult,
    VoteSaved,
)
from broker.quorum.quorum import Quorum
from broker.quorum.quorum_status import QuorumStatus, status_of
from broker.quorum.ready import Barrier, BatchesToRead, Ready, Reply, RoleChange, Send
from broker.quorum.replica import NEVER_MS
from broker.quorum.snapshot import SnapshotId
from broker.quorum.voters import Endpoint, ReplicaKey, VoterSet
from broker.storage.errors import DiskError
from broker.world import World
from protocol.errors import WireError


class Messenger(Protocol):
    """The interface to the quorums of other nodes.

    For each `Send` the quorum is called once, with `answered` or `failed`.
    """

    def send(self, send: Send) -> None:
        """Send a request to another node."""

    def reply(self, reply: Reply) -> None:
        """Send the complete answer to the request that was received with `call_id`."""


class QuorumClient(Protocol):
    """The interface to the object that the quorum driver notifies. It can propose batches in these
    calls."""

    def committed(self, offset: int) -> None:
        """Handle a commit: all batches below the offset are committed and can be read."""

    def installed(self, snapshot: MetadataSnapshot) -> None:
        """Replace the state by the state of a snapshot, because the log now starts at the end of
        the snapshot."""

    def role(self, role: RoleChange) -> None:
        """Handle a role change: this node leads, follows a leader, or knows no leader any more."""

    def unwritten(self, end_offset: int, error: Exception) -> None:
        """Handle a write error: the disk rejected the batches at the offset and above."""


@dataclass(slots=True)
class BarrierMessage:
    """A message that waits until the disk has done `until` duties."""

    until: int
    message: Send | Reply


class QuorumDriver:
    """Runs the quorum state machine of this broker: it writes to the disk what the machine decides,
    sends its messages, and gives it the answers."""

    def __init__(
        self,
        quorum: Quorum,
        log: MetadataLog,
        world: World,
        messenger: Messenger,
        on_caught_up: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_caught_up` is called when a disk that can be an old copy has caught up."""
        self.quorum = quorum
        self._on_caught_up = on_caught_up
        self._client: QuorumClient | None = None
        self._log = log
        self._messenger = messenger
        self._alarm = LivedAlarm(world, lambda: self.handle(Tick()))
        self._committed_offset = quorum.replica.log.committed_offset
        self._events: deque[Event] = deque()
        self._notifications: deque[Callable[[], None]] = deque()
        self._waiting: list[BarrierMessage] = []
        self._is_stepping = False
        self._is_draining = False
        self._refusal: Exception | None = None
        self._change_ids = count()
        self._changes: dict[int, Callable[[VoterChangeResult], None]] = {}
        """The callers that wait for the result of a change of the voters, by change id."""
        log.report_to(self)

    def report_to(self, client: QuorumClient) -> None:
        """Notify this object of commits and roles."""
        self._client = client

    @property
    def end_offset(self) -> int:
        """The offset of the next batch that this leader appends."""
        return self.quorum.replica.log.end_offset

    @property
    def epoch(self) -> int:
        """The newest epoch that this node knows."""
        return self.quorum.replica.epoch

    @property
    def voters(self) -> VoterSet:
        """The newest voter set in this node's log."""
        return self.quorum.replica.voters.latest

    @property
    def leader_id(self) -> int:
        """The leader as far as this node knows; NO_NODE if it knows none."""
        return self.quorum.role.leader_id

    @property
    def must_catch_up(self) -> bool:
        """True while this node does not vote because its disk can be an old copy."""
        return self.quorum.replica.catch_up is not None

    @property
    def role_name(self) -> str:
        """The role of this node in lower case, such as leader, follower or candidate; or
        observer."""
        if not self.quorum.replica.may_lead:
            return "observer"
        return type(self.quorum.role).__name__.lower()

    def status(self) -> QuorumStatus | None:
        """Return the progress of all replicas if this node leads, else None."""
        return status_of(self.quorum, self._alarm.now_ms)

    def start(self) -> None:
        """Start the quorum. A sole voter leads when this method returns, if the disk accepts its
        writes."""
        self.handle(Tick())

    def stop(self) -> None:
        """Cancel the timer."""
        self._alarm.stop()

    # Events.

    def handle(self, event: Event) -> None:
        """Pass an event to the core, after all earlier events."""
        self._events.append(event)
        self._drain()

    def received(self, received: Received) -> None:
        """Handle a request of another replica."""
        self.handle(received)

    def answered(self, answered: RequestAnswered | RequestFailed) -> None:
        """Handle the answer to a request, or the failure of a request."""
        self.handle(answered)

    def synced(self, end_offset: int) -> None:
        """Handle a report that the log is durable up to `end_offset`."""
        self.handle(Synced(end_offset))

    def duty_done(self) -> None:
        """Send the messages that waited for this duty of the disk."""
        done_count = self._log.duties.done_count
        ready = [one for one in self._waiting if one.until <= done_count]
        if ready:
            self._waiting = [one for one in self._waiting if one.until > done_count]
            for one in ready:
                self._send_now(one.message)

    def leader_dead(self, dead: LeaderDead) -> None:
        """Handle the death of the leader, which a probe has found."""
        self.handle(dead)

    def propose(self, epoch: int, batch: bytes) -> Exception | None:
        """Append a batch in an epoch that this node leads. Return the disk's error, or None.

        If this node does not lead the epoch any more, nothing is appended, and `QuorumClient.role`
        reports that.
        """
        self._refusal = None
        self._step(Propose(epoch, [batch]))
        refusal = self._refusal
        self._drain()
        return refusal

    def change_voters(
        self,
        change: VoterChange,
        timeout_ms: int,
        done: Callable[[VoterChangeResult], None],
        *,
        waits_for_commit: bool,
        addresses: Mapping[ReplicaKey, tuple[Endpoint, ...]],
    ) -> None:
        """Change the voter set, if this node leads. Call `done` once, possibly before this method
        returns."""
        change_id = next(self._change_ids)
        self._changes[change_id] = done
        self.handle(ChangeVoters(change_id, change, timeout_ms, waits_for_commit, addresses))

    def _drain(self) -> None:
        if self._is_draining or self._is_stepping:
            return
        self._is_draining = True
        try:
            while self._events or self._notifications:
                if self._events:
                    self._step(self._events.popleft())
                else:
                    self._notifications.popleft()()
        finally:
            self._is_draining = False
        self._arm()

    def _step(self, event: Event) -> None:
        assert not self._is_stepping, "a step inside a step"
        self._is_stepping = True
        try:
            had_to_catch_up = self.must_catch_up
            self._perform(self.quorum.step(event, self._alarm.now_ms))
            if had_to_catch_up and not self.must_catch_up:
                self._notifications.append(self._on_caught_up)
        finally:
            self._is_stepping = False

    # Outputs of the core.

    def _perform(self, ready: Ready) -> None:
        log = self._log
        if (election := ready.vote) is not None:
            log.save_vote(election, lambda: self.handle(VoteSaved(election)))
        if ready.piece is not None:
            log.write_piece(ready.piece)
        if ready.snapshot is not None:
            self._store(ready.snapshot)
        if (offset := ready.truncate_to) is not None:
            assert offset >= self._committed_offset, "a truncation below the committed offset"
            log.truncate_to(offset, lambda: self._truncated(offset))
        refusal = self._append(ready.append)
        for send in ready.sends:
            if refusal is None or send.barrier is not Barrier.SYNC:
                self._send_after(send.barrier, send)
        for reply in ready.replies:
            self._send_after(reply.barrier, reply)
        for result in ready.changes:
            self._notifications.append(partial(self._changes.pop(result.change_id), result))
        if ready.role is not None:
            self._notify_role(ready.role)
        if refusal is None:
            self._commit(ready.committed_offset)
        else:
            self._undo_write(refusal)

    def _append(self, batches: Sequence[bytes]) -> Exception | None:
        if not batches:
            return None
        try:
            self._log.append(batches)
        except (DiskError, WireError) as error:
            return error
        return None

    def _undo_write(self, refusal: Exception) -> None:
        """Undo a write that the disk rejected.

        Drop the messages that depend on the write, and report the rejection to the core before the
        next event.
        """
        self._refusal = refusal
        self._waiting = [one for one in self._waiting if not _is_synced_send(one.message)]
        end_offset = self._log.log.log_end_offset
        self._notifications.append(lambda: self._notified_client().unwritten(end_offset, refusal))
        self._perform(self.quorum.step(Unwritten(end_offset), self._alarm.now_ms))

    def _store(self, snapshot_id: SnapshotId) -> None:
        def stored(snapshot: MetadataSnapshot) -> None:
            self._committed_offset = snapshot_id.end_offset
            self._notifications.append(lambda: self._notified_client().installed(snapshot))
            self.handle(SnapshotStored(snapshot_id, snapshot.voters))

        self._log.store(snapshot_id, stored, lambda: self.handle(SnapshotSpoiled(snapshot_id)))

    def _truncated(self, offset: int) -> None:
        committed_offset = self._committed_offset
        # The loader could not read during the truncation, so report the committed offset again.
        self._notifications.append(lambda: self._notified_client().committed(committed_offset))
        self.handle(Truncated(offset))

    def _notify_role(self, role: RoleChange) -> None:
        self._notifications.append(lambda: self._notified_client().role(role))

    def _commit(self, committed_offset: int) -> None:
        if committed_offset <= self._committed_offset:
            return
        self._committed_offset = committed_offset
        self._log.log.advance_high_watermark(committed_offset)
        self._notifications.append(lambda: self._notified_client().committed(committed_offset))

    def _notified_client(self) -> QuorumClient:
        assert self._client is not None, "`report_to` was not called"
        return self._client

    # Messages with barriers.

    def _send_after(self, barrier: Barrier, message: Send | Reply) -> None:
        until = 0
        if barrier is Barrier.VOTE:
            until = self._log.vote_number
        elif barrier is Barrier.SYNC:
            until = self._log.duties.given_count
        if until <= self._log.duties.done_count:
            self._send_now(message)
        else:
            self._waiting.append(BarrierMessage(until, message))

    def _send_now(self, message: Send | Reply) -> None:
        if isinstance(message, Send):
            self._messenger.send(message)
            return
        answer, read = message.answer, message.read
        if isinstance(answer, FetchAnswer) and isinstance(read, BatchesToRead):
            answer = self._log.filled(answer, read)
        elif isinstance(answer, FetchSnapshotAnswer) and read is not None:
            assert not isinstance(read, BatchesToRead)
            answer = self._log.filled_piece(answer, read)
        self._messenger.reply(Reply(message.call_id, answer, message.barrier))

    def _arm(self) -> None:
        deadline_ms = self.quorum.next_deadline_ms
        self._alarm.set(None if deadline_ms >= NEVER_MS else deadline_ms)


def _is_synced_send(message: Send | Reply) -> bool:
    return isinstance(message, Send) and message.barrier is Barrier.SYNC
