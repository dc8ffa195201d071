"""Files that are written in place: every line is sent once, no record has NULs, and no loss is
reported."""

import gzip
import mmap
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from collector.identity.checkpoints import decode, encode
from collector.read.in_place import HOLE_QUIET_MS, STAMP_SURE_MS
from collector.status import file_row
from tests.unit.collector.world import EVENTS, World


@pytest.fixture(params=[{}, EVENTS], ids=["lines", "events"])
def world(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[World]:
    made = World(tmp_path, **request.param)
    # The collector compares modification times of real files with its clock, so the clock must be
    # real.
    made.now_ms = time.time_ns() // 1_000_000 + 10 * STAMP_SURE_MS
    yield made
    made.handles.close_all()


def preallocate(world: World, name: str, size: int) -> None:
    with world.path(name).open("ab") as out:
        os.truncate(out.fileno(), size)


def put(world: World, name: str, offset: int, data: bytes) -> int:
    """Write at an offset of the file. Return the offset after the written bytes."""
    with world.path(name).open("r+b") as out:
        out.seek(offset)
        out.write(data)
    return offset + len(data)


@pytest.mark.parametrize("size", [8192, 3 << 20])
def test_a_preallocated_file_is_written_over(world: World, size: int) -> None:
    """Cases 02 and 03. The larger file has more NULs than the maximum length of a line."""
    preallocate(world, "a", size)
    world.look()
    end = 0
    for _ in range(20):
        end = put(world, "a", end, world.new_lines(2))
        world.look()
        (known,) = world.registry.generations.values()
        assert (known.lag_bytes, known.unread_bytes) == (0, 0)
        assert file_row(known)["state"] == "idle"
    world.expect(40, new=1, lost_possible=0, rewritten=0, nul_bytes_skipped=0)
    os.truncate(world.path("a"), end)
    world.look()
    world.expect(40, new=1, lost_possible=0, rewritten=0, truncated=0)


@pytest.mark.parametrize("size", [8192, 3 << 20])
def test_only_new_lines_of_a_preallocated_file(tmp_path: Path, size: int) -> None:
    world = World(tmp_path, start="end")
    preallocate(world, "a", size)
    end = put(world, "a", 0, world.new_lines(5))
    world.look()
    new = world.new_lines(2)
    put(world, "a", end, new)
    world.look()
    world.handles.close_all()
    assert world.lines == new.splitlines()
    assert world.count("rewritten") == 0


def test_a_mapped_file_whose_time_of_change_stands_still(world: World) -> None:
    preallocate(world, "a", 1 << 20)
    path, end = world.path("a"), 0
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 1 << 20) as memory:
        stamp = path.stat()
        for _ in range(5):
            data = world.new_lines(3)
            memory[end : end + len(data)] = data
            end += len(data)
            os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
            world.look()
    world.expect(15, new=1, lost_possible=0)


def test_a_mapped_file_grows_by_another_region(world: World) -> None:
    end = 0
    for region in range(1, 4):
        preallocate(world, "a", region * 8192)
        world.look()
        for _ in range(2):
            end = put(world, "a", end, world.new_lines(20))
            world.look()
    world.expect(120, new=1, lost_possible=0)


def test_a_preallocated_file_over_restarts_and_deaths(world: World) -> None:
    preallocate(world, "a", 1 << 20)
    end = 0
    for step in range(6):
        end = put(world, "a", end, world.new_lines(3))
        world.look()
        if step % 2:
            world.down()
        else:
            world.kill()
        world.up()
        world.look()
    world.down()
    os.truncate(world.path("a"), end)
    world.up()
    world.look()
    world.expect(18, lost_possible=0, rewritten=0, truncated=0, shrunk=0)


def test_a_preallocated_file_is_rotated_by_rename(world: World) -> None:
    for _ in range(3):
        if world.path("a").exists():
            if world.path("a.1").exists():
                world.move("a.1", "a.2")
            world.move("a", "a.1")
        preallocate(world, "a", 8192)
        end = put(world, "a", 0, world.new_lines(5))
        world.look()
        put(world, "a", end, world.new_lines(5))
        world.look()
    world.expect(30, new=3, lost_possible=0)


