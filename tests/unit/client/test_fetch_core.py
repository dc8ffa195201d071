"""The records that a consumer gets from one partition of a Fetch response."""

import struct

import pytest

from protocol.client.fetch_core import FetchedBatch, IsolationLevel, read_partition
from protocol.errors import CorruptBatch
from protocol.messages.fetch import AbortedTransaction, PartitionData
from protocol.types import TopicPartition
from protocol.wire.compression import Codec
from protocol.wire.record import NewRecord
from protocol.wire.records import build_batch

TP = TopicPartition("t", 0)
COMMITTED = IsolationLevel.READ_COMMITTED
ABORT, COMMIT = 0, 1
CONTROL_BIT = 0x20


def batch(base_offset: int, *values: bytes, producer_id: int = -1) -> bytearray:
    return build_batch(
        [NewRecord(None, value, 0) for value in values],
        base_offset=base_offset,
        producer_id=producer_id,
        producer_epoch=0 if producer_id >= 0 else -1,
        base_sequence=0 if producer_id >= 0 else -1,
        is_transactional=producer_id >= 0,
    )


def marker(offset: int, producer_id: int, kind: int) -> bytearray:
    """Return a control batch with a marker, as a transaction coordinator writes it."""
    record = NewRecord(struct.pack(">hh", 0, kind), struct.pack(">hi", 0, 0), 0)
    raw = build_batch(
        [record],
        base_offset=offset,
        producer_id=producer_id,
        producer_epoch=0,
        is_transactional=True,
    )
    attributes = struct.unpack_from(">h", raw, 21)[0] | CONTROL_BIT
    struct.pack_into(">h", raw, 21, attributes)
    from protocol.wire.crc32c import crc32c

    struct.pack_into(">I", raw, 17, crc32c(bytes(raw[21:])))
    return raw


def read(
    offset: int,
    *batches: bytearray,
    isolation: int = 0,
    aborted: tuple[tuple[int, int], ...] = (),
    cut: int = 0,
) -> FetchedBatch:
    records = b"".join(bytes(b) for b in batches)
    data = PartitionData(
        high_watermark=100,
        last_stable_offset=90,
        log_start_offset=3,
        records=memoryview(records[: len(records) - cut]),
        aborted_transactions=[
            AbortedTransaction(producer_id=producer_id, first_offset=first)
            for producer_id, first in aborted
        ],
    )
    return read_partition(TP, data, offset, isolation)


def values(fetched: FetchedBatch) -> list[bytes | None]:
    return [record.value for record in fetched.records]


def test_records_before_the_offset_are_skipped() -> None:
    fetched = read(2, batch(0, b"a", b"b", b"c"), batch(3, b"d"))
    assert values(fetched) == [b"c", b"d"]
    assert (fetched.next_offset, fetched.high_watermark) == (4, 100)
    assert (fetched.last_stable_offset, fetched.log_start_offset) == (90, 3)


def test_a_batch_that_lies_before_is_skipped_whole() -> None:
    assert values(read(3, batch(0, b"a", b"b", b"c"), batch(3, b"d"))) == [b"d"]


def test_a_partial_batch_at_the_end_is_left_for_later() -> None:
    fetched = read(0, batch(0, b"a"), batch(1, b"b"), cut=5)
    assert (values(fetched), fetched.next_offset) == ([b"a"], 1)


def test_nothing_to_read() -> None:
    fetched = read(7)
    assert (values(fetched), fetched.next_offset) == ([], 7)
    empty = PartitionData(records=None)
    assert read_partition(TP, empty, 7, 0).next_offset == 7


def test_offsets_missing_after_compaction_move_the_position() -> None:
    fetched = read(5, batch(9, b"a"))
    assert (values(fetched), fetched.next_offset) == ([b"a"], 10)


def test_markers_are_skipped_but_take_up_offsets() -> None:
    for isolation in IsolationLevel:
        fetched = read(0, batch(0, b"a", producer_id=5), marker(1, 5, COMMIT), isolation=isolation)
        assert (values(fetched), fetched.next_offset) == ([b"a"], 2)


def test_aborted_transactions_are_hidden_from_committed_readers() -> None:
    log = (
        batch(0, b"plain"),
        batch(1, b"aborted", producer_id=5),
        batch(2, b"other", producer_id=6),
        batch(3, b"aborted too", producer_id=5),
        marker(4, 5, ABORT),
        batch(5, b"next transaction", producer_id=5),
        marker(6, 5, COMMIT),
        marker(7, 6, COMMIT),
    )
    hidden = read(0, *log, isolation=COMMITTED, aborted=((5, 1),))
    assert values(hidden) == [b"plain", b"other", b"next transaction"]
    assert hidden.next_offset == 8
    everything = read(0, *log, aborted=((5, 1),))
    assert len(values(everything)) == 5


def test_an_abort_that_began_before_the_answer() -> None:
    log = (batch(8, b"aborted", producer_id=5), marker(9, 5, ABORT), batch(10, b"b"))
    assert values(read(8, *log, isolation=COMMITTED, aborted=((5, 2),))) == [b"b"]


def test_two_aborts_of_one_producer() -> None:
    log = (
        batch(0, b"one", producer_id=5),
        marker(1, 5, ABORT),
        batch(2, b"kept", producer_id=5),
        marker(3, 5, COMMIT),
        batch(4, b"two", producer_id=5),
        marker(5, 5, ABORT),
    )
    fetched = read(0, *log, isolation=COMMITTED, aborted=((5, 4), (5, 0)))
    assert values(fetched) == [b"kept"]


def test_damage_is_named_and_what_precedes_it_is_kept() -> None:
    bad = batch(1, b"b", b"c")
    bad[-3] ^= 1
    fetched = read(0, batch(0, b"a"), bad, batch(3, b"d"))
    assert (values(fetched), fetched.next_offset) == ([b"a"], 1)
    with pytest.raises(CorruptBatch, match="t-0 at offset 1: the CRC"):
        read(1, bad, batch(3, b"d"))
    assert values(read(3, bad, batch(3, b"d"))) == [b"d"]


def test_records_that_expand_beyond_the_limit_are_refused() -> None:
    bomb = build_batch([NewRecord(None, bytes(1 << 20), 0)], codec=Codec.GZIP)
    data = PartitionData(records=memoryview(bomb))
    with pytest.raises(CorruptBatch, match="t-0 at offset 0"):
        read_partition(TP, data, 0, 0, decompressed_bytes_max=1 << 16)


def test_less_than_one_batch_cannot_be_waited_for() -> None:
    with pytest.raises(CorruptBatch, match="without a whole batch"):
        read(0, batch(0, b"a" * 100), cut=50)
