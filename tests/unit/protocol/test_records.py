"""Record batches: built, read, patched, stamped and malformed."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.errors import BufferUnderflow, CorruptBatch, UnsupportedMagic, WireError
from protocol.wire import records as r
from protocol.wire.compression import Codec
from protocol.wire.records import (
    HEADER_BYTES,
    NewRecord,
    build_batch,
    iterate_places,
    iterate_records,
)
from tests.unit.protocol.examples import SEED, seeded_random

TIME_MS = 1_785_571_200_000


def some_records(count: int = 5) -> list[NewRecord]:
    """Return records with every kind of null, and timestamps that go back and forth."""
    return [
        NewRecord(
            key=None if n % 3 == 0 else b"key-%d" % n,
            value=None if n % 4 == 3 else b"v" * (n * 37),
            timestamp_ms=TIME_MS + (-1) ** n * n * 1000,
            headers=[("name", b"x"), ("größe", None), ("", b"")] if n % 2 else (),
        )
        for n in range(count)
    ]


def contents(batch: bytes | bytearray | memoryview) -> list[tuple[object, ...]]:
    """Return the contents of a batch's records."""
    return [
        (record.key, record.value, record.timestamp_ms, list(record.headers))
        for record in r.iterate_records(batch)
    ]


@settings(max_examples=60)
@given(
    records=st.lists(
        st.builds(
            NewRecord,
            st.none() | st.binary(max_size=200),
            st.none() | st.binary(max_size=200),
            st.integers(0, 2**60),
            st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=3),
        ),
        min_size=1,
        max_size=20,
    ),
    codec=st.sampled_from(Codec),
    base_offset=st.integers(0, 2**62),
)
def test_what_is_built_is_read(records: list[NewRecord], codec: Codec, base_offset: int) -> None:
    batch = r.build_batch(
        records,
        codec=codec,
        base_offset=base_offset,
        producer_id=7,
        producer_epoch=3,
        base_sequence=r.SEQUENCE_MAX - 2,
        is_transactional=True,
        partition_leader_epoch=9,
    )
    header = r.check_batch(batch)
    assert header.codec == codec
    assert header.size_bytes == len(batch)
    assert header.record_count == len(records) == header.last_offset_delta + 1
    assert header.base_timestamp == records[0].timestamp_ms
    assert header.max_timestamp == max(record.timestamp_ms for record in records)
    assert header.is_transactional
    assert not header.is_control
    assert not header.is_log_append_time
    read = list(r.iterate_records(batch))
    expected = [(*record[:3], list(record.headers)) for record in records]
    assert contents(batch) == expected
    assert [record.offset for record in read] == list(range(base_offset, header.last_offset + 1))
    assert read[-1].sequence == header.last_sequence
    assert read[0].sequence == r.SEQUENCE_MAX - 2


def test_sequence_numbers_wrap_to_zero() -> None:
    batch = r.build_batch(some_records(4), producer_id=1, producer_epoch=0, base_sequence=2**31 - 2)
    sequences = [record.sequence for record in r.iterate_records(batch)]
    assert sequences == [2**31 - 2, 2**31 - 1, 0, 1]
    assert r.read_header(batch).last_sequence == 1


def test_an_empty_batch_cannot_be_built() -> None:
    with pytest.raises(ValueError, match="at least one"):
        r.build_batch([])


def test_payloads_may_come_encoded() -> None:
    payload = bytearray()
    for index, record in enumerate(some_records()):
        delta = record.timestamp_ms - TIME_MS
        r.append_record(payload, index, delta, record.key, record.value, record.headers)
    for codec in Codec:
        batch = r.assemble_batch(
            memoryview(payload),
            record_count=5,
            base_timestamp_ms=TIME_MS,
            max_timestamp_ms=TIME_MS + 4000,
            codec=codec,
        )
        assert batch == r.build_batch(some_records(), codec=codec)


