"""A simulated replica's disk: readable bytes, durable bytes, and pending operations.

One queue has the pending operations in order. A crash completes a random number of operations from
its front. It also keeps a random number of unsynced batches from their front. Torn batches are not
simulated, because recovery drops them.
"""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from broker.quorum.control_records import voter_sets_in
from broker.quorum.log_view import LogView
from broker.quorum.snapshot import SnapshotId
from broker.quorum.vote_file import ElectionState
from broker.quorum.voters import VoterHistory, VoterSet
from protocol.wire.records import read_header


class Batch(NamedTuple):
    """A batch in a log."""

    base_offset: int
    end_offset: int
    epoch: int
    data: bytes


def batch_of(data: bytes) -> Batch:
    header = read_header(data)
    return Batch(header.base_offset, header.last_offset + 1, header.partition_leader_epoch, data)


@dataclass(frozen=True)
class SnapshotFile:
    """A snapshot on the disk."""

    snapshot_id: SnapshotId
    content: bytes
    voters: VoterSet


@dataclass
class Log:
    """Batches from `start_offset` on, without a gap."""

    start_offset: int = 0
    batches: list[Batch] = field(default_factory=list)

    @property
    def end_offset(self) -> int:
        return self.batches[-1].end_offset if self.batches else self.start_offset

    def index_of(self, offset: int) -> int:
        return bisect_left(self.batches, offset, key=lambda batch: batch.base_offset)

    def between(self, start: int, end: int) -> list[Batch]:
        return self.batches[self.index_of(start) : self.index_of(end)]

    def truncate_to(self, offset: int) -> None:
        del self.batches[self.index_of(offset) :]
        assert self.end_offset == offset or not self.batches, "a truncation inside a batch"

    def start_at(self, offset: int) -> None:
        del self.batches[: self.index_of(offset)]
        self.start_offset = offset

    def copy(self) -> Log:
        return Log(self.start_offset, list(self.batches))


@dataclass
class Duty:
    """A disk operation that takes time. `partly` applies its effect after a crash in the middle."""

    number: int
    done: Callable[[], None]
    partly: Callable[[random.Random], None]


class Disk:
    """A disk. `log` is what the replica reads, and `durable` is what survives a crash."""

    def __init__(self, snapshot: SnapshotFile | None) -> None:
        self.vote = ElectionState(0)
        self.log = Log()
        self.durable = Log()
        self.snapshot = snapshot
        self.queue: list[Duty] = []
        self.given_count = 0
        self.done_count = 0
        self.vote_count = 0
        """The number of the last operation that saves a vote."""

    def save_vote(self, election: ElectionState, then: Callable[[], None]) -> None:
        def done() -> None:
            self.vote = election
            then()

        def partly(chance: random.Random) -> None:
            if chance.random() < 0.5:
                self.vote = election

        self._give(done, partly)
        self.vote_count = self.given_count

    def sync(self, then: Callable[[int], None]) -> None:
        """Queue a sync of all batches that were appended so far."""
        batches = list(self.log.batches)
        end_offset = self.log.end_offset

        def done() -> None:
            self.durable.batches = [one for one in batches if one.end_offset <= end_offset]
            self._drop_prefix()
            then(end_offset)

        def partly(chance: random.Random) -> None:
            known = self.durable.end_offset
            fresh = [one for one in batches if one.base_offset >= known]
            kept = fresh[: chance.randint(0, len(fresh))]
            if not kept or kept[0].base_offset == known:
                self.durable.batches += kept

        self._give(done, partly)

    def truncate(self, offset: int, then: Callable[[], None]) -> None:
        self.log.truncate_to(offset)

        def done() -> None:
            self.durable.truncate_to(offset)
            then()

        def partly(chance: random.Random) -> None:
            if chance.random() < 0.5:
                self.durable.truncate_to(offset)

        self._give(done, partly)

    def store(self, made: Callable[[], SnapshotFile | None], then: Callable[[], None]) -> None:
        """Queue these steps: check a fetched snapshot, store it, and reset the log to its end."""

        def done() -> None:
            snapshot = made()
            if snapshot is not None:
                self.snapshot = snapshot
                end_offset = snapshot.snapshot_id.end_offset
                self.log = Log(end_offset)
                self.durable = Log(end_offset)
            then()

        self._give(done, lambda chance: None)

    def take_snapshot(self, snapshot: SnapshotFile, start_offset: int) -> None:
        """Store a snapshot that this replica has made. Start the log at `start_offset`."""
        self.snapshot = snapshot
        self.log.start_at(start_offset)
        self._drop_prefix()

    def _drop_prefix(self) -> None:
        start_offset = min(self.log.start_offset, self.durable.end_offset)
        self.durable.start_at(max(start_offset, self.durable.start_offset))

    def copied(self) -> Disk:
        """Return a copy of the whole folder as a running replica's files read, on another disk."""
        copy = Disk(self.snapshot)
        copy.vote = self.vote
        copy.log = self.log.copy()
        copy.durable = self.log.copy()
        return copy

    def _give(self, done: Callable[[], None], partly: Callable[[random.Random], None]) -> None:
        self.given_count += 1
        self.queue.append(Duty(self.given_count, done, partly))

    def finish_one(self) -> None:
        duty = self.queue.pop(0)
        self.done_count = duty.number
        duty.done()

    def crash(self, chance: random.Random) -> None:
        """Cut the power. A random number of the oldest operations is complete, and the next one is
        half done."""
        count = chance.randint(0, len(self.queue)) if chance.random() < 0.5 else 0
        for duty in self.queue[count : count + 1]:
            duty.partly(chance)
        self.queue.clear()
        self.done_count = self.given_count
        self.log = self.durable.copy()

    def recovered(self, *, is_crashed: bool = False) -> tuple[LogView, VoterHistory]:
        """Return the log and the voters that a start reads. With `is_crashed` return them as after
        a crash that loses everything that is not durable."""
        log = self.durable if is_crashed else self.log
        epochs: list[tuple[int, int]] = []
        voters = VoterHistory(self.snapshot.voters if self.snapshot else VoterSet())
        covered = self.snapshot.snapshot_id.end_offset if self.snapshot else 0
        for batch in log.batches:
            if not epochs or batch.epoch > epochs[-1][0]:
                epochs.append((batch.epoch, batch.base_offset))
            if batch.base_offset >= covered and read_header(batch.data).is_control:
                for offset, named in voter_sets_in(batch.data):
                    voters.append(offset, named)
        view = LogView(
            epochs,
            log.end_offset,
            start_offset=log.start_offset,
            snapshot_id=self.snapshot.snapshot_id if self.snapshot else None,
        )
        return view, voters
