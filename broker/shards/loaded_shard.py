"""A shard that is loaded: its partition's leader epoch, and who waits for what is written for it.

Floor: shards, below `shard_driver`. What waits ends once, by a commit or with the shard.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from broker.coordinators.outcome import CoordinatorRecord, Shard
from broker.metadata.image import MetadataImage
from broker.offset_waiters import Waits
from broker.replicas.refusals import WriteFailed
from broker.replicas.replica import Replica
from broker.replicas.replicas import Replicas
from broker.world import Clock, Soon
from protocol.errors import ApiError, ErrorCode
from protocol.wire.records import HEADER_BYTES

LOAD_BYTES = 64 << 10
"""Replayed in one turn of the loop: a few milliseconds."""

S = TypeVar("S", bound=Shard)

Reply = Callable[[Any], None]
Refused = Callable[[ApiError], None]


@dataclass(frozen=True, slots=True)
class ShardPorts:
    """What a coordinator needs around it."""

    clock: Clock
    soon: Soon
    image: Callable[[], MetadataImage]
    replicas: Replicas
    waits: Waits
    write_failed: WriteFailed


class ProducerEpoch(NamedTuple):
    """Whose transaction a batch belongs to."""

    producer_id: int
    producer_epoch: int


class LoadedShard(Generic[S]):
    """A shard in one leader epoch, and what is written for it but not committed."""

    __slots__ = ("leader_epoch", "replica", "shard", "under_way")

    def __init__(self, replica: Replica) -> None:
        self.replica = replica
        self.leader_epoch = replica.leader_epoch
        """Under which it was loaded. Whatever it decides goes out under this epoch, and none that
        the partition has got since."""
        self.shard: S | None = None
        """None while it is being loaded, or when its log cannot be read."""
        self.under_way: deque[Sequence[CoordinatorRecord]] = deque()
        """What is written and not committed, batch by batch."""

    @property
    def batch_bytes_max(self) -> int:
        """What the records of one batch may take: no more than is worked off in one turn."""
        return min(self.replica.log.config.max_message_bytes - HEADER_BYTES, LOAD_BYTES)

    def keys_under_way(self) -> set[bytes]:
        """The keys that are written and not committed: the shard does not know of them yet."""
        return {record.key for records in self.under_way for record in records}


class Replay:
    """What is done when something in the shard's log is committed; dropped with the shard."""

    __slots__ = ("_do",)

    def __init__(self, do: Callable[[], None]) -> None:
        self._do = do

    def reached(self) -> None:
        self._do()

    def lost(self, code: ErrorCode) -> None:
        """The shard is dropped, and loaded anew by whoever leads it next."""


class Answering:
    """A client that waits for a commit."""

    __slots__ = ("_refused", "_reply", "_value")

    def __init__(self, reply: Reply, value: object, refused: Refused) -> None:
        self._reply = reply
        self._value = value
        self._refused = refused

    def reached(self) -> None:
        self._reply(self._value)

    def lost(self, code: ErrorCode) -> None:
        """As Kafka tells its clients: ask again, here or where the coordinator is by then."""
        is_late = code is ErrorCode.REQUEST_TIMED_OUT
        told = ErrorCode.COORDINATOR_NOT_AVAILABLE if is_late else ErrorCode.NOT_COORDINATOR
        self._refused(ApiError(told, "not committed in time" if is_late else ""))
