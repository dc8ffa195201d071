"""The hooks of a producer, which are called between `send` and the network."""

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
"""A function that chooses a partition from topic, key, all partitions and those with a leader.

If it returns None, the producer chooses: by the key as in Java, or the open batch without a key.
"""

Serializer: TypeAlias = Callable[[Any], bytes | None]


@dataclass(frozen=True, slots=True)
class OutgoingRecord:
    """A record as given to `send`, before it is serialized and has a partition."""

    topic: str
    value: Any
    key: Any = None
    partition: int | None = None
    timestamp_ms: int | None = None
    headers: Headers = ()


class ProducerInterceptor:
    """Gets every record to send and every result. Override the methods you need."""

    def on_send(self, record: OutgoingRecord) -> OutgoingRecord:
        """Return the record to send instead. An exception is raised to the sender."""
        return record

    def on_acknowledgement(
        self, metadata: RecordMetadata | None, error: BaseException | None
    ) -> None:
        """Called with the position of the record in the log, or with the error.

        It runs in the event loop, so it must be short.
        """


@dataclass(frozen=True, slots=True)
class ProducerHooks:
    """All hooks of one producer.

    Each interceptor gets the record that the previous one returned.
    """

    partitioner: Partitioner | None = None
    key_serializer: Serializer | None = None
    value_serializer: Serializer | None = None
    interceptors: tuple[ProducerInterceptor, ...] = ()

    def intercepted(self, outgoing: OutgoingRecord) -> OutgoingRecord:
        """Return the record after all interceptors."""
        for interceptor in self.interceptors:
            outgoing = interceptor.on_send(outgoing)
        return outgoing

    def tell_when_done(self, future: "asyncio.Future[RecordMetadata]") -> None:
        """Call every interceptor with the result of the record."""
        for interceptor in self.interceptors:
            tell_when_done(future, interceptor.on_acknowledgement)

    def record(self, outgoing: OutgoingRecord, timestamp_ms: int) -> NewRecord:
        """Return the record for a batch. Raises TypeError or ValueError if it cannot be encoded."""
        return NewRecord(
            serialized(outgoing.key, self.key_serializer, "key"),
            serialized(outgoing.value, self.value_serializer, "value"),
            checked_timestamp(timestamp_ms),
            checked_headers(outgoing.headers),
        )


def serialized(value: Any, serializer: Serializer | None, what: str) -> bytes | None:
    """Return the bytes of a key or value. Raises TypeError for anything else."""
    made = value if serializer is None else serializer(value)
    if made is not None and not isinstance(made, (bytes, bytearray, memoryview)):
        raise TypeError(
            f"the {what} is {type(made).__name__}, expected bytes or None; set a serializer for it"
        )
    return bytes(made) if isinstance(made, (bytearray, memoryview)) else made


def checked_timestamp(timestamp_ms: int) -> int:
    """Return a timestamp in milliseconds that a batch can hold. Raises TypeError or ValueError.

    A value that cannot be encoded must not get into a batch, because the whole batch would fail.
    """
    if not 0 <= index(timestamp_ms) <= INT64_MAX:
        raise ValueError(f"timestamp_ms is {timestamp_ms}, expected 0 to {INT64_MAX}")
    return index(timestamp_ms)


def checked_headers(headers: Iterable[tuple[str, bytes | None]]) -> Headers:
    """Return headers that a batch can hold. Raises TypeError or ValueError."""
    checked = []
    for name, value in headers:
        _check_text(name, "a header's name")
        checked.append((name, serialized(value, None, f"value of header {name!r}")))
    return checked


def checked_partition(topic: str, partition: int) -> TopicPartition:
    """Return a partition that a request can name. Raises TypeError or ValueError."""
    if not 0 <= index(partition) <= PARTITION_MAX:
        raise ValueError(f"partition is {partition}, expected 0 to {PARTITION_MAX}")
    return TopicPartition(topic, index(partition))


def checked_topic(topic: str) -> str:
    """Return a topic name that a request can hold. Raises TypeError or ValueError.

    Brokers accept at most 249 bytes, and check that themselves.
    """
    if not 0 < _check_text(topic, "the topic") <= STRING_BYTES_MAX:
        raise ValueError(f"the topic {topic[:50]!r} is not 1 to {STRING_BYTES_MAX} bytes long")
    return topic


def _check_text(text: object, what: str) -> int:
    """Return the UTF-8 size of a text.

    Raises UnicodeEncodeError (a ValueError) for lone surrogates.
    """
    if not isinstance(text, str):
        raise TypeError(f"{what} is {type(text).__name__}, expected str")
    return len(text.encode())