@pytest.mark.parametrize("kind", [bytearray, lambda batch: memoryview(bytearray(batch))])
def test_patching_leaves_the_crc_valid(kind: type[bytearray]) -> None:
    batch = kind(r.build_batch(some_records()))
    r.patch(batch, 1234, 56)
    header = r.check_batch(batch)
    assert (header.base_offset, header.partition_leader_epoch) == (1234, 56)
    assert [record.offset for record in r.iterate_records(batch)] == list(range(1234, 1239))


def test_stamping_a_producer_renews_the_crc() -> None:
    batch = r.build_batch(some_records())
    before = contents(batch)
    r.stamp_producer(batch, 4000, 2, 17)
    header = r.check_batch(batch)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (4000, 2, 17)
    assert contents(batch) == before
    batch += b"a bytearray can still grow: no view of it was left"


def test_stamping_a_control_batch_keeps_its_records_and_renews_the_crc() -> None:
    batch = r.build_batch([r.NewRecord(b"k", b"v", TIME_MS)])
    assert not r.check_batch(batch).is_control
    r.stamp_control(batch)
    assert r.check_batch(batch).is_control
    assert [one.value for one in r.iterate_records(batch)] == [b"v"]


def test_stamping_the_brokers_time_changes_every_record() -> None:
    batch = r.build_batch(some_records())
    r.stamp_log_append_time(batch, TIME_MS + 99)
    header = r.check_batch(batch)
    assert header.is_log_append_time
    assert header.max_timestamp == TIME_MS + 99
    assert {record.timestamp_ms for record in r.iterate_records(batch)} == {TIME_MS + 99}


def test_batches_are_iterated_up_to_a_partial_tail() -> None:
    batches = [bytes(r.build_batch(some_records(n), base_offset=n)) for n in (1, 2, 3)]
    whole = b"".join(batches)
    for length in range(len(whole) + 1):
        found = [view for _, view in r.iterate_batches(whole[:length])]
        ends = [sum(map(len, batches[: n + 1])) for n in range(3)]
        assert found == batches[: sum(end <= length for end in ends)]
    headers = [header.base_offset for header, _ in r.iterate_batches(memoryview(whole))]
    assert headers == [1, 2, 3]


def test_views_share_the_buffer() -> None:
    buffer = r.build_batch(some_records())
    ((_, view),) = r.iterate_batches(buffer)
    r.patch(view, 77, 1)
    assert r.read_header(buffer).base_offset == 77


@pytest.mark.parametrize("magic", [0, 1])
def test_old_formats_are_refused_by_name(magic: int) -> None:
    # The fields: offset, size, CRC, magic, attributes, a timestamp in format 1, a null key, a
    # value.
    body = bytes([magic, 0]) + bytes(8 * magic) + b"\xff" * 4 + b"\0\0\0\4four"
    message = bytes(8) + (len(body) + 4).to_bytes(4, "big") + bytes(4) + body
    for buffer in (message, message * 3):
        with pytest.raises(UnsupportedMagic, match=f"message format {magic}"):
            r.read_header(buffer)
        with pytest.raises(UnsupportedMagic):
            list(r.iterate_batches(buffer))


def test_impossible_headers() -> None:
    batch = r.build_batch(some_records())
    with pytest.raises(BufferUnderflow):
        r.read_header(batch[:60])
    with pytest.raises(BufferUnderflow):
        r.read_header(b"")
    with pytest.raises(CorruptBatch, match="magic 3"):
        r.read_header(batch[:16] + b"\x03" + batch[17:])
    for length in (-1, 0, 48):
        broken = batch[:8] + length.to_bytes(4, "big", signed=True) + batch[12:]
        with pytest.raises(CorruptBatch, match="batch length"):
            list(r.iterate_batches(broken))


