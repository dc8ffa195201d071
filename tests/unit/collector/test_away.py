"""Folders and file systems disappear and return while a collector has their files open."""

import errno
import os
from pathlib import Path

import pytest

from collector.config.settings import DRAIN_QUIET_MS
from collector.identity.handles import Handle
from collector.text.fingerprint import FileId
from tests.unit.collector.world import EVENTS, World


@pytest.fixture(params=[{}, EVENTS], ids=["lines", "events"])
def world(tmp_path: Path, request: pytest.FixtureRequest) -> World:
    return World(tmp_path, **request.param)


@pytest.mark.parametrize("away_looks", [0, 1, 3], ids=["unseen", "draining", "moved_out"])
def test_34_so_it_is_for_a_collector_that_has_it_open(world: World, away_looks: int) -> None:
    world.write(20, "a")
    world.look()
    (known,) = world.registry.generations.values()
    # Simulate that the file system was mounted again: the device number in the known identity and
    # in the open handle differs from that of the scanned file.
    known.file = FileId(1, known.file.inode)
    handle = world.handles.get(known.name)
    assert handle is not None
    handle.file = known.file
    world.move("a", "elsewhere")
    for _ in range(away_looks):
        world.scan()
        world.read()
        world.now_ms += DRAIN_QUIET_MS
    world.move("elsewhere", "a")
    world.write(5, "a")
    world.look()
    world.quiet()
    world.expect(25, renumbered=1, new=1, lost_possible=0)


def test_a_folder_that_vanishes_and_returns_keeps_no_handles(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    world = World(home)
    world.open_files = 8
    world.up()
    for start in (0, 8, 16):
        for index in range(start, start + 8):
            world.write(2, f"a{index}")
        world.look()
        home.rename(tmp_path / "away")
        world.scan()
        world.read()
        (tmp_path / "away").rename(home)
        world.look()
    world.quiet()
    world.write(1, "a0")
    world.look()
    world.expect(49, lost_possible=0, new=24)
    assert len(world.handles) <= 8


def test_a_handle_whose_file_system_is_gone_is_let_go(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NFS returns ESTALE if the export no longer exists, and FUSE if its process has ended."""
    world.write(20, "a")
    world.look()
    assert len(world.handles) == 1

    def stale(_: int) -> os.stat_result:
        raise OSError(errno.ESTALE, "Stale file handle")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fstat", stale)
        world.scan()
    assert len(world.handles) == 0
    world.write(5, "a")
    world.look()
    world.expect(25, lost_possible=0)


def test_a_file_that_goes_while_it_is_found_to_have_shrunk_is_judged_again(world: World) -> None:
    world.write(100, "a")
    world.look()
    world.handles.close_all()
    os.truncate(world.path("a"), 5050)
    world.scan()
    (known,) = world.registry.generations.values()
    opened = world.handles.open

    def replaced(name: str, path: str, file: FileId, birth_ns: int | None = None) -> Handle:
        world.path("a").rename(world.path("a.off"))
        world.handles.open = opened  # type: ignore[method-assign]
        return opened(name, path, file, birth_ns)

    world.handles.open = replaced  # type: ignore[method-assign]
    world.scan()
    assert world.feeder.reader.wants_scan
    world.path("a.off").rename(world.path("a"))
    world.look()
    world.expect(100, shrunk=2, lost_possible=0)
    assert known.position == 5000


def test_a_file_that_waits_for_its_topic_may_lose_its_name(tmp_path: Path) -> None:
    world = World(tmp_path, globs=("*",), topic="t.{1}")
    world.write(3, "a")
    world.scan()
    world.feeder.step(world.now_ms)
    assert world.feeder.wanted_topics == ["t.a"]
    world.path("a").unlink()
    world.scan()
    world.feeder.step(world.now_ms)
    world.make_topics()
    world.quiet()
    world.expect(3, lost_possible=0)


def test_a_file_that_waits_for_room_may_lose_its_name(tmp_path: Path) -> None:
    """The file was created while the brokers were down and the outbox was full. Its lines must be
    sent although it is deleted before it could be read."""
    world = World(tmp_path)
    world.limit = 10_000
    world.up()
    world.write(1_000, "a")
    world.scan()
    world.feeder.step(world.now_ms)
    world.write(3, "b")
    world.scan()
    world.feeder.step(world.now_ms)
    world.path("b").unlink()
    world.scan()
    world.quiet()
    world.expect(1_003, lost_possible=0)


def test_a_file_that_waits_for_its_inputs_pace_may_lose_its_name(tmp_path: Path) -> None:
    world = World(tmp_path, max_bytes_per_second=64 << 10)
    world.write(1_000, "a")
    world.scan()
    world.feeder.step(world.now_ms)
    world.write(3, "b")
    world.scan()
    world.feeder.step(world.now_ms)
    assert world.feeder.is_waiting
    world.path("b").unlink()
    world.scan()
    for _ in range(5):
        world.now_ms += DRAIN_QUIET_MS
        world.scan()
        world.read()
    world.expect(1_003, lost_possible=0)
