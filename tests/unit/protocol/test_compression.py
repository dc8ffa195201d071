"""Codecs: round trips, the formats of other libraries, and truncated, damaged or very large
payloads."""

import gzip
import random
import subprocess
import sys

import cramjam
import lz4.frame
import pytest
import zstandard

from protocol.errors import (
    CorruptBatch,
    DecompressionFailed,
    DecompressionTooLarge,
    UnsupportedCodec,
)
from protocol.wire.compression import (
    SNAPPY_BLOCKS_MAX,
    STREAMS_MAX,
    ZSTD_BLOCKS_MAX,
    Codec,
    compress,
    decompress,
)
from tests.unit.protocol.examples import SEED, seeded_random

PACKED = [codec for codec in Codec if codec]
TEXT = b"".join(b"10.0.0.%d GET /page/%d HTTP/1.1 200\n" % (n % 256, n * 7919) for n in range(8000))
NOISE = random.Random(SEED).randbytes(200_000)


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("data", [b"", b"a", TEXT, NOISE], ids=["empty", "one", "text", "noise"])
def test_there_and_back(codec: Codec, data: bytes) -> None:
    for buffer in (data, bytearray(data), memoryview(bytearray(data))):
        packed = compress(codec, buffer)
        for form in (bytes(packed), bytearray(packed), memoryview(packed)):
            assert bytes(decompress(codec, form, len(data))) == data
    if data is TEXT and codec:
        assert len(packed) < len(data) / 2


@pytest.mark.parametrize("codec", PACKED)
def test_one_byte_above_the_limit_is_too_large(codec: Codec) -> None:
    for data in (b"ab", TEXT, NOISE):
        packed = compress(codec, data)
        with pytest.raises(DecompressionTooLarge):
            decompress(codec, packed, len(data) - 1)


