"""Logs that a script trims to their last lines. Lines are sent once if the content allows it."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from collector.identity.trimming import kept_end
from collector.text.fingerprint import digest_of
from tests.unit.collector.world import EVENTS, World


@pytest.fixture(params=[{}, EVENTS], ids=["lines", "events"])
def world(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[World]:
    made = World(tmp_path, **request.param)
    yield made
    made.handles.close_all()


def in_place(world: World, name: str, kept: bytes) -> None:
    """Trim the file in place, as `tail f > t; cat t > f` does."""
    world.path(name).write_bytes(kept)


def by_rename(world: World, name: str, kept: bytes) -> None:
    """Trim by replacing the file, as `tail f > t; mv t f` does."""
    world.path("t").write_bytes(kept)
    world.move("t", name)


WAYS = pytest.mark.parametrize("trim", [in_place, by_rename])
Trim = Callable[[World, str, bytes], None]


def last_lines(world: World, name: str, count: int) -> bytes:
    return b"".join(world.path(name).read_bytes().splitlines(keepends=True)[-count:])


@WAYS
@pytest.mark.parametrize("count", [1, 2, 5, 15, 40])
def test_a_log_is_trimmed_to_its_last_lines(world: World, trim: Trim, count: int) -> None:
    """Case 24: a script keeps only the last lines of a log."""
    world.write(50, "a")
    world.look()
    trim(world, "a", last_lines(world, "a", count))
    world.write(1, "a")
    world.look()
    world.write(1, "a")
    world.look()
    world.expect(52, new=1, trimmed=1, lost_possible=0, truncated=0, rewritten=0, replaced=0)
    assert set(world.keys) == {b"a"}


@WAYS
def test_short_lines_of_a_small_log(world: World, trim: Trim) -> None:
    world.append("a", b"".join(b"%d\n" % number for number in range(1, 11)))
    world.look()
    trim(world, "a", last_lines(world, "a", 5))
    world.append("a", b"11\n")
    world.look()
    world.expect(11, trimmed=1, lost_possible=0)


@WAYS
def test_it_is_trimmed_twice_between_two_looks(world: World, trim: Trim) -> None:
    world.write(50, "a")
    world.look()
    for count in (30, 12):
        trim(world, "a", last_lines(world, "a", count))
    world.write(3, "a")
    world.look()
    world.expect(53, trimmed=1, lost_possible=0)


@WAYS
def test_it_is_trimmed_again_and_again(world: World, trim: Trim) -> None:
    world.write(30, "a")
    for _ in range(5):
        world.look()
        trim(world, "a", last_lines(world, "a", 20))
        world.look()
        world.write(10, "a")
    world.look()
    world.expect(80, trimmed=5, lost_possible=0)


@WAYS
def test_lines_that_came_while_it_was_trimmed(world: World, trim: Trim) -> None:
    """The collector has read these lines, but the script wrote back an older copy without them."""
    world.write(50, "a")
    kept = last_lines(world, "a", 20)
    world.write(3, "a")
    world.look()
    trim(world, "a", kept)
    world.write(2, "a")
    world.look()
    world.expect(55, trimmed=1, lost_possible=0)


@WAYS
def test_lines_before_it_that_were_not_read_yet(world: World, trim: Trim) -> None:
    world.write(50, "a")
    world.look()
    world.write(5, "a")
    trim(world, "a", last_lines(world, "a", 20))
    world.look()
    world.expect(55, trimmed=1, lost_possible=0)


@WAYS
def test_it_is_trimmed_while_the_collector_is_down(world: World, trim: Trim) -> None:
    world.write(50, "a")
    world.look()
    world.down()
    trim(world, "a", last_lines(world, "a", 20))
    world.write(3, "a")
    world.up()
    world.look()
    world.expect(53, trimmed=1, lost_possible=0)


@WAYS
def test_the_collector_dies_before_that_is_stored(world: World, trim: Trim) -> None:
    world.write(50, "a")
    world.look()
    trim(world, "a", last_lines(world, "a", 20))
    world.write(3, "a")
    for _ in range(3):
        world.scan()
        world.kill()
        world.up()
    world.look()
    world.expect(53, lost_possible=0)


@WAYS
def test_with_lines_on_their_way(world: World, trim: Trim) -> None:
    world.write(50, "a")
    world.scan()
    world.feeder.step(world.now_ms)
    world.send(everything=True)
    trim(world, "a", last_lines(world, "a", 20))
    for _ in range(3):
        world.scan()
    world.write(3, "a")
    world.look()
    world.expect(53, lost_possible=0)


@WAYS
def test_with_an_open_line(world: World, trim: Trim) -> None:
    world.write(50, "a")
    world.append("a", b"7")
    world.look()
    trim(world, "a", last_lines(world, "a", 20))
    world.append("a", b"7\n")
    world.look()
    assert world.lines[-1] == b"77"
    world.expect(51, trimmed=1, lost_possible=0)


def test_to_all_of_its_lines(world: World) -> None:
    world.write(50, "a")
    world.look()
    by_rename(world, "a", world.path("a").read_bytes())
    world.write(1, "a")
    world.look()
    world.expect(51, replaced_same_head=1)


def test_the_last_line_is_taken_away(world: World) -> None:
    """`sed -i '$d'` on a small file deletes its last line."""
    world.write(5, "a")
    world.look()
    in_place(world, "a", world.path("a").read_bytes()[:-100])
    world.write(1, "a")
    world.look()
    world.expect(6, trimmed=1, lost_possible=0)


def test_it_is_trimmed_behind_nuls(world: World) -> None:
    world.write(50, "a")
    world.look()
    kept = last_lines(world, "a", 20)
    os.truncate(world.path("a"), 8192)
    with world.path("a").open("r+b") as out:
        out.write(kept + bytes(8192 - len(kept)))
    world.look()
    with world.path("a").open("r+b") as out:
        out.seek(len(kept))
        out.write(world.new_lines(2))
    world.look()
    world.expect(52, trimmed=1, lost_possible=0)


@pytest.mark.parametrize(
    "line", [b"alive\n", b"service alive, nothing to report".ljust(99) + b"\n"]
)
@pytest.mark.parametrize("count", [1, 3, 40])
def test_a_line_that_the_log_repeats_proves_nothing(
    tmp_path: Path, line: bytes, count: int
) -> None:
    world = World(tmp_path)
    world.append("a", line * 100)
    world.look()
    world.path("a").write_bytes(line * count)
    world.append("a", b"x\n")
    world.look()
    world.handles.close_all()
    assert len(world.lines) == 100 + 1 + count
    assert world.count("trimmed") == 0


def test_a_truncated_file_with_one_short_line_is_a_new_one(world: World) -> None:
    world.append("a", b"1\n2\n3\n")
    world.look()
    world.path("a").write_bytes(b"3\n")
    world.look()
    assert world.numbers == [1, 2, 3, 3]
    assert world.count("lost_possible") == 1


def find(tail: bytes, data: bytes, position: int) -> int | None:
    def read(offset: int, length: int) -> bytes:
        return data[offset : offset + length]

    by_hash = kept_end(b"", digest_of(tail), position, read, len(data))
    found = kept_end(tail, digest_of(tail), position, read, len(data))
    assert by_hash in (None, found)
    return found


def test_what_was_kept_is_found_across_blocks() -> None:
    text = b"".join(b"%099d\n" % number for number in range(30_000))
    tail, position = text[-1024:], len(text)
    for end in range((1 << 20) - 700, (1 << 20) + 1700, 100):
        end -= end % 100
        kept = text[-end:]
        assert find(tail, kept + b"new\n" * 10, position) == end
    assert find(tail, text[100_000:-100], position) == len(text) - 100_100
    assert find(tail, text[100_000:] + text[100_000:], position) is None, "it is there twice"
    assert find(tail, b"x\n" * 3000, position) is None
    assert find(tail, b"", position) is None
