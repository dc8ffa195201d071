"""The supported compressions: recognised by their first bytes, decompressed in bounded steps.

This module is pure. All decompressors have the interface of the standard library's.
`decompress(data, max_length)` returns at most `max_length` bytes and keeps the input it did not
use. Call it with empty input until `needs_input` is true. One decompressor reads one member (a
member of gzip, a stream of bzip2 or xz, a frame of zstd). `eof` tells that the member has ended.
`unused_data` is the input after the member.
"""

import bz2
import lzma
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, cast

import zstandard
from isal import igzip_lib

XZ_MEMORY_BYTES_MAX = 256 << 20
"""The most memory that an xz archive can need; archives that need more are refused.

`xz -9` needs 65 MiB.
"""
ZSTD_WINDOW_BYTES_MAX = 128 << 20
"""The largest window of a zstd archive. It is the limit of the `zstd` command, which refuses
archives made with `--long=28` or more."""
HEAD_BYTES_MAX = 10
"""The number of first bytes that are enough to recognise every compression."""

_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_SKIPPABLE_MAGICS = tuple(bytes((low, 0x2A, 0x4D, 0x18)) for low in range(0x50, 0x60))
_FRAME_START_BYTES = 5  # enough of a frame to know how long its header is
_SKIPPABLE_HEAD_BYTES = 8
_BLOCK_HEAD_BYTES = 3
_CHECKSUM_BYTES = 4

FAILURES = (
    # The type stub of `IsalError` declares an instance instead of a class.
    cast("type[Exception]", igzip_lib.IsalError),
    OSError,
    lzma.LZMAError,
    zstandard.ZstdError,
)
"""The exceptions that a decompressor raises for damaged bytes."""


class Decompressor(Protocol):
    """Decompresses one member of an archive."""

    @property
    def eof(self) -> bool:
        """True if the end of the member was reached."""

    @property
    def needs_input(self) -> bool:
        """True if the decompressor returns nothing more without more input."""

    @property
    def unused_data(self) -> bytes:
        """The input after the end of the member."""

    def decompress(self, data: bytes, max_length: int) -> bytes:
        """Take all of `data` and return at most `max_length` bytes. Raises one of FAILURES."""


@dataclass(frozen=True, slots=True)
class Compression:
    """One kind of compression, such as gzip.

    `turn_bytes` is about how much is decompressed before other files are read, so that they do not
    wait long.
    """

    name: str
    magics: tuple[bytes, ...]
    turn_bytes: int
    begin: Callable[[], Decompressor]

    def begins(self, head: bytes) -> bool | None:
        """Tell whether a member of this compression begins with `head`; None if more bytes are
        needed."""
        if head.startswith(self.magics):
            return True
        return None if any(magic.startswith(head) for magic in self.magics) else False


def compression_of(head: bytes) -> Compression | None:
    """Return the compression of a file that begins with `head`; None if it is not compressed."""
    return next((kind for kind in COMPRESSIONS if kind.begins(head)), None)


def may_be_archive(head: bytes) -> bool:
    """Tell whether a file that begins with `head` can become an archive when it grows."""
    return any(kind.begins(head) is None for kind in COMPRESSIONS)


class ZstdFrame:
    """A decompressor of one zstd frame, or of a skippable frame, block by block.

    The library's decompressor has no limit on its output, and four bytes can expand to 128 KiB. So
    it gets one block at a time, because no block expands to more than 128 KiB.
    """

    def __init__(self) -> None:
        self.eof = False
        self.unused_data = b""
        self._held = b""
        self._left = 0  # bytes of the present part that must still be fed
        self._next: Callable[[], bool] | None = self._frame_header
        self._is_skipped = False
        self._checksum_bytes = 0
        self._frame = zstandard.ZstdDecompressor(
            max_window_size=ZSTD_WINDOW_BYTES_MAX
        ).decompressobj()
        self._needs_input = True

    @property
    def needs_input(self) -> bool:
        """True if all input was used and the frame has not ended."""
        return self._needs_input and not self.eof

    def decompress(self, data: bytes, max_length: int) -> bytes:
        """Decompress as `Decompressor` describes. One call returns the output of one block, at most
        128 KiB."""
        self._held += data
        out = b""
        self._needs_input = False
        while not out:
            if not self._left and self._next is None:
                self.eof = True
                self.unused_data, self._held = self._held, b""
                break
            if not self._left and self._next is not None and not self._next():
                self._needs_input = True
                break
            piece, self._held = self._held[: self._left], self._held[self._left :]
            self._left -= len(piece)
            if not self._is_skipped:
                out = self._frame.decompress(piece)
            if self._left:
                self._needs_input = True
                break
        return out

    # --- the next part: each method returns True once it knows how many bytes to feed ---------

    def _frame_header(self) -> bool:
        if self._held.startswith(_SKIPPABLE_MAGICS):
            if len(self._held) < _SKIPPABLE_HEAD_BYTES:
                return False
            size = int.from_bytes(self._held[4:_SKIPPABLE_HEAD_BYTES], "little")
            self._left, self._is_skipped = _SKIPPABLE_HEAD_BYTES + size, True
            self._next = None
            return True
        if len(self._held) < _FRAME_START_BYTES:
            return False
        size = zstandard.frame_header_size(self._held)
        if len(self._held) < size:
            return False
        found = zstandard.get_frame_parameters(self._held[:size])
        self._checksum_bytes = _CHECKSUM_BYTES if found.has_checksum else 0
        self._left, self._next = size, self._block
        return True

    def _block(self) -> bool:
        if len(self._held) < _BLOCK_HEAD_BYTES:
            return False
        block = int.from_bytes(self._held[:_BLOCK_HEAD_BYTES], "little")
        # A block of type 1 is one byte that is repeated as often as its size says.
        size = 1 if block >> 1 & 3 == 1 else block >> 3
        self._left = _BLOCK_HEAD_BYTES + size
        if block & 1:
            self._left += self._checksum_bytes
            self._next = None
        return True


def _gzip() -> Decompressor:
    found: Decompressor = igzip_lib.IgzipDecompressor(flag=igzip_lib.DECOMP_GZIP)
    return found


def _xz() -> Decompressor:
    return lzma.LZMADecompressor(format=lzma.FORMAT_XZ, memlimit=XZ_MEMORY_BYTES_MAX)


COMPRESSIONS = (
    Compression("gzip", (b"\x1f\x8b",), 8 << 20, _gzip),
    Compression("zstd", (_ZSTD_MAGIC, *_SKIPPABLE_MAGICS), 8 << 20, ZstdFrame),
    # "BZh" alone could be text. In bzip2 it is followed by a level and by the mark of a first
    # block, or of the end of an empty file.
    Compression(
        "bzip2",
        tuple(
            b"BZh%d" % level + block
            for level in range(1, 10)
            for block in (b"1AY&SY", b"\x17rE8P\x90")
        ),
        128 << 10,
        bz2.BZ2Decompressor,
    ),
    Compression("xz", (b"\xfd7zXZ\x00",), 1 << 20, _xz),
)
