"""The five codecs of record batches, each imported at its first use.

This module is pure. The caller of `decompress` sets a limit on the output, because a megabyte can
expand to gigabytes. No codec here produces more than the limit and one read beyond it. Each codec
limits the number of parts to more than any client writes, because an empty part costs time too.

`compress` writes the variants that Kafka's Java client, librdkafka and the Python clients can all
read: gzip as one member, snappy in xerial's framing, lz4 as a frame of independent 64 KiB blocks,
zstd as one frame. Levels have Kafka's numbers (KIP-390). Decision 0119 compares every limit of
reading with the defaults of the codecs themselves.
"""

from collections.abc import Callable
from enum import IntEnum
from struct import Struct as Packed
from typing import cast

from protocol.errors import BadVarint, DecompressionFailed, DecompressionTooLarge, UnsupportedCodec
from protocol.wire.primitives import Buffer, read_uvarint

STREAMS_MAX = 64
"""The most gzip members, or lz4 or zstd frames, in one batch. Clients write one.

Each member costs a copy of everything after it, so a megabyte of empty members would cost seconds.
"""

SNAPPY_BLOCKS_MAX = 16_384
"""The most snappy blocks in one batch.

Together they hold half a gigabyte with the 32 KiB blocks of other clients, and 16 MiB with the
1 KiB blocks of old clients. Empty blocks would only cost time.
"""

ZSTD_BLOCKS_MAX = 16_384
"""The most zstd blocks in one batch.

A full block holds 128 KiB, and clients write no smaller ones except at the end. A megabyte of empty
blocks would cost a second, because they are counted here one by one.
"""

ZSTD_WINDOW_BYTES_MAX = 128 << 20
"""The largest window of a zstd frame, which is the default of zstd's own readers.

Levels 20 to 22 declare windows of 32 to 128 MiB, even for little data. The reader reserves the
window but uses only as much memory as the output fills.
"""

GZIP_LEVEL_DEFAULT = -1
LZ4_LEVEL_DEFAULT = 9
ZSTD_LEVEL_DEFAULT = 3
ZSTD_LEVEL_MIN, ZSTD_LEVEL_MAX = -131_072, 22

SNAPPY_BLOCK_BYTES = 64 << 10

_ISAL_LEVEL = 2
_LZ4_LEVEL_FAST = 0
_LZ4_HIGH_LEVELS = 3, 12
_GZIP_MAGIC = b"\x1f\x8b"
_ZSTD_SKIPPABLE_MAGIC = 0x184D2A50

_GZIP_WINDOW_BITS = 31
_READ_BYTES = 256 << 10
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
_BLOCK_SIZE = Packed(">i")


