"""What a coordinator decides, and what one of its shards must be able to do.

Floor: coordinators. Data only. A shard is the part of a coordinator whose facts lie in one
partition of its internal topic; replaying that partition from its start gives the shard.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, Protocol, TypeVar

from protocol.wire.records import BatchHeader, Marker

R = TypeVar("R", covariant=True)


TOMBSTONE_BYTES = 32
"""What a record without a value takes in a batch beside its key, and a little more."""


class CoordinatorRecord(NamedTuple):
    """One record of an internal topic; a value of None takes the key's fact away."""

    key: bytes
    value: bytes | None


@dataclass(frozen=True, slots=True)
class Outcome(Generic[R]):
    """`records` go into the shard's partition as one batch; once they are below the high watermark
    they are replayed into the shard and `reply` may leave."""

    records: Sequence[CoordinatorRecord]
    reply: R


def fitting(sizes_bytes: Iterable[int], bytes_max: int) -> int:
    """How many records with keys of these sizes, taken in order, one batch holds; at least one."""
    count = total_bytes = 0
    for size_bytes in sizes_bytes:
        total_bytes += size_bytes + TOMBSTONE_BYTES
        if count and total_bytes > bytes_max:
            break
        count += 1
    return count


class Shard(Protocol):
    """A coordinator's state of one partition."""

    def replay_batch(self, header: BatchHeader, records: Sequence[CoordinatorRecord]) -> None:
        """Take in one batch of the partition, in the order of the log.

        A transactional one (`header.is_transactional`) waits for its producer's marker.
        """

    def replay_marker(self, header: BatchHeader, marker: Marker) -> None:
        """Take in the end of the transaction of `header.producer_id` in this partition."""
