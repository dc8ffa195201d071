"""The decision of a coordinator, and the interface of its shards.

This module has only data classes. A shard is the part of a coordinator that is stored in one
partition of its internal topic. Replaying that partition from its start restores the shard.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, Protocol, TypeVar

from protocol.wire.records import BatchHeader, Marker

R = TypeVar("R", covariant=True)


TOMBSTONE_BYTES = 32
"""The size in bytes of a tombstone in a batch, rounded up, without the size of its key."""


class CoordinatorRecord(NamedTuple):
    """One record of an internal topic. A value of None deletes the key."""

    key: bytes
    value: bytes | None


@dataclass(frozen=True, slots=True)
class ShardOutcome(Generic[R]):
    """The result of a decision: records, and a reply.

    The caller appends `records` to the shard's partition as one batch. Once they are below the high
    watermark, it replays them into the shard and can send `reply`.
    """

    records: Sequence[CoordinatorRecord]
    reply: R


def fitting(sizes_bytes: Iterable[int], bytes_max: int) -> int:
    """Return how many tombstones with keys of these sizes fit into one batch, taken in this order;
    at least one."""
    count = total_bytes = 0
    for size_bytes in sizes_bytes:
        total_bytes += size_bytes + TOMBSTONE_BYTES
        if count and total_bytes > bytes_max:
            break
        count += 1
    return count


class Shard(Protocol):
    """The state of a coordinator that is stored in one partition of its internal topic."""

    def replay_batch(self, header: BatchHeader, records: Sequence[CoordinatorRecord]) -> None:
        """Replay one batch of the partition, in the order of the log.

        The records of a transactional batch (`header.is_transactional`) wait for their producer's
        marker.
        """

    def replay_marker(self, header: BatchHeader, marker: Marker) -> None:
        """Apply the end of the transaction of `header.producer_id` in this partition."""
