"""The collector's access to files: scans, handles, the lock, and the instance name."""

import errno
import os
from pathlib import Path

import pytest

from collector.config.input_section import InputSection
from collector.identity.data_folder import DataFolder, InUse
from collector.identity.discovery import plan
from collector.identity.files import Walker
from collector.identity.handles import Handles, Vanished, open_file
from collector.text.fingerprint import FileId


def walker(folder: Path, *globs: str, **keys: object) -> Walker:
    sections = [
        InputSection.model_validate({"paths": [glob], "topic": f"t{index}", **keys})
        for index, glob in enumerate(globs)
    ]
    return Walker(plan(sections, str(folder)))


def file_id(path: Path) -> FileId:
    found = path.stat()
    return FileId(found.st_dev, found.st_ino)


def test_a_scan_finds_files_below_and_leaves_out_what_is_excluded(tmp_path: Path) -> None:
    for name in ("a.log", ".hidden", "b.tmp", "x/c.log", "x/.git/d.log", "x/y/e.log"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    (tmp_path / "link").symlink_to(tmp_path / "x" / "c.log")
    (tmp_path / "loop").symlink_to(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    scan = walker(tmp_path, "**").scan()
    names = sorted(os.path.relpath(seen.path, tmp_path) for seen in scan.seen)
    assert names == ["a.log", "link", "x/c.log", "x/y/e.log"]
    assert scan.is_complete
    by_name = {os.path.relpath(seen.path, tmp_path): seen for seen in scan.seen}
    assert by_name["link"].file == by_name["x/c.log"].file == file_id(tmp_path / "x/c.log")
    assert by_name["a.log"].size == 5


def test_the_first_input_that_matches_has_the_file(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("x")
    (tmp_path / "b.txt").write_text("x")
    scan = walker(tmp_path, "*.log", "**").scan()
    assert {Path(seen.path).name: seen.input_index for seen in scan.seen} == {
        "a.log": 0,
        "b.txt": 1,
    }


def test_a_changed_file_is_seen_changed_by_the_same_walker(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("x")
    walk = walker(tmp_path, "**")
    (first,) = walk.scan().seen
    assert walk.scan().seen == (first,)
    path.write_text("xyz")
    (second,) = walk.scan().seen
    assert (second.size, second.birth_ns) == (3, first.birth_ns)
    path.unlink()
    assert walk.scan().seen == ()
    path.write_text("x")
    (third,) = walk.scan().seen
    assert third.birth_ns is None or third.birth_ns != first.birth_ns


def test_missing_roots_are_no_problem_and_literal_paths_are_files(tmp_path: Path) -> None:
    (tmp_path / "app.log").write_text("x")
    walk = walker(tmp_path, "app.log", "nowhere/**")
    assert [Path(seen.path).name for seen in walk.scan().seen] == ["app.log"]
    assert walk.roots() == {str(tmp_path): (file_id(tmp_path), False)}


def test_an_unreadable_folder_makes_the_scan_incomplete(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root reads everything")
    (tmp_path / "x").mkdir()
    (tmp_path / "x").chmod(0)
    scan = walker(tmp_path, "**").scan()
    (tmp_path / "x").chmod(0o700)
    assert not scan.is_complete
    assert "Permission denied (owner uid" in scan.problems[0]


def test_a_file_is_opened_only_if_it_is_the_one_judged(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"0123456789")
    handle = open_file(str(path), file_id(path))
    assert handle.read(8, 100) == b"89"
    assert handle.look().links == 1
    path.unlink()
    assert handle.look().links == 0
    assert handle.read(0, 3) == b"012"
    with pytest.raises(Vanished):
        open_file(str(path), handle.file)
    path.write_bytes(b"x")
    with pytest.raises(Vanished):
        open_file(str(path), handle.file)
    handle.close()


def test_a_file_on_a_reused_inode_is_not_the_one_judged(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"x")
    (seen,) = walker(tmp_path, "a").scan().seen
    if seen.birth_ns is None:
        pytest.skip("this file system does not tell when a file was born")
    open_file(str(path), seen.file, seen.birth_ns).close()
    with pytest.raises(Vanished):
        open_file(str(path), seen.file, seen.birth_ns - 1)


def test_the_least_recently_used_handle_is_closed_first(tmp_path: Path) -> None:
    handles = Handles(2)
    for name in "abc":
        (tmp_path / name).write_text(name)
    handles.open("a", str(tmp_path / "a"), file_id(tmp_path / "a"))
    handles.open("b", str(tmp_path / "b"), file_id(tmp_path / "b"))
    assert handles.get("a") is not None
    handles.open("c", str(tmp_path / "c"), file_id(tmp_path / "c"))
    assert sorted(name for name, _ in handles) == ["a", "c"]
    handles.pin("a")
    handles.open("b", str(tmp_path / "b"), file_id(tmp_path / "b"))
    assert sorted(name for name, _ in handles) == ["a", "b"]
    handles.close_all()
    assert len(handles) == 0


def test_a_data_folder_has_one_collector_and_one_name(tmp_path: Path) -> None:
    folder = DataFolder(str(tmp_path / "data"))
    assert folder.stored_instance() is None
    folder.lock()
    name = folder.instance()
    assert folder.instance() == name == DataFolder(str(tmp_path / "data")).stored_instance()
    with pytest.raises(InUse, match=f"pid {os.getpid()}"):
        DataFolder(str(tmp_path / "data")).lock()
    folder.unlock()
    DataFolder(str(tmp_path / "data")).lock()


def test_a_full_disk_does_not_keep_a_collector_from_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def is_full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    folder = DataFolder(str(tmp_path))
    with monkeypatch.context() as patches:
        patches.setattr(os, "pwrite", is_full)
        folder.lock()
    with pytest.raises(InUse, match="pid unknown"):
        DataFolder(str(tmp_path)).lock()
    folder.unlock()
