"""The settings of one producer and their defaults.

This module has only data classes.
"""

from dataclasses import dataclass

from protocol.client.connection import IN_FLIGHT_MAX
from protocol.wire.compression import Codec

IDEMPOTENT_IN_FLIGHT_MAX = 5
"""The number of batches of one partition that a broker remembers."""

REQUESTS_IN_FLIGHT_MAX = 2 * IN_FLIGHT_MAX
"""The number of requests that one connection can have in flight."""


@dataclass(frozen=True, slots=True)
class ProducerSettings:
    """The settings of one producer.

    - `required_acks`: -1 for all in-sync replicas, 1 for the leader, 0 for no answer.
    - `idempotent`: every batch is in the log once and in order, even after failures.
    - `compression`: the codec of batches that this producer encodes.
    - `linger_ms`, `batch_bytes`: a batch is sent when either is reached.
    - `buffer_bytes`: the most bytes of records without a result; then `send` waits.
    - `request_bytes_max`: the most bytes of one request, and so of a record or batch.
    - `max_in_flight`: the most requests to one broker, and the most batches of one partition.
      Without idempotence a retry can change the order unless this is 1.
    - `delivery_timeout_ms`: the longest time from `send` to the acknowledgement; None: forever.
    - `unknown_topic_timeout_ms`: how long a topic can be missing before its records fail.
    - `request_timeout_ms`: how long one attempt can take. The broker stops after half of it.
    - `transactional_id`: the id for transactions; None: no transactions. It is the same after a
      restart, and a new producer with this id fences the older one.
    - `transaction_timeout_ms`: the coordinator aborts a transaction after this time.
    - `retry_backoff_ms`: the first and the longest wait before a partition is retried.
    """

    required_acks: int = -1
    idempotent: bool = True
    compression: Codec = Codec.NONE
    linger_ms: int = 5
    batch_bytes: int = 65_536
    buffer_bytes: int = 32 << 20
    request_bytes_max: int = 8 << 20
    max_in_flight: int = IDEMPOTENT_IN_FLIGHT_MAX
    delivery_timeout_ms: int | None = None
    unknown_topic_timeout_ms: int = 60_000
    request_timeout_ms: int = 30_000
    transactional_id: str | None = None
    transaction_timeout_ms: int = 60_000
    retry_backoff_ms: tuple[int, int] = (50, 1_000)

    def __post_init__(self) -> None:
        if self.required_acks not in (-1, 0, 1):
            raise ValueError(f"required_acks is {self.required_acks}, expected -1, 0 or 1")
        if not 1 <= self.max_in_flight <= REQUESTS_IN_FLIGHT_MAX:
            expected = f"expected 1 to {REQUESTS_IN_FLIGHT_MAX}"
            raise ValueError(f"max_in_flight is {self.max_in_flight}, {expected}")
        if self.idempotent and (
            self.required_acks != -1 or self.max_in_flight > IDEMPOTENT_IN_FLIGHT_MAX
        ):
            raise ValueError(
                f"required_acks is {self.required_acks} and max_in_flight {self.max_in_flight},"
                f" expected -1 and at most {IDEMPOTENT_IN_FLIGHT_MAX} for an idempotent producer"
            )
        if self.transactional_id is not None and not self.idempotent:
            raise ValueError(
                "idempotent is False, expected True for a producer with a transactional_id"
            )

    @property
    def is_transactional(self) -> bool:
        """True if records are sent in transactions."""
        return self.transactional_id is not None
