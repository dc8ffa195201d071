"""One topic of the archive is consistent in its folder after a crash at any point."""

from collections.abc import Callable
from pathlib import Path

import pytest

from stream.archive import topic_archive as shelf_module
from stream.archive.contents import ArchivePiece, PieceRange
from stream.archive.folders import LocalFolder, root_of
from stream.archive.topic_archive import TopicArchive
from tests.harness.seed import seeded

HOURS = ("hour=2026-08-01T10", "hour=2026-08-01T11")


class Died(Exception):
    """Stands for the death of the process."""


class Mortal(LocalFolder):
    """A folder that raises `Died` before the change that follows `left` changes."""

    def __init__(self, root: str, left: int) -> None:
        super().__init__(root)
        self.left = left

    def _live(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise Died

    def write_new(self, path: str, data: bytes) -> None:
        self._live()
        super().write_new(path, data)

    def move(self, source: str, target: str) -> None:
        self._live()
        super().move(source, target)

    def remove(self, path: str) -> None:
        self._live()
        super().remove(path)


def root(folder: Path) -> str:
    return root_of("an archive", folder)


def opened(folder: Path, left: int = 1_000_000) -> TopicArchive:
    archive = TopicArchive(Mortal(root(folder), left), "t")
    archive.open()
    return archive


def add(archive: TopicArchive, folder: Path) -> None:
    """Write a piece of ten offsets as Spark does, and commit it."""
    number, draft = archive.pieces.next_number, archive.new_draft()
    home = folder / "an archive/topic=t/_drafts" / draft
    home.mkdir(parents=True)
    (home / "_SUCCESS").touch()
    for hour in HOURS:
        (home / hour).mkdir()
        (home / hour / "part-0.parquet").write_text(f"{number} {hour}")
        (home / hour / ".part-0.parquet.crc").touch()
    start = archive.pieces.ends.get(0, 0)
    ranges = (PieceRange(0, start, start + 10, 0),)
    archive.commit(ArchivePiece(number, "id", draft, 10, ranges, archive.hours(draft)))


def seen(folder: Path) -> list[str]:
    """Return the records that a reader finds if it reads only the folders of the hours."""
    files = sorted((folder / "an archive").glob("topic=*/hour=*/*"))
    return [file.read_text() for file in files]


def expected(pieces: int) -> list[str]:
    return [f"{number} {hour}" for hour in HOURS for number in range(1, pieces + 1)]


def test_committed_pieces_are_there_for_every_reader(tmp_path: Path) -> None:
    archive = opened(tmp_path)
    for _ in range(3):
        add(archive, tmp_path)
    again = opened(tmp_path)
    assert again.pieces.all == archive.pieces.all
    assert again.pieces.spans(0) == ((0, 30),)
    assert seen(tmp_path) == expected(3)
    paths = [uri.removeprefix("file://") for uri in again.files(again.pieces.all)]
    assert sorted(Path(path).read_text() for path in paths) == sorted(expected(3))
    assert not list(tmp_path.glob("an archive/topic=t/_drafts/*"))


def test_many_notes_become_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shelf_module, "NOTES_MAX", 4)
    archive = opened(tmp_path)
    for _ in range(10):
        add(archive, tmp_path)
    notes = sorted(path.name for path in tmp_path.glob("an archive/topic=t/_pieces/*"))
    assert notes == ["00000008.all.json", "00000009.json", "00000010.json"]
    assert opened(tmp_path).pieces.all == archive.pieces.all


def test_a_death_at_every_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shelf_module, "NOTES_MAX", 3)
    chance = seeded("archive-shelf")
    for left in range(40):
        folder = tmp_path / str(left)
        die_at_will(folder, left, chance.randrange)


def die_at_will(folder: Path, left: int, chance: Callable[[int], int]) -> None:
    """Archive seven pieces with crashes in between. The first crash comes after `left` changes."""
    pieces = 0
    while pieces < 7:
        try:
            archive = opened(folder, left)
            pieces = len(archive.pieces.all)
            assert seen(folder) == expected(pieces), "opened, all is in its place and nothing else"
            while pieces < 7:
                add(archive, folder)
                pieces += 1
        except Died:
            found = seen(folder)
            assert len(found) == len(set(found)), "no reader ever meets a line twice"
        left = chance(20) + 4
    assert opened(folder).pieces.spans(0) == ((0, 70),)
    assert seen(folder) == expected(7)


def test_of_two_drivers_one_is_too_late(tmp_path: Path) -> None:
    one, other = opened(tmp_path), opened(tmp_path)
    add(one, tmp_path)
    with pytest.raises(FileExistsError):
        add(other, tmp_path)
    other.open()
    add(other, tmp_path)
    assert opened(tmp_path).pieces.spans(0) == ((0, 20),)
    assert seen(tmp_path) == expected(2)


def test_where_the_folder_is(tmp_path: Path) -> None:
    assert root_of("data/archive", tmp_path) == f"file://{tmp_path}/data/archive"
    assert root_of("/srv/my lines", tmp_path) == "file:///srv/my lines"
    assert root_of("s3a://bucket/lines", tmp_path) == "s3a://bucket/lines"
    assert root_of("file:///srv/lines", tmp_path) == "file:///srv/lines"
