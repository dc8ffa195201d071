"""One generation: a life of one file's content, and how far the collector is with it.

Floor: above `tailer`, `delivery`, `archive` and `checkpoints`. Pure. A generation is asleep (known
only by its fingerprint, as after a start) until there is something to read of it; then it has a
tailer, which moves with what is handed out, and a delivery, which moves with what is committed.
"""

from dataclasses import dataclass, field

from collector.config.settings import BACKFILL_BYTES, NEW_BYTES, RETRY_MS, InputSection
from collector.identity.checkpoints import Checkpoint
from collector.identity.delivery import Delivery
from collector.identity.sightings import Doubt, Stamp, State, Stored, Verdict
from collector.text.archive import Archive
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
from collector.timing.schedule import Backoff, Lane
from protocol.types import TopicPartition

EMPTY = Evidence().fingerprint()


@dataclass(slots=True, eq=False)
class Generation:
    """What is known of one generation. `size` and `position` count content, decompressed."""

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
    fingerprint: Fingerprint = EMPTY  # of the position read up to, as long as it is asleep
    archive_print: Fingerprint | None = None
    trail: tuple[Mark, ...] = ()
    lines: int = 0
    size: int = 0
    stamp: Stamp | None = None
    read_stamp: Stamp | None = None
    """What the file looked like when the bytes behind the position were last read."""
    is_read_stamp_sure: bool = False
    """Whether bytes that were written after that show in the stamp."""
    read_to: int = 0
    """The end of the text that was last read."""
    rests: bool = False
    """The last turn found nothing more to read."""
    doubt: Doubt | None = None
    """The NULs that are waited for."""
    tailer: Tailer | None = None
    delivery: Delivery | None = None
    archive: Archive | None = None
    partition: TopicPartition | None = None
    ruled_by: InputSection | None = None
    """The input whose rules its tailer has."""
    starts_at_end: bool = False
    """What the file held when it was first seen is not wanted."""
    begins_at_end: bool = False
    """That was not skipped yet."""
    unroutable: str = ""
    """Why it has no topic, and so is not read."""
    refused_in: int = 0
    """The edition of the topics in which it was last asked for one."""
    error: str = ""
    refusal: tuple[Stamp, str] | None = None
    """Why its content is not read, as long as its file does not change."""
    backoff: Backoff = field(default_factory=lambda: Backoff(*RETRY_MS))
    still_since_ms: int | None = None
    read_at_ms: int = 0
    ended_ms: int | None = None
    changed: set[str] = field(default_factory=set)
    """Names of generations whose position records are to be written: the registry's, shared."""
    is_stored: bool = False
    lost_possible: bool = False
    """It ended, and what a look may not have read of it could be lost."""
    counts_again: bool = False
    """It is read from its start whatever it may be a copy of: somebody asked for that."""
    is_recognised: bool = False
    """An archive that was held against what is known, and is read as what it was found to be."""
    order: int = 0
    """How many were begun before it since the start; 0: known from before."""
    keeps_up: bool = False
    """It was read to its end, and was not far behind since."""
    grown_at_ms: int = 0
    """When bytes were last read of it."""
    carried_by: "Generation | None" = None
    """The file after it goes on with its open event."""
    closes_event: bool = False
    """The file after it does not: its open event is whole."""
    held_back_ms: int | None = None
    """Since when its first lines wait for the file before it."""
    last_mark: Mark | None = None
    passed: list[Mark] = field(default_factory=list)
    """Marks of what was handed out since the last cut."""
    copy_of: "Generation | None" = None
    """Whose lines its file holds, until its own first record is stored: not before they are."""

    @property
    def position(self) -> int:
        """Where the next line to be handed out begins."""
        return self.fingerprint.position if self.tailer is None else self.tailer.position

    @property
    def safe_position(self) -> int:
        """Everything before it is committed."""
        return self.position if self.delivery is None else self.delivery.safe.position

    @property
    def lines_read(self) -> int:
        """Lines handed out since its start."""
        return self.lines if self.delivery is None else self.delivery.sent_lines

    @property
    def committed_lines(self) -> int:
        """Lines committed since its start."""
        return self.lines if self.delivery is None else self.delivery.lines

    @property
    def text_end(self) -> int:
        """The end of the content, without NULs that nothing follows as far as is known."""
        return self.size if self.tailer is None else self.tailer.text_end(self.size)

    @property
    def unread_bytes(self) -> int:
        """How many bytes were seen that nothing was read of, or not since the file has changed."""
        if self.tailer is None or self.is_archive:
            return max(0, self.text_end - self.position)
        is_changed = self.stamp is not None and self.stamp != self.read_stamp
        read_end = self.tailer.read_position if is_changed else self.tailer.searched_end
        return max(0, self.text_end - read_end)

    @property
    def unread_lines_end(self) -> int:
        """Behind this no whole line is in the file, as far as it was read."""
        tailer = self.tailer
        if tailer is None or tailer.doubt is not None or tailer.request(self.size) is not None:
            return self.text_end
        return min(self.text_end, tailer.read_position)

    @property
    def lag_bytes(self) -> int:
        """Bytes of content that are not committed yet."""
        return max(0, self.text_end - self.safe_position)

    @property
    def lane(self) -> Lane:
        """Far behind files are read in the backfill lane."""
        return Lane.BACKFILL if self.text_end - self.position > BACKFILL_BYTES else Lane.LIVE

    @property
    def is_behind(self) -> bool:
        """Its next lines are old ones, which live lines of other files need not wait for."""
        is_new = not self.keeps_up and self.text_end - self.position > NEW_BYTES
        return not self.state.has_ended and (is_new or self.lane is Lane.BACKFILL)

    @property
    def is_archive(self) -> bool:
        """Its content is decompressed."""
        return self.archive is not None or self.archive_print is not None

    @property
    def is_settled(self) -> bool:
        """Nothing of it is on its way."""
        return self.delivery is None or self.delivery.is_settled

    @property
    def has_open_event(self) -> bool:
        """Lines were read of it that wait for the next one."""
        return self.tailer is not None and self.tailer.pending is not None

    @property
    def is_event_whole(self) -> bool:
        """Whether nothing more can belong to its open event."""
        return self.state.has_ended or self.closes_event

    @property
    def is_holding_back(self) -> bool:
        """Whole lines of it were read and not given yet, since they may be part of an event."""
        return self.has_open_event or (self.held_back_ms is not None and not self.lines_read)

    @property
    def is_unread(self) -> bool:
        """Bytes of it were seen and none was read: nothing tells yet what it holds."""
        if self.position or self.is_archive or self.state.has_ended:
            return False
        if self.tailer is None:
            return self.size > 0
        return self.tailer.doubt is not None or self.tailer.request(self.size) is not None

    def read_print(self) -> Fingerprint:
        """The fingerprint of the position read up to."""
        if self.tailer is not None and self.fingerprint.position != self.tailer.position:
            self.fingerprint = self.tailer.evidence.fingerprint()
        return self.fingerprint

    @property
    def read_crc(self) -> int | None:
        """The checksum of what was read."""
        return self.fingerprint.crc if self.tailer is None else self.tailer.evidence.crc

    def _judged_print(self) -> Fingerprint:
        """The fingerprint of all that was read: an open event is in memory, whatever becomes of
        the file."""
        if self.tailer is None or self.tailer.pending is None:
            return self.read_print()
        return self.tailer.read_evidence.fingerprint()

    def raw_print(self) -> Fingerprint | None:
        """An archive's fingerprint, of its compressed bytes; None for a plain file."""
        raw = None if self.archive is None else self.archive.raw
        if raw is not None and (
            self.archive_print is None or self.archive_print.position < raw.position
        ):
            self.archive_print = raw.fingerprint()
        return self.archive_print

    def stored(self) -> Stored:
        """The generation as it is judged."""
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
        """Read by the rules of this tailer, which are those of the section."""
        self.tailer = tailer
        self.ruled_by = self.section

    def was_read(self, *, to_its_end: bool) -> None:
        """It had a turn, which found no more to read or did."""
        if to_its_end and self.text_end - self.position <= NEW_BYTES:
            self.keeps_up = True
        elif self.lane is Lane.BACKFILL:
            self.keeps_up = False

    def begin_behind(self, fingerprint: Fingerprint) -> None:
        """Sleep behind these bytes of a file that holds others than before the position."""
        self.lines = self.committed_lines
        self.fingerprint = fingerprint
        self.tailer = self.delivery = self.doubt = None
        self.closes_event = False
        self.touch()

    def forget_marks(self) -> None:
        """What was read of its file stands at other places now."""
        self.trail, self.last_mark = (), None
        self.passed.clear()

    def touch(self) -> None:
        """Something changed that its position record should say."""
        self.changed.add(self.name)

    def end(self, state: State, now_ms: int) -> None:
        """Nothing more is read of it."""
        self.state = state
        self.ended_ms = now_ms
        self.touch()

    def revive(self, state: State) -> None:
        """Its file is there (again)."""
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
        """The position record that travels with all lines handed out by now."""
        if self.delivery is None:
            evidence, lines = self.read_print(), self.lines
        else:
            self.delivery.cut()
            evidence, lines = self.delivery.sent.fingerprint(), self.delivery.sent_lines
        return self._checkpoint(evidence, lines, now_ms)

    def committed(self) -> None:
        """The transaction of the last cut holds."""
        self.is_stored = True
        self.copy_of = None
        if self.delivery is not None:
            self.delivery.committed()

    def given_up(self) -> None:
        """The transaction of the last cut was aborted."""
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
    """A generation of which nothing is stored, as if it had just been seen for the first time."""
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
    """A generation as its position record tells it, asleep.

    Which input it belongs to is known once its file is seen.
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