def test_every_damaged_bit_is_noticed() -> None:
    batch = r.build_batch(some_records(2))
    for position in range(len(batch)):
        for bit in (1, 0x80):
            broken = bytearray(batch)
            broken[position] ^= bit
            if position < 8 or 12 <= position < 16:
                assert r.check_batch(broken)  # base offset and leader epoch are the broker's
                continue
            with pytest.raises(CorruptBatch):
                r.check_batch(broken)


def test_counts_that_contradict_themselves() -> None:
    batch = r.build_batch(some_records())
    for count, delta in ((0, -1), (-1, -2), (5, 5), (6, 4), (10**6, 10**6 - 1)):
        broken = bytearray(batch)
        broken[57:61] = count.to_bytes(4, "big", signed=True)
        broken[23:27] = delta.to_bytes(4, "big", signed=True)
        r.stamp_producer(broken, -1, -1, -1)
        assert r.check_crc(broken)
        with pytest.raises(CorruptBatch):
            r.check_batch(broken)
        if count not in (5, 0):
            with pytest.raises(WireError):
                list(r.iterate_records(broken))


def test_sizes_must_match_exactly() -> None:
    batch = r.build_batch(some_records())
    for wrong in (batch + b"\0", batch[:-1]):
        with pytest.raises(CorruptBatch):
            r.check_batch(wrong)
        with pytest.raises(CorruptBatch):
            list(r.iterate_records(wrong))


@pytest.mark.parametrize("codec", Codec)
def test_damaged_records_are_wire_errors_and_nothing_else(codec: Codec) -> None:
    pick = seeded_random()
    batch = r.build_batch(some_records(12), codec=codec)
    for _ in range(400):
        broken = bytearray(batch)
        for _ in range(pick.choice((1, 1, 3))):
            broken[pick.randrange(61, len(broken))] = pick.choice((0, 1, 0x7F, 0x80, 0xFE, 0xFF))
        try:
            read = list(r.iterate_records(broken, limit_bytes=1 << 20))
        except WireError:
            continue
        assert len(read) == 12, f"MILLRACE_SEED={SEED}"


def test_every_prefix_of_a_payload_is_a_wire_error() -> None:
    payload = bytes(r.build_batch(some_records(3)))[61:]
    for length in range(len(payload)):
        cut = r.assemble_batch(
            payload[:length], record_count=3, base_timestamp_ms=0, max_timestamp_ms=0
        )
        with pytest.raises(WireError):
            list(r.iterate_records(cut))
    rest = r.assemble_batch(
        payload + b"\0", record_count=3, base_timestamp_ms=0, max_timestamp_ms=0
    )
    with pytest.raises(CorruptBatch, match="left after"):
        list(r.iterate_records(rest))


@pytest.mark.parametrize(
    ("record", "why"),
    [
        (
            "0e 00 00 00 01 01 00 00",
            "ends at byte 7, but its length says 8",
        ),  # a byte too many inside the record
        ("0a 00 00 00 01 01", "record has 5 bytes"),  # shorter than any record
        ("01 00 00 00 01 01 00", "record has -1 bytes"),
        ("10 00 00 00 01 01 00", "record has 8 bytes, but 6 are left"),
        ("0e 00 00 00 06 61 01 00", "key or value has 6 bytes"),  # a value behind the end
        ("0e 00 00 00 03 61 01 00", "key or value has -2 bytes"),
        ("0e 00 00 00 01 01 06 00", "3 headers, but 1 bytes"),
        ("0e 00 00 00 01 01 03 00", "-2 headers"),
        ("12 00 00 00 01 01 02 01 01 00", "no name"),
    ],
)
def test_records_whose_lengths_contradict_each_other(record: str, why: str) -> None:
    payload = bytes.fromhex(record)
    # A whole record follows, so the payload does not end early.
    follows = bytes.fromhex("0c 00 00 00 01 01 00")
    batch = r.assemble_batch(
        payload + (follows if "left" not in why else b""),
        record_count=1,
        base_timestamp_ms=0,
        max_timestamp_ms=0,
    )
    with pytest.raises(CorruptBatch, match=why):
        list(r.iterate_records(batch))


