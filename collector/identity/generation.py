"""One generation (one life of a file's content) and how far the collector has read it.

Pure. A generation sleeps until its file has lines to read. While it sleeps, for example after a
start, only its fingerprint is known. While it is awake, it has a tailer, which advances as blocks
are handed out, and a delivery, which advances with commits.
"""

from dataclasses import dataclass, field

from collector.config.input_section import InputSection
from collector.config.settings import BACKFILL_BYTES, NEW_BYTES, RETRY_MS
from collector.identity.checkpoints import Checkpoint
from collector.identity.delivery import Delivery
from collector.identity.sightings import Doubt, Stamp, State, Stored, Verdict
from collector.text.archive import CompressedFile
from collector.text.fingerprint import (
    Evidence,
    FileId,
    Fingerprint,
    Mark,
    extend_trail,
    marks_within,
)
from collector.text.lines import Block
from collector.text.tailer import Tailer
from collector.timing.schedule import DoublingWait, ReadQueue
from protocol.types import TopicPartition

EMPTY = Evidence().fingerprint()


@dataclass(slots=True, eq=False)
class Generation:
    """The state of one generation. `size` and `position` count decompressed bytes of content."""

    name: str
    section: InputSection
    topic: str
    record_key: str
    path: str
    first_path: str
    file: FileId
    birth_ns: int | None
    state: State = State.LIVE
    verdict: Verdict | None = None
    fingerprint: Fingerprint = EMPTY  # at the position read up to, while the generation sleeps
    archive_print: Fingerprint | None = None
    trail: tuple[Mark, ...] = ()
    lines: int = 0
    size: int = 0
    stamp: Stamp | None = None
    read_stamp: Stamp | None = None
    """The file's stamp when the bytes behind the position were last read."""
    is_read_stamp_sure: bool = False
    """Whether every write after that read must have changed the stamp."""
    read_to: int = 0
    """The end of the text as of the last read."""
    rests: bool = False
    """The last turn found nothing more to read."""
    doubt: Doubt | None = None
    """NULs in the text that may still be overwritten; reading waits there."""
    tailer: Tailer | None = None
    delivery: Delivery | None = None
    archive: CompressedFile | None = None
    partition: TopicPartition | None = None
    ruled_by: InputSection | None = None
    """The input whose rules the tailer follows."""
    starts_at_end: bool = False
    """Skip the lines that the file held when it was first seen (`start: end`)."""
    begins_at_end: bool = False
    """These lines were not skipped yet."""
    unroutable: str = ""
    """Why the file has no topic and is therefore not read; empty if it has one."""
    refused_in: int = 0
    """The edition of the routes when a topic was last looked up (`Routes.edition`)."""
    error: str = ""
    refusal: tuple[Stamp, str] | None = None
    """Why the content cannot be read. It holds until the file's stamp changes."""
    backoff: DoublingWait = field(default_factory=lambda: DoublingWait(*RETRY_MS))
    still_since_ms: int | None = None
    read_at_ms: int = 0
    ended_ms: int | None = None
    changed: set[str] = field(default_factory=set)
    """Names of generations whose position records must be written; shared with the registry."""
    is_stored: bool = False
    lost_possible: bool = False
    """The generation ended, and lines behind the position may be lost."""
    counts_again: bool = False
    """A user asked to read the file from its start even if it is a copy of another."""
    is_recognised: bool = False
    """The archive was compared with the known files, and is read as the comparison showed."""
    order: int = 0
    """The how many-th generation since the start of the process; 0 if it was known before."""
    keeps_up: bool = False
    """It was read to its end, and has not fallen far behind since."""
    grown_at_ms: int = 0
    """When bytes of it were last read."""
    carried_by: "Generation | None" = None
    """The following file, if that one continues this one's open event."""
    closes_event: bool = False
    """The following file does not continue this one's open event, so the event is complete."""
    held_back_ms: int | None = None
    """Since when its first lines wait for the file before it."""
    last_mark: Mark | None = None
    passed: list[Mark] = field(default_factory=list)
    """Marks of what was handed out since the last transaction was closed."""
    copy_of: "Generation | None" = None
    """The generation whose lines the file repeats. None once this one's own record is stored,
    which happens only after those lines are committed."""

    @property
    def position(self) -> int:
        """The offset at which the next line to hand out begins."""
        return self.fingerprint.position if self.tailer is None else self.tailer.position

    @property
    def safe_position(self) -> int:
        """The offset before which all lines are committed."""
        return self.position if self.delivery is None else self.delivery.safe.position

    @property
    def lines_read(self) -> int:
        """The number of lines handed out since the start of the generation."""
        return self.lines if self.delivery is None else self.delivery.sent_lines

    @property
    def committed_lines(self) -> int:
        """The number of lines committed since the start of the generation."""
        return self.lines if self.delivery is None else self.delivery.lines

    @property
    def text_end(self) -> int:
        """The end of the content, without NULs at the end that no text follows yet."""
        return self.size if self.tailer is None else self.tailer.text_end(self.size)

    @property
    def unread_bytes(self) -> int:
        """Return how many bytes are unread, or were not read again since the file changed."""
        if self.tailer is None or self.is_archive:
            return max(0, self.text_end - self.position)
        is_changed = self.stamp is not None and self.stamp != self.read_stamp
        read_end = self.tailer.read_position if is_changed else self.tailer.searched_end
        return max(0, self.text_end - read_end)

    @property
    def unread_lines_end(self) -> int:
        """The offset after which no complete line was found in the file so far."""
        tailer = self.tailer
        if tailer is None or tailer.doubt is not None or tailer.request(self.size) is not None:
            return self.text_end
        return min(self.text_end, tailer.read_position)

    @property
    def lag_bytes(self) -> int:
        """The number of bytes of content that are not committed yet."""
        return max(0, self.text_end - self.safe_position)

    @property
    def read_queue(self) -> ReadQueue:
        """Return the queue that the file is read in: backfill if it is far behind."""
        return (
            ReadQueue.BACKFILL if self.text_end - self.position > BACKFILL_BYTES else ReadQueue.LIVE
        )

    @property
    def is_behind(self) -> bool:
        """Tell whether the next lines are old, so live lines of other files need not wait."""
        is_new = not self.keeps_up and self.text_end - self.position > NEW_BYTES
        return not self.state.has_ended and (is_new or self.read_queue is ReadQueue.BACKFILL)

    @property
    def is_archive(self) -> bool:
        """Whether the file is compressed, so that its content is decompressed."""
        return self.archive is not None or self.archive_print is not None

    @property
    def is_settled(self) -> bool:
        """Tell whether everything handed out is committed."""
        return self.delivery is None or self.delivery.is_settled

    @property
    def has_open_event(self) -> bool:
        """Tell whether lines were read that can belong to an unfinished event."""
        return self.tailer is not None and self.tailer.pending is not None

    @property
    def is_event_whole(self) -> bool:
        """Tell whether no further line can belong to the open event."""
        return self.state.has_ended or self.closes_event

    @property
    def is_holding_back(self) -> bool:
        """Tell whether whole lines were read but held back as a possible part of an event."""
        return self.has_open_event or (self.held_back_ms is not None and not self.lines_read)

    @property
    def is_unread(self) -> bool:
        """Tell whether bytes were seen but none was read, so the content is still unknown."""
        if self.position or self.is_archive or self.state.has_ended:
            return False
        if self.tailer is None:
            return self.size > 0
        return self.tailer.doubt is not None or self.tailer.request(self.size) is not None

    def read_print(self) -> Fingerprint:
        """Return the fingerprint at the position read up to."""
        if self.tailer is not None and self.fingerprint.position != self.tailer.position:
            self.fingerprint = self.tailer.evidence.fingerprint()
        return self.fingerprint

    @property
    def read_crc(self) -> int | None:
        """The checksum of what was read."""
        return self.fingerprint.crc if self.tailer is None else self.tailer.evidence.crc

    def _judged_print(self) -> Fingerprint:
        """Return the fingerprint of all that was read.

        That includes an open event, which is in memory and survives any change of the file.
        """
        if self.tailer is None or self.tailer.pending is None:
            return self.read_print()
        return self.tailer.read_evidence.fingerprint()

    def raw_print(self) -> Fingerprint | None:
        """Return the fingerprint of an archive's compressed bytes; None for a plain file."""
        raw = None if self.archive is None else self.archive.raw
        if raw is not None and (
            self.archive_print is None or self.archive_print.position < raw.position
        ):
            self.archive_print = raw.fingerprint()
        return self.archive_print

    def stored(self) -> Stored:
        """Return the generation as `decide` needs it."""
        return Stored(
            self.name,
            self.path,
            self.file,
            self.birth_ns,
            self.raw_print() or self._judged_print(),
            self.state,
            self.stamp,
            self.position < self.text_end,
            self.first_path,
            self.text_end,
            self.trail,
            not self.is_archive,
            self.is_unread,
            self.unread_lines_end,
            b"" if self.tailer is None else self.tailer.read_tail,
            self.size,
        )

    def wake(self, tailer: Tailer) -> None:
        """Begin or resume reading at the tailer's evidence."""
        self.follow(tailer)
        self.delivery = Delivery(tailer.evidence, self.lines)

    def follow(self, tailer: Tailer) -> None:
        """Continue with this tailer, which follows the rules of the present section."""
        self.tailer = tailer
        self.ruled_by = self.section

    def was_read(self, *, to_its_end: bool) -> None:
        """Note that the file had a turn to be read, and whether the turn reached its end."""
        if to_its_end and self.text_end - self.position <= NEW_BYTES:
            self.keeps_up = True
        elif self.read_queue is ReadQueue.BACKFILL:
            self.keeps_up = False

    def begin_behind(self, fingerprint: Fingerprint) -> None:
        """Sleep at this fingerprint: the file was trimmed, so its bytes have other positions."""
        self.lines = self.committed_lines
        self.fingerprint = fingerprint
        self.tailer = self.delivery = self.doubt = None
        self.closes_event = False
        self.touch()

    def forget_marks(self) -> None:
        """Drop the marks, because the lines read have other positions in the file now."""
        self.trail, self.last_mark = (), None
        self.passed.clear()

    def touch(self) -> None:
        """Note that the position record must be written again."""
        self.changed.add(self.name)

    def end(self, state: State, now_ms: int) -> None:
        """Stop reading the generation."""
        self.state = state
        self.ended_ms = now_ms
        self.touch()

    def revive(self, state: State) -> None:
        """Note that the file exists, perhaps again."""
        if self.state is not state or self.ended_ms is not None:
            self.state = state
            self.ended_ms = None
            self.still_since_ms = None
            self.touch()

    def hand_out(self, block: Block) -> None:
        """Move past a block that was passed on."""
        assert self.tailer is not None and self.delivery is not None
        if block.source is not None and not self.is_archive:
            self.passed += marks_within(block.source, block.end)
        self.delivery.send(self.tailer.hand_out(block), block.count)
        self.touch()

    def cut(self, now_ms: int) -> Checkpoint:
        """Close the transaction for this file; return the record to commit with its lines."""
        if self.delivery is None:
            evidence, lines = self.read_print(), self.lines
        else:
            self.delivery.cut()
            evidence, lines = self.delivery.sent.fingerprint(), self.delivery.sent_lines
        return self._checkpoint(evidence, lines, now_ms)

    def committed(self) -> None:
        """Note that the transaction of the last `cut` was committed."""
        self.is_stored = True
        self.copy_of = None
        if self.delivery is not None:
            self.delivery.committed()

    def given_up(self) -> None:
        """Note that the transaction of the last `cut` was aborted."""
        self.touch()
        if self.delivery is not None:
            self.delivery.given_up()

    def _checkpoint(self, safe: Fingerprint, lines: int, now_ms: int) -> Checkpoint:
        if self.last_mark is not None and self.last_mark.position < safe.position:
            self.passed.insert(0, self.last_mark)
        self.trail = extend_trail(self.trail, self.passed, safe.position)
        self.passed.clear()
        self.last_mark = Mark(safe.position, safe.marker)
        return Checkpoint(
            self.name,
            self.path,
            self.first_path,
            self.record_key,
            self.topic,
            self.file,
            self.birth_ns,
            safe,
            lines,
            self.trail,
            self.text_end,
            self.state,
            self.raw_print(),
            now_ms,
            self.ended_ms,
            self.lost_possible,
            self.counts_again and not safe.position,
        )


def begun_again(known: Generation) -> Generation:
    """Return the generation as if its file had just been seen for the first time."""
    return Generation(
        known.name,
        known.section,
        known.topic,
        known.record_key,
        known.path,
        known.first_path,
        known.file,
        known.birth_ns,
        verdict=known.verdict,
        size=known.size,
        changed=known.changed,
        starts_at_end=known.starts_at_end,
        order=known.order,
        begins_at_end=known.starts_at_end,
        unroutable=known.unroutable,
    )


def restored(checkpoint: Checkpoint, section: InputSection) -> Generation:
    """Return the sleeping generation that a position record describes.

    Which input it belongs to is known only once its file is seen.
    """
    c = checkpoint
    return Generation(
        c.generation,
        section,
        c.topic,
        c.record_key,
        c.path,
        c.first_path,
        c.file,
        c.birth_ns,
        State.LIVE if c.state is State.DRAINING else c.state,
        None,
        c.fingerprint,
        c.archive,
        c.trail,
        c.lines,
        c.size,
        ended_ms=c.ended_ms,
        is_stored=True,
        lost_possible=c.lost_possible,
        counts_again=c.counts_again,
        last_mark=Mark(c.fingerprint.position, c.fingerprint.marker),
    )
