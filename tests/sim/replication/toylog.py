"""A log of small records in memory, a part of which would survive a power cut. Its list of leader
epochs is the broker's real code."""

from __future__ import annotations

from random import Random
from struct import Struct
from typing import NamedTuple

from broker.storage.leader_epochs import LeaderEpochs

_RECORD = Struct(">iq")


class Entry(NamedTuple):
    """One record: its leader epoch, and a value that no other record has."""

    leader_epoch: int
    value: int


def pack(entries: list[Entry]) -> bytes:
    """Encode records for a Fetch response."""
    return b"".join(_RECORD.pack(*entry) for entry in entries)


def unpack(data: bytes | memoryview) -> list[Entry]:
    return [Entry(*one) for one in _RECORD.iter_unpack(data)]


class ToyLog:
    """A log in memory. `log_start_offset <= durable_end <= log_end_offset`."""

    def __init__(self) -> None:
        self.log_start_offset = 0
        self.durable_end = 0
        self.entries: list[Entry] = []
        self.leader_epochs = LeaderEpochs()
        self.cuts = 0
        """The number of truncations so far. A sync that began before the last one proves
        nothing."""

    @property
    def log_end_offset(self) -> int:
        return self.log_start_offset + len(self.entries)

    @property
    def latest(self) -> int:
        """Return the leader epoch of the last record, even after the list of epochs was rebuilt."""
        return self.leader_epochs.latest

    def end_offset_for(
        self, leader_epoch: int, log_end_offset: int, current_epoch: int
    ) -> tuple[int, int]:
        return self.leader_epochs.end_offset_for(leader_epoch, log_end_offset, current_epoch)

    def entry(self, offset: int) -> Entry:
        return self.entries[offset - self.log_start_offset]

    def append(self, entry: Entry) -> int:
        """Append a record. Return its offset."""
        offset = self.log_end_offset
        assert entry.leader_epoch >= self.leader_epochs.latest, "epochs never fall in a log"
        self.leader_epochs.assign(entry.leader_epoch, offset)
        self.entries.append(entry)
        return offset

    def read(self, offset: int, count_max: int) -> list[Entry]:
        first = offset - self.log_start_offset
        return self.entries[first : first + count_max]

    def synced(self, end_offset: int, cuts: int) -> None:
        """Complete a sync that began at this log end. Ignore it if the log was truncated since,
        which `cuts` shows."""
        if cuts == self.cuts:
            self.durable_end = max(self.durable_end, min(end_offset, self.log_end_offset))

    def truncate_to(self, end_offset: int) -> None:
        self.cuts += 1
        if end_offset < self.log_start_offset:
            self.reset_to(end_offset)
            return
        del self.entries[end_offset - self.log_start_offset :]
        self.durable_end = min(self.durable_end, end_offset)
        self.leader_epochs.truncate_from_end(end_offset)

    def reset_to(self, offset: int) -> None:
        """Drop all records, and continue at an offset."""
        self.cuts += 1
        self.entries.clear()
        self.log_start_offset = self.durable_end = offset
        self.leader_epochs = LeaderEpochs()

    def trim(self, log_start_offset: int) -> None:
        """Delete the records below the offset."""
        if log_start_offset > self.log_start_offset:
            del self.entries[: log_start_offset - self.log_start_offset]
            self.log_start_offset = log_start_offset
            self.durable_end = max(self.durable_end, log_start_offset)
            self.leader_epochs.truncate_from_start(log_start_offset)

    def lose_power(self, chance: Random) -> None:
        """Keep a random prefix of the unsynced records, as a disk can."""
        kept = chance.randint(self.durable_end, self.log_end_offset)
        self.truncate_to(kept)
        self.durable_end = kept

    def recover(self) -> None:
        """Read all records after a start, and sync them before they count as durable."""
        self.durable_end = self.log_end_offset
