"""Begin reading a file: find out what kind of file it is, and where its next line starts.

The module reads the file through the handle that it gets. A sleeping file is known only by its
fingerprint. An awake file has a tailer, and the bytes before its position were compared with the
bytes that were read earlier.
"""

from collections.abc import Callable
from dataclasses import replace
from enum import Enum

from collector.config.encoding_names import UTF_8, UTF_16, OnInvalid
from collector.config.input_section import InputSection
from collector.config.settings import BLOCK_BYTES, PREFIX_BYTES
from collector.identity.archive_names import COMPRESSED_ENDINGS
from collector.identity.evidence import evidence_at, evidence_at_end, text_end
from collector.identity.generation import Generation
from collector.identity.handles import Handle, Unreadable
from collector.identity.recognition import Compared, Recognition
from collector.identity.registry import Registry
from collector.identity.sightings import OpenStat
from collector.text.archive import CompressedFile
from collector.text.content import HEAD_BYTES, no_lines
from collector.text.decompressors import HEAD_BYTES_MAX, compression_of, may_be_archive
from collector.text.encodings import (
    MARK_BYTES_MAX,
    NEWLINE,
    NUL,
    UTF_16_MARK_BYTES,
    Encoding,
    byte_order,
    marked_encoding,
    may_become_mark,
)
from collector.text.fields import Fields
from collector.text.fingerprint import Evidence, digest_of, resume
from collector.text.lines import LineRules, Overlong
from collector.text.tailer import Tailer

LineLimit = Callable[[Generation], int]
"""A function that returns the longest line, without its line end, that fits in one record of the
file's topic."""

FieldsOf = Callable[[InputSection], Fields | None]
"""A function that returns the fields to add to the lines of an input."""


class Waking(Enum):
    """The result of an attempt to begin reading a file."""

    AWAKE = "awake"
    AGAIN = "again"  # another call continues the attempt
    WAITING = "waiting"  # nothing to do until the file changes
    CHANGED = "changed"  # the content changed, and only a scan can tell the cause


