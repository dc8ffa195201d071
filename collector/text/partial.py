r"""Join lines that a container runtime wrote in parts into one record each.

This module is pure. containerd and CRI-O mark a part with the tag `P`, and the last part with `F`.
Docker writes a part as a JSON line whose `log` does not end in `\n`. The record has the text of all
parts inside the frame of the first part. In the CRI format it has the tag of the last part.

Parts of stdout and stderr can be interleaved. A *group* starts at the first line that leaves a part
open, and ends at the line after which no part is open. A position is never inside a group, so a
restart reads the whole group again. Therefore only the last record of a group has an end in the
source.
"""

import functools
import re
from dataclasses import dataclass, field

import numpy as np

from collector.config.multiline import EventRules
from collector.text.lines import Block, RecordKind

_WHOLE_JSON_TEXT = re.compile(rb"(?:^|[^\\])(?:\\\\)*\\n$")


@dataclass(frozen=True, slots=True)
class _Part:
    """One line of a container runtime. `is_open`: another part must follow.

    `before` and `after` are the frame around `text`.
    """

    stream: bytes
    before: bytes
    text: bytes
    after: bytes
    tag: tuple[int, bytes] | None
    is_open: bool


@dataclass(frozen=True, slots=True)
class _Record:
    """The text of a record, whether its lines had invalid bytes, and whether a limit ended it."""

    text: bytes
    is_altered: bool = False
    is_cut: bool = False


@dataclass(slots=True)
class _Group:
    """The lines of a group so far; `first` is the index of its first line."""

    first: int
    finished: list[_Record] = field(default_factory=list)
    open: dict[bytes, list[_Part]] = field(default_factory=dict)
    altered: set[bytes] = field(default_factory=set)
    """The streams whose open parts contain bytes that are not valid text."""

    def add(self, line: bytes, part: _Part | None, *, is_altered: bool) -> None:
        """Add the next line to the group."""
        parts = None if part is None else self.open.get(part.stream)
        if part is None or (parts is None and not part.is_open):
            self.finished.append(_Record(line, is_altered))
            return
        if is_altered:
            self.altered.add(part.stream)
        if parts is None:
            self.open[part.stream] = [part]
            return
        parts.append(part)
        if not part.is_open:
            del self.open[part.stream]
            self.finished.append(_Record(_joined(parts), part.stream in self.altered))
            self.altered.discard(part.stream)

    def records(self, *, is_cut: bool = False) -> list[_Record]:
        """Return all records of the group. The open parts become records of the text so far."""
        return self.finished + [
            _Record(_joined(parts), stream in self.altered, is_cut)
            for stream, parts in self.open.items()
        ]


def join_parts(block: Block, rules: EventRules) -> tuple[list[Block], Block | None]:
    """Return the block's lines with their parts joined, and the group that is open at its end.

    The lines of `block` have no CRs at their ends. A group that reaches a limit ends there.
    """
    writer = _Writer(block)
    group: _Group | None = None
    for index, line in enumerate(writer.lines):
        part = _part_of(line, rules.pattern.pattern)
        if group is not None and writer.is_full(group, index, rules):
            writer.put_group(group, index, is_cut=True)
            group = None
        if group is None:
            if part is None or not part.is_open:
                writer.put_line(index)
                continue
            group = _Group(index)
        group.add(line, part, is_altered=index in writer.altered)
        if not group.open:
            writer.put_group(group, index + 1)
            group = None
    if group is None:
        return ([block] if writer.is_plain else writer.blocks(len(writer.lines))), None
    if len(writer.lines) - group.first >= rules.max_lines:
        writer.put_group(group, len(writer.lines), is_cut=True)
        return writer.blocks(len(writer.lines)), None
    closed = writer.blocks(group.first)
    writer.put_group(group, len(writer.lines))
    return closed, writer.blocks(len(writer.lines))[0]


