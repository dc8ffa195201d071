"""An archive as a stream of bytes in and bytes out, and the question whether it is whole.

Floor: above `decompressors`. Pure. An archive is one or more members of one compression, zero
padding allowed behind each. It is whole when its bytes end where a member ends; a growing one ends
in the middle. Damage is found when the decompressor meets it; what came before is good.
"""

from collections.abc import Callable

from collector.config.settings import PREFIX_BYTES
from collector.text.decompressors import FAILURES, HEAD_BYTES_MAX, Compression, Decompressor
from collector.text.fingerprint import Evidence

CHUNK_BYTES = 64 << 10
# Around a damage bytes are fed in small steps, since what one step gave is lost with its error.
FINE_CHUNK_BYTES = 32
OUT_BYTES = 256 << 10
# What steps that give little cost all the same, in bytes of content.
STEP_WORK_BYTES = 32
MEMBER_WORK_BYTES = 4 << 10

ReadRaw = Callable[[int, int], bytes]
"""Reads so many compressed bytes at an offset; fewer only at the end of the file."""


class Inflater:
    """Decompresses from the start of an archive; `feed` while `wants_input`, then `inflate`.

    `raw_position` counts compressed bytes taken in, `position` decompressed bytes given out, `work`
    what all that cost, in bytes of content. From `fine_from` on (compressed bytes) input is taken
    in small steps.
    """

    def __init__(self, compression: Compression, fine_from: int | None = None):
        self.raw_position = 0
        self.position = 0
        self.work = 0
        self.damage: str | None = None
        self._compression = compression
        self._fine_from = fine_from
        self._pending = b""
        self._is_any_member_read = False
        self._member: Decompressor | None = None

    @property
    def wants_input(self) -> bool:
        """Everything fed has been used."""
        is_used = not self._pending and (self._member is None or self._member.needs_input)
        return self.damage is None and (is_used or self._is_head_short)

    @property
    def is_between_members(self) -> bool:
        """The bytes fed so far are whole members, at least one."""
        return self._member is None and not self._pending and self._is_any_member_read

    @property
    def _is_head_short(self) -> bool:
        """What is there is too little to tell if a member begins with it."""
        return (
            self._member is None
            and len(self._pending) < HEAD_BYTES_MAX
            and self._compression.begins(self._pending) is None
        )

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
        self.work += len(raw)

    def inflate(self) -> bytes:
        """Some decompressed bytes; empty when input is wanted or a damage was met."""
        if self.damage is not None:
            return b""
        self.work += STEP_WORK_BYTES
        if self._member is None and not self._begin_member():
            return b""
        assert self._member is not None
        raw, self._pending = self._pending, b""
        try:
            out = self._member.decompress(raw, OUT_BYTES)
        except FAILURES as error:
            self.damage = str(error)
            return b""
        if self._member.eof:
            self._pending = self._member.unused_data
            self._member = None
            self._is_any_member_read = True
        self.position += len(out)
        self.work += len(out)
        return out

    def _begin_member(self) -> bool:
        if self._is_any_member_read:
            self._pending = self._pending.lstrip(b"\0")
        begins = self._compression.begins(self._pending)
        if begins is False:
            self.damage = "other bytes follow the archive"
        if not begins:
            return False
        self.work += MEMBER_WORK_BYTES
        self._member = self._compression.begin()
        return True


class Archive:
    """One archive on its way: first examined as it grows, then read like a plain file.

    Both passes do a bounded piece of work per call. `raw` is the evidence of the compressed bytes
    examined so far: by them the file is known again. `content_size` is what can be read: None
    until the archive was whole once; up to the damage when there is one.
    """

    def __init__(self, compression: Compression) -> None:
        self.raw = Evidence()
        self.content_size: int | None = None
        self.damage: str | None = None
        self._compression = compression
        self._exam = Inflater(compression)
        self._fine_from: int | None = None
        self._last_fed = 0
        # Whoever resumes asks for it again and again on the way to where reading stood.
        self._head = b""
        self._reader = Inflater(compression)
        self._window = b""
        self._window_start = 0

    def examine(self, read_raw: ReadRaw, raw_size: int) -> bool:
        """Look at compressed bytes not seen yet; False when there are none (at the moment)."""
        exam = self._exam
        begun = exam.work
        while exam.work - begun < self._compression.turn_bytes and self.damage is None:
            is_starved = exam.wants_input and exam.raw_position >= raw_size
            if is_starved or (exam.wants_input and not self._feed(exam, read_raw, raw_size)):
                break
            out = exam.inflate()
            if len(self._head) < PREFIX_BYTES:
                self._head += out[: PREFIX_BYTES - len(self._head)]
            if exam.damage is not None:
                self._note_damage(exam)
                return True
        if exam.is_between_members and exam.raw_position == raw_size:
            self.content_size = exam.position
        return exam.work > begun

    def read(self, read_raw: ReadRaw, offset: int, length: int) -> bytes | None:
        """Decompressed bytes at `offset`; None when it takes another call to get there.

        Cheap when offsets rise; going back starts over. Nothing beyond `content_size` is given.
        """
        end = min(offset + length, self.content_size or 0)
        if end <= len(self._head):
            return self._head[offset:end]
        if offset < self._window_start:
            self._restart_reading()
        self._forget_before(offset)
        parts, reached = [self._window], self._window_start + len(self._window)
        reader = self._reader
        begun = reader.work
        while reached < end and reader.work - begun < self._compression.turn_bytes:
            if reader.wants_input and not self._feed(reader, read_raw, self.raw.position):
                break
            out = reader.inflate()
            reached += len(out)
            if reached <= offset:
                parts, self._window_start = [], reached
            else:
                parts.append(out)
        self._window = b"".join(parts)
        self._forget_before(offset)
        if reached < end and reader.work - begun >= self._compression.turn_bytes:
            return None
        return self._window[: max(0, end - offset)]

    def _restart_reading(self) -> None:
        self._reader = Inflater(self._compression, self._fine_from)
        self._window, self._window_start = b"", 0

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
            self._exam = Inflater(self._compression, self._fine_from)
            self._head = b""
            self._restart_reading()
        else:
            self.damage = exam.damage
            self.content_size = exam.position
