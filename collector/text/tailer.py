"""Decides which bytes of one file to read next, and returns the lines in them.

This module is pure: it never opens a file. The driver asks `request(size)` what to read, reads it,
and passes the bytes to `take`. It calls `hand_out` for each block (or part of a block) that it has
passed on. `position` is where the next line to pass on begins. Bytes of an unfinished line are not
kept. They stay in the file, and the tailer remembers only how far it has searched for the line end.
So a line of any length costs no more memory than the limit. NULs that text may still replace
(`holes`) are not kept either.
"""

from dataclasses import dataclass

from collector.config.multiline import EventRules
from collector.config.settings import BLOCK_BYTES, MARKER_BYTES
from collector.text.clean import clean
from collector.text.events import gather, unfinished
from collector.text.fields import Fields, put_fields
from collector.text.fingerprint import Evidence
from collector.text.holes import Holes, NulRun, without_leading_nuls
from collector.text.lines import (
    Block,
    LineRules,
    Overlong,
    RecordKind,
    as_events,
    first_bytes,
    first_piece,
    kind_of,
    piece_block,
    single_block,
    split_lines,
)
from collector.text.recode import recode

SHORT_LOOK_BYTES = 64 << 10
"""The length of the next read if the last read found that the file ends in NULs."""


@dataclass(frozen=True, slots=True)
class Request:
    """The range of bytes that the driver must read from the file."""

    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class _LongLine:
    """A line longer than the limit whose end was found. `evidence` is the evidence at that end."""

    evidence: Evidence


