"""Record batches, compared with the builders and readers of kafka-python and aiokafka, in both
directions."""

from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatch as TheirAiokafkaBatch
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AiokafkaBuilder
from kafka import codec as codecs
from kafka.record.default_records import DefaultRecordBatch as TheirKafkaPythonBatch
from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder

from protocol.wire.compression import Codec
from protocol.wire.records import NewRecord, build_batch, check_batch, iterate_records

TIME_MS = 1_785_571_200_000

RECORDS = [
    NewRecord(
        key=None if n % 5 == 0 else b"access/access-%d.log" % n,
        value=None if n % 7 == 6 else b"10.0.0.%d GET /index.html " % n * (n % 11),
        timestamp_ms=TIME_MS + n * 13 - (n % 3) * 50,
        headers=[("file", b"a"), ("empty", b""), ("null", None)] if n % 4 == 0 else [],
    )
    for n in range(300)
]

PEERS = {
    "kafka-python": (KafkaPythonBuilder, TheirKafkaPythonBatch),
    "aiokafka": (AiokafkaBuilder, TheirAiokafkaBatch),
}


def skip_without(peer: str, codec: Codec) -> None:
    """Skip the test if kafka-python lacks its snappy library, which is not among our
    requirements."""
    if peer == "kafka-python" and codec == Codec.SNAPPY and not codecs.has_snappy():
        pytest.skip("kafka-python has no snappy library here")


def build_theirs(builder: Any, codec: Codec) -> bytes:
    """Build the same records with the other library."""
    theirs = builder(
        magic=2,
        compression_type=int(codec),
        is_transactional=True,
        producer_id=4000,
        producer_epoch=2,
        base_sequence=17,
        batch_size=1 << 20,
    )
    for offset, record in enumerate(RECORDS):
        theirs.append(
            offset,
            timestamp=record.timestamp_ms,
            key=record.key,
            value=record.value,
            headers=list(record.headers),
        )
    return bytes(theirs.build())


def build_ours(codec: Codec, leader_epoch: int = -1) -> bytearray:
    """Build the same records with our builder."""
    return build_batch(
        RECORDS,
        codec=codec,
        is_transactional=True,
        producer_id=4000,
        producer_epoch=2,
        base_sequence=17,
        partition_leader_epoch=leader_epoch,
    )


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("peer", PEERS)
def test_we_read_theirs(peer: str, codec: Codec) -> None:
    skip_without(peer, codec)
    batch = build_theirs(PEERS[peer][0], codec)
    header = check_batch(batch)
    assert (header.codec, header.record_count) == (codec, len(RECORDS))
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (4000, 2, 17)
    assert header.is_transactional
    read = list(iterate_records(batch))
    for offset, (record, expected) in enumerate(zip(read, RECORDS, strict=True)):
        assert record.offset == offset
        assert record.sequence == 17 + offset
        assert (record.key, record.value) == (expected.key, expected.value)
        assert record.timestamp_ms == expected.timestamp_ms
        assert list(record.headers) == list(expected.headers)


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("peer", PEERS)
def test_they_read_ours(peer: str, codec: Codec) -> None:
    skip_without(peer, codec)
    theirs = PEERS[peer][1](build_ours(codec))
    assert theirs.validate_crc()
    assert theirs.is_transactional
    assert theirs.next_offset == len(RECORDS)
    read = list(theirs)
    for offset, (record, expected) in enumerate(zip(read, RECORDS, strict=True)):
        assert record.offset == offset
        assert (record.key, record.value) == (expected.key, expected.value)
        assert record.timestamp == expected.timestamp_ms
        assert list(record.headers) == list(expected.headers)


@pytest.mark.parametrize("peer", PEERS)
def test_uncompressed_bytes_are_equal(peer: str) -> None:
    theirs = build_theirs(PEERS[peer][0], Codec.NONE)
    # The leader epoch of a batch that no log has stored is -1 in one library and 0 in the other.
    leader_epoch = int.from_bytes(theirs[12:16], "big", signed=True)
    assert bytes(build_ours(Codec.NONE, leader_epoch)) == theirs
