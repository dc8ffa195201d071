"""What a producer's owner may put between `send` and the wire.

Floor: client. Data, and the interceptor's empty methods.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from protocol.client.producer_outcomes import RecordMetadata
from protocol.wire.record import Headers

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


def serialized(value: Any, serializer: Serializer | None, what: str) -> bytes | None:
    """The bytes of a key or value; TypeError for anything else that no serializer made bytes of."""
    made = value if serializer is None else serializer(value)
    if made is not None and not isinstance(made, (bytes, bytearray, memoryview)):
        raise TypeError(f"the {what} is {type(made).__name__}, and no serializer makes bytes of it")
    return bytes(made) if isinstance(made, (bytearray, memoryview)) else made
