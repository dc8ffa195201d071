"""We accept exactly what every consumer accepts by default (decision 0119)."""

import gzip
import itertools
import struct
import subprocess
import sys
import zlib

import cramjam
import lz4.frame
import pytest
import zstandard

from protocol.errors import DecompressionFailed, DecompressionTooLarge
from protocol.wire.compression import Codec, compress, decompress

TEXT = b"".join(b"10.0.0.%d GET /page/%d HTTP/1.1 200\n" % (n % 256, n * 7919) for n in range(8000))
SKIPPABLE = struct.pack("<II", 0x184D2A5E, 5) + b"notes"
XERIAL_HEADER_BYTES = 16


def zstd_frame(window_log: int, data: bytes = TEXT, **options: int) -> bytes:
    """Return a frame without a content size, as a streaming encoder writes it. So a reader must
    allow for its whole window."""
    parameters = zstandard.ZstdCompressionParameters(
        window_log=window_log, compression_level=3, **options
    )
    stream = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    return stream.compress(data) + stream.flush()


@pytest.mark.parametrize("window_log", [10, 23, 24, 25, 26, 27])
def test_zstd_windows_up_to_128_mib_are_read(window_log: int) -> None:
    packed = zstd_frame(window_log)
    assert zstandard.get_frame_parameters(packed).window_size == 1 << window_log
    assert decompress(Codec.ZSTD, packed, len(TEXT)) == TEXT
    with pytest.raises(DecompressionTooLarge):
        decompress(Codec.ZSTD, packed, len(TEXT) - 1)


@pytest.mark.parametrize("window_log", [28, 31])
def test_zstd_windows_above_128_mib_are_refused_with_the_limit(window_log: int) -> None:
    with pytest.raises(DecompressionFailed, match=f"{1 << window_log} bytes, .* 134217728"):
        decompress(Codec.ZSTD, zstd_frame(window_log), len(TEXT))


@pytest.mark.parametrize("level", [20, 21, 22])
def test_zstd_of_the_highest_levels_is_read(level: int) -> None:
    stream = zstandard.ZstdCompressor(level=level).compressobj()
    packed = stream.compress(TEXT) + stream.flush()
    assert zstandard.get_frame_parameters(packed).window_size > 8 << 20
    assert decompress(Codec.ZSTD, packed, len(TEXT)) == TEXT


