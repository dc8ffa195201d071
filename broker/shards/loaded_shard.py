"""A loaded shard: its leader epoch, and the requests that wait for the commit of its records.

Each wait ends exactly once, by the commit or when the shard is dropped.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from broker.coordinators.outcome import CoordinatorRecord, Shard
from broker.metadata.image import MetadataImage
from broker.purgatory import Purgatory
from broker.replicas.refusals import WriteFailed
from broker.replicas.replica import Replica
from broker.replicas.replicas import Replicas
from broker.world import Clock, Soon
from protocol.errors import ApiError, ErrorCode
from protocol.wire.records import HEADER_BYTES

LOAD_BYTES = 64 << 10
"""The number of bytes that are replayed in one iteration of the event loop.

A replay of so many bytes takes a few milliseconds.
"""

S = TypeVar("S", bound=Shard)

Reply = Callable[[Any], None]
Refused = Callable[[ApiError], None]


class ImageSource(Protocol):
    """The interface to the object that has the metadata in force (`cluster/metadata`)."""

    @property
    def image(self) -> MetadataImage:
        """The metadata image that is committed and in force."""


@dataclass(frozen=True, slots=True)
class ShardPorts:
    """The other parts of the broker that coordinators use."""

    clock: Clock
    soon: Soon
    metadata: ImageSource
    replicas: Replicas
    waits: Purgatory
    write_failed: WriteFailed


class ProducerEpoch(NamedTuple):
    """The producer id and epoch of a transactional batch."""

    producer_id: int
    producer_epoch: int


class LoadedShard(Generic[S]):
    """A shard in one leader epoch, with its records that are not committed yet."""

    __slots__ = ("leader_epoch", "replica", "shard", "under_way")

    def __init__(self, replica: Replica) -> None:
        self.replica = replica
        self.leader_epoch = replica.leader_epoch
        """The leader epoch in which the shard was loaded.

        All its decisions are written under this epoch, never under a later one.
        """
        self.shard: S | None = None
        """The state; None while the shard is being loaded, and if its log cannot be read."""
        self.under_way: deque[Sequence[CoordinatorRecord]] = deque()
        """The batches of records that are written and not committed."""

    @property
    def state(self) -> S:
        """The state of a shard that serves requests. `CoordinatorDriver.find` returns no other."""
        assert self.shard is not None, "the shard is being loaded"
        return self.shard

    @property
    def batch_bytes_max(self) -> int:
        """The largest size of the records in one batch, so that one iteration of the event loop can
        process them."""
        return min(self.replica.log.config.max_message_bytes - HEADER_BYTES, LOAD_BYTES)

    def keys_under_way(self) -> set[bytes]:
        """Return the keys of records that are written and not committed.

        The shard's state does not include them yet.
        """
        return {record.key for records in self.under_way for record in records}


class ReplayWait:
    """A wait for a commit in the shard's log, after which a function runs.

    The wait is dropped with the shard.
    """

    __slots__ = ("_do",)

    def __init__(self, do: Callable[[], None]) -> None:
        self._do = do

    def reached(self) -> None:
        self._do()

    def lost(self, code: ErrorCode) -> None:
        """Do nothing. The next leader replays the whole log when it loads the shard."""


class ClientWait:
    """A client's wait for a commit in the shard's log."""

    __slots__ = ("_refused", "_reply", "_value")

    def __init__(self, reply: Reply, value: object, refused: Refused) -> None:
        self._reply = reply
        self._value = value
        self._refused = refused

    def reached(self) -> None:
        self._reply(self._value)

    def lost(self, code: ErrorCode) -> None:
        """Answer the client with Kafka's error code, so that it sends the request again, to this or
        to the new coordinator."""
        is_late = code is ErrorCode.REQUEST_TIMED_OUT
        told = ErrorCode.COORDINATOR_NOT_AVAILABLE if is_late else ErrorCode.NOT_COORDINATOR
        self._refused(
            ApiError(told, "the records were not committed in time: try again" if is_late else "")
        )
