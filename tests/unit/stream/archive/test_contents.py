"""The pieces of an archive: their offsets, the gaps between them, and which piece may be next."""

import pytest

from sinks.rows import OffsetRange
from stream.archive.contents import (
    ArchivePiece,
    PieceRange,
    Pieces,
    decode,
    encode,
    next_ranges,
    reachable,
)


def piece(number: int, *ranges: tuple[int, int, int], topic_id: str = "a") -> ArchivePiece:
    spans = tuple(PieceRange(part, start, end, 1_000 * number) for part, start, end in ranges)
    lines = sum(end - start for _, start, end in ranges)
    return ArchivePiece(number, topic_id, f"{number:08}-x", lines, spans, ("hour=2026-08-01T10",))


def test_pieces_that_touch_are_one_span_and_holes_are_counted() -> None:
    pieces = Pieces([piece(1, (0, 5, 10), (1, 0, 3)), piece(2, (0, 10, 20)), piece(3, (0, 27, 30))])
    assert pieces.spans(0) == ((5, 20), (27, 30))
    assert pieces.spans(1) == ((0, 3),)
    assert pieces.spans(7) == ()
    assert pieces.ends == {0: 30, 1: 3}
    assert pieces.lost() == 7, "what went by before the first piece was never to be archived"
    assert pieces.lines == 21
    assert pieces.next_number == 4


@pytest.mark.parametrize(
    "wrong",
    [
        piece(3, (0, 10, 12)),
        piece(2, (0, 9, 12)),
        piece(2, (0, 12, 12)),
    ],
)
def test_what_is_not_behind_the_others_is_damage(wrong: ArchivePiece) -> None:
    with pytest.raises(ValueError, match="found"):
        Pieces([piece(1, (0, 5, 10))]).add(wrong)


def test_notes_are_read_as_they_were_written() -> None:
    written = [piece(1, (0, 5, 10), (1, 0, 3)), piece(2, (0, 10, 20), topic_id="")]
    assert decode(encode(written)) == written


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b'{"version":2,"pieces":[]}', b"\xff"])
def test_damaged_notes(data: bytes) -> None:
    with pytest.raises(ValueError):
        decode(data)


def test_the_pieces_of_some_offsets() -> None:
    pieces = Pieces([piece(1, (0, 0, 10)), piece(2, (0, 10, 20), (1, 0, 5)), piece(3, (0, 20, 30))])

    def numbers(*ranges: OffsetRange) -> list[int]:
        return [one.number for one in pieces.overlapping(ranges)]

    assert numbers(OffsetRange("t", 0, 9, 20)) == [1, 2]
    assert numbers(OffsetRange("t", 0, 10, 20)) == [2]
    assert numbers(OffsetRange("t", 1, 4, 9)) == [2]
    assert numbers(OffsetRange("t", 0, 0, 1), OffsetRange("t", 1, 0, 1)) == [1, 2]


def test_a_recreated_topic() -> None:
    pieces = Pieces([piece(1, (0, 0, 10))])
    assert pieces.made_anew("a", {0: 10}) is None
    assert pieces.made_anew("b", {0: 10}) is not None
    assert pieces.made_anew("", {0: 10}) is None, "older brokers tell no ids"
    assert "only up to 9" in str(pieces.made_anew("", {0: 9}))
    assert "only up to 0" in str(pieces.made_anew("", {}))
    assert Pieces().made_anew("b", {}) is None


def test_what_is_taken_next() -> None:
    starts, ends = {0: 0, 1: 50, 2: 3}, {0: 1_000, 1: 60, 2: 3}
    found = next_ranges("t", {0: 100, 1: 20}, starts, ends, 100)
    assert found == (OffsetRange("t", 0, 100, 150), OffsetRange("t", 1, 50, 60))
    assert next_ranges("t", {0: 1_000, 1: 60}, starts, ends, 100) == ()
    assert next_ranges("t", {}, {}, {}, 100) == ()


@pytest.mark.parametrize(
    ("end", "first_held", "spans", "bottom"),
    [
        (100, 40, (), 40),
        (100, 40, ((0, 40),), 0),
        (100, 40, ((0, 60),), 0),
        (100, 40, ((0, 39),), 40),
        (100, 40, ((0, 10), (20, 50)), 20),
        (30, 40, ((0, 10), (20, 50)), 20),
        (15, 40, ((0, 10), (20, 50)), 15),
        (20, 40, ((0, 10), (20, 50)), 20),
        (10, 40, ((0, 10), (20, 50)), 0),
    ],
)
def test_how_far_down_one_can_go(
    end: int, first_held: int, spans: tuple[tuple[int, int], ...], bottom: int
) -> None:
    assert reachable(end, first_held, spans) == bottom