def test_a_large_zstd_window_takes_no_more_memory_than_the_output() -> None:
    script = (
        "import resource, zstandard\n"
        "from protocol.wire.compression import decompress\n"
        "from protocol.errors import DecompressionTooLarge\n"
        "parameters = zstandard.ZstdCompressionParameters(window_log=27, compression_level=1)\n"
        "stream = zstandard.ZstdCompressor(compression_params=parameters).compressobj()\n"
        "packed = b''.join(stream.compress(bytes(1 << 20)) for _ in range(256)) + stream.flush()\n"
        "del stream\n"
        "def status(key):\n"
        "    lines = open('/proc/self/status').read().splitlines()\n"
        "    return next(int(line.split()[1]) for line in lines if line.startswith(key))\n"
        "open('/proc/self/clear_refs', 'w').write('5')\n"
        "before = status('VmRSS')\n"
        "try:\n"
        "    decompress(4, packed, 20 << 20)\n"
        "except DecompressionTooLarge:\n"
        "    print(status('VmHWM') - before)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True)
    assert 0 <= int(done.stdout) * 1024 < 3 * (20 << 20)


def test_zstd_skippable_frames_are_skipped() -> None:
    frame = zstd_frame(20)
    for packed in (SKIPPABLE + frame, frame + SKIPPABLE, SKIPPABLE * 3 + frame + frame):
        expected = TEXT * packed.count(frame)
        assert decompress(Codec.ZSTD, packed, len(expected)) == expected
    for packed in (SKIPPABLE[:-1], SKIPPABLE[:6], frame + SKIPPABLE[:-1]):
        with pytest.raises(DecompressionFailed):
            decompress(Codec.ZSTD, packed, len(TEXT))


@pytest.mark.parametrize(
    ("codec", "packed"),
    [
        (Codec.ZSTD, zstd_frame(20, write_checksum=1)),
        (Codec.LZ4, lz4.frame.compress(TEXT, content_checksum=True)),
        (Codec.GZIP, gzip.compress(TEXT)[:-4]),
    ],
    ids=["zstd", "lz4", "gzip"],
)
def test_a_wrong_checksum_of_the_content_is_found(codec: Codec, packed: bytes) -> None:
    size = struct.pack("<I", len(TEXT)) if codec == Codec.GZIP else b""
    assert decompress(codec, packed + size, len(TEXT)) == TEXT
    with pytest.raises(DecompressionFailed):
        decompress(codec, packed[:-1] + bytes([packed[-1] ^ 1]) + size, len(TEXT))


@pytest.mark.parametrize("block_size", [4, 5, 6, 7], ids=["64K", "256K", "1M", "4M"])
@pytest.mark.parametrize("block_linked", [False, True], ids=["independent", "linked"])
def test_lz4_frames_of_every_kind_are_read(block_size: int, block_linked: bool) -> None:
    data = TEXT * 20
    for content, block, size in itertools.product((False, True), repeat=3):
        packed = lz4.frame.compress(
            data,
            block_size=block_size,
            block_linked=block_linked,
            content_checksum=content,
            block_checksum=block,
            store_size=size,
        )
        assert decompress(Codec.LZ4, packed, len(data)) == data
        with pytest.raises(DecompressionTooLarge):
            decompress(Codec.LZ4, packed, len(data) - 1)


def test_lz4_skippable_frames_are_skipped() -> None:
    frame = lz4.frame.compress(TEXT)
    for packed in (SKIPPABLE + frame, frame + SKIPPABLE):
        assert decompress(Codec.LZ4, packed, len(TEXT)) == TEXT


@pytest.mark.parametrize("flags", range(0, 32, 2))
def test_gzip_headers_with_every_optional_field_are_read(flags: int) -> None:
    head = b"\x1f\x8b\x08" + bytes([flags]) + b"\0\0\0\0\0\xff"
    head += struct.pack("<H", 4) + b"more" if flags & 4 else b""
    head += b"name\0" if flags & 8 else b""
    head += b"comment\0" if flags & 16 else b""
    head += struct.pack("<H", zlib.crc32(head) & 0xFFFF) if flags & 2 else b""
    deflate = zlib.compressobj(9, zlib.DEFLATED, -15)
    packed = head + deflate.compress(TEXT) + deflate.flush()
    packed += struct.pack("<II", zlib.crc32(TEXT), len(TEXT))
    assert decompress(Codec.GZIP, packed, len(TEXT)) == TEXT


@pytest.mark.parametrize("window_bits", range(9, 16))
def test_gzip_windows_of_every_size_are_read(window_bits: int) -> None:
    deflate = zlib.compressobj(6, zlib.DEFLATED, 16 + window_bits)
    assert decompress(Codec.GZIP, deflate.compress(TEXT) + deflate.flush(), len(TEXT)) == TEXT


def test_bytes_behind_a_gzip_member_are_ignored_as_java_does() -> None:
    packed = gzip.compress(TEXT)
    for rest in (b"\0", bytes(512), b"\x1f", b"padding"):
        assert decompress(Codec.GZIP, packed + rest, len(TEXT)) == TEXT
    with pytest.raises(DecompressionFailed):
        decompress(Codec.GZIP, packed + packed[:40], 2 * len(TEXT))


@pytest.mark.parametrize("block_bytes", [1 << 10, 32 << 10, 64 << 10, 1 << 20])
def test_snappy_blocks_of_every_size_are_read(block_bytes: int) -> None:
    packed = bytearray(compress(Codec.SNAPPY, b"")[:XERIAL_HEADER_BYTES])
    for start in range(0, len(TEXT), block_bytes):
        block = bytes(cramjam.snappy.compress_raw(TEXT[start : start + block_bytes]))
        packed += struct.pack(">i", len(block)) + block
    assert decompress(Codec.SNAPPY, packed, len(TEXT)) == TEXT
    with pytest.raises(DecompressionTooLarge):
        decompress(Codec.SNAPPY, packed, len(TEXT) - 1)


def test_snappy_streams_that_follow_each_other_are_one() -> None:
    packed = bytes(compress(Codec.SNAPPY, TEXT))
    assert decompress(Codec.SNAPPY, packed * 2, 2 * len(TEXT)) == TEXT * 2
    with pytest.raises(DecompressionFailed):
        decompress(Codec.SNAPPY, packed + packed[:10], 2 * len(TEXT))
    with pytest.raises(DecompressionFailed, match="parts"):
        decompress(Codec.SNAPPY, packed[:XERIAL_HEADER_BYTES] * 70_000, len(TEXT))


@pytest.mark.parametrize(
    ("codec", "levels"),
    [
        (Codec.GZIP, (-1, 1, 6, 9)),
        (Codec.LZ4, (1, 2, 3, 9, 12, 17)),
        (Codec.ZSTD, (-131_072, -1, 1, 3, 19, 22)),
    ],
    ids=["gzip", "lz4", "zstd"],
)
def test_levels_of_kafka_are_taken(codec: Codec, levels: tuple[int, ...]) -> None:
    for level in levels:
        assert decompress(codec, compress(codec, TEXT, level), len(TEXT)) == TEXT


def test_a_higher_level_is_smaller() -> None:
    for codec, low, high in ((Codec.GZIP, 1, 9), (Codec.LZ4, 9, 12), (Codec.ZSTD, -50, 19)):
        assert len(compress(codec, TEXT, high)) < len(compress(codec, TEXT, low))


def test_codecs_without_levels_ignore_one() -> None:
    for codec in (Codec.NONE, Codec.SNAPPY):
        assert compress(codec, TEXT, 9) == compress(codec, TEXT)
