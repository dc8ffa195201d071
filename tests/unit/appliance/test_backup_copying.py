"""Backups copy real files in rounds. A round copies what has changed, and only whole batches of a
log."""

import shutil
import stat
import time
from pathlib import Path

import pytest

from appliance.backup.copying import Copier, TooSlow, whole_batches
from appliance.backup.plan import WholeBatches
from protocol.wire.records import NewRecord, build_batch

NAME = "broker-1/t-0/00000000000000000000.log"
AHEAD_BYTES = 4_096


def batch(offset: int, leader_epoch: int = 0, text: bytes = b"a line") -> bytes:
    records = [NewRecord(timestamp_ms=1_785_000_000_000, key=None, value=text)]
    return bytes(build_batch(records, base_offset=offset, partition_leader_epoch=leader_epoch))


class Folders:
    """A data folder, its copy, and the copier between them."""

    def __init__(self, home: Path) -> None:
        self.source, self.target = home / "data", home / "copy"
        for folder in (self.source, self.target):
            folder.mkdir()
        self.copier = Copier(self.source, self.target, with_redis=False)

    def write(self, path: str, data: bytes, mode: int = 0o644) -> Path:
        file = self.source / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
        file.chmod(mode)
        return file

    def check(self) -> None:
        """Check that the copy has the same files, contents and permissions as the folder."""
        assert self._files(self.target) == self._files(self.source)

    def _files(self, folder: Path) -> dict[str, tuple[bytes, int]]:
        return {
            str(path.relative_to(folder)): (path.read_bytes(), stat.S_IMODE(path.stat().st_mode))
            for path in folder.rglob("*")
            if path.is_file()
        }


@pytest.fixture
def folders(tmp_path: Path) -> Folders:
    return Folders(tmp_path)


def test_files_and_their_rights_are_copied(folders: Folders) -> None:
    folders.write("secrets/mysql/root", b"a secret", 0o600)
    (folders.source / "secrets" / "mysql").chmod(0o700)
    folders.write("broker-1/meta.properties", b"version=1\n")
    assert folders.copier.round() == 18
    folders.check()
    assert folders.copier.folders["secrets/mysql"] == 0o700


def test_what_was_changed_removed_and_added_is_so_in_the_copy(folders: Folders) -> None:
    folders.write("collector/instance", b"one")
    folders.write("broker-1/old-0/partition.metadata", b"gone soon")
    folders.copier.round()
    folders.write("collector/instance", b"two")
    folders.write("broker-1/new-0/partition.metadata", b"here now")
    (folders.source / "broker-1/old-0/partition.metadata").unlink()
    (folders.source / "broker-1/old-0").rmdir()
    folders.copier.round()
    folders.copier.prune()
    folders.check()
    assert not (folders.target / "broker-1/old-0").exists()


def test_a_log_is_extended_from_its_last_whole_batch(folders: Folders) -> None:
    first, second = batch(0), batch(1)
    # Only a part of the second batch is written. The file is longer, because it is preallocated.
    log = folders.write(NAME, first + second[:40] + bytes(AHEAD_BYTES))
    folders.copier.round()
    assert whole_batches(folders.target / NAME, WholeBatches(0, 0)) == WholeBatches(len(first), 0)
    third = batch(2)
    log.write_bytes(first + second + third + bytes(AHEAD_BYTES))
    assert folders.copier.round() == len(second) + len(third) + AHEAD_BYTES
    folders.check()


def test_a_log_that_a_follower_has_cut_is_copied_from_its_beginning(folders: Folders) -> None:
    log = folders.write(NAME, batch(0) + batch(1, text=b"never acknowledged"))
    folders.copier.round()
    # A follower truncated the log and appended other batches in the same file. The second batch has
    # its old length, so only its content shows the change.
    log.write_bytes(
        batch(0) + batch(1, leader_epoch=1, text=b"leads to other wo!") + batch(2, leader_epoch=1)
    )
    folders.copier.round()
    folders.check()


def test_a_log_that_shrank_loses_its_end_in_the_copy(folders: Folders) -> None:
    log = folders.write(NAME, batch(0) + batch(1) + bytes(AHEAD_BYTES))
    folders.copier.round()
    with log.open("r+b") as file:
        file.truncate(len(batch(0)) + len(batch(1)))
    folders.copier.round()
    folders.check()


def test_a_round_that_is_not_over_in_time_says_so_and_the_next_goes_on(folders: Folders) -> None:
    for number in range(3):
        folders.write(f"broker-1/t-{number}/00000000000000000000.log", batch(0))
    with pytest.raises(TooSlow):
        folders.copier.round(deadline=time.monotonic())
    # The partition that was half copied may be deleted before the next round.
    shutil.rmtree(folders.source / "broker-1" / "t-0")
    folders.copier.round(deadline=time.monotonic() + 60)
    folders.copier.prune()
    folders.check()


def test_what_was_changed_just_now_is_read_once_more(folders: Folders) -> None:
    folders.write("archive/1.parquet", bytes(10_000))
    folders.copier.round()
    assert folders.copier.round() == 10_000


def test_a_part_s_folder_may_lie_on_another_disk(folders: Folders, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "meta.properties").write_text("version=1\n")
    (folders.source / "broker-1").symlink_to(tmp_path / "elsewhere")
    folders.copier.round()
    assert (folders.target / "broker-1/meta.properties").read_text() == "version=1\n"
    assert not (folders.target / "broker-1").is_symlink()
