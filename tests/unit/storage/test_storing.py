"""A topic with its own codec: batches are stored with that codec, whatever codec a producer
uses."""

from __future__ import annotations

from struct import pack_into

import pytest
import zstandard

from broker.config import LogConfig
from broker.storage.storing import as_stored, level_for
from broker.storage.validation import must_repack
from protocol.client.fetch_core import read_partition
from protocol.errors import ApiError, ErrorCode
from protocol.messages.fetch import PartitionData
from protocol.wire.crc32c import crc32c
from protocol.wire.records import (
    HEADER_BYTES,
    BatchHeader,
    Codec,
    NewRecord,
    build_batch,
    check_batch,
    check_crc,
    iterate_records,
    read_header,
    with_records,
)
from tests.unit.storage.kit import NOW, TP, Node, append, batch, batches_of, look

NAMES = {
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}

RECORDS = [
    NewRecord(b"a", b"value" * 40, NOW, (("name", b"content"), ("empty", None))),
    NewRecord(None, b"", NOW + 300),
    NewRecord(b"", None, NOW - 70_000, (("\u00fc", b""),)),
    NewRecord(b"long" * 100, b"x" * 20_000, NOW + 5),
]


def config_of(**topic: str) -> LogConfig:
    return LogConfig.of({key.replace("__", "."): value for key, value in topic.items()})


def repacked(view: memoryview, **topic: str) -> tuple[memoryview, BatchHeader]:
    config = config_of(**topic)
    return as_stored(view, read_header(view), config, look(view, config, NOW).max_timestamp_ms)


def sent(codec: int, *, is_transactional: bool = True) -> memoryview:
    return memoryview(
        build_batch(
            RECORDS,
            codec=codec,
            producer_id=7,
            producer_epoch=3,
            base_sequence=2**31 - 2,
            is_transactional=is_transactional,
        )
    )


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("name", list(NAMES))
def test_every_codec_becomes_every_other_and_nothing_else_changes(codec: Codec, name: str) -> None:
    before = sent(codec)
    after, header = repacked(before, compression__type=name)
    assert check_batch(after) == header
    assert header.codec is NAMES[name]
    assert list(iterate_records(after)) == list(iterate_records(before))
    old = read_header(before)
    size = {"batch_length": header.batch_length, "crc": header.crc, "attributes": 0x10}
    assert old._replace(**size) == header._replace(attributes=0x10)
    assert (header.is_transactional, header.is_control) == (True, False)


def test_only_a_topic_with_a_codec_of_its_own_asks_for_it() -> None:
    header = read_header(sent(Codec.LZ4))
    assert not must_repack(header, config_of())
    assert not must_repack(header, config_of(compression__type="lz4"))
    assert must_repack(header, config_of(compression__type="uncompressed"))
    same = sent(Codec.LZ4)
    for name in ("producer", "lz4"):
        assert repacked(same, compression__type=name)[0] is same


def test_the_largest_timestamp_is_that_of_the_records() -> None:
    """A producer can have written a wrong largest timestamp into the header."""
    view = sent(Codec.NONE)
    pack_into(">q", view, 35, NOW + 1)
    pack_into(">I", view, 17, crc32c(view[21:]))
    after, header = repacked(view, compression__type="gzip")
    assert header.max_timestamp == NOW + 300
    assert check_crc(after)


def test_what_no_reader_could_open_is_refused() -> None:
    broken = sent(Codec.GZIP)
    broken[80] ^= 0xFF
    gap = bytearray(sent(Codec.NONE))
    second = 61 + 2 + (gap[61] >> 1 | gap[62] << 6)
    # `at` is the second record's offset delta. It is raised from 1 to 2 (encoded as 2 and 4), which
    # leaves a gap.
    at = second + 4
    assert gap[at] == 2
    gap[at] = 4
    for view in (broken, memoryview(gap)):
        with pytest.raises(ApiError) as raised:
            repacked(view, compression__type="zstd")
        assert raised.value.code is ErrorCode.INVALID_RECORD


def test_a_batch_must_not_be_too_large_in_the_topics_codec_either() -> None:
    view = batch(b"x" * 5_000, codec=Codec.GZIP)
    assert len(view) < 1_000
    for limit, code in (
        ("max.message.bytes", ErrorCode.MESSAGE_TOO_LARGE),
        ("segment.bytes", ErrorCode.RECORD_LIST_TOO_LARGE),
    ):
        for name, fits in (("uncompressed", False), ("zstd", True)):
            config = LogConfig.of({limit: "1000", "compression.type": name})
            if fits:
                as_stored(view, read_header(view), config, NOW)
                continue
            with pytest.raises(ApiError) as raised:
                as_stored(view, read_header(view), config, NOW)
            assert raised.value.code is code


@pytest.mark.parametrize("producer", [(-1, -1, -1), (7, 0, 0)])
def test_the_log_holds_the_topics_codec_alone(producer: tuple[int, int, int]) -> None:
    """The log must still recognise a repeated batch and accept the next sequence."""
    node = Node(topic={"compression.type": "lz4"})
    node.put(batch(b"a", b"b", codec=Codec.GZIP, producer=producer))
    if producer[0] >= 0:
        (again,) = node.put(batch(b"a", b"b", codec=Codec.GZIP, producer=producer))
        assert again.is_duplicate
        node.put(batch(b"c", producer=(7, 0, 2)))
    else:
        node.put(batch(b"c"))
    stored = batches_of(node.log)
    assert [read_header(one).codec for one in stored] == [Codec.LZ4] * 2
    assert [one.value for view in stored for one in iterate_records(view)] == [b"a", b"b", b"c"]
    assert all(check_crc(one) for one in stored)
    node.reopen()
    assert node.log.log_end_offset == 3


