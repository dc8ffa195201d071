"""A replica in the simulated quorum: the core, and a driver that performs the core's effects."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from broker.quorum.events import (
    Answer,
    Event,
    FetchAnswer,
    FetchSnapshotAnswer,
    Propose,
    Received,
    Request,
    RequestAnswered,
    RequestFailed,
    SnapshotSpoiled,
    SnapshotStored,
    Snapshotted,
    Synced,
    Tick,
    Truncated,
    Unwritten,
    VoteSaved,
)
from broker.quorum.quorum import Quorum
from broker.quorum.ready import Barrier, BatchesToRead, LeadsEpoch, Ready, Reply, Send
from broker.quorum.replica import QuorumTiming
from broker.quorum.snapshot import SnapshotId, build_snapshot
from broker.quorum.voters import ReplicaKey, VoterSet
from protocol.errors import ErrorCode, WireError
from protocol.wire.record import NewRecord
from protocol.wire.records import build_batch, iterate_batches, iterate_records, read_header
from tests.sim.quorum_disk import Batch, Disk, SnapshotFile, batch_of

if TYPE_CHECKING:
    from tests.sim.quorum_world import World

CLUSTER = "cluster"
TIMING = QuorumTiming(fetch_bytes=300)


def key_of(node_id: int, life: int = 0) -> ReplicaKey:
    """Return the key of a node, with the directory id of its disk number `life`."""
    return ReplicaKey(node_id, UUID(int=(node_id << 32) + life + 1))


def image_of(batches: Sequence[Batch], before: Sequence[bytes] = ()) -> list[bytes]:
    """Return the replayed state: the values of all records, without control records."""
    image = list(before)
    for batch in batches:
        if not read_header(batch.data).is_control:
            image += [one.value or b"" for one in iterate_records(batch.data)]
    return image


def proposal(values: Sequence[bytes]) -> bytearray:
    return build_batch([NewRecord(None, value, 0) for value in values])


class Asker(NamedTuple):
    """The sender of a request: the node, the number of its process, and the request's id."""

    node_id: int
    incarnation: int
    request_id: int


class Call(NamedTuple):
    """A received request that has no response yet."""

    asker: Asker
    request: Request
    since_ms: int


@dataclass
class Waiting:
    """A message that waits for the disk. It is sent after the disk has completed `until`
    operations."""

    until: int
    message: Send | Reply


