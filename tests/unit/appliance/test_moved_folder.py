"""The move of a broker's data folder, interrupted at every step."""

import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from appliance.mill import moved_folder
from appliance.mill.moved_folder import (
    FolderMove,
    MoveFault,
    refuse_absent,
    unfinished,
    wanted_move,
)

FILES = {"meta.properties": "node.id=3\n", "t-0/00000000000000000000.log": "records"}


class Killed(Exception):
    pass


@pytest.fixture
def link(tmp_path: Path) -> Path:
    """The folder of broker 3, with data."""
    folder = tmp_path / "data" / "broker-3"
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


@pytest.fixture(params=["one disk", "two disks"])
def disk(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Another folder; in the second case no folder can be renamed into it or out of it."""
    other = tmp_path / "disk2"
    other.mkdir()
    if request.param == "two disks":
        rename = Path.rename

        def checked(self: Path, target: Path) -> Path:
            if (other in self.parents) != (other in Path(target).parents):
                raise OSError(18, "Invalid cross-device link")
            return rename(self, target)

        monkeypatch.setattr(Path, "rename", checked)
    return other


def content(folder: Path) -> dict[str, str]:
    return {
        str(one.relative_to(folder)): one.read_text() for one in folder.rglob("*") if one.is_file()
    }


def moved(link: Path, target: Path) -> FolderMove:
    move = wanted_move(link, target, 0)
    assert move is not None
    move.carry_out()
    return move


def test_the_data_are_found_by_the_same_path(link: Path, disk: Path) -> None:
    move = moved(link, disk / "broker-3")
    assert move.is_placed
    assert link.is_symlink() and link.resolve() == disk / "broker-3"
    assert content(link) == FILES
    assert unfinished(link) == move, "until the broker works there"
    move.finish()
    assert unfinished(link) is None
    assert sorted(os.listdir(link.parent)) == ["broker-3"]
    assert sorted(os.listdir(disk)) == ["broker-3"]


def test_there_and_back_and_to_a_third_place(link: Path, disk: Path) -> None:
    for target in (disk / "one", disk / "two", link, disk / "one"):
        moved(link, target).finish()
        assert content(link) == FILES
        assert link.is_symlink() == (target != link)
    assert os.listdir(disk) == ["one"]


def test_nothing_to_move(link: Path, disk: Path) -> None:
    assert wanted_move(link, link, 0) is None
    moved(link, disk / "b").finish()
    assert wanted_move(link, disk / "b", 0) is None


SYSTEM_CALLS: list[tuple[Any, str]] = [
    (Path, "rename"),
    (Path, "replace"),
    (Path, "unlink"),
    (Path, "symlink_to"),
    (moved_folder, "write_atomically"),
    (moved_folder, "sync_folder"),
    (moved_folder, "_copy_durably"),
    (shutil, "rmtree"),
]


def killed_at(number: int, monkeypatch: pytest.MonkeyPatch, work: Callable[[], None]) -> bool:
    """Do the work until the call with this number begins. Return False if it ended before."""
    count = 0

    def counting(real: Any) -> Any:
        def counted(*args: Any, **options: Any) -> Any:
            nonlocal count
            count += 1
            if count > number:
                raise Killed
            return real(*args, **options)

        return counted

    with monkeypatch.context() as patched:
        for owner, name in SYSTEM_CALLS:
            patched.setattr(owner, name, counting(getattr(owner, name)))
        try:
            work()
        except Killed:
            return True
    return False


def test_files_that_a_running_broker_deletes_do_not_stop_the_plan(
    link: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The size of the folder is computed before the broker stops, while retention goes on."""
    monkeypatch.setattr(FolderMove, "is_on_another_disk", True)
    look = Path.stat

    def deleting(self: Path, **options: Any) -> os.stat_result:
        found = look(self, **options)
        if link in self.parents and stat.S_ISREG(found.st_mode):
            monkeypatch.setattr(Path, "stat", look)
            shutil.rmtree(link)
            link.mkdir()
        return found

    monkeypatch.setattr(Path, "stat", deleting)
    assert wanted_move(link, tmp_path / "three", 0) is not None
    assert list(link.iterdir()) == []


@pytest.mark.parametrize("place", ["to the disk", "back"])
def test_a_move_that_is_killed_anywhere_goes_on(
    link: Path, disk: Path, place: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    shutil.copytree(link, tmp_path / "whole")
    for number in range(60):
        shutil.rmtree(link.parent)
        shutil.rmtree(disk)
        disk.mkdir()
        shutil.copytree(tmp_path / "whole", link)
        target = disk / "b"
        if place == "back":
            moved(link, target).finish()
            target = link
        move = wanted_move(link, target, 0)
        assert move is not None
        if not killed_at(number, monkeypatch, lambda: _whole(move)):  # noqa: B023
            assert number > 3
            return
        again = unfinished(link) or wanted_move(link, target, 0)
        if again is not None:
            _whole(again)
        assert content(link) == FILES, number
        assert link.resolve() == target, number
        assert unfinished(link) is None
        names = {one.name for one in (*link.parent.iterdir(), *disk.iterdir())}
        # A process that is killed while it writes the record leaves a temporary file.
        left = {name for name in names if not name.startswith(".broker-3.moving.")}
        assert left <= {"broker-3", "b"}, number
    raise AssertionError("the move has more than 60 calls")


def _whole(move: FolderMove) -> None:
    move.carry_out()
    move.finish()


def test_what_is_refused(link: Path, disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full = disk / "full"
    full.mkdir()
    (full / "x").write_text("x")
    (disk / "link").symlink_to(full)
    for target, text in (
        (full, "is not an empty folder"),
        (disk / "link", "is not an empty folder"),
        (disk / "no" / "where", "is not a folder: make it, or mount the disk"),
        (link / "inside", "are inside each other"),
        (link.parent, "are inside each other"),
    ):
        with pytest.raises(MoveFault) as refused:
            wanted_move(link, target, 0)
        assert text in str(refused.value) or target == link.parent
    monkeypatch.setattr(FolderMove, "is_on_another_disk", True)
    with pytest.raises(MoveFault, match="MiB free, and the folder needs"):
        wanted_move(link, disk / "b", 1 << 60)
    assert content(link) == FILES


def test_nothing_starts_with_an_empty_folder_half_way(link: Path, disk: Path) -> None:
    refuse_absent(link)
    move = moved(link, disk / "b")
    refuse_absent(link)
    link.unlink()
    with pytest.raises(MoveFault, match=r"was interrupted: run `\./millrace broker move 3`"):
        refuse_absent(link)
    move.carry_out()
    move.finish()
    shutil.rmtree(disk / "b")
    with pytest.raises(MoveFault, match="which is not there: mount its disk"):
        refuse_absent(link)


def test_a_record_that_cannot_be_read_is_named(link: Path) -> None:
    link.with_name("broker-3.moving").write_text("{")
    with pytest.raises(MoveFault, match=r"broker-3\.moving cannot be read"):
        unfinished(link)
