"""Decompress an archive step by step, and find out whether it is complete.

This module is pure. An archive is one or more members of one compression, each followed by optional
zero padding. It is complete when its bytes end where a member ends; a growing archive ends inside a
member. Damage is noticed when the decompressor reaches it; the content before it is good.
"""

from collections.abc import Callable

from collector.config.settings import PREFIX_BYTES
from collector.text.decompressors import FAILURES, HEAD_BYTES_MAX, Compression, Decompressor
from collector.text.fingerprint import Evidence

CHUNK_BYTES = 64 << 10
# Feed input in small steps near damage, because an error discards the output of its step.
FINE_CHUNK_BYTES = 32
OUT_BYTES = 256 << 10
# The least cost of a step or a member, counted in bytes of content.
STEP_WORK_BYTES = 32
MEMBER_WORK_BYTES = 4 << 10

ReadRaw = Callable[[int, int], bytes]
"""A function that reads this many compressed bytes at an offset. It returns fewer only at the end
of the file."""


class Inflater:
    """Decompresses an archive from its start. Call `feed` while `wants_input`, then `inflate`.

    `raw_position` counts the compressed bytes taken in, and `position` the decompressed bytes
    returned. `work` is the cost of both in bytes of content. From the compressed position
    `fine_from` on, the input is taken in small steps.
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
        """Tell whether the caller must feed more compressed bytes."""
        is_used = not self._pending and (self._member is None or self._member.needs_input)
        return self.damage is None and (is_used or self._is_head_short)

    @property
    def is_between_members(self) -> bool:
        """Tell whether the input so far consists of whole members, at least one."""
        return self._member is None and not self._pending and self._is_any_member_read

    @property
    def _is_head_short(self) -> bool:
        """Tell whether the input is too short to recognise the start of a member."""
        return (
            self._member is None
            and len(self._pending) < HEAD_BYTES_MAX
            and self._compression.begins(self._pending) is None
        )

    def wanted_bytes(self) -> int:
        """Return how many compressed bytes to pass to `feed` next."""
        if self._fine_from is None:
            return CHUNK_BYTES
        if self.raw_position >= self._fine_from:
            return FINE_CHUNK_BYTES
        return min(CHUNK_BYTES, self._fine_from - self.raw_position)

    def feed(self, raw: bytes) -> None:
        """Add the compressed bytes that start at `raw_position` to the input."""
        self._pending += raw
        self.raw_position += len(raw)
        self.work += len(raw)

    def inflate(self) -> bytes:
        """Return decompressed bytes. Return none if more input is needed or damage was found."""
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


class CompressedFile:
    """One archive. It is examined while it grows, and then read like a plain file.

    Each call of `examine` or `read` does a bounded amount of work. `raw` is the evidence of the
    compressed bytes examined so far; the file is recognised by it later. `content_size` is the size
    that can be read. It is None until the archive was complete once. A damaged archive can be read
    up to the damage.
    """

    def __init__(self, compression: Compression) -> None:
        self.raw = Evidence()
        self.content_size: int | None = None
        self.damage: str | None = None
        self._compression = compression
        self._exam = Inflater(compression)
        self._fine_from: int | None = None
        self._last_fed = 0
        # The first bytes of the content. Resuming asks for them several times before it reaches the
        # old position.
        self._head = b""
        self._reader = Inflater(compression)
        self._window = b""
        self._window_start = 0

    def examine(self, read_raw: ReadRaw, raw_size: int) -> bool:
        """Examine compressed bytes that were not examined yet. Return False if there are none."""
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
        """Return decompressed bytes at `offset`; None if another call is needed to reach the
        offset.

        Rising offsets are cheap. For a lower offset the archive is decompressed again from its
        start. Nothing beyond `content_size` is returned.
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
        """Examine the archive again in small steps, which find the exact offset of the damage."""
        if self._fine_from is None:
            self._fine_from = self._last_fed
            self._exam = Inflater(self._compression, self._fine_from)
            self._head = b""
            self._restart_reading()
        else:
            self.damage = exam.damage
            self.content_size = exam.position