class Node:
    """A replica with its disk. `quorum` is None while it is down."""

    def __init__(self, world: World, node_id: int, voters: VoterSet, bootstrap: Sequence[int]):
        self.world = world
        self.node_id = node_id
        self.life = 0
        self.bootstrap = bootstrap
        self.disk = Disk(world.birth_snapshot(voters) if key_of(node_id) in voters else None)
        self.quorum: Quorum | None = None
        self.incarnation = 0
        self.won: LeadsEpoch | None = None
        self.committed_offset = 0
        self.image: list[bytes] = []
        self.sync_ms = (1, 4)
        self.is_full = False
        self.old_copy: Disk | None = None
        """An earlier copy of the disk, which can replace it."""
        self.is_copy = False
        """True if the node was started at another address with an old copy, and has not caught up
        since."""
        self.waiting: list[Waiting] = []
        self.asked: dict[int, int] = {}
        """Request id -> the node to which the request was sent, for requests without a response."""
        self.open_calls: dict[int, Call] = {}
        self.pieces = bytearray()
        self.timer_ms = -1
        self.is_syncing = False

    @property
    def key(self) -> ReplicaKey:
        return key_of(self.node_id, self.life)

    @property
    def is_up(self) -> bool:
        return self.quorum is not None

    def start(self) -> None:
        self.incarnation += 1
        log, voters = self.disk.recovered()
        self.quorum = Quorum(
            self.key,
            CLUSTER,
            election=self.disk.vote,
            log=log,
            voters=voters,
            chance=Random(self.world.chance.randrange(2**32)),
            now_ms=self.world.now_ms,
            timing=TIMING,
            bootstrap=self.bootstrap,
            must_catch_up=self.is_copy,
        )
        self.committed_offset = log.committed_offset
        self.image = self.world.image_at(self.committed_offset)
        self._arm()

    def crash(self, chance: Random) -> None:
        self.quorum = None
        self.won = None
        self.is_syncing = False
        self.waiting.clear()
        self.asked.clear()
        self.open_calls.clear()
        self.timer_ms = -1
        self.incarnation += 1
        self.disk.crash(chance)

    def reset(self, node_id: int) -> None:
        """Fail all pending requests to that node, because the links to it were closed."""
        for request_id, asked in list(self.asked.items()):
            if asked == node_id:
                self.answered(self.incarnation, request_id, None)

    def wipe(self) -> None:
        """Replace the disk by an empty one with a new directory id."""
        assert not self.is_up
        self.life += 1
        self.disk = Disk(None)
        self.old_copy = None
        self.is_copy = False

    def move_with_copy(self) -> None:
        """Put the old copy in the place of the disk, as if the node moved with it."""
        assert not self.is_up and self.old_copy is not None
        self.disk, self.old_copy = self.old_copy, None
        self.is_copy = True

    def handle(self, event: Event) -> None:
        if self.quorum is None:
            return
        self.world.trace(self, event)
        ready = self.quorum.step(event, self.world.now_ms)
        self.is_copy = self.quorum.replica.catch_up is not None
        self._perform(ready)
        self._arm()

    def propose(self, values: Sequence[bytes]) -> None:
        assert self.quorum is not None
        self.handle(Propose(self.quorum.replica.epoch, [proposal(values)]))

    def take_snapshot(self, keep: int) -> None:
        """Take a snapshot of the committed data. Keep `keep` batches before its end in the log."""
        assert self.quorum is not None
        log = self.quorum.replica.log
        if self.quorum.replica.storing or self.disk.durable.end_offset < self.committed_offset:
            return
        known = self.disk.snapshot.snapshot_id.end_offset if self.disk.snapshot else 0
        if self.committed_offset <= known:
            return
        end_offset = self.committed_offset
        snapshot_id = SnapshotId(end_offset, log.epochs.epoch_of(end_offset - 1))
        voters = self.quorum.replica.voters.at(end_offset)
        half = len(self.image) // 2
        batches = [proposal(part) for part in (self.image[:half], self.image[half:]) if part]
        content = build_snapshot(snapshot_id, voters, batches)
        index = self.disk.log.index_of(end_offset)
        start = self.disk.log.batches[max(index - keep, 0)].base_offset if keep else end_offset
        self.disk.take_snapshot(SnapshotFile(snapshot_id, content, voters), start)
        self.handle(Snapshotted(snapshot_id, start))

    # The core's effects.

    def _perform(self, ready: Ready) -> None:
        assert self.quorum is not None
        disk = self.disk
        if ready.vote is not None:
            election = ready.vote
            disk.save_vote(election, lambda: self.handle(VoteSaved(election)))
        if ready.piece is not None:
            if ready.piece.position == 0:
                self.pieces.clear()
            assert len(self.pieces) == ready.piece.position
            self.pieces += ready.piece.data
        if ready.snapshot is not None:
            self._store(ready.snapshot)
        if ready.truncate_to is not None:
            offset = ready.truncate_to
            assert offset >= self.committed_offset
            disk.truncate(offset, lambda: self.handle(Truncated(offset)))
        self.world.check.appended(ready.append)
        is_written = self._append(ready.append)
        for send in ready.sends:
            if is_written or send.barrier is not Barrier.SYNC:
                self.asked[send.request_id] = send.node_id
                self._leave_at(send.barrier, send)
        for reply in ready.replies:
            self._leave_at(reply.barrier, reply)
        for result in ready.changes:
            self.world.check.changed(self, result)
        if ready.role is not None:
            self.won = ready.role if isinstance(ready.role, LeadsEpoch) else None
            self.world.check.role(self, ready.role)
        if is_written:
            self._commit(ready.committed_offset)
        else:
            # The write has failed, so requests that wait for its sync must never be sent.
            lost = [one for one in self.waiting if self._is_synced(one)]
            self.waiting = [one for one in self.waiting if one not in lost]
            self.handle(Unwritten(disk.log.end_offset))
        self._work()

    def _is_synced(self, waiting: Waiting) -> bool:
        send = waiting.message
        return isinstance(send, Send) and send.barrier is Barrier.SYNC

    def _append(self, batches: Sequence[bytes]) -> bool:
        """Append batches. On a full disk append only some of them and return False."""
        if not batches:
            return True
        fit = self.world.chance.randrange(len(batches)) if self.is_full else len(batches)
        for data in batches[:fit]:
            batch = batch_of(data)
            assert batch.base_offset == self.disk.log.end_offset
            self.disk.log.batches.append(batch)
        if fit:
            self.disk.sync(lambda end_offset: self.handle(Synced(end_offset)))
        return fit == len(batches)

    def _store(self, snapshot_id: SnapshotId) -> None:
        content = bytes(self.pieces)
        made: list[SnapshotFile] = []

        def make() -> SnapshotFile | None:
            try:
                made.append(SnapshotFile(snapshot_id, content, self.world.check_snapshot(content)))
            except WireError:
                return None
            return made[0]

        def then() -> None:
            if not made:
                self.handle(SnapshotSpoiled(snapshot_id))
                return
            self.image = [
                one.value or b""
                for header, batch in iterate_batches(content)
                if not header.is_control
                for one in iterate_records(batch)
            ]
            self.committed_offset = snapshot_id.end_offset
            self.world.check.installed(self, snapshot_id)
            self.handle(SnapshotStored(snapshot_id, made[0].voters))

        self.disk.store(make, then)

    def _commit(self, committed_offset: int) -> None:
        if committed_offset <= self.committed_offset:
            return
        batches = self.disk.log.between(self.committed_offset, committed_offset)
        assert batches[-1].end_offset == committed_offset, "committed inside a batch"
        self.image = image_of(batches, self.image)
        self.committed_offset = committed_offset
        self.world.check.committed(self, batches)

    # Messages that wait for the disk.

    def _leave_at(self, barrier: Barrier, message: Send | Reply) -> None:
        if barrier is Barrier.NOW:
            until = 0
        else:
            is_vote = barrier is Barrier.VOTE
            until = self.disk.vote_count if is_vote else self.disk.given_count
        waiting = Waiting(until, message)
        if until <= self.disk.done_count:
            self._leave(waiting)
        else:
            self.waiting.append(waiting)

    def _work(self) -> None:
        if self.is_syncing or not self.disk.queue:
            return
        self.is_syncing = True
        incarnation = self.incarnation

        def done() -> None:
            if self.incarnation != incarnation:
                return
            self.is_syncing = False
            self.disk.finish_one()
            ready = [one for one in self.waiting if one.until <= self.disk.done_count]
            self.waiting = [one for one in self.waiting if one.until > self.disk.done_count]
            for one in ready:
                self._leave(one)
            self._work()

        self.world.after(self.world.chance.randint(*self.sync_ms), done)

    def _leave(self, waiting: Waiting) -> None:
        message = waiting.message
        if isinstance(message, Send):
            if message.request_id in self.asked:
                self.world.check.leaving(self, message.request)
                self.world.ask(self, message)
            return
        call = self.open_calls.pop(message.call_id)
        answer = self._filled(message)
        self.world.check.answering(self, call.request, answer)
        self.world.answer(self, call.asker, answer)

    def _filled(self, reply: Reply) -> Answer:
        answer = reply.answer
        if isinstance(answer, FetchAnswer) and isinstance(reply.read, BatchesToRead):
            return replace(answer, batches=self._read(reply.read))
        if isinstance(answer, FetchSnapshotAnswer) and reply.read is not None:
            assert not isinstance(reply.read, BatchesToRead)
            snapshot = self.disk.snapshot
            if snapshot is None or snapshot.snapshot_id != reply.read.snapshot_id:
                return replace(answer, error=ErrorCode.SNAPSHOT_NOT_FOUND)
            content = self.world.served(self, snapshot.content)
            position = reply.read.position
            data = content[position : position + reply.read.max_bytes]
            return replace(answer, data=data, size_bytes=len(content))
        return answer

    def _read(self, read: BatchesToRead) -> list[bytes]:
        found: list[bytes] = []
        size = 0
        for batch in self.disk.log.between(read.start_offset, read.end_offset):
            if found and size + len(batch.data) > read.max_bytes:
                break
            found.append(batch.data)
            size += len(batch.data)
        return found

    # Events from the network and the clock.

    def receive(self, asker: Asker, received: Received) -> None:
        call = Call(asker, received.request, self.world.now_ms)
        self.open_calls[received.call_id] = call
        self.handle(received)

    def answered(self, incarnation: int, request_id: int, answer: Answer | None) -> None:
        """Process the response to a request. None means that no response will come."""
        if self.incarnation != incarnation or self.asked.pop(request_id, None) is None:
            return
        self.handle(
            RequestFailed(request_id) if answer is None else RequestAnswered(request_id, answer)
        )

    def _arm(self) -> None:
        if self.quorum is None:
            return
        due_ms = max(self.quorum.next_deadline_ms, self.world.now_ms)
        if due_ms == self.timer_ms or due_ms > self.world.now_ms + 10**7:
            return
        self.timer_ms = due_ms
        incarnation = self.incarnation

        def ring() -> None:
            if self.incarnation == incarnation and self.timer_ms == due_ms:
                self.timer_ms = -1
                if self.quorum is not None and self.quorum.next_deadline_ms <= self.world.now_ms:
                    self.handle(Tick())
                self._arm()

        self.world.at(due_ms, ring)
