"""Records that end with NUL instead of a newline, and last lines without a line end."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import ValidationError

from collector.config.input_section import InputSection
from tests.unit.collector.world import World

GELF = b'{"a":1}\0{"a":2}\0{"a":3}\0'
CLOUDTRAIL = (
    b'{"Records":[{"eventTime":"2024-09-07T15:58:36Z","eventName":"A"},'
    b'{"eventTime":"2024-09-07T15:58:37Z","eventName":"B"}]}'
)


def restarted(world: World) -> World:
    world.kill()
    world.up()
    world.look_and_wait(5_000)
    world.down()
    world.up()
    world.look_and_wait(5_000)
    return world


# --- NUL ------------------------------------------------------------------------------------------


def test_records_that_end_with_nul_are_counted_once(tmp_path: Path) -> None:
    world = World(tmp_path, line_end="nul")
    world.append("a", GELF)
    world.look()
    assert world.lines == [b'{"a":1}', b'{"a":2}', b'{"a":3}']
    assert len(restarted(world).lines) == 3


def test_an_open_record_waits_for_its_nul(tmp_path: Path) -> None:
    world = World(tmp_path, line_end="nul")
    for byte in GELF:
        world.append("a", bytes([byte]))
        world.look()
    assert world.lines == [b'{"a":1}', b'{"a":2}', b'{"a":3}']


def test_newlines_are_part_of_records_that_end_with_nul(tmp_path: Path) -> None:
    world = World(tmp_path, line_end="nul")
    records = [b"line %d\r\nof more\n" % number for number in range(100)]
    world.append("a", b"".join(record + b"\0" for record in records))
    world.look()
    assert world.lines == records


def test_leading_nuls_are_empty_records_there(tmp_path: Path) -> None:
    world = World(tmp_path, line_end="nul")
    world.append("a", b"\0\0x\0")
    world.look()
    assert world.lines == [b"", b"", b"x"]
    assert world.count("nul_bytes_skipped") == 0


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be", "gbk", "latin-1"])
def test_so_it_is_in_other_encodings(tmp_path: Path, encoding: str) -> None:
    world = World(tmp_path, line_end="nul", encoding=encoding)
    records = [f"Zähler {number}\nmehr" for number in range(20)]
    if encoding == "gbk":
        records = [record.replace("ä", "中") for record in records]
    world.path("a").write_bytes("".join(f"{record}\0" for record in records).encode(encoding))
    world.look()
    assert world.lines == [record.encode() for record in records]


def test_an_invalid_one_among_them_is_kept(tmp_path: Path) -> None:
    world = World(tmp_path, line_end="nul", on_invalid="replace")
    world.path("a").write_bytes(b"one\nmore\0\xff\nbad\0three\n\0")
    world.look()
    assert world.lines == [b"one\nmore", "\ufffd\nbad".encode(), b"three\n"]


def test_an_overlong_one_is_split(tmp_path: Path) -> None:
    world = World(tmp_path, line_end="nul", max_line_bytes=1024)
    world.append("a", b"x\n" * 700 + b"\0short\0")
    world.look()
    assert world.lines == [b"x\n" * 512, b"x\n" * 188, b"short"]


def test_fields_are_put_into_records_that_end_with_nul(tmp_path: Path) -> None:
    world = World(tmp_path, line_end="nul", fields={"env": "x"})
    world.append("a", GELF + b'{\n"a": 4\n}\0')
    world.look()
    assert [json.loads(line) for line in world.lines] == [
        {"a": number, "env": "x"} for number in range(1, 5)
    ]


def test_events_and_nul_exclude_each_other() -> None:
    with pytest.raises(ValidationError, match="multiline beside line_end: nul"):
        InputSection.model_validate(
            {"paths": ["a"], "topic": "t", "line_end": "nul", "multiline": "java"}
        )


# --- no line end at all ---------------------------------------------------------------------------


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_one_object_without_a_line_end_is_counted_once(
    tmp_path: Path, pack: Callable[[bytes], bytes]
) -> None:
    world = World(tmp_path, flush_after="2s")
    world.append("a", pack(CLOUDTRAIL))
    world.look()
    assert world.lines == []
    world.look_and_wait(2_000)
    assert world.lines == [CLOUDTRAIL]
    assert world.count("unfinished_sent") == 1
    assert len(restarted(world).lines) == 1


def test_without_the_key_it_waits(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.append("a", CLOUDTRAIL)
    world.look_and_wait(100_000)
    assert world.lines == []


def test_a_line_that_grows_in_time_stays_one(tmp_path: Path) -> None:
    world = World(tmp_path, flush_after="2s")
    for part in (b"one ", b"line ", b"in ", b"parts\nlast"):
        world.append("a", part)
        world.scan()
        world.read()
        world.now_ms += 1_500
        world.read()
    assert world.lines == [b"one line in parts"]
    world.look_and_wait(2_000)
    assert world.lines == [b"one line in parts", b"last"]


def test_what_is_added_later_is_a_record_of_its_own(tmp_path: Path) -> None:
    world = World(tmp_path, flush_after="2s")
    world.append("a", b"first")
    world.look_and_wait(2_000)
    world.append("a", b"second\nthird")
    world.look_and_wait(2_000)
    assert world.lines == [b"first", b"second", b"third"]
    assert restarted(world).lines == [b"first", b"second", b"third"]


def test_a_death_before_the_commit_sends_it_once(tmp_path: Path) -> None:
    world = World(tmp_path, flush_after="2s")
    world.append("a", b"first")
    world.scan()
    world.feeder.step(world.now_ms)
    world.now_ms += 2_000
    world.feeder.step(world.now_ms)
    world.send(everything=True)
    world.kill()
    world.up()
    world.append("a", b" and more\n")
    world.look_and_wait(2_000)
    assert world.lines == [b"first and more"]


def test_the_open_event_before_it_goes_with_it(tmp_path: Path) -> None:
    world = World(tmp_path, flush_after="2s", multiline={"start": "^E", "max_age": "10s"})
    world.append("a", b"E1\n more\nE2\n to its end")
    world.look_and_wait(2_000)
    assert [record for _, record in world.records] == [b"E1\n more", b"E2\n to its end"]


def test_room_for_lines_to_come_is_no_last_line(tmp_path: Path) -> None:
    world = World(tmp_path, flush_after="2s")
    world.append("a", b"one\n" + bytes(1000))
    world.look_and_wait(20_000)
    assert world.lines == [b"one"]


def test_half_a_character_of_utf_16_waits(tmp_path: Path) -> None:
    world = World(tmp_path, flush_after="2s", encoding="utf-16-le")
    world.append("a", "ab".encode("utf-16-le") + b"c")
    world.look_and_wait(2_000)
    assert world.lines == [b"ab"]
    world.append("a", b"\0\n\0")
    world.look_and_wait(2_000)
    assert world.lines == [b"ab", b"c"]


def test_a_long_last_line_is_cut_at_the_limit(tmp_path: Path) -> None:
    world = World(tmp_path, flush_after="2s", max_line_bytes=1024, on_overlong="cut")
    world.append("a", b"x" * 5000)
    world.look_and_wait(2_000)
    assert world.lines == [b"x" * 1024]
    assert restarted(world).lines == [b"x" * 1024]


def test_a_nul_at_the_end_never_comes(tmp_path: Path) -> None:
    world = World(tmp_path, flush_after="2s", line_end="nul")
    world.append("a", GELF[:-1])
    world.look_and_wait(2_000)
    assert world.lines == [b'{"a":1}', b'{"a":2}', b'{"a":3}']
