"""`dump-log`: the files that it accepts, and its messages about all others."""

from pathlib import Path

import pytest

from appliance.output import Exit
from tests.unit.appliance.test_commands import run
from tests.unit.storage.kit import batch

LOG = f"{0:020}.log"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a log folder that also contains a file that the broker did not write."""
    made = tmp_path / "t-0"
    made.mkdir()
    (made / LOG).write_bytes(batch(b"v", key=b"k"))
    (made / "copy.log").write_bytes(b"not looked at")
    return made


@pytest.mark.parametrize("options", [(), ("--print-data",)])
def test_a_file_that_is_named_otherwise_is_refused_and_not_passed_over(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
) -> None:
    """If the tool skipped the file, it could report `nothing is wrong` for a file that it had not
    read."""
    paths = [str(folder / LOG), str(folder / "copy.log")]
    code, out, err = run(monkeypatch, tmp_path, "dump-log", *paths, *options)
    assert (code, out) == (Exit.USAGE, [])
    [said] = err
    assert said.startswith(f"millrace: {folder / 'copy.log'}: expected a name as the broker gives")
    assert "00000000000000000000.log" in said


def test_of_a_folder_only_what_the_broker_has_named_is_looked_at(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out, err = run(monkeypatch, tmp_path, "dump-log", str(folder), "--print-data")
    assert code == 0, err
    assert [line for line in out if line.startswith("Dumping ")] == [f"Dumping {folder / LOG}"]
    assert err == ["nothing is wrong: 1 file, 1 batch, 70 bytes"]


@pytest.mark.parametrize("depth", [1, 2])
def test_of_a_broker_s_whole_folder_every_log_is_looked_at(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, depth: int
) -> None:
    whole = tmp_path / "elsewhere" / ("data/broker-1" if depth == 2 else "broker-1")
    for name in ("t-0", "t-1"):
        (whole / name).mkdir(parents=True)
        (whole / name / LOG).write_bytes((folder / LOG).read_bytes())
    (whole / "meta.properties").write_text("node.id=1")
    asked = str(tmp_path / "elsewhere")
    code, out, err = run(monkeypatch, tmp_path, "dump-log", asked, "--print-data")
    assert (code, err) == (0, ["nothing is wrong: 2 files, 2 batches, 140 bytes"])
    dumped = [line for line in out if line.startswith("Dumping ")]
    assert dumped == [f"Dumping {whole / name / LOG}" for name in ("t-0", "t-1")]


def test_one_finding_is_one(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / LOG).write_bytes(b"torn")
    code, out, err = run(monkeypatch, tmp_path, "dump-log", str(folder))
    assert (code, len(out)) == (Exit.CONDITION, 1)
    assert err == ["1 finding: 1 file, 0 batches, 4 bytes"]


def test_where_there_is_no_log_nothing_is_called_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty").mkdir()
    code, out, err = run(monkeypatch, tmp_path, "dump-log", str(tmp_path / "empty"))
    assert (code, out) == (Exit.NOT_FOUND, [])
    assert err == [
        "millrace: found no log file in the given folders, expected files such as "
        "00000000000000000000.log"
    ]


def test_a_folder_in_the_place_of_a_log_is_found_and_not_printed(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    strange = folder / f"{1:020}.log"
    strange.mkdir()
    code, out, _ = run(monkeypatch, tmp_path, "dump-log", str(folder), "--print-data")
    assert code == Exit.CONDITION
    assert [line for line in out if str(strange) in line] == [
        f"{strange}: cannot be read: Is a directory"
    ]
