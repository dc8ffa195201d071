"""One generation (one life of a file's content), and how far the collector has read it.

This module is pure. A generation sleeps until its file has lines to read. While it sleeps, for
example after a start, only its fingerprint is known. When it wakes, it gets a tailer, which
advances as blocks are handed out, and a delivery, which advances with commits.
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
    """The state of one generation. `size` and `position` count decompressed bytes."""

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
    fingerprint: Fingerprint = EMPTY  # while the generation sleeps: of the bytes read so far
    archive_print: Fingerprint | None = None
    trail: tuple[Mark, ...] = ()
    lines: int = 0
    size: int = 0
    stamp: Stamp | None = None
    read_stamp: Stamp | None = None
    """The file's stamp when the bytes after the position were last read."""
    is_read_stamp_sure: bool = False
    """True if every write after that read certainly changes the stamp."""
    read_to: int = 0
    """The end of the text at the time of the last read."""
    rests: bool = False
    """True if the last read found nothing more to read."""
    doubt: Doubt | None = None
    """NULs at which reading waits, because text may still replace them; None if there are none."""
    tailer: Tailer | None = None
    delivery: Delivery | None = None
    archive: CompressedFile | None = None
    partition: TopicPartition | None = None
    ruled_by: InputSection | None = None
    """The input whose rules the tailer follows."""
    starts_at_end: bool = False
    """True if lines that the file held when it was first seen are skipped (`start: end`)."""
    begins_at_end: bool = False
    """True if these lines have not been skipped yet."""
    unroutable: str = ""
    """The reason why the file has no topic, so it is not read; empty if it has a topic."""
    refused_in: int = 0
    """The edition of the routes when a topic was last looked up (`Routes.edition`)."""
    error: str = ""
    refusal: tuple[Stamp, str] | None = None
    """The stamp of a file that cannot be read, and why. Valid until the stamp changes."""
    backoff: DoublingWait = field(default_factory=lambda: DoublingWait(*RETRY_MS))
    still_since_ms: int | None = None
    read_at_ms: int = 0
    ended_ms: int | None = None
    changed: set[str] = field(default_factory=set)
    """The names of generations whose position records must be written; shared with the registry."""
    is_stored: bool = False
    lost_possible: bool = False
    """True if the generation has ended and lines after the position may be lost."""
    counts_again: bool = False
    """True if a user asked to read the file from its start even if it is a copy of another file."""
    is_recognised: bool = False
    """True if the archive was compared with the known files, so its first new line is known."""
    order: int = 0
    """The order in which generations were created since the process started; 0 if it was stored."""
    keeps_up: bool = False
    """True if the file was read to its end and has not fallen far behind since."""
    grown_at_ms: int = 0
    """The time when bytes of the file were last read."""
    carried_by: "Generation | None" = None
    """The following file if its first line continues this file's open event; else None."""
    closes_event: bool = False
    """True if the following file does not continue the open event, so the event is complete."""
    held_back_ms: int | None = None
    """The time since when the first lines have waited for the earlier file of this name."""
    lines_end: int | None = None
    """`unread_lines_end` as it was stored before a restart; None once `size` has changed or the
    file is read."""
    last_mark: Mark | None = None
    passed: list[Mark] = field(default_factory=list)
    """Marks of the blocks handed out since the last transaction was committed."""
    copy_of: "Generation | None" = None
    """The generation whose lines this file repeats; None once this file's own record is stored.

    That happens only after those lines are committed.
    """

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
        """The end of the content. NULs at the end are not included while no text follows them."""
        return self.size if self.tailer is None else self.tailer.text_end(self.size)

    @property
    def unread_bytes(self) -> int:
        """The number of unread bytes, and of bytes to read again because the file changed."""
        if self.tailer is None or self.is_archive:
            return max(0, self.text_end - self.position)
        is_changed = self.stamp is not None and self.stamp != self.read_stamp
        read_end = self.tailer.read_position if is_changed else self.tailer.searched_end
        return max(0, self.text_end - read_end)

    @property
    def unread_lines_end(self) -> int:
        """The offset after which no complete line has been found in the file so far."""
        tailer = self.tailer
        if tailer is None:
            return self.text_end if self.lines_end is None else self.lines_end
        if tailer.doubt is not None or tailer.request(self.size) is not None:
            return self.text_end
        return min(self.text_end, tailer.read_position)

    @property
    def lag_bytes(self) -> int:
        """The number of bytes of content that are not committed yet."""
        return max(0, self.text_end - self.safe_position)

    @property
    def read_queue(self) -> ReadQueue:
        """The queue in which the file waits to be read: the backfill if it is far behind."""
        return (
            ReadQueue.BACKFILL if self.text_end - self.position > BACKFILL_BYTES else ReadQueue.LIVE
        )

    @property
    def is_behind(self) -> bool:
        """Tell whether the next lines are so old that live lines of other files are sent first."""
        is_new = not self.keeps_up and self.text_end - self.position > NEW_BYTES
        return not self.state.has_ended and (is_new or self.read_queue is ReadQueue.BACKFILL)

    @property
    def is_archive(self) -> bool:
        """True if the file is compressed, so that its content must be decompressed."""
        return self.archive is not None or self.archive_print is not None

    @property
    def is_settled(self) -> bool:
        """Tell whether all lines handed out are committed."""
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
        """Tell whether complete lines wait in memory, because they can belong to an event."""
        return self.has_open_event or (self.held_back_ms is not None and not self.lines_read)

    @property
    def is_unread(self) -> bool:
        """Tell whether the file has content, of which no byte was read yet."""
        if self.position or self.is_archive or self.state.has_ended:
            return False
        if self.tailer is None:
            return self.size > 0
        return self.tailer.doubt is not None or self.tailer.request(self.size) is not None

    def read_print(self) -> Fingerprint:
        """Return the fingerprint at the position up to which the file was read."""
        if self.tailer is not None and self.fingerprint.position != self.tailer.position:
            self.fingerprint = self.tailer.evidence.fingerprint()
        return self.fingerprint

    @property
    def read_crc(self) -> int | None:
        """The checksum of the bytes that were read."""
        return self.fingerprint.crc if self.tailer is None else self.tailer.evidence.crc

    def _judged_print(self) -> Fingerprint:
        """Return the fingerprint of all that was read, including an open event.

        An open event is in memory, so a change of the file does not affect it.
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
        """Return the known facts about the file as `decide` needs them."""
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

    def note_size(self, size: int) -> None:
        """Store the size that a scan has found."""
        if size != self.size:
            self.size, self.lines_end = size, None

    def wake(self, tailer: Tailer) -> None:
        """Begin or resume reading with a tailer, at the position of its evidence."""
        self.follow(tailer)
        self.delivery = Delivery(tailer.evidence, self.lines)

    def follow(self, tailer: Tailer) -> None:
        """Continue with a tailer that follows the rules of the current input section."""
        self.tailer = tailer
        self.lines_end = None
        self.ruled_by = self.section

    def was_read(self, *, to_its_end: bool) -> None:
        """Remember that the file was read, and whether the read reached the end of the file."""
        if to_its_end and self.text_end - self.position <= NEW_BYTES:
            self.keeps_up = True
        elif self.read_queue is ReadQueue.BACKFILL:
            self.keeps_up = False

    def begin_behind(self, fingerprint: Fingerprint) -> None:
        """Sleep at a new fingerprint, because the file was trimmed and its lines have new
        positions."""
        self.lines = self.committed_lines
        self.fingerprint = fingerprint
        self.tailer = self.delivery = self.doubt = None
        self.closes_event = False
        self.touch()

    def forget_marks(self) -> None:
        """Drop the marks, because the lines that were read have other positions in the file now."""
        self.trail, self.last_mark = (), None
        self.passed.clear()

    def touch(self) -> None:
        """Mark the position record, so that it is written again."""
        self.changed.add(self.name)

    def end(self, state: State, now_ms: int) -> None:
        """Stop reading the file; `state` says why."""
        self.state = state
        self.ended_ms = now_ms
        self.touch()

    def revive(self, state: State) -> None:
        """Set the state of an existing file, which may have been missing before."""
        if self.state is not state or self.ended_ms is not None:
            self.state = state
            self.ended_ms = None
            self.still_since_ms = None
            self.touch()

    def hand_out(self, block: Block) -> None:
        """Move the position past a block that was passed on."""
        assert self.tailer is not None and self.delivery is not None
        if block.source is not None and not self.is_archive:
            self.passed += marks_within(block.source, block.end)
        self.delivery.send(self.tailer.hand_out(block), block.count)
        self.touch()

    def cut(self, now_ms: int) -> Checkpoint:
        """Assign the lines read so far to the transaction; return the record to commit with
        them."""
        if self.delivery is None:
            evidence, lines = self.read_print(), self.lines
        else:
            self.delivery.cut()
            evidence, lines = self.delivery.sent.fingerprint(), self.delivery.sent_lines
        return self._checkpoint(evidence, lines, now_ms)

    def committed(self) -> None:
        """Handle the commit of the transaction of the last `cut`."""
        self.is_stored = True
        self.copy_of = None
        if self.delivery is not None:
            self.delivery.committed()

    def given_up(self) -> None:
        """Handle the abort of the transaction of the last `cut`."""
        self.touch()
        if self.delivery is not None:
            self.delivery.given_up()

    def _checkpoint(self, safe: Fingerprint, lines: int, now_ms: int) -> Checkpoint:
        if self.last_mark is not None and self.last_mark.position < safe.position:
            self.passed.insert(0, self.last_mark)
        self.trail = extend_trail(self.trail, self.passed, safe.position)
        self.passed.clear()
        self.last_mark = Mark(safe.position, safe.marker)
        lines_end = self.unread_lines_end
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
            lines_end if lines_end < self.text_end else None,
        )


def begun_again(known: Generation) -> Generation:
    """Return a new generation of a known file, as if the file had been seen for the first time."""
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

    The input of the file is known only when a scan finds the file.
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
        lines_end=c.lines_end,
        last_mark=Mark(c.fingerprint.position, c.fingerprint.marker),
    )
