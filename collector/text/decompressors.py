"""The compressions an archive may have, each known by its first bytes and read in bounded steps.

Floor: ground of the room. Pure. All have the interface of the standard library's decompressors:
`decompress(data, max_length)` gives at most so many bytes, keeps what it did not use, and is asked
again with nothing while not `needs_input`. One decompressor reads one member (one of gzip, a
stream of bzip2 or xz, a frame of zstd); `eof` says that it ended, `unused_data` is what follows.
"""

import bz2
import lzma
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, cast

import zstandard
from isal import igzip_lib

XZ_MEMORY_BYTES_MAX = 256 << 20
"""`xz -9` takes 65 MiB to read; an archive that says it wants more than this is not read."""
ZSTD_WINDOW_BYTES_MAX = 128 << 20
"""As `zstd` itself reads them: not those of `--long=28` and more."""
HEAD_BYTES_MAX = 10
"""So many first bytes tell every compression."""

_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_SKIPPABLE_MAGICS = tuple(bytes((low, 0x2A, 0x4D, 0x18)) for low in range(0x50, 0x60))
_FRAME_START_BYTES = 5  # of a frame that tell how long its header is
_SKIPPABLE_HEAD_BYTES = 8
_BLOCK_HEAD_BYTES = 3
_CHECKSUM_BYTES = 4

FAILURES = (
    # To its stub an instance.
    cast("type[Exception]", igzip_lib.IsalError),
    OSError,
    lzma.LZMAError,
    zstandard.ZstdError,
)
"""What a decompressor raises for bytes that are damaged."""


class Decompressor(Protocol):
    """Reads one member."""

    @property
    def eof(self) -> bool:
        """Its end was met."""

    @property
    def needs_input(self) -> bool:
        """Without more input there is no more output."""

    @property
    def unused_data(self) -> bytes:
        """What was given to it and stands behind its end."""

    def decompress(self, data: bytes, max_length: int) -> bytes:
        """Take all of `data` in and give at most so many bytes. Raises one of FAILURES."""


@dataclass(frozen=True, slots=True)
class Compression:
    """One kind of archive. `turn_bytes`: so much of its content is made in one turn, so that
    others are not kept waiting."""

    name: str
    magics: tuple[bytes, ...]
    turn_bytes: int
    begin: Callable[[], Decompressor]

    def begins(self, head: bytes) -> bool | None:
        """Whether a member begins so; None while that takes more bytes."""
        if head.startswith(self.magics):
            return True
        return None if any(magic.startswith(head) for magic in self.magics) else False


def compression_of(head: bytes) -> Compression | None:
    """The compression of a file by its first bytes; None for a file that is none of them."""
    return next((kind for kind in COMPRESSIONS if kind.begins(head)), None)


def may_be_archive(head: bytes) -> bool:
    """Whether more bytes behind `head` could make an archive of it."""
    return any(kind.begins(head) is None for kind in COMPRESSIONS)


class ZstdFrame:
    """One zstd frame, or one that is to be skipped, block by block.

    The library's decompressor has no bound on what it gives, and four bytes may stand for 128 KiB.
    So it is given one block after the other, none of which holds more than that.
    """

    def __init__(self) -> None:
        self.eof = False
        self.unused_data = b""
        self._held = b""
        self._left = 0  # bytes of the piece at hand that are still to be fed
        self._next: Callable[[], bool] | None = self._frame_header
        self._is_skipped = False
        self._checksum_bytes = 0
        self._frame = zstandard.ZstdDecompressor(
            max_window_size=ZSTD_WINDOW_BYTES_MAX
        ).decompressobj()
        self._needs_input = True

    @property
    def needs_input(self) -> bool:
        """What was fed is used up."""
        return self._needs_input and not self.eof

    def decompress(self, data: bytes, max_length: int) -> bytes:
        """See `Decompressor`; one call gives what one block holds, 128 KiB at most."""
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

    # --- what comes next: each says how much of it is to be fed, False while that is not known ---

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
    # Three letters of text alone are no bzip2: a first block, or the end of an empty file, follows.
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
