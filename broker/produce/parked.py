"""A Produce request whose answer is made but may not leave yet.

Floor: produce.
"""

from __future__ import annotations

from broker.produce.verification import TRANSACTIONAL
from broker.replicas.replica_manager import Partition
from broker.sessions.call import Call
from protocol.errors import WireError
from protocol.messages.produce import PartitionProduceResponse, ProduceRequest, ProduceResponse
from protocol.wire.records import read_header


class ParkedProduce:
    """A Produce whose answer is made but may not leave yet."""

    __slots__ = ("appended", "call", "deadline_ms", "has_two_producers", "required_acks",
                 "response", "timeout_ms", "transactional_id")  # fmt: skip

    def __init__(self, call: Call, request: ProduceRequest) -> None:
        self.call = call
        self.required_acks = request.acks
        self.timeout_ms = request.timeout_ms
        self.deadline_ms = 0
        """Until when it waits, once it does."""
        self.transactional_id = request.transactional_id
        self.has_two_producers = request.transactional_id is not None and has_two_producers(request)
        self.response = ProduceResponse()
        self.appended: list[tuple[Partition, PartitionProduceResponse, int]] = []
        """Partition, its part of the answer, and the end offset that must be committed."""

    def thresholds(self) -> dict[Partition, int]:
        """What is not committed yet: per partition the high watermark that would do."""
        missing: dict[Partition, int] = {}
        for partition, _, end_offset in self.appended:
            if partition.log.high_watermark < end_offset:
                missing[partition] = max(end_offset, missing.get(partition, 0))
        return missing

    def complete(self) -> None:
        """Give the answer."""
        self.call.answer(self.response)

    def as_parked(self) -> ParkedProduce:
        """Itself; a request that took the short way becomes one of these."""
        return self


def has_two_producers(request: ProduceRequest) -> bool:
    """Whether a request holds transactional batches under more than one producer id.

    One transactional id has one producer. Without transactions it is nothing unusual: a producer
    that was given a new id repeats older batches under the one they had.
    """
    producer_ids = set()
    for topic in request.topic_data:
        for data in topic.partition_data:
            try:
                header = read_header(data.records or b"")
            except WireError:
                # Refused in its own place.
                continue
            if header.attributes & TRANSACTIONAL:
                producer_ids.add(header.producer_id)
    return len(producer_ids) > 1
