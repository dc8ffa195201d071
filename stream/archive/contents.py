"""The contents of an archive: the pieces of one topic, their offsets, and what is missing.

Room: pure. A piece is some offsets of some partitions, written together: a Parquet file for each
hour in which lines arrived. Its note says which offsets it covers, including those without a line.
The note makes the piece part of the archive.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from sinks.rows import OffsetRange

Spans = Sequence[tuple[int, int]]
"""Offsets [start, end) of one partition, ascending; adjacent spans are joined."""

_VERSION = 1


class PieceRange(NamedTuple):
    """Offsets of one partition in a piece; `until_ms` is the latest arrival, -1 without a line."""

    partition: int
    start: int
    end: int
    until_ms: int


@dataclass(frozen=True, slots=True)
class ArchivePiece:
    """One piece. `topic_id` is empty if the brokers give none; `draft` is where it was written.

    `hours` are the folders with a file of it.
    """

    number: int
    topic_id: str
    draft: str
    lines: int
    ranges: tuple[PieceRange, ...]
    hours: tuple[str, ...]

    @property
    def file_name(self) -> str:
        """The name of each of its files, in the folder of its hour."""
        return f"{self.number:08}.parquet"


class Pieces:
    """All pieces of one topic, in order."""

    def __init__(self, pieces: Iterable[ArchivePiece] = ()) -> None:
        self.all: list[ArchivePiece] = []
        self.ends: dict[int, int] = {}
        self.lines = 0
        self._spans: dict[int, list[tuple[int, int]]] = {}
        for piece in pieces:
            self.add(piece)

    @property
    def next_number(self) -> int:
        """The number for the next piece."""
        return self.all[-1].number + 1 if self.all else 1

    def add(self, piece: ArchivePiece) -> None:
        """Add a piece at the end; raises ValueError if it does not follow the others."""
        if self.all and piece.number != self.next_number:
            raise ValueError(f"found piece {piece.number}, expected {self.next_number}")
        for one in piece.ranges:
            spans = self._spans.setdefault(one.partition, [])
            end = spans[-1][1] if spans else None
            if one.start >= one.end or (end is not None and one.start < end):
                raise ValueError(f"found {one} in piece {piece.number} behind {end}")
            if end == one.start:
                spans[-1] = (spans[-1][0], one.end)
            else:
                spans.append((one.start, one.end))
            self.ends[one.partition] = one.end
        self.all.append(piece)
        self.lines += piece.lines

    def spans(self, partition: int) -> Spans:
        """Return the offsets of a partition that the archive has."""
        return tuple(self._spans.get(partition, ()))

    def lost(self) -> int:
        """Return how many offsets are missing between the first and the last one."""
        return sum(
            spans[-1][1] - spans[0][0] - sum(end - start for start, end in spans)
            for spans in self._spans.values()
        )

    def made_anew(self, topic_id: str, ends: Mapping[int, int]) -> str | None:
        """Return why the pieces are of an older topic of that name; None if they fit."""
        if not self.all:
            return None
        known = self.all[-1].topic_id
        if known and topic_id and known != topic_id:
            return "the topic was created again"
        for partition, end in sorted(self.ends.items()):
            if end > ends.get(partition, 0):
                return (
                    f"partition {partition} is archived up to {end}, but the broker has it only up"
                    f" to {ends.get(partition, 0)}: was the topic created again?"
                )
        return None

    def overlapping(self, wanted: Sequence[OffsetRange]) -> list[ArchivePiece]:
        """Return the pieces with some of these offsets, at most one range per partition."""
        asked = {one.partition: one for one in wanted}
        return [
            piece
            for piece in self.all
            if any(
                one.partition in asked
                and one.start < asked[one.partition].end
                and asked[one.partition].start < one.end
                for one in piece.ranges
            )
        ]


def next_ranges(
    topic: str,
    archived: Mapping[int, int],
    starts: Mapping[int, int],
    ends: Mapping[int, int],
    offsets_max: int,
) -> tuple[OffsetRange, ...]:
    """Return the next piece: the first available offsets that are not `archived`.

    Lines that the broker no longer has are skipped. Empty if there is nothing to archive.
    """
    waiting = [
        (partition, max(archived.get(partition, 0), starts[partition]), end)
        for partition, end in sorted(ends.items())
        if end > max(archived.get(partition, 0), starts[partition])
    ]
    share = max(1, offsets_max // len(waiting)) if waiting else 0
    return tuple(
        OffsetRange(topic, partition, start, min(end, start + share))
        for partition, start, end in waiting
    )


def reachable(end: int, first_held: int, archived: Spans) -> int:
    """Return the lowest offset from which all below `end` is in the topic or archive.

    `first_held` is the first offset in the topic. The result is `end` if the one below is gone.
    """
    bottom = min(end, first_held)
    for start, stop in reversed(archived):
        if start < bottom <= stop:
            bottom = start
    return bottom


def encode(pieces: Iterable[ArchivePiece]) -> bytes:
    """Encode pieces for a note's file."""
    found = [
        [one.number, one.topic_id, one.draft, one.lines, one.ranges, one.hours] for one in pieces
    ]
    return json.dumps({"version": _VERSION, "pieces": found}, separators=(",", ":")).encode()


def decode(data: bytes) -> list[ArchivePiece]:
    """Decode a note's file; raises ValueError for anything else."""
    try:
        value = json.loads(data)
        if value["version"] != _VERSION:
            raise ValueError(f"found version {value['version']}, expected {_VERSION}")
        return [_piece(*one) for one in value["pieces"]]
    except (KeyError, TypeError) as error:
        raise ValueError(f"found {data[:80]!r}, expected pieces of an archive") from error


def _piece(
    number: Any, topic_id: Any, draft: Any, lines: Any, ranges: Any, hours: Any
) -> ArchivePiece:
    return ArchivePiece(
        int(number),
        str(topic_id),
        str(draft),
        int(lines),
        tuple(PieceRange(*map(int, one)) for one in ranges),
        tuple(map(str, hours)),
    )
