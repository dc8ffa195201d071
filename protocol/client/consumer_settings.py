"""The settings of a consumer, its records, and its rebalance listener."""

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
    """The start offset if there is no committed offset, or if the log no longer has it."""

    EARLIEST = "earliest"
    LATEST = "latest"
    NONE = "none"
    """Do not start: the reader gets NoCommittedOffset or OffsetOutOfRange, and can seek."""


class ConsumerRecord(NamedTuple):
    """One record as the consumer returns it. Key and value come from the deserializers."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: Any
    value: Any
    headers: Headers


@dataclass(frozen=True, slots=True)
class ConsumerSettings:
    """The settings of one consumer; the defaults are Java's.

    - `group_id`: None for a consumer that assigns itself and commits nothing.
    - `group_instance_id`: makes the member a static one (KIP-345).
    - `assignors`: names in order of preference. Members keep their partitions during a rebalance
      only if all of them are cooperative.
    - `auto_commit`: commits in the background, at most `auto_commit_interval_ms` after the caller
      has asked for more. Records that are still being processed are not committed.
    - `isolation_level`: 1 hides uncommitted records of transactions.
    - `session_timeout_ms`, `heartbeat_interval_ms`, `max_poll_interval_ms`: see `GroupSettings`.
    - `topics_check_ms`: how often to look for new partitions, and for new topics of a pattern.
    - `max_poll_records`: the most records that `getmany` returns.
    - `fetch_*`: when the broker answers, and how much it returns.
    - `key_deserializer`, `value_deserializer`: from bytes or None to any value.
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
            raise ValueError(f"max_poll_records is {self.max_poll_records}, expected at least 1")


def consumer_records(
    settings: ConsumerSettings, tp: TopicPartition, records: Iterable[Record]
) -> Iterator[ConsumerRecord]:
    """Yield a partition's records for the caller. Raises a deserializer's error."""
    of_key, of_value = settings.key_deserializer, settings.value_deserializer
    topic, partition = tp
    for offset, timestamp_ms, key, value, headers, _ in records:
        # Make the tuple directly, because that costs a third of the constructor call.
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
    """An object that the consumer calls when partitions are added or removed. Override the methods
    you need.

    A rebalance waits while a method runs. So `on_partitions_revoked` can finish work and commit
    offsets. An exception ends the membership and is raised to the reader.
    """

    async def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        """Called after these partitions were added. A `seek` here decides where reading starts."""

    async def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        """Called before another member gets these partitions. Positions can still be committed."""

    async def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> None:
        """Called when another member can already own these partitions, so no commit is possible."""
        await self.on_partitions_revoked(partitions)