class Codec(IntEnum):
    """The compression bits of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @classmethod
    def of(cls, bits: int) -> "Codec":
        """Return the codec of attribute bits. Raises UnsupportedCodec for 5 to 7."""
        try:
            return cls(bits)
        except ValueError:
            raise UnsupportedCodec(f"no codec has the compression bits {bits}") from None

    @classmethod
    def named(cls, name: str) -> "Codec":
        """Return the codec of a setting such as "gzip" or "none". Raises ValueError for anything
        else.
        """
        try:
            return cls[name.upper()]
        except KeyError:
            expected = ", ".join(codec.name.lower() for codec in cls)
            raise ValueError(f"found {name!r}, expected one of {expected}") from None


def compress(codec: int, data: Buffer, level: int | None = None) -> Buffer:
    """Return the compressed data. With NONE return the same object.

    `level` is a number of Kafka's `compression.*.level` for gzip, lz4 or zstd. None is the default.
    """
    if codec == Codec.NONE:
        return data
    known = Codec.of(codec)
    if level is None or known not in _LEVEL_COMPRESSORS:
        return _COMPRESSORS[known](data)
    return _LEVEL_COMPRESSORS[known](data, level)


def decompress(codec: int, data: Buffer, limit_bytes: int) -> Buffer:
    """Return the decompressed data, at most `limit_bytes`. With NONE return the same object.

    Raises DecompressionTooLarge beyond the limit, and DecompressionFailed for corrupt or truncated
    data.
    """
    if codec == Codec.NONE:
        return data
    return _DECOMPRESSORS[Codec.of(codec)](data, limit_bytes)


def _too_large(codec: str, limit_bytes: int) -> DecompressionTooLarge:
    return DecompressionTooLarge(f"{codec} data expands to more than {limit_bytes} bytes")


def _too_many(codec: str, parts_max: int) -> DecompressionFailed:
    return DecompressionFailed(f"{codec} data consists of more than {parts_max} parts")


def _compress_gzip(data: Buffer, level: int = GZIP_LEVEL_DEFAULT) -> bytes:
    if level == GZIP_LEVEL_DEFAULT:
        from isal import isal_zlib

        return isal_zlib.compress(data, _ISAL_LEVEL, _GZIP_WINDOW_BITS)
    # isal is several times faster, but it has no level as dense as zlib's 4 to 9.
    import zlib

    return zlib.compress(data, level, _GZIP_WINDOW_BITS)


def _decompress_gzip(data: Buffer, limit_bytes: int) -> bytes:
    from isal import isal_zlib

    parts = []
    left = limit_bytes
    rest: Buffer = data
    for _ in range(STREAMS_MAX):
        member = isal_zlib.decompressobj(_GZIP_WINDOW_BITS)
        try:
            part = member.decompress(rest, left + 1)
        except isal_zlib.error as error:  # type: ignore[misc]  # its stub declares an instance
            raise DecompressionFailed(f"gzip: {error}") from None
        left -= len(part)
        if left < 0:
            raise _too_large("gzip", limit_bytes)
        if not member.eof:
            raise DecompressionFailed("gzip data ends early")
        parts.append(part)
        rest = member.unused_data
        # As in Java and librdkafka, bytes after a member are ignored unless they start another
        # member.
        if rest[: len(_GZIP_MAGIC)] != _GZIP_MAGIC:
            return parts[0] if len(parts) == 1 else b"".join(parts)
    raise _too_many("gzip", STREAMS_MAX)


def _compress_snappy(data: Buffer) -> bytes:
    from cramjam import snappy

    view = memoryview(data)
    parts = [_XERIAL_HEADER]
    for start in range(0, len(view), SNAPPY_BLOCK_BYTES):
        block = bytes(snappy.compress_raw(view[start : start + SNAPPY_BLOCK_BYTES]))
        parts += (_BLOCK_SIZE.pack(len(block)), block)
    return b"".join(parts)


def _decompress_snappy(data: Buffer, limit_bytes: int) -> bytes:
    view = memoryview(data)
    if view[: len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
        return _decompress_snappy_block(view, limit_bytes, limit_bytes)
    parts: list[bytes] = []
    left = limit_bytes
    position = 0
    while position < len(view):
        if len(parts) > SNAPPY_BLOCKS_MAX:
            raise _too_many("snappy", SNAPPY_BLOCKS_MAX)
        if view[position : position + len(_XERIAL_MAGIC)] == _XERIAL_MAGIC:
            # This is the header of a stream: the first stream, or an appended one.
            position += len(_XERIAL_HEADER)
            if len(view) < position:
                raise DecompressionFailed("snappy data ends inside its header")
            parts.append(b"")
            continue
        if len(view) - position < _BLOCK_SIZE.size:
            raise DecompressionFailed("snappy data ends inside a block's size")
        (size,) = _BLOCK_SIZE.unpack_from(view, position)
        position += _BLOCK_SIZE.size
        if not 0 < size <= len(view) - position:
            raise DecompressionFailed(f"a snappy block of {size} bytes does not fit into the data")
        part = _decompress_snappy_block(view[position : position + size], left, limit_bytes)
        position += size
        left -= len(part)
        parts.append(part)
    return b"".join(parts)


def _decompress_snappy_block(block: memoryview, left: int, limit_bytes: int) -> bytes:
    """Decompress a raw snappy block.

    The size at its start is checked before memory is allocated.
    """
    from cramjam import DecompressionError, snappy

    try:
        size, _ = read_uvarint(block, 0)
    except (IndexError, BadVarint):
        raise DecompressionFailed("snappy block does not start with its size") from None
    if size > left:
        raise _too_large("snappy", limit_bytes)
    try:
        return bytes(snappy.decompress_raw(block))
    except DecompressionError as error:
        raise DecompressionFailed(f"snappy: {error}") from None


def _compress_lz4(data: Buffer, level: int = LZ4_LEVEL_DEFAULT) -> bytes:
    from lz4 import frame

    # Kafka's level 9 is its fast compressor; all other levels are high compression.
    least, most = _LZ4_HIGH_LEVELS
    used = _LZ4_LEVEL_FAST if level == LZ4_LEVEL_DEFAULT else min(max(level, least), most)
    # Kafka's Java reader refuses blocks that refer to the block before them.
    packed = frame.compress(
        data,
        compression_level=used,
        block_size=frame.BLOCKSIZE_MAX64KB,
        block_linked=False,
        store_size=False,
    )
    return cast(bytes, packed)


def _decompress_lz4(data: Buffer, limit_bytes: int) -> bytes:
    from lz4 import frame

    parts = []
    left = limit_bytes
    rest: Buffer = data
    for _ in range(STREAMS_MAX):
        decompressor = frame.LZ4FrameDecompressor()
        try:
            part = decompressor.decompress(rest, max_length=left + 1)
        except (RuntimeError, EOFError, ValueError) as error:
            raise DecompressionFailed(f"lz4: {error}") from None
        left -= len(part)
        if left < 0:
            raise _too_large("lz4", limit_bytes)
        if not decompressor.eof:
            raise DecompressionFailed("lz4 data ends early")
        parts.append(part)
        rest = decompressor.unused_data or b""
        if not rest:
            return parts[0] if len(parts) == 1 else b"".join(parts)
    raise _too_many("lz4", STREAMS_MAX)


def _compress_zstd(data: Buffer, level: int = ZSTD_LEVEL_DEFAULT) -> bytes:
    import zstandard

    return zstandard.ZstdCompressor(level=level).compress(data)


def _decompress_zstd(data: Buffer, limit_bytes: int) -> bytes:
    import zstandard

    decompressor = zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW_BYTES_MAX)
    out = bytearray()
    try:
        _check_zstd_frames(memoryview(data))
        with decompressor.stream_reader(data, read_across_frames=True) as reader:
            # A small limit needs no large buffer, which would cost more than the decompression.
            while part := reader.read(min(_READ_BYTES, limit_bytes + 1)):
                out += part
                if len(out) > limit_bytes:
                    raise _too_large("zstd", limit_bytes)
    except zstandard.ZstdError as error:
        raise DecompressionFailed(f"zstd: {error}") from None
    return bytes(out)


def _check_zstd_frames(view: memoryview) -> None:
    """Check that frames and blocks are complete, because the library's reader accepts truncated
    data."""
    position = 0
    frame_count = 0
    blocks_left = ZSTD_BLOCKS_MAX
    while position < len(view) or position == 0:
        frame_count += 1
        if frame_count > STREAMS_MAX:
            raise _too_many("zstd", STREAMS_MAX)
        size, block_count = _measure_zstd_frame(view[position:], blocks_left)
        position += size
        blocks_left -= block_count
    if position != len(view):
        raise DecompressionFailed("zstd data ends early")


def _measure_zstd_frame(frame: memoryview, blocks_max: int) -> tuple[int, int]:
    """Return the length of the frame that starts here, and the number of its blocks.

    Its checksum can be after the end of the data.
    """
    import zstandard

    if int.from_bytes(frame[:4], "little") & ~0xF == _ZSTD_SKIPPABLE_MAGIC:
        return 8 + int.from_bytes(frame[4:8], "little"), 0
    parameters = zstandard.get_frame_parameters(frame)
    if parameters.window_size > ZSTD_WINDOW_BYTES_MAX:
        raise DecompressionFailed(
            f"the zstd window has {parameters.window_size} bytes,"
            f" expected at most {ZSTD_WINDOW_BYTES_MAX}"
        )
    position = zstandard.frame_header_size(frame)
    block_count = 0
    is_last = False
    while not is_last:
        block_count += 1
        if block_count > blocks_max:
            raise _too_many("zstd", ZSTD_BLOCKS_MAX)
        block = int.from_bytes(frame[position : position + 3], "little")
        is_last = bool(block & 1)
        # Blocks of type 1 repeat one byte as often as their size says.
        position += 3 + (1 if block >> 1 & 3 == 1 else block >> 3)
        if position > len(frame):
            raise DecompressionFailed("zstd data ends early")
    return position + (4 if parameters.has_checksum else 0), block_count


_COMPRESSORS: dict[Codec, Callable[[Buffer], bytes]] = {
    Codec.GZIP: _compress_gzip,
    Codec.SNAPPY: _compress_snappy,
    Codec.LZ4: _compress_lz4,
    Codec.ZSTD: _compress_zstd,
}

_LEVEL_COMPRESSORS: dict[Codec, Callable[[Buffer, int], bytes]] = {
    Codec.GZIP: _compress_gzip,
    Codec.LZ4: _compress_lz4,
    Codec.ZSTD: _compress_zstd,
}
"""The compressors that accept a level."""

_DECOMPRESSORS: dict[Codec, Callable[[Buffer, int], bytes]] = {
    Codec.GZIP: _decompress_gzip,
    Codec.SNAPPY: _decompress_snappy,
    Codec.LZ4: _decompress_lz4,
    Codec.ZSTD: _decompress_zstd,
}
