"""Files that are moved or deleted once all their lines are committed."""

from pathlib import Path
from typing import Any

import pytest

from collector.config.settings import INGESTED_QUIET_MS
from collector.identity.sightings import State
from collector.ingested import Ingested
from tests.unit.collector.world import World


class Tidy:
    """A world that moves or deletes files after their lines are committed."""

    def __init__(self, folder: Path, **keys: Any):
        self.world = World(folder, **keys)
        self.ingested = Ingested(self.world.registry, self.world.handles, str(folder))

    def wait(self) -> None:
        self.world.now_ms += INGESTED_QUIET_MS

    def step(self) -> bool:
        return self.ingested.step(self.world.now_ms)


def test_33_a_file_is_deleted_after_its_commit_and_not_when_it_has_grown(tmp_path: Path) -> None:
    tidy = Tidy(tmp_path, after_ingest="delete")
    world = tidy.world
    world.write(20, "a")
    world.look()
    assert not tidy.step(), "it was only just read"
    tidy.wait()
    world.write(1, "a")
    assert not tidy.step()
    assert world.count("ingested_kept") == 1
    world.look()
    tidy.wait()
    assert tidy.step()
    assert not world.path("a").exists()
    world.look()
    world.quiet()
    world.expect(21, removed_after_ingest=1, deleted=1, lost_possible=0)
    assert len(world.handles) == 0


def test_nothing_goes_before_its_commit(tmp_path: Path) -> None:
    tidy = Tidy(tmp_path, after_ingest="delete")
    world = tidy.world
    world.write(20, "a")
    world.append("b", b"half")
    world.scan()
    world.feeder.step(world.now_ms)
    tidy.wait()
    assert not tidy.step(), "handed out, not committed"
    world.abort()
    assert not tidy.step(), "aborted"
    world.look()
    tidy.wait()
    assert tidy.step()
    assert world.path("b").exists(), "its line has no end yet"
    world.look()
    world.quiet()
    world.expect(20)


def test_what_is_written_to_a_deleted_file_is_read_through_its_handle(tmp_path: Path) -> None:
    tidy = Tidy(tmp_path, after_ingest="delete")
    world = tidy.world
    world.write(20, "a")
    with world.path("a").open("ab") as writer:
        world.look()
        tidy.wait()
        assert tidy.step()
        writer.write(world.new_lines(3))
    world.look()
    world.quiet()
    world.expect(23, removed_after_ingest=1)


def test_a_moved_file_keeps_its_tree_and_takes_no_others_place(tmp_path: Path) -> None:
    tidy = Tidy(tmp_path, after_ingest="move", move_to="old")
    world = tidy.world
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "a").write_text("mine")
    data = world.write(20, "a")
    world.look()
    tidy.wait()
    assert tidy.step()
    world.look()
    world.quiet()
    assert (tmp_path / "old" / "a").read_text() == "mine"
    assert (tmp_path / "old" / "a.1").read_bytes() == data
    assert world.states() == {"a": State.MOVED_OUT}
    world.expect(20, moved_out=1, removed_after_ingest=1)


@pytest.mark.parametrize("link", ["symlink_to", "hardlink_to"])
def test_a_file_with_more_names_is_kept_and_named(tmp_path: Path, link: str) -> None:
    tidy = Tidy(tmp_path, after_ingest="delete")
    world = tidy.world
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_bytes(world.new_lines(3))
    getattr(world.path("a"), link)(elsewhere)
    world.look()
    tidy.wait()
    assert not tidy.step()
    assert elsewhere.exists()
    assert tidy.ingested.problems == {
        str(world.path("a")): "kept, because the file has more than one name"
    }


def test_files_that_cannot_go_take_no_more_handles_than_there_are(tmp_path: Path) -> None:
    tidy = Tidy(tmp_path, after_ingest="delete")
    world = tidy.world
    for index in range(world.open_files + 10):
        world.write(2, f"a{index}")
        (tmp_path / f"link{index}").hardlink_to(world.path(f"a{index}"))
    world.look()
    tidy.wait()
    assert not tidy.step()
    assert len(tidy.ingested.problems) == world.open_files + 10
    assert len(world.handles) <= world.open_files


@pytest.mark.parametrize("taken", ["", "another file's"])
def test_a_move_that_a_kill_cut_in_two_is_ended(tmp_path: Path, taken: str) -> None:
    tidy = Tidy(tmp_path, after_ingest="move", move_to="old")
    world = tidy.world
    target = tmp_path / "old" / "a"
    target.parent.mkdir()
    if taken:
        target.write_text(taken)
        target = tmp_path / "old" / "a.1"
    world.write(20, "a")
    world.look()
    target.hardlink_to(world.path("a"))
    world.kill()
    world.up()
    tidy.ingested = Ingested(world.registry, world.handles, str(tmp_path))
    world.look()
    tidy.wait()
    assert tidy.step()
    assert not world.path("a").exists()
    assert target.stat().st_nlink == 1
    world.look()
    world.quiet()
    world.expect(20)


def test_what_was_there_before_and_not_read_is_kept(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"old\n")
    tidy = Tidy(tmp_path, after_ingest="delete", start="end")
    world = tidy.world
    world.look()
    world.append("a", b"new\n")
    world.look()
    tidy.wait()
    assert not tidy.step()
    assert world.lines == [b"new"]
