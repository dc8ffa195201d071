"""The requests and actions that the core of a follower returns to its driver.

This module has only data.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from broker.replication.epochs import Epochs
from protocol.errors import ErrorCode
from protocol.types import Uuid


class PartitionId(NamedTuple):
    """A partition by topic id, because several topics can have the same name over time
    (KIP-516)."""

    topic_id: Uuid
    partition_index: int


class Key(NamedTuple):
    """A partition in one leader epoch."""

    topic_id: Uuid
    partition_index: int
    leader_epoch: int

    @property
    def partition(self) -> PartitionId:
        return PartitionId(self.topic_id, self.partition_index)


@dataclass(frozen=True, slots=True)
class Followed:
    """A partition to fetch. All records in its log are fsynced."""

    key: Key
    epochs: Epochs
    """The leader epochs of the log. The object always has their current state, also after a
    truncation."""
    log_start_offset: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class FetchedPartition:
    """One partition of a request."""

    key: Key
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int


@dataclass(frozen=True, slots=True)
class FetchPlan:
    """A request to send. The driver reports its response or failure with `request_id`."""

    request_id: int
    session_id: int
    session_epoch: int
    partitions: tuple[FetchedPartition, ...]
    """The partitions that the request names: all in a full request (epoch 0), else those that
    changed."""
    forgotten: tuple[PartitionId, ...]


@dataclass(frozen=True, slots=True)
class Append:
    """Append these batches, fsync them, and call `synced`. Without records, only the offsets are
    new."""

    key: Key
    records: memoryview | bytes
    high_watermark: int
    log_start_offset: int
    """The leader's log start offset. A follower deletes only the records below it."""


@dataclass(frozen=True, slots=True)
class Truncate:
    """Truncate the log to this end durably, and call `truncated`.

    If the end is below the log start offset, the log becomes empty and starts at the end.
    """

    key: Key
    end_offset: int


@dataclass(frozen=True, slots=True)
class Reset:
    """Drop the whole log durably, continue it at this offset, and call `truncated`."""

    key: Key
    start_offset: int


@dataclass(frozen=True, slots=True)
class Drop:
    """Stop fetching the partition, because its leader epoch is over. The metadata log will assign
    the next role."""

    key: Key
    code: ErrorCode


Action: TypeAlias = Append | Truncate | Reset | Drop
