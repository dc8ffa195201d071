"""What one consumer was told, what it hands out, and whom it tells of its partitions.

Floor: client. Data, how records are made of it, and the listener's empty methods.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from protocol.client.assignors import ASSIGNORS
from protocol.client.fetch_core import IsolationLevel
from protocol.types import TopicPartition
from protocol.wire.record import Headers, Record

_new_record = tuple.__new__


class OffsetReset(StrEnum):
    """Where to begin where nothing was committed, and where what was committed is gone."""

    EARLIEST = "earliest"
    LATEST = "latest"
    NONE = "none"
    """Nowhere: whoever reads gets NoCommittedOffset or OffsetOutOfRange, and may seek."""


class ConsumerRecord(NamedTuple):
    """One record as it is handed out; key and value as the deserializers made them."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: Any
    value: Any
    headers: Headers


@dataclass(frozen=True, slots=True)
class ConsumerSettings:
    """The limits of one consumer and their defaults, which are Java's.

    group_id: None for a consumer that assigns itself and commits nothing.
    group_instance_id: makes the member a static one (KIP-345).
    assignors: names in order of preference. Members keep what they own through a rebalance only if
        every one of them is cooperative.
    auto_commit: what was handed out is committed in the background, at the latest
        `auto_commit_interval_ms` after the call that follows the one which handed it out: records
        that are still being worked on are not.
    isolation_level: 1 hides what transactions have not committed.
    session_timeout_ms, heartbeat_interval_ms, max_poll_interval_ms: see `GroupSettings`.
    topics_check_ms: how often topics are looked at for growth, and for a pattern's new matches.
    max_poll_records: how many records one `getmany` returns at most.
    fetch_*: when the broker answers, and how much at once.
    key_deserializer, value_deserializer: from bytes or None to whatever is handed out.
    """

    group_id: str | None = None
    group_instance_id: str | None = None
    assignors: tuple[str, ...] = ("range", "cooperative-sticky")
    offset_reset: OffsetReset | str = OffsetReset.LATEST
    auto_commit: bool = True
    auto_commit_interval_ms: int = 5_000
    isolation_level: int = IsolationLevel.READ_UNCOMMITTED
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    max_poll_interval_ms: int = 300_000
    topics_check_ms: int = 60_000
    max_poll_records: int = 500
    exclude_internal_topics: bool = True
    fetch_min_bytes: int = 1
    fetch_max_bytes: int = 16 << 20
    fetch_max_wait_ms: int = 500
    partition_max_bytes: int = 1 << 20
    key_deserializer: Callable[[bytes | None], Any] | None = None
    value_deserializer: Callable[[bytes | None], Any] | None = None

    def __post_init__(self) -> None:
        OffsetReset(self.offset_reset)
        unknown = [name for name in self.assignors if name not in ASSIGNORS]
        if unknown:
            raise ValueError(f"unknown assignors {unknown}, expected some of {list(ASSIGNORS)}")
        if self.max_poll_records < 1:
            raise ValueError("max_poll_records must be at least 1")


def consumer_records(
    settings: ConsumerSettings, tp: TopicPartition, records: Iterable[Record]
) -> Iterator[ConsumerRecord]:
    """What is handed out of a partition's records; raises what a deserializer does."""
    of_key, of_value = settings.key_deserializer, settings.value_deserializer
    topic, partition = tp
    for offset, timestamp_ms, key, value, headers, _ in records:
        # A tuple made directly costs a third of what its constructor would.
        yield _new_record(
            ConsumerRecord,
            (
                topic,
                partition,
                offset,
                timestamp_ms,
                key if of_key is None else of_key(key),
                value if of_value is None else of_value(value),
                headers,
            ),
        )


class RebalanceListener:
    """Told when partitions come and go; override what is of interest.

    While one of these runs nothing else moves: `on_partitions_revoked` may finish what is being
    worked on and commit it. An exception ends the membership and is raised to whoever reads.
    """

    async def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        """These were added; a `seek` here decides where they begin."""

    async def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        """These go to somebody else when this returns; positions can still be committed."""

    async def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> None:
        """These may be somebody else's already, so that nothing can be committed."""
        await self.on_partitions_revoked(partitions)
