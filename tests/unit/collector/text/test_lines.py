"""How line ends are found, and how lines that are too long are handled."""

import pytest

from collector.text.lines import Block, LineRules, Overlong, RecordKind, split_lines


def cut(
    data: bytes, limit: int, mode: Overlong = Overlong.SPLIT, *, cut_cr: bool = True
) -> list[Block]:
    return split_lines(memoryview(data), 100, LineRules(limit, cut_cr, mode))


def shape(blocks: list[Block]) -> list[tuple[str, bytes, int, int]]:
    return [(str(b.kind), bytes(b.data), b.start, b.end) for b in blocks]


def test_what_follows_the_last_newline_is_left_out() -> None:
    (block,) = cut(b"one\ntwo\nhalf", 10)
    assert (block.start, block.end, block.count) == (100, 108, 2)
    assert cut(b"half", 10) == []
    assert cut(b"", 10) == []


def test_a_block_ending_exactly_on_a_newline_is_whole() -> None:
    (block,) = cut(b"a\n", 10)
    assert block.end == 102


def test_overlong_lines_are_split_at_the_limit() -> None:
    assert shape(cut(b"ab\n0123456789ABC\ncd\n", 5)) == [
        ("lines", b"ab\n", 100, 103),
        ("piece", b"01234\n", 103, 108),
        ("piece", b"56789\n", 108, 113),
        ("piece", b"ABC\n", 113, 117),
        ("lines", b"cd\n", 117, 120),
    ]


def test_a_line_of_the_limit_is_not_overlong_and_leaves_no_empty_piece() -> None:
    assert [b.kind for b in cut(b"01234\n", 5)] == [RecordKind.LINES]
    assert [b.kind for b in cut(b"01234\r\n", 5)] == [RecordKind.LINES]
    assert len(cut(b"0123456789\n", 5)) == 2
    assert len(cut(b"0123456789\r\n", 5)) == 2
    assert [bytes(b.data) for b in cut(b"01234\r\n", 5, cut_cr=False)] == [b"01234\n", b"\r\n"]


@pytest.mark.parametrize("mode", [Overlong.CUT, Overlong.DEAD_LETTER])
def test_overlong_lines_are_cut_once(mode: Overlong) -> None:
    kept = str(mode)
    assert shape(cut(b"0123456789\nab\n", 4, mode)) == [
        (kept, b"0123\n", 100, 111),
        ("lines", b"ab\n", 111, 114),
    ]


def test_a_piece_that_ends_in_cr_keeps_it() -> None:
    first, _ = cut(b"0123\r5\n", 5)
    assert not first.cut_cr
    assert bytes(first.data) == b"0123\r\n"


def test_split_at_keeps_positions() -> None:
    (block,) = cut(b"a\nbb\nccc\n", 10)
    first, rest = block.split_at(2)
    assert shape([first, rest]) == [("lines", b"a\nbb\n", 100, 105), ("lines", b"ccc\n", 105, 109)]
    assert rest.newlines.tolist() == [3]
