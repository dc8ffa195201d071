"""Recognises archives that end before the position up to which their original was read.

This module is pure; the caller passes the function that reads bytes. With copytruncate, the writer
continues to write between the copy and the truncation. A collector that keeps up has then read past
the end of the copy. Hashes at older positions of the original are stored as marks (`trail`). If the
copy has the same head and all marks within its length, its lines were handed out already.
"""

from collections.abc import Iterable

from collector.config.settings import BLOCK_BYTES
from collector.identity.comparing import JOINING_BYTES_MIN
from collector.identity.generation import Generation
from collector.text.archive import CompressedFile, ReadRaw
from collector.text.fingerprint import TRAIL_HASH_BYTES, Evidence, Mark


class OlderCopies:
    """Compares one archive of `size` bytes of content with the marks of known files.

    After `run_through` has reached the end of the archive, `evidence` is the evidence there.
    """

    def __init__(self, candidates: Iterable[Generation], size: int):
        self.evidence = Evidence()
        reached = ((known, _marks_within(known, size)) for known in candidates)
        self._candidates = [(known, marks) for known, marks in reached if _is_enough(marks, size)]
        places = {mark.position for _, marks in self._candidates for mark in marks}
        self._stops = sorted(places | {size}, reverse=True) if self._candidates else []
        self._markers: dict[int, bytes] = {}

    def run_through(self, archive: CompressedFile, read_raw: ReadRaw) -> bool:
        """Read a bounded part of the archive. Return True at its end."""
        while self._stops:
            at, stop = self.evidence.position, self._stops[-1]
            if at < stop:
                content = archive.read(read_raw, at, min(stop - at, BLOCK_BYTES))
                if not content:
                    return content is not None
                self.evidence = self.evidence.advance(content)
                return False
            self._markers[stop] = self.evidence.fingerprint().marker
            self._stops.pop()
        return True

    def found(self) -> Generation | None:
        """Return the known file that contained all of this archive before; None if there is
        none."""
        heads = dict(self.evidence.fingerprint().heads)
        for known, marks in self._candidates:
            head = known.read_print().head_within(self.evidence.position)
            is_same = head is not None and heads.get(head.length) == head.digest
            if is_same and all(self._has(mark) for mark in marks):
                return known
        return None

    def _has(self, mark: Mark) -> bool:
        marker = self._markers.get(mark.position, b"")
        return marker[:TRAIL_HASH_BYTES] == mark.digest[:TRAIL_HASH_BYTES]


def _marks_within(known: Generation, size: int) -> tuple[Mark, ...]:
    last = () if known.last_mark is None else (known.last_mark,)
    return tuple(mark for mark in (*known.trail, *last) if 0 < mark.position <= size)


def _is_enough(marks: tuple[Mark, ...], size: int) -> bool:
    """Tell whether the last mark is far enough from the start of the file, or at its end.

    A mark within the first lines proves nothing, because many files begin with equal lines.
    """
    last = max((mark.position for mark in marks), default=0)
    return last >= JOINING_BYTES_MIN or 0 < last == size