class Waker:
    """Gives sleeping files a tailer."""

    def __init__(self, registry: Registry, line_limit: LineLimit, fields_of: FieldsOf):
        self._registry = registry
        self._line_limit = line_limit
        self._fields_of = fields_of
        self._recognition = Recognition(registry)

    def wake(self, generation: Generation, handle: Handle, held: OpenStat, now_ms: int) -> Waking:
        """Give a sleeping file a tailer once its kind is known.

        Raises Unreadable.
        """
        if generation.refusal is not None and generation.refusal[0] == held.stamp:
            raise Unreadable(generation.refusal[1])
        if generation.archive is None and (generation.is_archive or generation.position == 0):
            head = handle.read(0, HEAD_BYTES_MAX)
            compression = compression_of(head)
            if compression is not None:
                generation.archive = CompressedFile(compression)
            elif generation.is_archive:
                generation.stamp = None
                return Waking.CHANGED
            elif generation.path.endswith(COMPRESSED_ENDINGS) and may_be_archive(head):
                return Waking.WAITING
        if generation.archive is not None:
            waking = self._wake_archive(generation, generation.archive, handle, held, now_ms)
            if waking is not Waking.AWAKE:
                return waking
        encoding = self.encoding(generation, handle)
        if encoding is None:
            return _not_long_enough(generation, handle)
        evidence = self._evidence(generation, handle, held, encoding)
        if isinstance(evidence, Evidence):
            evidence = _aligned(generation, handle, evidence, encoding)
        if isinstance(evidence, Waking):
            return evidence
        generation.wake(self._tailer(generation, encoding, evidence))
        return Waking.AWAKE

    def renew(self, generation: Generation, handle: Handle, held: OpenStat) -> Waking:
        """Continue to read a file at the same position by the rules of another input, or by changed
        rules."""
        assert generation.tailer is not None
        encoding = self.encoding(generation, handle)
        if encoding is None:
            return _not_long_enough(generation, handle)
        evidence = _aligned(generation, handle, generation.tailer.evidence, encoding)
        if isinstance(evidence, Waking):
            return evidence
        generation.follow(self._tailer(generation, encoding, evidence))
        return Waking.AWAKE

    def encoding(self, generation: Generation, handle: Handle) -> Encoding | None:
        """Return the encoding of a file; None while it is unknown.

        It is unknown while the file is too short, holds only NULs, or is not decompressed so far. A
        byte order mark of UTF-16 is not valid UTF-8, so a UTF-8 input reads such a file as UTF-16.
        """
        section = generation.section
        name = section.encoding
        if name in (UTF_8, UTF_16):
            head = content_of(generation, handle, 0, MARK_BYTES_MAX)
            if head is None:
                return None
            if name == UTF_8:
                if may_become_mark(head):
                    return None
                name = marked_encoding(head) or UTF_8
            elif len(head) < UTF_16_MARK_BYTES:
                return None
            else:
                is_written = any(head) or generation.archive is not None
                if not is_written and not text_end(handle, generation.size, Encoding()):
                    # The file is preallocated, and its byte order mark is not written yet.
                    return None
                name = byte_order(head)
        line_end = NUL if section.line_end == "nul" else NEWLINE
        return Encoding(name, OnInvalid(section.on_invalid), line_end)

    def examine(
        self, generation: Generation, archive: CompressedFile, handle: Handle, held: OpenStat
    ) -> bool:
        """Examine the new bytes of an archive; return False if there are none."""
        was_sound = archive.damage is None
        progressed = archive.examine(handle.read, held.size)
        if was_sound and archive.damage is not None:
            self._registry.counters["files_damaged"] += 1
        generation.size = archive.content_size or 0
        return progressed

    @staticmethod
    def refuse_without_lines(generation: Generation, data: memoryview, held: OpenStat) -> None:
        """Raise Unreadable if the first bytes of a file show that it holds no lines."""
        assert generation.tailer is not None
        encoding, is_unpacked = generation.tailer.rules.encoding, generation.archive is not None
        found = no_lines(bytes(data[:HEAD_BYTES]), encoding, is_unpacked=is_unpacked)
        if found is None:
            generation.refusal = None
            return
        generation.refusal = held.stamp, str(found)
        # Remove the tailer, so that a one-shot run sends no line of the file at its end.
        generation.tailer = generation.delivery = None
        raise Unreadable(str(found))

    def _tailer(self, generation: Generation, encoding: Encoding, evidence: Evidence) -> Tailer:
        rules, fields = self._rules(generation, encoding), self._fields_of(generation.section)
        return Tailer(rules, evidence, BLOCK_BYTES, fields)

    def _rules(self, generation: Generation, encoding: Encoding) -> LineRules:
        section = generation.section
        limit = min(section.max_line_bytes, self._line_limit(generation) // encoding.growth_max)
        limit -= limit % encoding.unit_bytes
        events = None if section.multiline is None else section.multiline.rules()
        if events is not None:
            events = replace(events, max_bytes=min(events.max_bytes, limit))
        return LineRules(
            limit,
            section.line_end == "cut",
            Overlong(section.on_overlong),
            encoding,
            events,
            section.strip_ansi,
        )

    def _wake_archive(
        self,
        generation: Generation,
        archive: CompressedFile,
        handle: Handle,
        held: OpenStat,
        now_ms: int,
    ) -> Waking:
        """Take the next step towards reading a sleeping archive, and return the result.

        An archive is read once it is complete and was compared with the known files.
        """
        if generation.begins_at_end:
            _skip_archive(generation, handle, held)
            return Waking.WAITING
        if self.examine(generation, archive, handle, held):
            return Waking.AGAIN
        if archive.content_size is None:
            generation.stamp = held.stamp
            return Waking.WAITING
        is_known = generation.is_recognised or generation.counts_again
        if generation.position or is_known or archive.damage is not None:
            return Waking.AWAKE
        compared = self._recognition.go_on(generation, handle.read, now_ms)
        if compared is Compared.WAITING:
            # Only a scan can find out what happened to the file of which this may be a copy.
            generation.stamp = None
            return Waking.WAITING
        return Waking.AGAIN

    @staticmethod
    def _evidence(
        generation: Generation, handle: Handle, held: OpenStat, encoding: Encoding
    ) -> Evidence | Waking:
        """Return the evidence at which reading begins.

        If the bytes there are not confirmed, return the reason instead.
        """
        if generation.begins_at_end:
            generation.begins_at_end = False
            generation.touch()
            return evidence_at_end(handle, held.size, encoding)
        print_ = generation.fingerprint
        if print_.position == 0:
            return Evidence()
        head = content_of(generation, handle, 0, min(print_.position, PREFIX_BYTES))
        if head is None:
            return Waking.AGAIN
        length = print_.marker_length
        tail = content_of(generation, handle, print_.position - length, length)
        if tail is None:
            return Waking.AGAIN
        if digest_of(head) != print_.heads[-1].digest or digest_of(tail) != print_.marker:
            generation.stamp = None
            return Waking.CHANGED
        return resume(print_, head, tail)


def content_size(generation: Generation, held: OpenStat) -> int:
    """Return the size of the readable content in bytes. For an archive it is decompressed."""
    if generation.archive is not None:
        return generation.archive.content_size or 0
    return held.size


def content_of(generation: Generation, handle: Handle, offset: int, length: int) -> bytes | None:
    """Return bytes of a file's content, decompressed; None if another call is needed."""
    if generation.archive is not None:
        return generation.archive.read(handle.read, offset, length)
    return handle.read(offset, length)


def _not_long_enough(generation: Generation, handle: Handle) -> Waking:
    """Return AGAIN if another read can show the encoding, and WAITING if the file must grow
    first.
    """
    head = content_of(generation, handle, 0, UTF_16_MARK_BYTES)
    return Waking.AGAIN if head is None else Waking.WAITING


def _aligned(
    generation: Generation, handle: Handle, evidence: Evidence, encoding: Encoding
) -> Evidence | Waking:
    """Return the evidence of the next offset that is between two code units.

    A position can be inside a code unit if the file was read as bytes before its input said UTF-16.
    """
    missing = -evidence.position % encoding.unit_bytes
    if not missing:
        return evidence
    rest = content_of(generation, handle, evidence.position, missing)
    if rest is None:
        return Waking.AGAIN
    return evidence.advance(rest) if len(rest) == missing else Waking.WAITING


def _skip_archive(generation: Generation, handle: Handle, held: OpenStat) -> None:
    """Skip an archive that existed before the first start, because the input wants only new
    lines."""
    generation.begins_at_end = False
    generation.archive = None
    generation.archive_print = evidence_at(handle, held.size).fingerprint()
    generation.size = 0
    generation.stamp = held.stamp
    generation.touch()