def test_a_count_that_cannot_fit_is_refused_before_reading() -> None:
    payload = bytes.fromhex("0c 00 00 00 01 01 00")
    batch = r.assemble_batch(payload, record_count=2, base_timestamp_ms=0, max_timestamp_ms=0)
    with pytest.raises(CorruptBatch, match="7 bytes are too few for 2 records"):
        r.iterate_records(batch)


def test_a_bomb_is_not_unpacked() -> None:
    bomb = r.build_batch([NewRecord(None, bytes(1 << 20), TIME_MS)], codec=Codec.ZSTD)
    assert len(bomb) < 1000
    with pytest.raises(CorruptBatch, match="more than 1000"):
        list(r.iterate_records(bomb, limit_bytes=1000))
    assert len(list(r.iterate_records(bomb))) == 1


def test_markers() -> None:
    def control(key: str, value: str) -> r.Record:
        return r.Record(0, 0, bytes.fromhex(key), bytes.fromhex(value), (), -1)

    assert r.read_marker(control("00000000", "000000000007")) == r.Marker(False, 7)
    assert r.read_marker(control("00000001", "000000000007")) == r.Marker(True, 7)
    assert r.read_marker(control("00000002", "")) is None
    for key, value in (("", ""), ("0000", ""), ("00000001", "0000")):
        with pytest.raises(CorruptBatch):
            r.read_marker(control(key, value))
    with pytest.raises(CorruptBatch):
        r.read_marker(r.Record(0, 0, None, None, (), -1))


def test_offsets_in_a_compacted_batch_have_gaps() -> None:
    payload = bytearray()
    r.append_record(payload, 2, 0, b"k", b"v")
    r.append_record(payload, 7, 5, b"k2", b"v")
    batch = r.assemble_batch(payload, record_count=2, base_timestamp_ms=0, max_timestamp_ms=5)
    batch[23:27] = (9).to_bytes(4, "big")
    r.stamp_producer(batch, 1, 0, 100)
    assert r.read_header(batch).last_offset == 9
    assert [record.offset for record in r.iterate_records(batch)] == [2, 7]
    assert [record.sequence for record in r.iterate_records(batch)] == [102, 107]


def test_places_are_where_the_records_are() -> None:
    pick = seeded_random()
    for _ in range(300):
        records = [
            NewRecord(
                pick.choice((None, b"", b"k", bytes(100))),
                pick.choice((None, b"", b"v", bytes(70), bytes(20_000))),
                1_700_000_000_000 + pick.choice((0, 1, -5, 100_000)),
                pick.choice(([], [("h", None)], [("h", b"x" * 200), ("", b"")])),
            )
            for _ in range(pick.randint(1, 200))
        ]
        batch = build_batch(
            records, base_offset=pick.choice((0, 5)), codec=pick.choice(list(Codec))
        )
        assert list(iterate_places(batch)) == [
            (one.offset, one.timestamp_ms, -1 if one.key is None else len(one.key))
            for one in iterate_records(batch)
        ]


def test_places_fail_where_records_fail() -> None:
    pick = seeded_random()
    both = 0
    for _ in range(3_000):
        batch = build_batch(
            [NewRecord(b"k", bytes(pick.randint(0, 80)), 0, [("h", b"x")])] * pick.randint(1, 4)
        )
        for _ in range(pick.randint(1, 2)):
            batch[pick.randrange(HEADER_BYTES, len(batch))] = pick.randrange(256)
        try:
            wanted = [(one.offset, one.timestamp_ms) for one in iterate_records(batch)]
        except WireError:
            both += 1
            with pytest.raises(WireError):
                list(iterate_places(batch))
        else:
            assert [one[:2] for one in iterate_places(batch)] == wanted
    assert both > 500
