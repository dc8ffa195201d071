"""Snapshots of the metadata: undamaged ones are printed, and every damage in others is found."""

from pathlib import Path

import pytest

from appliance.dump.folder import METADATA, check_files, check_folder
from appliance.kafka_tools import dump_log
from broker.quorum.snapshot import BOOTSTRAP, SnapshotId, build_snapshot, file_name
from tests.unit.appliance.test_commands import run
from tests.unit.broker.quorum.kit import THREE_VOTERS, batch

ID = SnapshotId(120, 4)
HEADING = "Snapshot end offset: 120, epoch: 4"


@pytest.fixture
def snapshot(tmp_path: Path) -> Path:
    """Return the newest of two snapshots. The log in its folder begins at an earlier offset."""
    folder = tmp_path / METADATA
    folder.mkdir()
    (folder / file_name(BOOTSTRAP)).write_bytes(build_snapshot(BOOTSTRAP, THREE_VOTERS, []))
    (folder / f"{120:020}.log").touch()
    path = folder / file_name(ID)
    path.write_bytes(build_snapshot(ID, THREE_VOTERS, [bytearray(batch(b"a", count=2))]))
    return path


def told(path: Path) -> list[str]:
    """Return the findings of a check of the folder. A check of the file alone must find the
    same."""
    in_folder = [str(one) for one in check_folder(path.parent).findings]
    assert [str(one) for one in check_files([path]).findings] == in_folder
    return in_folder


def test_nothing_is_found_in_whole_ones(snapshot: Path) -> None:
    report = check_folder(snapshot.parent)
    assert report.findings == []
    assert (report.files, report.batches) == (3, 5)


def test_each_flipped_bit_is_found(snapshot: Path) -> None:
    content = snapshot.read_bytes()
    for position in range(len(content)):
        damaged = bytearray(content)
        damaged[position] ^= 0x40
        snapshot.write_bytes(damaged)
        found = told(snapshot)
        assert found, position
        assert all(one.startswith(f"{snapshot}: ") for one in found)


def test_each_cut_is_found_and_what_stands_behind_the_end(snapshot: Path) -> None:
    content = snapshot.read_bytes()
    for size in range(len(content)):
        snapshot.write_bytes(content[:size])
        assert told(snapshot), size
    for tail in (b"x", bytes(4_096), content):
        snapshot.write_bytes(content + tail)
        assert told(snapshot), tail[:9]


def test_a_snapshot_under_the_name_of_another_is_found(snapshot: Path) -> None:
    (snapshot.parent / file_name(BOOTSTRAP)).write_bytes(snapshot.read_bytes())
    found = [str(one) for one in check_folder(snapshot.parent).findings]
    assert found == [
        f"{snapshot.parent / file_name(BOOTSTRAP)}: byte 0: "
        "the leader epoch is 4, the file's name says 0"
    ]


def test_a_log_that_no_snapshot_reaches_is_found(snapshot: Path) -> None:
    """The replay of the metadata begins with the newest snapshot and continues with the log. So a
    log that begins after the end of that snapshot has a gap before it."""
    snapshot.unlink()
    [found] = check_folder(snapshot.parent).findings
    assert found.what == "the log begins at offset 120, the newest snapshot ends at 0"
    (snapshot.parent / file_name(BOOTSTRAP)).unlink()
    [found] = check_folder(snapshot.parent).findings
    assert found.what == "the log begins at offset 120, and there is no snapshot"
    # The log of an old version has no snapshot and begins at offset 0. That is no damage.
    (snapshot.parent / f"{120:020}.log").rename(snapshot.parent / f"{0:020}.log")
    assert check_folder(snapshot.parent).findings == []


def test_it_is_printed_as_kafkas_tool_does(
    snapshot: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert dump_log.main(("--files", str(snapshot), "--cluster-metadata-decoder")) == 0
    dumping, heading, *lines = capsys.readouterr().out.splitlines()
    assert (dumping, heading) == (f"Dumping {snapshot}", HEADING)
    assert [line.startswith("|") for line in lines] == [
        *(False, True, True, True),
        *(False, True, True),
        *(False, True),
    ]
    assert 'SnapshotHeader {"version":0,"lastContainedLogTimestamp":-1}' in lines[1]
    assert lines[-1].endswith('SnapshotFooter {"version":0}')
    snapshot.write_bytes(snapshot.read_bytes()[:-1])
    assert dump_log.main(("--files", str(snapshot))) == 3


def test_the_command_prints_those_of_a_folder(
    snapshot: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out, err = run(monkeypatch, tmp_path, "dump-log", str(snapshot.parent), "--print-data")
    assert code == 0, err
    dumped = [line for line in out if line.startswith("Dumping ")]
    assert [Path(line.split()[1]).name for line in dumped] == [
        file_name(BOOTSTRAP),
        file_name(ID),
        f"{120:020}.log",
    ]
    assert HEADING in out
    assert err[-1].startswith("nothing is wrong: 3 files, 5 batches")
