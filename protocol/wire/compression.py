"""The five codecs of record batches, each imported at its first use.

Floor: wire. Pure. Whoever decompresses names a limit on the output, because a megabyte can announce
gigabytes: no codec here produces more than the limit and one read beyond it. Nor does one read more
parts than any client would write, for each costs time even if it holds nothing. What we compress is
in the dialect that Kafka's Java client, librdkafka and the Python clients all read: gzip as one
member, snappy in xerial's framing, lz4 as a frame of independent 64 KiB blocks, zstd as one frame.
"""

from collections.abc import Callable
from enum import IntEnum
from struct import Struct as Packed
from typing import cast

from protocol.errors import BadVarint, DecompressionFailed, DecompressionTooLarge, UnsupportedCodec
from protocol.wire.primitives import Buffer, read_uvarint

STREAMS_MAX = 64
"""Of gzip members, or of lz4 or zstd frames, in one batch: clients write one. Each costs a copy of
all that follows it, so a megabyte of empty ones would cost seconds."""

SNAPPY_BLOCKS_MAX = 16_384
"""In one batch: half a gigabyte at the 32 KiB of other clients' blocks, 16 MiB at the 1 KiB of old
ones. Empty blocks would cost time for nothing."""

ZSTD_WINDOW_BYTES_MAX = 8 << 20
GZIP_LEVEL = 2
ZSTD_LEVEL = 3
SNAPPY_BLOCK_BYTES = 64 << 10

_GZIP_WINDOW_BITS = 31
_READ_BYTES = 256 << 10
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
_BLOCK_SIZE = Packed(">i")


class Codec(IntEnum):
    """Compression bits of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @classmethod
    def of(cls, bits: int) -> "Codec":
        """The codec of attribute bits; 5 to 7 are UnsupportedCodec."""
        try:
            return cls(bits)
        except ValueError:
            raise UnsupportedCodec(f"compression bits {bits} name no codec") from None

    @classmethod
    def named(cls, name: str) -> "Codec":
        """The codec of a setting such as "gzip" or "none"; anything else is a ValueError."""
        try:
            return cls[name.upper()]
        except KeyError:
            expected = ", ".join(codec.name.lower() for codec in cls)
            raise ValueError(f"found {name!r}, expected one of {expected}") from None


def compress(codec: int, data: Buffer) -> Buffer:
    """`data` in the codec's dialect; with NONE the same object."""
    if codec == Codec.NONE:
        return data
    return _COMPRESSORS[Codec.of(codec)](data)


def decompress(codec: int, data: Buffer, limit_bytes: int) -> Buffer:
    """What `data` expands to, at most `limit_bytes`; with NONE the same object.

    More than the limit is DecompressionTooLarge, broken or cut data DecompressionFailed.
    """
    if codec == Codec.NONE:
        return data
    return _DECOMPRESSORS[Codec.of(codec)](data, limit_bytes)


def _too_large(codec: str, limit_bytes: int) -> DecompressionTooLarge:
    return DecompressionTooLarge(f"{codec} data expands to more than {limit_bytes} bytes")


def _too_many(codec: str, parts_max: int) -> DecompressionFailed:
    return DecompressionFailed(f"{codec} data consists of more than {parts_max} parts")


def _compress_gzip(data: Buffer) -> bytes:
    from isal import isal_zlib

    return isal_zlib.compress(data, GZIP_LEVEL, _GZIP_WINDOW_BITS)


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
        if not rest:
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
    parts = []
    left = limit_bytes
    position = len(_XERIAL_HEADER)
    if len(view) < position:
        raise DecompressionFailed("snappy data ends inside its header")
    while position < len(view):
        if len(view) - position < _BLOCK_SIZE.size:
            raise DecompressionFailed("snappy data ends inside a block's size")
        (size,) = _BLOCK_SIZE.unpack_from(view, position)
        position += _BLOCK_SIZE.size
        if not 0 < size <= len(view) - position:
            raise DecompressionFailed(f"snappy block of {size} bytes does not fit")
        part = _decompress_snappy_block(view[position : position + size], left, limit_bytes)
        position += size
        left -= len(part)
        parts.append(part)
        if len(parts) > SNAPPY_BLOCKS_MAX:
            raise _too_many("snappy", SNAPPY_BLOCKS_MAX)
    return b"".join(parts)


def _decompress_snappy_block(block: memoryview, left: int, limit_bytes: int) -> bytes:
    """A raw block tells its size in front; that is compared with the limit, then allocated."""
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


def _compress_lz4(data: Buffer) -> bytes:
    from lz4 import frame

    # Kafka's Java reader refuses blocks that refer to the block before them.
    packed = frame.compress(
        data, block_size=frame.BLOCKSIZE_MAX64KB, block_linked=False, store_size=False
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


def _compress_zstd(data: Buffer) -> bytes:
    import zstandard

    return zstandard.ZstdCompressor(level=ZSTD_LEVEL).compress(data)


def _decompress_zstd(data: Buffer, limit_bytes: int) -> bytes:
    import zstandard

    decompressor = zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW_BYTES_MAX)
    out = bytearray()
    try:
        _check_zstd_frames(memoryview(data))
        with decompressor.stream_reader(data, read_across_frames=True) as reader:
            while part := reader.read(_READ_BYTES):
                out += part
                if len(out) > limit_bytes:
                    raise _too_large("zstd", limit_bytes)
    except zstandard.ZstdError as error:
        raise DecompressionFailed(f"zstd: {error}") from None
    return bytes(out)


def _check_zstd_frames(view: memoryview) -> None:
    """Walk frames and blocks to the end: the library's reader takes cut data for finished."""
    import zstandard

    position = 0
    frame_count = 0
    while position < len(view) or position == 0:
        frame_count += 1
        if frame_count > STREAMS_MAX:
            raise _too_many("zstd", STREAMS_MAX)
        frame = view[position:]
        checksum_bytes = 4 if zstandard.get_frame_parameters(frame).has_checksum else 0
        position += zstandard.frame_header_size(frame)
        is_last = False
        while not is_last:
            block = int.from_bytes(view[position : position + 3], "little")
            is_last = bool(block & 1)
            # Blocks of type 1 repeat one byte as often as their size says.
            position += 3 + (1 if block >> 1 & 3 == 1 else block >> 3)
            if position > len(view):
                raise DecompressionFailed("zstd data ends early")
        position += checksum_bytes
    if position != len(view):
        raise DecompressionFailed("zstd data ends early")


_COMPRESSORS: dict[Codec, Callable[[Buffer], bytes]] = {
    Codec.GZIP: _compress_gzip,
    Codec.SNAPPY: _compress_snappy,
    Codec.LZ4: _compress_lz4,
    Codec.ZSTD: _compress_zstd,
}

_DECOMPRESSORS: dict[Codec, Callable[[Buffer, int], bytes]] = {
    Codec.GZIP: _decompress_gzip,
    Codec.SNAPPY: _decompress_snappy,
    Codec.LZ4: _decompress_lz4,
    Codec.ZSTD: _decompress_zstd,
}