@pytest.mark.parametrize("codec", PACKED)
def test_cut_data_fails(codec: Codec) -> None:
    for data in (b"a", TEXT, NOISE):
        packed = bytes(compress(codec, data))
        for length in range(0, len(packed), max(1, len(packed) // 60)):
            if codec == Codec.SNAPPY and length == 16:
                continue  # this prefix is a complete snappy stream without a block
            with pytest.raises(CorruptBatch):
                decompress(codec, packed[:length], len(data))


@pytest.mark.parametrize("codec", PACKED)
def test_damaged_data_is_a_corrupt_batch_and_nothing_else(codec: Codec) -> None:
    pick = seeded_random()
    for data in (b"abc", TEXT[:3000]):
        packed = bytes(compress(codec, data))
        for _ in range(300):
            broken = bytearray(packed)
            broken[pick.randrange(len(broken))] = pick.randrange(256)
            try:
                out = decompress(codec, broken, len(data) * 2)
            except CorruptBatch:
                continue
            assert len(out) <= len(data) * 2, f"MILLRACE_SEED={SEED}"


def test_codecs_by_number_and_name() -> None:
    assert Codec.of(3) is Codec.LZ4
    for bits in (5, 6, 7):
        with pytest.raises(UnsupportedCodec):
            Codec.of(bits)
        with pytest.raises(UnsupportedCodec):
            decompress(bits, b"", 10)
    assert Codec.named("none") is Codec.NONE
    assert Codec.named("zstd") is Codec.ZSTD
    with pytest.raises(ValueError, match="none, gzip, snappy, lz4, zstd"):
        Codec.named("brotli")


def test_snappy_is_read_raw_and_framed() -> None:
    raw = bytes(cramjam.snappy.compress_raw(TEXT))
    assert decompress(Codec.SNAPPY, raw, len(TEXT)) == TEXT
    framed = bytes(compress(Codec.SNAPPY, TEXT))
    assert framed.startswith(b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01")
    assert decompress(Codec.SNAPPY, framed, len(TEXT)) == TEXT
    for size in (b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x00\x00\x00\x00"):
        with pytest.raises(DecompressionFailed):
            decompress(Codec.SNAPPY, framed[:16] + size + framed[20:], len(TEXT))


def test_several_members_or_frames_are_one_stream() -> None:
    whole = TEXT[:5000] + TEXT[:70]
    for codec, pack in (
        (Codec.GZIP, gzip.compress),
        (Codec.LZ4, lz4.frame.compress),
        (Codec.ZSTD, zstandard.ZstdCompressor().compress),
    ):
        packed = pack(TEXT[:5000]) + pack(TEXT[:70])
        assert decompress(codec, packed, len(whole)) == whole
        with pytest.raises(DecompressionTooLarge):
            decompress(codec, packed, len(whole) - 1)


PARTS: dict[Codec, tuple[bytes, bytes, int]] = {
    Codec.GZIP: (b"", gzip.compress(b"x", 1), STREAMS_MAX),
    Codec.SNAPPY: (
        bytes(compress(Codec.SNAPPY, b"x"))[:16],
        bytes(compress(Codec.SNAPPY, b"x"))[16:],
        SNAPPY_BLOCKS_MAX,
    ),
    Codec.LZ4: (b"", lz4.frame.compress(b"x"), STREAMS_MAX),
    Codec.ZSTD: (b"", zstandard.ZstdCompressor().compress(b"x"), STREAMS_MAX),
}
"""For each codec: the bytes before the first part, one part that decompresses to one byte, and the
largest number of parts."""


@pytest.mark.parametrize("codec", PACKED)
def test_no_more_parts_are_read_than_any_client_writes(codec: Codec) -> None:
    head, part, parts_max = PARTS[codec]
    assert decompress(codec, head + part * parts_max, 1 << 20) == b"x" * parts_max
    with pytest.raises(DecompressionFailed, match=f"more than {parts_max} parts"):
        decompress(codec, head + part * (parts_max + 1), 1 << 20)


@pytest.mark.parametrize("frame_count", [1, 2])
def test_no_more_zstd_blocks_are_read_than_any_client_writes(frame_count: int) -> None:
    """The limit is for all frames of a batch together."""
    head, block, last = b"\x28\xb5\x2f\xfd\0\x38", b"\x08\0\0x", b"\x09\0\0x"

    def frames(block_count: int) -> bytes:
        first = (head + last) * (frame_count - 1)
        return first + head + block * (block_count - frame_count) + last

    text = b"x" * ZSTD_BLOCKS_MAX
    assert decompress(Codec.ZSTD, frames(ZSTD_BLOCKS_MAX), len(text)) == text
    with pytest.raises(DecompressionFailed, match=f"more than {ZSTD_BLOCKS_MAX} parts"):
        decompress(Codec.ZSTD, frames(ZSTD_BLOCKS_MAX + 1), 1 << 20)


def test_zstd_as_java_writes_it_without_a_content_size() -> None:
    stream = zstandard.ZstdCompressor(write_checksum=True).compressobj()
    packed = stream.compress(TEXT) + stream.flush()
    assert zstandard.get_frame_parameters(packed).content_size == zstandard.CONTENTSIZE_UNKNOWN
    assert decompress(Codec.ZSTD, packed, len(TEXT)) == TEXT
    with pytest.raises(DecompressionFailed):
        decompress(Codec.ZSTD, packed[:-1], len(TEXT))


def test_lz4_blocks_are_independent_because_java_demands_it() -> None:
    info = lz4.frame.get_frame_info(bytes(compress(Codec.LZ4, TEXT)))
    assert info["block_linked"] is False
    assert info["block_size"] == 64 << 10


BOMB = bytes(32 << 20)
BOMBS = {
    Codec.GZIP: gzip.compress(BOMB, 6),
    Codec.SNAPPY: bytes(cramjam.snappy.compress_raw(BOMB)),
    Codec.LZ4: lz4.frame.compress(BOMB),
    Codec.ZSTD: zstandard.ZstdCompressor().compress(BOMB),
}


@pytest.mark.parametrize("codec", PACKED)
def test_bombs_are_given_up_at_the_limit(codec: Codec) -> None:
    with pytest.raises(DecompressionTooLarge, match="1048576"):
        decompress(codec, BOMBS[codec], 1 << 20)


def test_codecs_are_imported_only_when_used() -> None:
    script = (
        "import sys; import protocol.wire.records, protocol.messages.api\n"
        "heavy = {'isal', 'lz4', 'zstandard', 'cramjam', 'numpy', 'pydantic'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
        "protocol.wire.records.compress(1, b'x')\n"
        "assert 'isal' in sys.modules and 'zstandard' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
