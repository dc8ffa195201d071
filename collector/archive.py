"""Gzip as a stream of bytes in and bytes out, and the question whether an archive is whole.

Floor: ground of the room. Pure. An archive is one or more gzip members, zero padding allowed
behind the last. It is whole when its bytes end where a member ends; a growing one ends in the
middle. Damage is found when the decompressor meets it; what came before is good.
"""

from isal import igzip_lib, isal_zlib

MAGIC = b"\x1f\x8b"
CHUNK_BYTES = 64 << 10
# Around a damage bytes are fed in small steps, since what one step gave is lost with its error.
FINE_CHUNK_BYTES = 32
OUT_BYTES = 256 << 10


class Inflater:
    """Decompresses from the start of an archive; `feed` while `wants_input`, then `inflate`.

    `raw_position` counts compressed bytes taken in, `position` decompressed bytes given out. From
    `fine_from` on (compressed bytes) input is taken in small steps.
    """

    def __init__(self, fine_from: int | None = None):
        self.raw_position = 0
        self.position = 0
        self.damage: str | None = None
        self._fine_from = fine_from
        self._pending = b""
        self._member: isal_zlib.Decompress | None = None

    @property
    def wants_input(self) -> bool:
        """Everything fed has been used."""
        return not self._pending and self.damage is None

    @property
    def is_between_members(self) -> bool:
        """The bytes fed so far are whole members, at least one."""
        return self._member is None and not self._pending and self.raw_position > 0

    def wanted_bytes(self) -> int:
        """How many compressed bytes to feed next."""
        if self._fine_from is None:
            return CHUNK_BYTES
        if self.raw_position >= self._fine_from:
            return FINE_CHUNK_BYTES
        return min(CHUNK_BYTES, self._fine_from - self.raw_position)

    def feed(self, raw: bytes) -> None:
        """Take in the compressed bytes at `raw_position`."""
        self._pending += raw
        self.raw_position += len(raw)

    def inflate(self) -> bytes:
        """Some decompressed bytes; empty when input is wanted or a damage was met."""
        if not self._pending or self.damage is not None:
            return b""
        if self._member is None and not self._begin_member():
            return b""
        assert self._member is not None
        try:
            out: bytes = self._member.decompress(self._pending, OUT_BYTES)
        except igzip_lib.IsalError as error:  # type: ignore[misc]  # an instance to its stub
            self.damage = str(error)
            return b""
        if self._member.eof:
            self._pending = self._member.unused_data
            self._member = None
        else:
            self._pending = self._member.unconsumed_tail
        self.position += len(out)
        return out

    def _begin_member(self) -> bool:
        self._pending = self._pending.lstrip(b"\0") if self.position else self._pending
        head = self._pending[: len(MAGIC)]
        if not MAGIC.startswith(head):
            self.damage = "other bytes follow the archive"
            return False
        if len(head) < len(MAGIC):
            return False
        self._member = isal_zlib.decompressobj(wbits=31)
        return True