def test_a_topic_that_stamps_stamps_what_it_has_repacked() -> None:
    topic = {"compression.type": "snappy", "message.timestamp.type": "LogAppendTime"}
    node = Node(topic=topic)
    (done,) = node.put(batch(b"a", timestamp_ms=5, codec=Codec.ZSTD), now_ms=NOW + 9)
    assert done.log_append_time_ms == NOW + 9
    (stored,) = batches_of(node.log)
    header = check_batch(stored)
    assert (header.codec, header.max_timestamp) == (Codec.SNAPPY, NOW + 9)
    assert [one.timestamp_ms for one in iterate_records(stored)] == [NOW + 9]


def test_a_transaction_and_its_marker() -> None:
    """Data batches are recompressed. A marker is written by the broker and stays as it is."""
    node = Node(topic={"compression.type": "gzip"})
    node.put(batch(b"a", producer=(7, 0, 0), is_transactional=True))
    node.log.append_marker(7, 0, True, 0, 0, NOW)
    node.log.write_staged(NOW)
    data, marker = (read_header(one) for one in batches_of(node.log))
    assert (data.codec, data.is_transactional) == (Codec.GZIP, True)
    assert (marker.codec, marker.is_control) == (Codec.NONE, True)


def test_the_brokers_default_is_that_of_topics_without_their_own() -> None:
    node = Node({"compression.type": "zstd"})
    node.put(batch(b"a"))
    assert [read_header(one).codec for one in batches_of(node.log)] == [Codec.ZSTD]


@pytest.mark.parametrize("window_log", [23, 25, 27])
@pytest.mark.parametrize(
    "topic", [{"cleanup.policy": "compact"}, {"compression.type": "gzip"}], ids=["compact", "gzip"]
)
def test_zstd_of_javas_highest_levels_is_stored_and_read(
    topic: dict[str, str], window_log: int
) -> None:
    """Java's levels 20 to 22 declare windows of 32 to 128 MiB, whatever the size of the batch."""
    plain = build_batch([NewRecord(b"k", b"v", NOW)])
    header = read_header(plain)
    parameters = zstandard.ZstdCompressionParameters(window_log=window_log)
    stream = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    payload = stream.compress(bytes(plain[HEADER_BYTES:])) + stream.flush()
    view = memoryview(with_records(header._replace(attributes=Codec.ZSTD), payload))
    node = Node(topic=topic)
    append(node.log, view, 0, NOW)
    node.log.write_staged(NOW)
    (stored,) = batches_of(node.log)
    data = PartitionData(high_watermark=1, last_stable_offset=1, records=memoryview(stored))
    fetched = read_partition(TP, data, 0, 0)
    assert [(one.key, one.value) for one in fetched.records] == [(b"k", b"v")]


def test_the_topics_level_is_used_when_its_codec_is_packed() -> None:
    values = [b"10.0.0.%d GET /page/%d HTTP/1.1 200" % (n % 9, n * 7919) for n in range(900)]
    view = memoryview(build_batch([NewRecord(b"k", value, NOW) for value in values]))
    for name, low, high in (("gzip", "1", "9"), ("lz4", "9", "12"), ("zstd", "-50", "22")):
        sizes = []
        for level in (low, high):
            key = f"compression__{name}__level"
            after, header = repacked(view, compression__type=name, **{key: level})
            assert check_batch(after) == header
            assert [one.value for one in iterate_records(after)] == values
            sizes.append(len(after))
        assert sizes[1] < sizes[0], name


def test_only_the_level_of_the_topics_own_codec_counts() -> None:
    levels = {"compression__gzip__level": "9", "compression__zstd__level": "22"}
    assert level_for(config_of(compression__type="lz4", **levels), 1) == 9
    assert level_for(config_of(compression__type="snappy", **levels), 1) is None
    assert level_for(config_of(compression__type="uncompressed", **levels), 1) is None
    assert level_for(config_of(**levels), 1) is None


@pytest.mark.parametrize(
    ("name", "level", "size_bytes", "used"),
    [
        ("zstd", "22", 64 << 10, 22),
        ("zstd", "22", (64 << 10) + 1, 9),
        ("zstd", "-7", 1 << 20, -7),
        ("zstd", "22", (1 << 20) + 1, None),
        ("gzip", "9", 1 << 20, 9),
        ("gzip", "9", (1 << 20) + 1, None),
        ("lz4", "17", 1 << 20, 17),
        ("lz4", "17", (1 << 20) + 1, None),
    ],
)
def test_a_large_batch_is_never_packed_at_a_slow_level(
    name: str, level: str, size_bytes: int, used: int | None
) -> None:
    config = config_of(**{"compression__type": name, f"compression__{name}__level": level})
    assert level_for(config, size_bytes) == used