class Tailer:
    """Reads the lines of one file from the position of `evidence` onwards.

    It is in one of three modes:
    - It reads lines from the position.
    - It searches from `_searched` for the end of a line that is too long to keep.
    - It reads the first bytes of such a line, once the end is known.
    """

    def __init__(
        self,
        rules: LineRules,
        evidence: Evidence,
        block_bytes: int = BLOCK_BYTES,
        fields: Fields | None = None,
    ):
        self.rules = rules
        self._fields = fields
        self.evidence = evidence
        self.nul_bytes_skipped = 0
        self._block_bytes = block_bytes
        self._unfinished_max = rules.unfinished_max
        self._searched_end = evidence.position
        self._searched: Evidence | None = None
        self._long_line: _LongLine | None = None
        self._is_long_next = False
        """True if the text after the last whole line is too long to be part of an event."""
        self.pending: Block | None = None
        """The complete lines of the last event, if the next line may continue it. The caller
        decides when the event ends.
        """
        self._holes = Holes(rules.encoding)

    @property
    def position(self) -> int:
        """The start of the next line to pass on, or of the next piece of an overlong line."""
        return self.evidence.position

    def request(self, size: int, block_bytes: int = BLOCK_BYTES) -> Request | None:
        """Return what to read of a file of `size` bytes; None if a read cannot return anything new.

        The length is at most `block_bytes`, unless that many bytes held no line end.
        """
        if self._long_line is not None:
            return Request(self.position, self.rules.limit_bytes)
        if self.rules.encoding.unit_bytes > 1:
            size -= size % self.rules.encoding.unit_bytes
        if size <= self._searched_end:
            return None
        run = self._holes.run_at(self._searched_end)
        if run is not None and not run.has_text:
            if size <= run.end:
                return None
            return Request(run.end, min(size - run.end, self._block_bytes))
        if self.doubt is not None:
            return None
        if self._searched is not None:
            offset = self._searched.position
            return Request(offset, min(size - offset, self._block_bytes))
        # A whole block held no line end. Only a longer read shows if the line is too long.
        wanted = min(self._block_bytes, block_bytes)
        if self._holes.is_short_look_enough():
            wanted = min(wanted, SHORT_LOOK_BYTES)
        if self._searched_end - self.position >= wanted:
            wanted = max(wanted, self.rules.look_bytes)
        return Request(self.position, min(size - self.position, wanted))

    def take(self, request: Request, data: memoryview) -> list[Block]:
        """Return blocks with the whole lines in the bytes read for `request`.

        The data may be shorter than requested. Pass the blocks to `hand_out` in order, each whole
        or in parts. A driver that stops before the last block calls `rewind` and reads the rest
        again later.
        """
        encoding = self.rules.encoding
        if len(data) % encoding.unit_bytes:
            data = data[: len(data) - len(data) % encoding.unit_bytes]
        if not len(data):
            return []
        run = self._holes.run_at(self._searched_end)
        if self._long_line is not None:
            blocks = self._take_long_line(data)
        elif run is not None and request.offset == run.end:
            self._holes.scan(data)
            return []
        elif self._searched is not None:
            blocks = self._search_on(self._holes.cut(request.offset, data))
        else:
            data = self._without_mark(data)
            data = self._without_hole(self._holes.cut(self.position, data))
            blocks = self._take_lines(data)
        if not encoding.is_raw:
            blocks = recode(blocks, encoding)
        if self._holes.has_nuls:
            blocks, nuls = without_leading_nuls(blocks)
            self.nul_bytes_skipped += nuls * encoding.unit_bytes
        blocks = clean(blocks, encoding.line_end, strip_ansi=self.rules.strip_ansi)
        if self._fields is not None:
            blocks = put_fields(blocks, self._fields)
        if not encoding.ends_with_newline:
            return [as_events(block) for block in blocks]
        return blocks if self.rules.events is None else self._events(blocks, self.rules.events)

    def _events(self, blocks: list[Block], rules: EventRules) -> list[Block]:
        closed, event = gather(blocks, rules)
        if event is not None and self._is_long_next:
            closed.append(event)
            event = None
        # The open event may wait for a while. Its copy frees the other bytes read with it.
        self.pending = None if event is None else event.copy()
        return closed

    def _without_mark(self, data: memoryview) -> memoryview:
        """Return the data without the byte order mark at the start of the file."""
        mark = self.rules.encoding.mark
        if self.position == 0 and mark and bytes(data[: len(mark)]) == mark:
            self.evidence = self.evidence.advance(mark)
            self._searched_end = self.position
            return data[len(mark) :]
        return data

    def _without_hole(self, data: memoryview) -> memoryview:
        """Return the data without the NULs at the position, because no text will replace these."""
        if not len(data) or data[0]:
            return data
        skipped = self.rules.encoding.leading_nul_bytes(data)
        self.evidence = self.evidence.advance(data[:skipped])
        self.nul_bytes_skipped += skipped
        return data[skipped:]

    def _take_lines(self, data: memoryview) -> list[Block]:
        start = self.position
        if not len(data):
            self._searched_end = start
            return []
        blocks = split_lines(data, start, self.rules)
        if self.rules.events is not None:
            rest = next((i for i, one in enumerate(blocks) if self._ends_split_line(one)), None)
            if rest is not None:
                # The rest of a split line is read like an ordinary line. So the next read begins
                # with it, as after a restart.
                self._searched_end = blocks[rest].start
                return blocks[:rest]
        whole_end = blocks[-1].end if blocks else start
        self._is_long_next = start + len(data) - whole_end > self._unfinished_max
        if not self._is_long_next:
            self._searched_end = start + len(data)
        elif blocks:
            # The rest is too long already, so the next read begins with it.
            self._searched_end = whole_end
        else:
            return self._begin_long_line(data)
        return blocks

    def hand_out(self, block: Block) -> Evidence:
        """Move the position past a block that was passed on, and return the evidence at its end."""
        assert block.start == self.position, "blocks are handed out in order, without gaps"
        if block.evidence is not None:
            self.evidence = block.evidence
        else:
            self.evidence = self.evidence.advance(_source_of(block))
        self._long_line = None
        self._searched = None
        if self.pending is not None and self.pending.start < self.position:
            self.pending = None
        return self.evidence

    @property
    def read_position(self) -> int:
        """The end of the text that was read, including the pending event."""
        return self.position if self.pending is None else self.pending.end

    @property
    def read_tail(self) -> bytes:
        """The last bytes of the text that was read, including the pending event."""
        if self.pending is None:
            return self.evidence.tail
        return (self.evidence.tail + bytes(_source_of(self.pending)))[-MARKER_BYTES:]

    @property
    def read_evidence(self) -> Evidence:
        """The evidence at the end of the text that was read, including the pending event."""
        if self.pending is None:
            return self.evidence
        return self.evidence.advance(_source_of(self.pending))

    def rewind(self) -> None:
        """Forget how far line ends were searched, and read again from the position."""
        self._searched_end = self.position
        self._searched = None
        self._long_line = None
        self.pending = None

    # --- bytes that change in place -----------------------------------------------------------

    @property
    def searched_end(self) -> int:
        """The end of the text that was read, including a line whose end was not found yet."""
        return self._searched_end

    @property
    def doubt(self) -> NulRun | None:
        """NULs at which reading waits, because text may still replace them; None if there are
        none."""
        run = self._holes.run_at(self._searched_end)
        return run if run is not None and self._holes.is_in_doubt(run) else None

    def trust(self, size: int) -> None:
        """Continue to read after the NULs before offset `size`, because nothing will replace
        them."""
        self._holes.trusted_end = size

    def text_end(self, size: int) -> int:
        """Return the offset at which the text of a file of `size` bytes ends; only NULs follow
        it."""
        run = self._holes.run
        is_known = run is not None and not run.has_text and 0 <= run.start <= size <= run.end
        return run.start if run is not None and is_known else size

    def nuls_to_probe(self, size: int) -> Request | None:
        """Return the first code unit of the NULs, where the writer may have written text."""
        run = self._holes.run_at(self._searched_end)
        unit = self.rules.encoding.unit_bytes
        if run is None or size < run.start + unit:
            return None
        return Request(run.start, unit) if self.doubt is not None or not run.has_text else None

    def look_again(self, *, is_written_at_start: bool = False) -> None:
        """Read again from the position, because the bytes after it may have changed.

        `is_written_at_start`: text was found at the request of `nuls_to_probe`.
        """
        self.rewind()
        self._holes.forget(is_written_at_start=is_written_at_start)

    def before(self, request: Request) -> bytes:
        """Return the bytes expected directly before the bytes of a request; empty if unknown."""
        if request.offset == self.position:
            return self.evidence.tail
        if self._searched is not None and request.offset == self._searched.position:
            return self._searched.tail
        return b""

    def final_request(self, size: int) -> Request | None:
        """Return what to read of the unfinished last line of a file that will not grow."""
        begin = self.read_position
        if size <= begin:
            return None
        return Request(begin, min(size - begin, self.rules.limit_bytes))

    def take_final(self, data: memoryview, size: int) -> list[Block]:
        """Return the unfinished last line as an UNFINISHED record, cut at the limit.

        The pending event comes before it, or is joined with it. Without data, only the pending
        event is returned.
        """
        event, rules = self.pending, self.rules.events
        nuls = self.rules.encoding.leading_nul_bytes(data)
        if nuls == len(data):
            return [] if event is None else [event]
        last = self._unfinished(data, size, self.read_evidence)
        return [last] if rules is None else unfinished(event, last, rules)

    def _unfinished(self, data: memoryview, size: int, begun: Evidence) -> Block:
        if self._searched is not None and self._searched.position == size:
            evidence = self._searched
        else:
            evidence = begun.advance(data)
        encoding = self.rules.encoding
        content = data[encoding.leading_nul_bytes(data) :]
        content = content[: len(content) - encoding.trailing_nul_bytes(content)]
        if self.rules.cut_cr and encoding.ends_in_cr(content):
            content = content[: -encoding.unit_bytes]
        block = single_block(
            content, begun.position, evidence.position, RecordKind.UNFINISHED, evidence=evidence
        )
        blocks = [block] if encoding.is_raw else recode([block], encoding)
        blocks = clean(blocks, encoding.line_end, strip_ansi=self.rules.strip_ansi)
        return (blocks if self._fields is None else put_fields(blocks, self._fields))[0]

    def _ends_split_line(self, block: Block) -> bool:
        unit = self.rules.encoding.unit_bytes
        return block.kind is RecordKind.PIECE and bool(
            len(self.rules.encoding.newlines(_source_of(block)[-unit:]))
        )

    def _begin_long_line(self, data: memoryview) -> list[Block]:
        """Begin to read a line without an end: `data` holds more than the limit, and no line
        end."""
        start = self.position
        if self.rules.on_overlong is not Overlong.SPLIT:
            self._searched = self.evidence.advance(data)
            self._searched_end = self._searched.position
            return []
        piece = first_piece(data, self.rules)
        self._searched_end = start + len(piece)
        return [piece_block(piece, start, piece, self.rules)]

    def _search_on(self, data: memoryview) -> list[Block]:
        assert self._searched is not None
        newlines = self.rules.encoding.newlines(data)
        if not len(newlines):
            self._searched = self._searched.advance(data)
            self._searched_end = self._searched.position
        else:
            end = int(newlines[0]) + self.rules.encoding.unit_bytes
            self._long_line = _LongLine(self._searched.advance(data[:end]))
            self._searched = None
        return []

    def _take_long_line(self, data: memoryview) -> list[Block]:
        assert self._long_line is not None
        evidence = self._long_line.evidence
        self._searched_end = evidence.position
        return [
            single_block(
                first_bytes(data[: self.rules.limit_bytes], self.rules),
                self.position,
                evidence.position,
                kind_of(self.rules),
                evidence=evidence,
            )
        ]


def _source_of(block: Block) -> memoryview:
    assert block.source is not None
    return block.source
