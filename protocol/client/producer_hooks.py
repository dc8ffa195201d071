"""What a producer's owner may put between `send` and the wire.

Floor: client. Data, the interceptor's empty methods, and what makes a record of all that.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import index
from typing import Any, TypeAlias

from protocol.client.producer_outcomes import RecordMetadata, tell_when_done
from protocol.types import INT64_MAX, TopicPartition
from protocol.wire.primitives import STRING_BYTES_MAX
from protocol.wire.record import Headers, NewRecord

PARTITION_MAX = 2**31 - 1

Partitioner: TypeAlias = Callable[[str, bytes | None, Sequence[int], Sequence[int]], int | None]
"""From topic, key, all partitions and those that have a leader to a partition.

None leaves the choice to the producer: by the key as in Java, without a key the batch being filled.
"""

Serializer: TypeAlias = Callable[[Any], bytes | None]


@dataclass(frozen=True, slots=True)
class OutgoingRecord:
    """A record as `send` was given it, before it is serialized and has a partition."""

    topic: str
    value: Any
    key: Any = None
    partition: int | None = None
    timestamp_ms: int | None = None
    headers: Headers = ()


class ProducerInterceptor:
    """Sees every record on its way out and every outcome; override what is of interest."""

    def on_send(self, record: OutgoingRecord) -> OutgoingRecord:
        """The record to send instead; an exception is raised to whoever sends."""
        return record

    def on_acknowledgement(
        self, metadata: RecordMetadata | None, error: BaseException | None
    ) -> None:
        """The record is in the log, or why not. Runs in the loop: to be short."""


@dataclass(frozen=True, slots=True)
class ProducerHooks:
    """All of it; interceptors are called in order, each with what the one before it returned."""

    partitioner: Partitioner | None = None
    key_serializer: Serializer | None = None
    value_serializer: Serializer | None = None
    interceptors: tuple[ProducerInterceptor, ...] = ()

    def intercepted(self, outgoing: OutgoingRecord) -> OutgoingRecord:
        """What the interceptors let out in its place."""
        for interceptor in self.interceptors:
            outgoing = interceptor.on_send(outgoing)
        return outgoing

    def tell_when_done(self, future: "asyncio.Future[RecordMetadata]") -> None:
        """Have every interceptor told of the record's fate."""
        for interceptor in self.interceptors:
            tell_when_done(future, interceptor.on_acknowledgement)

    def record(self, outgoing: OutgoingRecord, timestamp_ms: int) -> NewRecord:
        """What a batch holds of it; TypeError or ValueError for what cannot be encoded."""
        return NewRecord(
            serialized(outgoing.key, self.key_serializer, "key"),
            serialized(outgoing.value, self.value_serializer, "value"),
            checked_timestamp(timestamp_ms),
            checked_headers(outgoing.headers),
        )


def serialized(value: Any, serializer: Serializer | None, what: str) -> bytes | None:
    """The bytes of a key or value; TypeError for anything else that no serializer made bytes of."""
    made = value if serializer is None else serializer(value)
    if made is not None and not isinstance(made, (bytes, bytearray, memoryview)):
        raise TypeError(f"the {what} is {type(made).__name__}, and no serializer makes bytes of it")
    return bytes(made) if isinstance(made, (bytearray, memoryview)) else made


def checked_timestamp(timestamp_ms: int) -> int:
    """Milliseconds as a batch can hold them; TypeError or ValueError for anything else.

    What cannot be encoded must not get into a batch: it would take along whatever else is in it.
    """
    if not 0 <= index(timestamp_ms) <= INT64_MAX:
        raise ValueError(f"timestamp_ms is {timestamp_ms}, expected 0 to {INT64_MAX}")
    return index(timestamp_ms)


def checked_headers(headers: Iterable[tuple[str, bytes | None]]) -> Headers:
    """Headers as a batch can hold them; TypeError or ValueError for anything else."""
    checked = []
    for name, value in headers:
        _check_text(name, "a header's name")
        checked.append((name, serialized(value, None, f"value of header {name!r}")))
    return checked


def checked_partition(topic: str, partition: int) -> TopicPartition:
    """A partition as a request can name it; TypeError or ValueError for anything else."""
    if not 0 <= index(partition) <= PARTITION_MAX:
        raise ValueError(f"partition {partition}, expected 0 to {PARTITION_MAX}")
    return TopicPartition(topic, index(partition))


def checked_topic(topic: str) -> str:
    """A topic as a request can name it; TypeError or ValueError for anything else.

    Brokers take 249 bytes at most, and say so themselves.
    """
    if not 0 < _check_text(topic, "the topic") <= STRING_BYTES_MAX:
        raise ValueError(f"the topic {topic[:50]!r} is not 1 to {STRING_BYTES_MAX} bytes long")
    return topic


def _check_text(text: object, what: str) -> int:
    """How many bytes it is; UnicodeEncodeError, which is a ValueError, for lone surrogates."""
    if not isinstance(text, str):
        raise TypeError(f"{what} is {type(text).__name__}, expected str")
    return len(text.encode())
