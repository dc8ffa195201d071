"""What a follower plans and what it is to do: the data that passes between core and driver.

Floor: replication. Data only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from broker.replication.epochs import Epochs
from protocol.errors import ErrorCode
from protocol.types import Uuid


class PartitionId(NamedTuple):
    """A partition by identity; a name alone is never one (KIP-516)."""

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
    """A partition to follow, with its log as it is, all of it synced."""

    key: Key
    epochs: Epochs
    """Of that log as it is at any later time: after a truncation they are looked up again."""
    log_start_offset: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class Asked:
    """One partition of a request."""

    key: Key
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int


@dataclass(frozen=True, slots=True)
class FetchPlan:
    """A request to send; its answer or its failure is told with its id."""

    request_id: int
    session_id: int
    session_epoch: int
    partitions: tuple[Asked, ...]
    """In a full request (epoch 0) all that can be fetched, else those with news."""
    forgotten: tuple[PartitionId, ...]


@dataclass(frozen=True, slots=True)
class Append:
    """Append these batches, sync, and say `synced`. Without records there is only to learn."""

    key: Key
    records: memoryview | bytes
    high_watermark: int
    log_start_offset: int
    """The leader's. What lies below it here may go; a follower deletes by nothing else."""


@dataclass(frozen=True, slots=True)
class Truncate:
    """Cut the log to this end, durably, and say `truncated`. Below the start, it begins there."""

    key: Key
    end_offset: int


@dataclass(frozen=True, slots=True)
class Reset:
    """Drop the whole log, durably, begin it anew at this offset, and say `truncated`."""

    key: Key
    start_offset: int


@dataclass(frozen=True, slots=True)
class Drop:
    """Not followed any more: its epoch has passed. The metadata log will say what comes next."""

    key: Key
    code: ErrorCode


Action: TypeAlias = Append | Truncate | Reset | Drop
