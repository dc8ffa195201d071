"""Copies that need more than one scan, because they are too large for one or not readable yet.

If the original of a copy is not found, the copy counts as a new file and all its lines are sent
again. If no decision is ever made, the file is never read.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from collector.identity import handles, probing
from collector.identity.handles import Handle, Unreadable
from collector.read import measures
from collector.text.fingerprint import FileId
from tests.unit.collector.test_scenarios_copies import copy, truncate
from tests.unit.collector.world import World

LOOKS = 30
LOOK_BYTES = 1000
"""The bytes that one scan compares in these tests: a fifth of the bytes read from the original."""
OPENINGS = 7
"""The openings 1 to OPENINGS - 1 fail in turn. A scenario has fewer openings, so all of them are
covered."""


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.fixture
def short_looks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(probing, "CHECKSUM_BYTES", LOOK_BYTES)
    monkeypatch.setattr(probing, "BLOCK_BYTES", LOOK_BYTES // 2)
    yield


def look_often(world: World) -> None:
    """Scan and read until another scan changes nothing."""
    for _ in range(LOOKS):
        world.scan()
        world.read()
        world.now_ms += 1_000


def copied_and_truncated(world: World, *names: str) -> None:
    """Run copytruncate while the file has unread lines. Afterwards 60 lines were written in all."""
    world.write(5, "a")
    for name in names:
        copy(world, "a", name)
    truncate(world, "a")
    world.write(5, "a")


@pytest.mark.usefixtures("short_looks")
@pytest.mark.parametrize("name", ["a.1", "b1"])
@pytest.mark.parametrize("is_down", [False, True], ids=["running", "restarted"])
def test_15_so_it_is_if_the_copy_takes_many_looks(world: World, is_down: bool, name: str) -> None:
    world.write(50, "a")
    world.look()
    if is_down:
        world.down()
    copied_and_truncated(world, name)
    if is_down:
        world.up()
    look_often(world)
    world.expect(60, copytruncated=1, lost_possible=0)


@pytest.mark.usefixtures("short_looks")
def test_of_many_candidates_each_is_compared_once(world: World) -> None:
    """Both candidates begin and end like the original, but only b2 is its copy."""
    world.write(50, "a")
    world.look()
    copied_and_truncated(world, "b1", "b2")
    content = bytearray(world.path("b1").read_bytes())
    content[2_550] ^= 1
    world.path("b1").write_bytes(content)
    look_often(world)
    # The other candidate is an independent file, so its 55 lines are sent too.
    assert len(world.lines) == 60 + 55
    assert world.count("copytruncated") == 1


@pytest.fixture
def fail_at(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Return a function that lets the n-th attempt to open a file fail, as without a free
    descriptor."""

    def set_up(number: int) -> None:
        opened = 0
        really = handles.open_file

        def opening(path: str, file: FileId, birth_ns: int | None = None) -> Handle:
            nonlocal opened
            opened += 1
            if opened == number:
                raise Unreadable("Too many open files")
            return really(path, file, birth_ns)

        for module in (handles, probing, measures):
            monkeypatch.setattr(module, "open_file", opening)

    return set_up


@pytest.mark.parametrize("name", ["a.1", "b1"])
@pytest.mark.parametrize("number", range(1, OPENINGS))
def test_a_copy_that_cannot_be_opened_for_a_moment_is_no_new_file(
    world: World, fail_at: Callable[[int], None], name: str, number: int
) -> None:
    world.write(50, "a")
    world.look()
    copied_and_truncated(world, name)
    fail_at(number)
    look_often(world)
    world.expect(60, copytruncated=1, lost_possible=0)


@pytest.mark.parametrize("number", range(1, OPENINGS))
def test_nor_is_one_that_is_older_than_what_was_read(
    world: World, fail_at: Callable[[int], None], number: int
) -> None:
    for _ in range(5):
        world.write(10, "a")
        world.look()
    content = world.path("a").read_bytes()
    world.write(3, "a")
    world.look()
    world.path("a.1").write_bytes(content)
    truncate(world, "a")
    world.write(5, "a")
    fail_at(number)
    look_often(world)
    world.expect(58, copytruncated=1, lost_possible=0)


@pytest.mark.parametrize("number", range(1, OPENINGS))
def test_nor_is_one_beside_its_original(
    world: World, fail_at: Callable[[int], None], number: int
) -> None:
    """The copy waits, because copytruncate may not have truncated the original yet."""
    world.write(50, "a")
    world.look()
    world.handles.close_all()
    copy(world, "a", "a.1")
    fail_at(number)
    for _ in range(4):
        world.scan()
        world.read()
        world.now_ms += 1_000
    truncate(world, "a")
    world.write(5, "a")
    look_often(world)
    world.expect(55, copytruncated=1, lost_possible=0)


def test_nor_is_one_beside_its_original_that_cannot_be_read_yet(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copying tool may make the copy readable only when it is complete."""
    world.write(50, "a")
    world.look()
    copy(world, "a", "a.1")
    really = handles.open_file

    def opening(path: str, file: FileId, birth_ns: int | None = None) -> Handle:
        if path.endswith("a.1"):
            raise Unreadable("Permission denied")
        return really(path, file, birth_ns)

    with monkeypatch.context() as patched:
        patched.setattr(probing, "open_file", opening)
        for _ in range(4):
            world.scan()
            world.read()
            world.now_ms += 1_000
            assert world.feeder.reader.refused == {str(world.path("a.1")): "Permission denied"}
    truncate(world, "a")
    world.write(5, "a")
    look_often(world)
    world.expect(55, copytruncated=1, lost_possible=0)
    assert not world.feeder.reader.refused


def test_nor_is_one_whose_original_cannot_be_opened_at_first(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The original was never read, so its content is unknown. It may become readable before the
    collector gives up waiting."""
    world.write(50, "a")
    really = handles.open_file

    def opening(path: str, file: FileId, birth_ns: int | None = None) -> Handle:
        if path.endswith("/a"):
            raise Unreadable("Too many open files")
        return really(path, file, birth_ns)

    with monkeypatch.context() as patched:
        patched.setattr(handles, "open_file", opening)
        world.scan()
        world.read()
        copy(world, "a", "a.1")
        world.scan()
        world.read()
    for _ in range(2):
        world.now_ms += 1_000
        world.scan()
        world.read()
    truncate(world, "a")
    world.write(5, "a")
    look_often(world)
    world.expect(55, copytruncated=1, lost_possible=0)
