"""Gzip as a stream of bytes in and bytes out, and the question whether an archive is whole.

Floor: ground of the room. Pure. An archive is one or more gzip members, zero padding allowed
behind the last. It is whole when its bytes end where a member ends; a growing one ends in the
middle. Damage is found when the decompressor meets it; what came before is good.
"""

from collections.abc import Callable

from isal import igzip_lib, isal_zlib

from collector.fingerprint import Evidence

MAGIC = b"\x1f\x8b"
CHUNK_BYTES = 64 << 10
# Around a damage bytes are fed in small steps, since what one step gave is lost with its error.
FINE_CHUNK_BYTES = 32
OUT_BYTES = 256 << 10
WORK_BYTES = 8 << 20  # most bytes decompressed in one turn

ReadRaw = Callable[[int, int], bytes]
"""Reads so many compressed bytes at an offset; fewer only at the end of the file."""


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


class Archive:
    """One archive on its way: first examined as it grows, then read like a plain file.

    Both passes do a bounded piece of work per call. `raw` is the evidence of the compressed bytes
    examined so far: by them the file is known again. `content_size` is what can be read: None
    until the archive was whole once; up to the damage when there is one.
    """

    def __init__(self) -> None:
        self.raw = Evidence()
        self.content_size: int | None = None
        self.damage: str | None = None
        self._exam = Inflater()
        self._fine_from: int | None = None
        self._last_fed = 0
        self._reader = Inflater()
        self._window = b""
        self._window_start = 0

    def examine(self, read_raw: ReadRaw, raw_size: int) -> bool:
        """Look at compressed bytes not seen yet; False when there are none (at the moment)."""
        work = 0
        exam = self._exam
        while work < WORK_BYTES and self.damage is None:
            is_starved = exam.wants_input and exam.raw_position >= raw_size
            if is_starved or (exam.wants_input and not self._feed(exam, read_raw, raw_size)):
                break
            work += len(exam.inflate()) + FINE_CHUNK_BYTES
            if exam.damage is not None:
                self._note_damage(exam)
                return True
        if exam.is_between_members and exam.raw_position == raw_size:
            self.content_size = exam.position
        return work > 0

    def read(self, read_raw: ReadRaw, offset: int, length: int) -> bytes | None:
        """Decompressed bytes at `offset`; None when it takes another call to get there.

        Cheap when offsets rise; going back starts over. Nothing beyond `content_size` is given.
        """
        end = min(offset + length, self.content_size or 0)
        if offset < self._window_start:
            self._reader = Inflater(self._fine_from)
            self._window, self._window_start = b"", 0
        self._forget_before(offset)
        work, parts, reached = 0, [self._window], self._window_start + len(self._window)
        reader = self._reader
        while reached < end and work < WORK_BYTES:
            if reader.wants_input and not self._feed(reader, read_raw, self.raw.position):
                break
            out = reader.inflate()
            work += len(out) + FINE_CHUNK_BYTES
            reached += len(out)
            if reached <= offset:
                parts, self._window_start = [], reached
            else:
                parts.append(out)
        self._window = b"".join(parts)
        self._forget_before(offset)
        if reached < end and work >= WORK_BYTES:
            return None
        return self._window[: max(0, end - offset)]

    def _forget_before(self, offset: int) -> None:
        skip = min(max(0, offset - self._window_start), len(self._window))
        self._window = self._window[skip:]
        self._window_start += skip

    def _feed(self, inflater: Inflater, read_raw: ReadRaw, raw_size: int) -> bool:
        start = inflater.raw_position
        raw = read_raw(start, min(inflater.wanted_bytes(), raw_size - start))
        if not raw:
            return False
        if inflater is self._exam:
            self._last_fed = start
        inflater.feed(raw)
        if inflater.raw_position > self.raw.position:
            self.raw = self.raw.advance(raw[self.raw.position - start :])
        return True

    def _note_damage(self, exam: Inflater) -> None:
        """Go over it again in small steps; the second time the damage's place is known."""
        if self._fine_from is None:
            self._fine_from = self._last_fed
            self._exam = Inflater(self._fine_from)
            self._reader = Inflater(self._fine_from)
            self._window, self._window_start = b"", 0
        else:
            self.damage = exam.damage
            self.content_size = exam.position
