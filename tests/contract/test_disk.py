"""The real disk and its simulated double pass the same tests."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from broker.storage.disk import Disk, OsDisk
from broker.storage.errors import DiskError, FolderError
from tests.sim.disk import SimDisk


@pytest.fixture(params=["os", "sim"])
def disk(request: pytest.FixtureRequest) -> Disk:
    return OsDisk() if request.param == "os" else SimDisk()


@pytest.fixture
def folder(disk: Disk, tmp_path: Path) -> str:
    path = str(tmp_path / "data")
    disk.make_folder(path)
    return path


def test_a_file_is_written_and_read_by_position(disk: Disk, folder: str) -> None:
    file = disk.open(f"{folder}/a", create=True)
    file.write([b"hello ", bytearray(b"wide "), memoryview(b"world")], 0)
    file.write([b"WORLD"], 11)
    assert file.read(100, 0) == b"hello wide WORLD"
    assert file.read(4, 6) == b"wide"
    assert file.read(4, 100) == b""
    assert file.size_bytes() == disk.size_bytes(f"{folder}/a") == 16
    assert disk.read_all(f"{folder}/a") == b"hello wide WORLD"


def test_more_buffers_than_one_writev_takes_are_all_written(disk: Disk, folder: str) -> None:
    file = disk.open(f"{folder}/a", create=True)
    buffers = [b"%05d" % number for number in range(2500)]
    file.write(buffers, 3)
    assert file.read(20_000, 3) == b"".join(buffers)


def test_read_into_says_how_much_there_was(disk: Disk, folder: str) -> None:
    file = disk.open(f"{folder}/a", create=True)
    file.write([b"abcdef"], 0)
    buffer = memoryview(bytearray(4))
    assert file.read_into(buffer, 0) == 4
    assert file.read_into(buffer, 4) == 2
    assert bytes(buffer) == b"efcd"


def test_truncate_cuts_and_stretches_with_zeros(disk: Disk, folder: str) -> None:
    file = disk.open(f"{folder}/a", create=True)
    file.write([b"abcdef"], 0)
    file.truncate(3)
    assert file.read(10, 0) == b"abc"
    file.truncate(5)
    assert file.read(10, 0) == b"abc\0\0"


def test_an_open_file_outlives_its_name(disk: Disk, folder: str) -> None:
    file = disk.open(f"{folder}/a", create=True)
    file.write([b"still here"], 0)
    disk.rename(f"{folder}/a", f"{folder}/b")
    disk.unlink(f"{folder}/b")
    assert file.read(100, 0) == b"still here"
    assert disk.list_folder(folder) == []


def test_opening_an_existing_file_keeps_its_content(disk: Disk, folder: str) -> None:
    disk.open(f"{folder}/a", create=True).write([b"abc"], 0)
    assert disk.open(f"{folder}/a", create=True).read(10, 0) == b"abc"
    assert disk.open(f"{folder}/a").read(10, 0) == b"abc"


@pytest.mark.parametrize("is_durable", [False, True])
def test_replace_puts_a_whole_file_in_place(disk: Disk, folder: str, is_durable: bool) -> None:
    disk.replace(f"{folder}/c", b"a longer first text", is_durable=is_durable)
    disk.replace(f"{folder}/c", b"second", is_durable=is_durable)
    assert disk.read_all(f"{folder}/c") == b"second"
    assert disk.list_folder(folder) == ["c"]


def test_folders_are_made_listed_renamed_and_removed(disk: Disk, folder: str) -> None:
    disk.make_folder(f"{folder}/x/y")
    disk.make_folder(f"{folder}/x/y")
    disk.open(f"{folder}/x/y/two", create=True)
    disk.open(f"{folder}/x/y/one", create=True)
    assert disk.list_folder(f"{folder}/x/y") == ["one", "two"]
    assert disk.is_folder(f"{folder}/x")
    assert not disk.is_folder(f"{folder}/x/y/one")
    assert not disk.is_folder(f"{folder}/z")
    disk.rename(f"{folder}/x/y", f"{folder}/x/z")
    assert not disk.exists(f"{folder}/x/y/one")
    assert disk.exists(f"{folder}/x/z/one")
    disk.remove_folder(f"{folder}/x/z")
    assert disk.list_folder(f"{folder}/x") == []


@pytest.mark.parametrize(
    "operation",
    [
        lambda disk, path: disk.open(path),
        lambda disk, path: disk.read_all(path),
        lambda disk, path: disk.size_bytes(path),
        lambda disk, path: disk.modified_ms(path),
        lambda disk, path: disk.unlink(path),
        lambda disk, path: disk.rename(path, f"{path}2"),
        lambda disk, path: disk.list_folder(path),
        lambda disk, path: disk.remove_folder(path),
        lambda disk, path: disk.sync_folder(path),
        lambda disk, path: disk.open(f"{path}/file", create=True),
    ],
)
def test_what_is_missing_is_refused_by_name(disk: Disk, folder: str, operation) -> None:  # type: ignore[no-untyped-def]  # ten lambdas of one shape
    with pytest.raises(DiskError) as refusal:
        operation(disk, f"{folder}/missing")
    assert refusal.value.number == errno.ENOENT
    assert "missing" in str(refusal.value)
    assert not disk.exists(f"{folder}/missing")


def test_syncing_changes_nothing_that_can_be_seen(disk: Disk, folder: str) -> None:
    file = disk.open(f"{folder}/a", create=True)
    file.write([b"abc"], 0)
    file.datasync()
    disk.sync_folder(folder)
    assert disk.read_all(f"{folder}/a") == b"abc"


def test_a_folder_is_locked_once(disk: Disk, folder: str) -> None:
    lock = disk.lock(f"{folder}/.lock")
    with pytest.raises(FolderError, match="another broker"):
        disk.lock(f"{folder}/.lock")
    lock.release()
    disk.lock(f"{folder}/.lock").release()


def test_only_the_owner_may_read_what_the_real_disk_holds(tmp_path: Path) -> None:
    disk = OsDisk()
    disk.make_folder(str(tmp_path / "data"))
    disk.open(str(tmp_path / "data/a"), create=True)
    assert (tmp_path / "data").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "data/a").stat().st_mode & 0o777 == 0o600
