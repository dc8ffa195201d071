"""A transactional producer that sends requests to a broker without sockets, one at a time."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from broker.replicas.place import Alone
from protocol.errors import ErrorCode
from protocol.messages.cluster import FindCoordinatorRequest
from protocol.messages.fetch import PartitionData
from protocol.messages.produce import ProduceRequest
from protocol.messages.producer_ids import InitProducerIdRequest, InitProducerIdResponse
from protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from protocol.types import TopicPartition
from protocol.wire.records import (
    SEQUENCE_MAX,
    Record,
    iterate_batches,
    iterate_records,
    read_marker,
)
from tests.harness.wire import batch_of, fetch_request, produce_request
from tests.unit.broker.rig import Asked, Rig

READ_COMMITTED = 1
GROUP = 0
TRANSACTION = 1


A, B = TopicPartition("t", 0), TopicPartition("t", 1)
ABORT_CHECK_MS = 10_000


class Doubtful(Alone):
    """The role of a broker that cannot know whether it is still the leader."""

    may_read = False


@contextmanager
def txn_rig() -> Iterator[Rig]:
    """Yield a broker with coordinators and a topic `t` whose partitions are A and B."""
    rig = Rig()
    rig.create("t", 2)
    make_coordinators(rig)
    yield rig


def make_coordinators(rig: Rig) -> None:
    """Create the internal topics."""
    for key_type in (GROUP, TRANSACTION):
        rig.ask(FindCoordinatorRequest(key_type=key_type, coordinator_keys=["x"]), 4)


def settle(rig: Rig) -> None:
    """Sync and run the loop until no work is left."""
    rig.turn()
    while not rig.flusher.is_idle:
        rig.flusher.sync()
        rig.turn()


def fetch(rig: Rig) -> PartitionData:
    """Fetch committed records once, from the start of partition 0 of topic `t`."""
    request = fetch_request("t", isolation_level=READ_COMMITTED)
    part: PartitionData = rig.ask(request, 12).responses[0].partitions[0]
    return part


def plain(rig: Rig, value: bytes) -> None:
    """Produce a record without a transaction to partition 0 of topic `t`."""
    asked = rig.send(produce_request("t", batch_of([value])), 9)
    settle(rig)
    assert code_of(asked) is ErrorCode.NONE


def read_stable(rig: Rig, topic: str, partition: int = 0) -> list[bytes | None]:
    """Return the values that a read_committed consumer sees."""
    return [record.value for record in read_stable_records(rig, topic, partition)]


def read_stable_records(rig: Rig, topic: str, partition: int = 0, offset: int = 0) -> list[Record]:
    """Return the records that a read_committed consumer gets from an offset on, without aborted
    batches."""
    records: list[Record] = []
    while True:
        request = fetch_request(topic, offset, isolation_level=READ_COMMITTED)
        request.topics[0].partitions[0].partition = partition
        part = rig.ask(request, 12).responses[0].partitions[0]
        assert part.error_code == 0, part
        if not len(part.records):
            assert offset == part.last_stable_offset
            return records
        offset = _take_committed(part, records)


def _take_committed(part: PartitionData, records: list[Record]) -> int:
    """Add the committed records of one answer. Return the offset of the next fetch."""
    aborted = [(one.first_offset, one.producer_id) for one in part.aborted_transactions or ()]
    assert aborted == sorted(aborted)
    skipped: set[int] = set()
    offset = 0
    for header, batch in iterate_batches(part.records):
        offset = header.last_offset + 1
        while aborted and aborted[0][0] <= header.last_offset:
            skipped.add(aborted.pop(0)[1])
        if header.is_control:
            marker = read_marker(next(iter(iterate_records(batch))))
            if marker is not None and not marker.is_commit:
                skipped.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in skipped):
            records.extend(iterate_records(batch))
    return offset


class TxnProducer:
    """One producer. Its methods return error codes and never retry."""

    def __init__(self, rig: Rig, transactional_id: str = "id", *, timeout_ms: int = 60_000) -> None:
        self.rig = rig
        self.transactional_id = transactional_id
        self.timeout_ms = timeout_ms
        self.producer_id = -1
        self.producer_epoch = -1
        self.sequences: dict[TopicPartition, int] = {}

    def init_request(self, *, resumes: bool = False) -> InitProducerIdRequest:
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id, transaction_timeout_ms=self.timeout_ms
        )
        if resumes:
            request.producer_id, request.producer_epoch = self.producer_id, self.producer_epoch
        return request

    def init(self, *, resumes: bool = False, version: int = 4) -> ErrorCode:
        """Send InitProducerId. With `resumes` it contains the producer's id and epoch."""
        return self.take(self.rig.ask(self.init_request(resumes=resumes), version))

    def take(self, answer: InitProducerIdResponse) -> ErrorCode:
        """Adopt the producer id and epoch of a response to InitProducerId."""
        if not answer.error_code:
            self.producer_id, self.producer_epoch = answer.producer_id, answer.producer_epoch
            self.sequences.clear()
        return ErrorCode(answer.error_code)

    def ready(self) -> "TxnProducer":
        """Initialise the producer. Retry while an earlier transaction must complete first."""
        while (code := self.init()) is not ErrorCode.NONE:
            assert code is ErrorCode.CONCURRENT_TRANSACTIONS, code
            settle(self.rig)
        return self

    def add_request(self, *partitions: TopicPartition) -> AddPartitionsToTxnRequest:
        return AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.producer_epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name=topic, partitions=[partition])
                for topic, partition in partitions
            ],
        )

    def add(self, *partitions: TopicPartition, version: int = 3) -> list[ErrorCode]:
        """Send AddPartitionsToTxn. Return an error code for each partition."""
        answer = self.rig.ask(self.add_request(*partitions), version)
        return [
            ErrorCode(one.partition_error_code)
            for topic in answer.results_by_topic_v3_and_below
            for one in topic.results_by_partition
        ]

    def send(
        self, partition: TopicPartition, value: bytes, *, transactional_id: str | None = ""
    ) -> Asked:
        """Send one transactional record."""
        request = self.produce_request(partition, value)
        if transactional_id != "":
            request.transactional_id = transactional_id
        return self.rig.send(request, 9)

    def produce_request(self, partition: TopicPartition, value: bytes) -> ProduceRequest:
        """Return a Produce request with the next record of a partition. It uses up a sequence
        number."""
        sequence = self.sequences.get(partition, 0)
        batch = batch_of(
            [value],
            timestamp_ms=self.rig.clock.now_ms(),
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
        request = produce_request(partition.topic, batch, partition=partition.partition)
        request.transactional_id = self.transactional_id
        self.sequences[partition] = (sequence + 1) & SEQUENCE_MAX
        return request

    def put(self, partition: TopicPartition, value: bytes) -> ErrorCode:
        """Send one transactional record and sync. Return the error code."""
        asked = self.send(partition, value)
        settle(self.rig)
        return code_of(asked)

    def add_offsets(self, group_id: str, version: int = 3) -> ErrorCode:
        """Send AddOffsetsToTxn."""
        return ErrorCode(self.rig.ask(self.offsets_request(group_id), version).error_code)

    def offsets_request(self, group_id: str) -> AddOffsetsToTxnRequest:
        return AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            group_id=group_id,
        )

    def commit_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, int], version: int = 3
    ) -> list[ErrorCode]:
        """Send TxnOffsetCommit. Return an error code for each partition."""
        answer = self.rig.ask(self.commit_request(group_id, offsets), version)
        return [ErrorCode(one.error_code) for topic in answer.topics for one in topic.partitions]

    def commit_request(
        self, group_id: str, offsets: Mapping[TopicPartition, int]
    ) -> TxnOffsetCommitRequest:
        return TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group_id,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            topics=[
                TxnOffsetCommitRequestTopic(
                    name=partition.topic,
                    partitions=[
                        TxnOffsetCommitRequestPartition(
                            partition_index=partition.partition,
                            committed_offset=offset,
                            committed_metadata="",
                        )
                    ],
                )
                for partition, offset in offsets.items()
            ],
        )

    def end_request(self, *, is_commit: bool) -> EndTxnRequest:
        return EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            committed=is_commit,
        )

    def end(self, *, is_commit: bool = True, version: int = 3) -> ErrorCode:
        """Send EndTxn. The markers are not written yet."""
        return ErrorCode(self.rig.ask(self.end_request(is_commit=is_commit), version).error_code)

    def write(self, *places: tuple[TopicPartition, bytes], is_commit: bool = True) -> None:
        """Write one whole transaction."""
        codes = self.add(*(partition for partition, _ in places))
        codes += [self.put(partition, value) for partition, value in places]
        codes.append(self.end(is_commit=is_commit))
        assert set(codes) == {ErrorCode.NONE}, codes
        settle(self.rig)


def code_of(asked: Asked) -> ErrorCode:
    """Return the error code of the only partition of a Produce."""
    return ErrorCode(asked.answer.responses[0].partition_responses[0].error_code)
