"""The contents of an archive: the pieces of one topic, their offsets, and what is missing.

This module is pure: it touches no file. A *piece* is some offsets of some partitions that are
written together, as one Parquet file for each hour in which lines arrived. The *note* of a piece is
a small file that lists the offsets that the piece covers, including those without a line. A piece
belongs to the archive as soon as its note exists.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from sinks.rows import OffsetRange

Spans = Sequence[tuple[int, int]]
"""Offset ranges [start, end) of one partition, in ascending order. Adjacent ranges are joined."""

_VERSION = 1


class PieceRange(NamedTuple):
    """The offsets [start, end) of one partition in a piece.

    `until_ms` is the latest arrival time among their lines, or -1 if there are no lines.
    """

    partition: int
    start: int
    end: int
    until_ms: int


@dataclass(frozen=True, slots=True)
class ArchivePiece:
    """One piece of a topic's archive.

    `topic_id` is empty if the brokers do not report one. `draft` is the name of the folder in which
    the piece was first written. `lines` is the number of lines in it.

    `hours` are the names of the folders that have a file of this piece.
    """

    number: int
    topic_id: str
    draft: str
    lines: int
    ranges: tuple[PieceRange, ...]
    hours: tuple[str, ...]

    @property
    def file_name(self) -> str:
        """The name of this piece's file, which is the same in the folder of every hour."""
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
            raise ValueError(f"found piece {piece.number}, expected piece {self.next_number}")
        for one in piece.ranges:
            spans = self._spans.setdefault(one.partition, [])
            end = spans[-1][1] if spans else None
            if one.start >= one.end or (end is not None and one.start < end):
                raise ValueError(
                    f"piece {piece.number}: found {one}, expected a start from {end} on"
                )
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
        """Return how many offsets are missing between the first and the last archived offset."""
        return sum(
            spans[-1][1] - spans[0][0] - sum(end - start for start, end in spans)
            for spans in self._spans.values()
        )

    def made_anew(self, topic_id: str, ends: Mapping[int, int]) -> str | None:
        """Return why the pieces belong to an older topic of the same name; None if they do not.

        `ends` are the broker's end offsets by partition.
        """
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
        """Return the pieces that have some of these offsets.

        `wanted` has at most one range per partition.
        """
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
    """Return the offsets of the next piece: the first available, not yet archived offsets.

    `archived` is the archive's end offset of each partition. `starts` and `ends` are the broker's.

    Lines that the broker no longer has are skipped. The result is empty if there are no new lines.
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
    """Return the lowest offset from which every offset up to `end` is in the topic or the archive.

    `first_held` is the topic's first offset. The result is `end` if the offset before `end` is in
    neither of them.
    """
    bottom = min(end, first_held)
    for start, stop in reversed(archived):
        if start < bottom <= stop:
            bottom = start
    return bottom


def encode(pieces: Iterable[ArchivePiece]) -> bytes:
    """Encode pieces as the content of a note, which is JSON."""
    found = [
        [one.number, one.topic_id, one.draft, one.lines, one.ranges, one.hours] for one in pieces
    ]
    return json.dumps({"version": _VERSION, "pieces": found}, separators=(",", ":")).encode()


def decode(data: bytes) -> list[ArchivePiece]:
    """Decode the content of a note; raises ValueError if it is not one."""
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
