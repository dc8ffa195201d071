"""One generation's reading, without a file: which bytes to read next, and the lines they hold.

Floor: above `lines`. Pure. The driver asks `request(size)` what to read, reads it, gives the bytes
to `take`, and calls `hand_out` for each block (or part of one) it has passed on. `position` is
where the next line to be passed on begins. Bytes of an unfinished line are not kept: they wait in
the file, and only where the search for their line end goes on is remembered, so a line of any
length costs no more memory than the limit. So do NULs that stand where text may still be written
(`holes`).
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
    Kind,
    LineRules,
    Overlong,
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
"""How much is read at once of a file that ends in NULs, most of which were just found there."""


@dataclass(frozen=True, slots=True)
class Request:
    """Bytes wanted from the file."""

    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class _LongLine:
    """A line beyond the limit whose end is found: it ends where `evidence` stands."""

    evidence: Evidence


class Tailer:
    """Reads one generation onwards from the position of `evidence`.

    Three ways of reading: lines from the position; onwards from `_searched` for the end of a line
    that is too long to keep; and the first bytes of such a line once its end is known.
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
        """What follows the last whole line is too long, and so no part of an event."""
        self.pending: Block | None = None
        """The whole lines of an event that the next line may belong to: to be closed by hand."""
        self._holes = Holes(rules.encoding)

    @property
    def position(self) -> int:
        """The start of the next line (or piece of an overlong one) to be passed on."""
        return self.evidence.position

    def request(self, size: int, block_bytes: int = BLOCK_BYTES) -> Request | None:
        """What to read of a file of `size` bytes; None when nothing new can come of it.

        At most `block_bytes`, unless they held no line end.
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
        # When a whole block held no line end, only a longer look can tell if the line is too long.
        wanted = min(self._block_bytes, block_bytes)
        if self._holes.is_short_look_enough():
            wanted = min(wanted, SHORT_LOOK_BYTES)
        if self._searched_end - self.position >= wanted:
            wanted = max(wanted, self.rules.look_bytes)
        return Request(self.position, min(size - self.position, wanted))

    def take(self, request: Request, data: memoryview) -> list[Block]:
        """The whole lines in the bytes that answer `request`; fewer bytes than asked are fine.

        Each block, or each part of it in order, is to be given to `hand_out`. If the driver stops
        before the last, it calls `rewind` and reads the rest again later.
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
        # It may wait for a while: what else was read with it need not.
        self.pending = None if event is None else event.copy()
        return closed

    def _without_mark(self, data: memoryview) -> memoryview:
        """What follows the byte order mark of a file's start."""
        mark = self.rules.encoding.mark
        if self.position == 0 and mark and bytes(data[: len(mark)]) == mark:
            self.evidence = self.evidence.advance(mark)
            self._searched_end = self.position
            return data[len(mark) :]
        return data

    def _without_hole(self, data: memoryview) -> memoryview:
        """What follows the NULs at the position, in whose place nothing will be written."""
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
                # What is left of a line that was split is a line like any other: the next look
                # begins with it, as it would after a restart.
                self._searched_end = blocks[rest].start
                return blocks[:rest]
        whole_end = blocks[-1].end if blocks else start
        self._is_long_next = start + len(data) - whole_end > self._unfinished_max
        if not self._is_long_next:
            self._searched_end = start + len(data)
        elif blocks:
            # What follows is too long already: the next look begins with it.
            self._searched_end = whole_end
        else:
            return self._begin_long_line(data)
        return blocks

    def hand_out(self, block: Block) -> Evidence:
        """Move past a block that was passed on; returns the evidence of its end."""
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
        """The end of what was read, the pending event included."""
        return self.position if self.pending is None else self.pending.end

    @property
    def read_tail(self) -> bytes:
        """The last bytes of what was read, the pending event included."""
        if self.pending is None:
            return self.evidence.tail
        return (self.evidence.tail + bytes(_source_of(self.pending)))[-MARKER_BYTES:]

    @property
    def read_evidence(self) -> Evidence:
        """The evidence of what was read, the pending event included."""
        if self.pending is None:
            return self.evidence
        return self.evidence.advance(_source_of(self.pending))

    def rewind(self) -> None:
        """Forget how far the search for line ends went: read again from the position."""
        self._searched_end = self.position
        self._searched = None
        self._long_line = None
        self.pending = None

    # --- bytes that change in place -----------------------------------------------------------

    @property
    def searched_end(self) -> int:
        """The end of the text that was read, with that of the line whose end is not found yet."""
        return self._searched_end

    @property
    def doubt(self) -> NulRun | None:
        """NULs before other text, in whose place text may still be written: reading waits there."""
        run = self._holes.run_at(self._searched_end)
        return run if run is not None and self._holes.is_in_doubt(run) else None

    def trust(self, size: int) -> None:
        """Read on behind the NULs before this place: nothing is written there any more."""
        self._holes.trusted_end = size

    def text_end(self, size: int) -> int:
        """Where the text of a file of `size` bytes ends, as far as is known: NULs may follow."""
        run = self._holes.run
        is_known = run is not None and not run.has_text and 0 <= run.start <= size <= run.end
        return run.start if run is not None and is_known else size

    def nuls_to_probe(self, size: int) -> Request | None:
        """The first code unit of NULs that its writer may have replaced by text."""
        run = self._holes.run_at(self._searched_end)
        unit = self.rules.encoding.unit_bytes
        if run is None or size < run.start + unit:
            return None
        return Request(run.start, unit) if self.doubt is not None or not run.has_text else None

    def look_again(self, *, is_written_at_start: bool = False) -> None:
        """Read again from the position: the bytes behind it may have changed.

        `is_written_at_start`: text was found where `nuls_to_probe` looked.
        """
        self.rewind()
        self._holes.forget(is_written_at_start=is_written_at_start)

    def before(self, request: Request) -> bytes:
        """What has to stand directly before the bytes that are asked for; empty: unknown."""
        if request.offset == self.position:
            return self.evidence.tail
        if self._searched is not None and request.offset == self._searched.position:
            return self._searched.tail
        return b""

    def final_request(self, size: int) -> Request | None:
        """What to read of the unfinished last line of a file that is closed for good."""
        begin = self.read_position
        if size <= begin:
            return None
        return Request(begin, min(size - begin, self.rules.limit_bytes))

    def take_final(self, data: memoryview, size: int) -> list[Block]:
        """The unfinished last line as a record, marked, cut at the limit; or its event's end.

        The pending event goes before it. Without bytes it is that alone.
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
            content, begun.position, evidence.position, Kind.UNFINISHED, evidence=evidence
        )
        blocks = [block] if encoding.is_raw else recode([block], encoding)
        blocks = clean(blocks, encoding.line_end, strip_ansi=self.rules.strip_ansi)
        return (blocks if self._fields is None else put_fields(blocks, self._fields))[0]

    def _ends_split_line(self, block: Block) -> bool:
        unit = self.rules.encoding.unit_bytes
        return block.kind is Kind.PIECE and bool(
            len(self.rules.encoding.newlines(_source_of(block)[-unit:]))
        )

    def _begin_long_line(self, data: memoryview) -> list[Block]:
        """`data` holds more than the limit, and no line end."""
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
