"""Find NUL bytes in a file that text may still replace, or that will never become text.

This module is pure. A preallocated or mapped file ends in NULs that its writer replaces by text.
NULs before a line come from a copytruncate under a writer that does not append, from a sparse file,
or from a power failure. NULs up to the end of the file are not text. NULs that other text follows
are in doubt until the caller trusts them, because they have not changed for long enough. Trusted
NULs belong to the line around them, except that NULs at the beginning of a line belong to no line.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from collector.text.encodings import Encoding
from collector.text.lines import Block, RecordKind


class NulRun(NamedTuple):
    """NULs from offset `start` to `end` of a file. `has_text`: text is known to follow them."""

    start: int
    end: int
    has_text: bool


_NOWHERE = -1


class Holes:
    """The known NULs after the text that was read of one file."""

    def __init__(self, encoding: Encoding):
        self.run: NulRun | None = None
        """The NULs that follow the text read last."""
        self.trusted_end = 0
        """Text may no longer replace NULs before this offset if other text follows them."""
        self.has_nuls = False
        """True if the bytes of the last `cut` held NULs."""
        self._encoding = encoding

    def run_at(self, place: int) -> NulRun | None:
        """Return the known NULs that begin at an offset; None if no NULs are known there."""
        return self.run if self.run is not None and self.run.start == place else None

    def is_in_doubt(self, run: NulRun) -> bool:
        """Tell whether text may still replace these NULs. Then the text after them must not be read
        yet."""
        return run.has_text and run.end > self.trusted_end

    def forget(self, *, is_written_at_start: bool = False) -> None:
        """Forget the known NULs, so that their bytes are read again.

        If the writer continued at the start of the NULs, it has not yet written to the later ones.
        """
        if is_written_at_start and self.run is not None and not self.run.has_text:
            self.run = self.run._replace(start=_NOWHERE)
        else:
            self.run = None

    def is_short_look_enough(self) -> bool:
        """Tell whether a short read is enough, because it will find many NULs."""
        return self.run is not None and self.run.start == _NOWHERE

    def scan(self, data: memoryview) -> None:
        """Extend the known NULs by the data that follow them."""
        assert self.run is not None
        nuls = self._encoding.leading_nul_bytes(data)
        self.run = NulRun(self.run.start, self.run.end + nuls, nuls < len(data))

    def cut(self, offset: int, data: memoryview) -> memoryview:
        """Return the bytes before the first NULs that are in doubt or that no text follows."""
        units = self._encoding.units(data)
        # If NULs end the lines, every NUL is a line end and no hole.
        self.has_nuls = self._encoding.ends_with_newline and bool(len(units)) and not units.min()
        if not self.has_nuls:
            self.run = None
            return data
        unit = self._encoding.unit_bytes
        is_text = units != 0
        text_units = _last_true(is_text) + 1
        first = max(0, self.trusted_end - offset + unit - 1) // unit
        doubted = first + int((~is_text[first:text_units]).argmax()) if first < text_units else 0
        if first < text_units and not is_text[doubted]:
            start = _last_true(is_text[:doubted]) + 1
            end = doubted + int(is_text[doubted:].argmax())
            self.run = NulRun(offset + start * unit, offset + end * unit, True)
            return data[: start * unit]
        start, end = offset + text_units * unit, offset + len(units) * unit
        before = self.run
        if start == end:
            self.run = None
            return data
        if before is not None and before.start <= start and before.end >= end:
            if before.has_text and not self.is_in_doubt(before):
                return data
            self.run = before._replace(start=start)
        else:
            self.run = NulRun(start, end, False)
        return data[: text_units * unit]


def without_leading_nuls(blocks: Iterable[Block]) -> tuple[list[Block], int]:
    """Return the blocks without NULs at the beginning of lines, and the number of removed NULs."""
    out, count = [], 0
    for block in blocks:
        stripped = _stripped(block) if block.kind is RecordKind.LINES else None
        if stripped is not None:
            count += len(block.data) - len(stripped.data)
        out.append(stripped or block)
    return out, count


def _stripped(block: Block) -> Block | None:
    """Return a block of lines without NULs at the beginning of lines; None if there are none."""
    data = np.frombuffer(block.data, dtype=np.uint8)
    begins = np.concatenate(([0], block.newlines[:-1] + 1))
    if data[begins].all():
        return None
    text_begins = Encoding().text_begins(block.data, begins)
    nuls = text_begins - begins
    steps = np.zeros(len(data) + 1, dtype=np.int64)
    has_nuls = nuls > 0
    steps[begins[has_nuls]] = 1
    steps[text_begins[has_nuls]] = -1
    kept = data[np.cumsum(steps[:-1]) == 0].tobytes()
    ends = block.newlines + 1 if block.source_ends is None else block.source_ends
    return replace(
        block,
        data=memoryview(kept),
        newlines=block.newlines - np.cumsum(nuls),
        source_ends=ends,
    )


def _last_true(values: NDArray[np.bool_]) -> int:
    """Return the index of the last true value; -1 if there is none."""
    if not values.any():
        return -1
    return len(values) - 1 - int(values[::-1].argmax())