def test_a_rotated_preallocated_file_is_compressed(world: World) -> None:
    preallocate(world, "a", 8192)
    put(world, "a", 0, world.new_lines(20))
    world.look()
    world.move("a", "a.1")
    world.look()
    world.path("a.1.gz").write_bytes(gzip.compress(world.path("a.1").read_bytes()))
    world.look()
    world.path("a.1").unlink()
    world.look()
    world.quiet()
    world.expect(20, lost_possible=0, unfinished_sent=0)


def test_an_archive_of_a_preallocated_file_has_no_record_of_nuls(world: World) -> None:
    lines = world.new_lines(5)
    world.path("b.gz").write_bytes(gzip.compress(lines + bytes(3 << 20)))
    world.path("b2.gz").write_bytes(gzip.compress(lines[:0] + bytes(64) + world.new_lines(5)))
    world.look()
    world.quiet()
    world.expect(10, unfinished_sent=0, lost_possible=0)


def test_a_preallocated_file_is_copied_and_truncated(world: World) -> None:
    preallocate(world, "a", 8192)
    end = put(world, "a", 0, world.new_lines(20))
    world.look()
    put(world, "a", end, world.new_lines(3))
    world.path("a.1").write_bytes(world.path("a").read_bytes())
    os.truncate(world.path("a"), 0)
    preallocate(world, "a", 8192)
    put(world, "a", 0, world.new_lines(2))
    world.look()
    world.expect(25, copytruncated=1, lost_possible=0)


def test_a_deleted_preallocated_file_has_no_last_line_of_nuls(world: World) -> None:
    preallocate(world, "a", 8192)
    end = put(world, "a", 0, world.new_lines(5))
    world.look()
    put(world, "a", end, world.new_lines(2) + b"half")
    world.path("a").unlink()
    world.look()
    world.quiet()
    assert world.lines[-1] == b"half"
    world.expect(8, deleted=1, unfinished_sent=1)


def test_an_open_line_is_rewritten_shorter(world: World) -> None:
    """Case 04: the writer replaces its unfinished last line by a shorter one."""
    world.append("a", b"one\nprogress 10% ....................")
    world.look()
    os.truncate(world.path("a"), 4)
    put(world, "a", 4, b"two\nthree\n")
    world.look()
    assert world.lines == [b"one", b"two", b"three"]
    world.append("a", b"four\n")
    world.look()
    world.expect(4, lost_possible=0, truncated=0, rewritten=0, new=1)


def test_an_open_line_is_rewritten_at_its_length(world: World) -> None:
    world.append("a", b"one\nxxxxxxxxx")
    world.look()
    put(world, "a", 4, b"two\nthree")
    world.look()
    assert world.lines[:2] == [b"one", b"two"]
    world.append("a", b"\n")
    world.look()
    world.expect(3, lost_possible=0)


def test_an_open_line_is_taken_back_to_the_position(world: World) -> None:
    world.append("a", b"one\nhalf")
    world.look()
    os.truncate(world.path("a"), 4)
    world.look()
    world.append("a", b"two\n")
    world.look()
    world.expect(2, lost_possible=0, truncated=0)


def test_an_open_line_is_rewritten_shorter_while_the_collector_is_down(world: World) -> None:
    world.append("a", b"one\nprogress 10% ....................")
    world.look()
    world.kill()
    os.truncate(world.path("a"), 4)
    put(world, "a", 4, b"two\n")
    world.up()
    world.look()
    assert world.lines == [b"one", b"two"]
    world.expect(2, lost_possible=0, truncated=0, rewritten=0)


def test_an_open_line_is_taken_back_while_the_collector_is_down(world: World) -> None:
    world.append("a", b"one\nhalf")
    world.look()
    world.kill()
    os.truncate(world.path("a"), 4)
    world.up()
    world.look()
    world.append("a", b"two\n")
    world.look()
    world.expect(2, lost_possible=0)


def test_lines_that_were_seen_and_cut_away_while_the_collector_is_down_are_told(
    world: World,
) -> None:
    world.write(20, "a")
    world.look()
    committed = world.path("a").stat().st_size
    world.write(5, "a")
    world.feeder.reader.judge(world.walker.scan(), world.now_ms)
    known = world.feeder.reader.registry.generations.popitem()[1]
    stored = decode(known.name, encode(known.cut(world.now_ms)))
    assert stored.stored().unread_lines_end == stored.size > committed


