"""Files that are read again after a change, and the value that stays if the new files are wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from protocol.watched_files import WatchedFiles


class Numbers:
    """Reads a number from two files, and notes the reports and how often the files are read."""

    def __init__(self, folder: Path) -> None:
        self.paths = (folder / "one", folder / "two")
        for path in self.paths:
            path.write_text("1")
        self.told: list[str] = []
        self.reads = 0

    def read(self) -> int:
        """Return the sum. Raises ValueError for a text without a number."""
        self.reads += 1
        return sum(int(path.read_text()) for path in self.paths)

    def watched(self) -> WatchedFiles[int]:
        """Return the watched sum."""
        return WatchedFiles(
            self.paths, self.read, ValueError, lambda error: self.told.append(str(error))
        )


def test_files_are_read_again_only_after_a_change(tmp_path: Path) -> None:
    numbers = Numbers(tmp_path)
    watched = numbers.watched()
    assert [watched.current() for _ in range(3)] == [2, 2, 2]
    assert (numbers.reads, numbers.told) == (1, [])
    numbers.paths[1].write_text("20")
    assert [watched.current() for _ in range(3)] == [21, 21, 21]
    assert (numbers.reads, numbers.told) == (2, ["None"])


def test_wrong_files_change_nothing_and_are_told_once(tmp_path: Path) -> None:
    numbers = Numbers(tmp_path)
    watched = numbers.watched()
    numbers.paths[0].write_text("half a number")
    assert [watched.current() for _ in range(3)] == [2, 2, 2]
    assert len(numbers.told) == 1 and "half a number" in numbers.told[0]
    assert "half a number" in str(watched.fault)
    numbers.paths[0].write_text("5")
    assert watched.current() == 6
    assert (watched.fault, numbers.told[1:]) == (None, ["None"])


def test_a_change_of_the_mode_and_another_file_of_the_same_size_count(tmp_path: Path) -> None:
    numbers = Numbers(tmp_path)
    watched = numbers.watched()
    numbers.paths[0].chmod(0o600)
    watched.current()
    assert numbers.reads == 2
    other = tmp_path / "other"
    other.write_text("7")
    other.rename(numbers.paths[0])
    assert (watched.current(), numbers.reads) == (8, 3)


def test_a_file_that_is_missing_at_the_start_is_an_error(tmp_path: Path) -> None:
    numbers = Numbers(tmp_path)
    numbers.paths[0].unlink()
    with pytest.raises(FileNotFoundError):
        numbers.watched()