class _Writer:
    """Builds blocks of records from the lines of a block.

    `_begin` is the index of the first line that is in no new block yet.
    """

    def __init__(self, block: Block):
        self.lines = bytes(block.data).split(b"\n")[:-1]
        self.altered = frozenset(() if block.altered is None else block.altered.tolist())
        self._block = block
        ends = block.newlines + 1 if block.source_ends is None else block.source_ends
        self._ends: list[int] = [0, *ends.tolist()]
        """The source offset at which each line begins, followed by the offset at which the last one
        ends."""
        self.is_plain = True
        """True if no lines have been joined so far."""
        self._begin = 0
        self._records: list[_Record] = []
        self._record_ends: list[int] = []
        self._blocks: list[Block] = []

    def is_full(self, group: _Group, index: int, rules: EventRules) -> bool:
        """Tell whether one more line would exceed a limit of the group."""
        size = self._ends[index + 1] - self._ends[group.first]
        return index - group.first >= rules.max_lines or size > rules.max_bytes

    def put_line(self, index: int) -> None:
        """Add one line as a record, unchanged."""
        self._records.append(_Record(self.lines[index], index in self.altered))
        self._record_ends.append(self._ends[index + 1])

    def put_group(self, group: _Group, end: int, *, is_cut: bool = False) -> None:
        """Add the records of a group whose last line precedes the line `end`."""
        self.is_plain = False
        records = group.records(is_cut=is_cut)
        if len(records) == 1:
            self._records += records
            self._record_ends.append(self._ends[end])
            return
        self._flush(group.first)
        self._records = records
        self._record_ends = [self._ends[group.first]] * (len(records) - 1) + [self._ends[end]]
        self._flush(end, is_group=True)

    def blocks(self, end: int) -> list[Block]:
        """Return blocks of all records so far, whose last line precedes the line `end`."""
        self._flush(end)
        blocks, self._blocks = self._blocks, []
        return blocks

    def _flush(self, end: int, *, is_group: bool = False) -> None:
        if not self._records:
            return
        block, begin_at, end_at = self._block, self._ends[self._begin], self._ends[end]
        assert block.source is not None
        lengths = np.array([len(one.text) + 1 for one in self._records], dtype=np.int64)
        altered = [index for index, one in enumerate(self._records) if one.is_altered]
        cut = [index for index, one in enumerate(self._records) if one.is_cut]
        self._blocks.append(
            Block(
                memoryview(b"".join(one.text + b"\n" for one in self._records)),
                np.cumsum(lengths) - 1,
                block.start + begin_at,
                block.start + end_at,
                False,
                RecordKind.EVENTS,
                block.source[begin_at:end_at],
                source_ends=np.array(self._record_ends, dtype=np.int64) - begin_at,
                altered=np.array(altered, dtype=np.int64) if altered else None,
                shortened=np.array(cut, dtype=np.int64) if cut else None,
                is_group=is_group,
            )
        )
        self._begin, self._records, self._record_ends = end, [], []


def _part_of(line: bytes, pattern: str) -> _Part | None:
    found = _compiled(pattern).match(line)
    if found is None:
        return None
    begin, end = found.span("text")
    text = line[begin:end]
    if "tag" in found.re.groupindex:
        tag_at, tag = found.start("tag"), found["tag"]
        frame = found["stream"], line[:begin], text, line[end:], (tag_at, tag)
        return _Part(*frame, is_open=tag == b"P")
    is_open = _WHOLE_JSON_TEXT.search(text) is None
    return _Part(found["stream"] or b"", line[:begin], text, line[end:], None, is_open)


def _joined(parts: list[_Part]) -> bytes:
    first, last = parts[0], parts[-1]
    before = first.before
    if first.tag is not None and last.tag is not None:
        at = first.tag[0]
        before = before[:at] + last.tag[1] + before[at + len(first.tag[1]) :]
    return before + b"".join(part.text for part in parts) + first.after


@functools.cache
def _compiled(pattern: str) -> re.Pattern[bytes]:
    return re.compile(pattern.encode())