def test_lines_that_were_seen_and_cut_away_are_told(world: World) -> None:
    world.write(20, "a")
    world.look()
    world.write(5, "a")
    world.feeder.reader.judge(world.walker.scan(), world.now_ms)
    os.truncate(world.path("a"), 2000)
    world.look()
    world.expect(20, lost_possible=1)


def test_nuls_before_a_line_once_they_stood(world: World) -> None:
    """Case 27: a line after NULs is sent as soon as they have not changed for HOLE_QUIET_MS."""
    world.append("a", world.new_lines(2) + bytes(64) + world.new_lines(1))
    world.scan()
    world.read()
    world.now_ms += HOLE_QUIET_MS
    world.read()
    world.age()
    world.expect(3, nul_bytes_skipped=64)


def test_many_holes_are_waited_for_together(world: World) -> None:
    for _ in range(200):
        world.append("a", bytes(7) + world.new_lines(1))
    world.scan()
    world.read()
    world.now_ms += HOLE_QUIET_MS
    world.read()
    world.age()
    world.expect(200, nul_bytes_skipped=1400)


def test_a_hole_that_is_filled_late_gives_its_lines_in_order(world: World) -> None:
    first, hole, last = world.new_lines(2), world.new_lines(2), world.new_lines(2)
    world.append("a", first + bytes(len(hole)) + last)
    world.scan()
    world.read()
    world.now_ms += HOLE_QUIET_MS // 2
    put(world, "a", len(first), hole)
    world.look()
    assert world.numbers == sorted(world.numbers)
    world.expect(6, nul_bytes_skipped=0, rewritten=0)


def test_a_power_cut_leaves_nuls_at_the_end(world: World) -> None:
    world.write(20, "a")
    world.look()
    world.down()
    world.append("a", bytes(1 << 12))
    world.up()
    world.look()
    world.expect(20, lost_possible=0)
    world.write(5, "a")
    world.look()
    world.expect(25, nul_bytes_skipped=1 << 12, lost_possible=0)


def test_a_writer_that_does_not_append_after_a_copytruncate(world: World) -> None:
    world.write(20, "a")
    world.look()
    for rotation in range(1, 4):
        world.path(f"a.{rotation}").write_bytes(world.path("a").read_bytes())
        size = world.path("a").stat().st_size
        os.truncate(world.path("a"), 0)
        put(world, "a", size, world.new_lines(20))
        world.look()
        if rotation == 2:
            world.kill()
            world.up()
        world.look()
    world.expect(80, lost_possible=0)


def test_utf_16_in_a_preallocated_file(tmp_path: Path) -> None:
    world = World(tmp_path, encoding="utf-16")
    for mark, name in ((b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be")):
        file = f"a{name}"
        preallocate(world, file, 4096)
        world.look()
        end = put(world, file, 0, mark + "one\n".encode(name))
        world.look()
        put(world, file, end, "two\n".encode(name))
        world.look()
    world.handles.close_all()
    assert world.lines == [b"one", b"two"] * 2


def test_a_long_open_line_is_replaced_by_lines(tmp_path: Path) -> None:
    world = World(tmp_path, max_line_bytes=2000, on_overlong="cut")
    world.append("a", b"x" * 9000)
    world.look()
    world.path("a").write_bytes(b"one\ntwo\n" + b"y" * 9000)
    world.look()
    world.append("a", b"\n")
    world.look()
    world.handles.close_all()
    assert world.lines == [b"one", b"two", b"y" * 2000]


def test_bytes_that_wait_are_told_from_an_open_line(world: World) -> None:
    """The page lists files that make no progress. So unread bytes must be told apart from an
    unfinished line, which waits for its writer."""
    world.append("a", b"one\nhalf")
    world.look()
    (known,) = world.registry.generations.values()
    assert (known.lag_bytes, known.unread_bytes) == (4, 0)
    world.append("a", b" a line\n")
    world.feeder.reader.judge(world.walker.scan(), world.now_ms)
    assert known.unread_bytes == len(b"half a line\n")
    os.truncate(world.path("a"), 4)
    put(world, "a", 4, b"two\nthr\n")
    world.look()
    assert (known.lag_bytes, known.unread_bytes) == (0, 0)
    put(world, "a", 12, b"open")
    world.look()
    os.truncate(world.path("a"), 12)
    put(world, "a", 12, b"x\nz\n")
    world.feeder.reader.judge(world.walker.scan(), world.now_ms)
    assert known.unread_bytes == 4, "of the same size, and not read"
