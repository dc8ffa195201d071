"""The record of the long tests: a part of which nothing ran has not passed."""

from pathlib import Path

import pytest

from setup import test_all
from setup.test_all import Run, read_record, run_part, table, write_record


@pytest.mark.parametrize(
    ("body", "outcome", "passed", "skipped"),
    [
        ("def test_a(): pass", "passed", 1, 0),
        ("def test_a(): pass\ndef test_b(): pytest.skip('no server')", "passed", 1, 1),
        ("def test_a(): pytest.skip('no server')", "skipped", 0, 1),
        ("pytest.skip('no server', allow_module_level=True)", "no tests", 0, 1),
        ("def test_a(): pass\ndef test_b(): assert False", "failed", 1, 0),
        ("", "no tests", 0, 0),
    ],
)
def test_a_part_is_judged_by_what_ran(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    body: str,
    outcome: str,
    passed: int,
    skipped: int,
) -> None:
    folder = tmp_path / "tests" / "part"
    folder.mkdir(parents=True)
    (folder / "test_one.py").write_text(f"import pytest\n{body}\n")
    monkeypatch.setattr(test_all, "ROOT", tmp_path)
    run = run_part("part")
    assert (run.outcome, run.passed, run.skipped) == (outcome, passed, skipped)
    # Why something was skipped is told, also when the part has passed.
    assert ("no server" in capfd.readouterr().out) == bool(skipped)


def test_the_table_shows_how_many_ran_and_a_record_without_counts_is_read(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    path.write_text(
        '{"old": {"ended_at": "then", "outcome": "passed", "seconds": 3.0, "commit": "abc"}}'
    )
    record = read_record(path) | {"new": Run("now", "passed", 7.0, "def", 41, 2)}
    write_record(record, path)
    assert read_record(path) == record
    _, old, new, never = table(record, ["old", "new", "never"]).splitlines()
    assert old.split() == ["old", "then", "passed", "0", "0", "3", "abc"]
    assert new.split() == ["new", "now", "passed", "41", "2", "7", "def"]
    assert never.split() == ["never", "never", "-", "-", "-", "-", "-"]
