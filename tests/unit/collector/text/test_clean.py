"""Byte-order marks at the beginning of lines, and colour codes, are removed. Positions still count
all bytes of the file."""

from pathlib import Path

import pytest

from tests.unit.collector.world import World

MARK = b"\xef\xbb\xbf"


def restarted(world: World) -> list[bytes]:
    world.kill()
    world.up()
    world.look_and_wait(1_000)
    return world.lines


def test_marks_before_later_lines_are_left_out(tmp_path: Path) -> None:
    """Concatenated files have such marks before later lines."""
    world = World(tmp_path)
    world.append("a", MARK + b'{"k":"a"}\n' + MARK + b'{"k":"b"}\n' + MARK + MARK + b"c\n")
    world.look()
    assert world.lines == [b'{"k":"a"}', b'{"k":"b"}', b"c"]
    assert len(restarted(world)) == 3


def test_a_mark_that_begins_a_later_read_is_left_out(tmp_path: Path) -> None:
    world = World(tmp_path)
    for line in (b"a\n", MARK + b"b\n", b"c\r\n", MARK + b"d\r\n"):
        world.append("a", line)
        world.look()
    assert world.lines == [b"a", b"b", b"c", b"d"]


def test_a_mark_within_a_line_is_text(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.append("a", b"a" + MARK + b"b\n\xef\xbc\x9a is no mark\n")
    world.look()
    assert world.lines == [b"a" + MARK + b"b", b"\xef\xbc\x9a is no mark"]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be"])
def test_marks_of_utf_16_are_left_out_too(tmp_path: Path, encoding: str) -> None:
    world = World(tmp_path, encoding=encoding)
    world.path("a").write_bytes("".join("\ufeffx\r\n" for _ in range(3)).encode("utf-16-be"))
    world.look()
    assert world.lines == [b"x"] * 3


def test_of_many_lines_only_those_with_marks_change(tmp_path: Path) -> None:
    world = World(tmp_path)
    lines = [b"line %d" % number for number in range(20_000)]
    marked = [MARK + line if not index % 1000 else line for index, line in enumerate(lines)]
    world.append("a", b"".join(line + b"\n" for line in marked))
    world.limit = 30_000
    world.look()
    assert world.lines == lines
    assert len(restarted(world)) == 20_000


def test_letters_of_latin_1_are_no_mark(tmp_path: Path) -> None:
    world = World(tmp_path, encoding="latin-1")
    world.append("a", "ï»¿x\nï»¿y\n".encode("latin-1"))
    world.look()
    assert world.lines[1] == "ï»¿y".encode()


def test_a_mark_before_a_last_line_without_an_end(tmp_path: Path) -> None:
    world = World(tmp_path, flush_after="1s")
    world.append("a", b"a\n" + MARK + b"b")
    world.look_and_wait(2_000)
    assert world.lines == [b"a", b"b"]


def test_marks_are_left_out_of_records_that_end_with_nul(tmp_path: Path) -> None:
    world = World(tmp_path, line_end="nul")
    world.append("a", b"a\n" + MARK + b"b\0" + MARK + b"c\0")
    world.look()
    assert world.lines == [b"a\n" + MARK + b"b", b"c"]


COLOURED = b"\x1b[36mINFO\x1b[0m[0000] start \x1b[36mlevel\x1b[0m=info ts=2024-09-07T15:58:36Z"
PLAIN = b"INFO[0000] start level=info ts=2024-09-07T15:58:36Z"


def test_colours_are_left_out_if_asked(tmp_path: Path) -> None:
    world = World(tmp_path, strip_ansi=True)
    world.append("a", COLOURED + b"\nplain\n" + COLOURED + b"\r\n")
    world.look()
    assert world.lines == [PLAIN, b"plain", PLAIN]
    assert len(restarted(world)) == 3


def test_without_the_key_they_stay(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.append("a", COLOURED + b"\n")
    world.look()
    assert world.lines == [COLOURED]


@pytest.mark.parametrize(
    ("line", "plain"),
    [
        (b"\x1b[1;38;2;255;0;0mred\x1b[K", b"red"),
        (b"\x1b]0;a title\x07text", b"text"),
        (b"\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", b"link"),
        (b"\x1b(Btext\x1b=", b"text"),
        (b"\x1b[?25lhidden\x1b[?25h", b"hidden"),
        (b"ends in \x1b", b"ends in \x1b"),
        (b"\x1b]0;a title without an end", b"\x1b]0;a title without an end"),
        (b"\x1b[0m", b""),
    ],
)
def test_other_escapes_of_terminals(tmp_path: Path, line: bytes, plain: bytes) -> None:
    world = World(tmp_path, strip_ansi=True)
    world.append("a", line + b"\nnext\n")
    world.look()
    assert world.lines == [plain, b"next"]


def test_events_begin_by_what_is_left_of_a_line(tmp_path: Path) -> None:
    world = World(
        tmp_path, strip_ansi=True, multiline={"start": "^(INFO|WARN)", "max_age": "100ms"}
    )
    world.append("a", COLOURED + b"\n  more\n\x1b[33mWARN\x1b[0m x\n" + MARK + b"INFO y\n")
    world.look_and_wait(1_000)
    assert [value for _, value in world.records] == [PLAIN + b"\n  more", b"WARN x", b"INFO y"]
