"""The record of the long tests: a part in which no test ran has not passed."""

from pathlib import Path

import pytest

from setup import test_all
from setup.test_all import Run, read_record, run_part, table, write_record


@pytest.mark.parametrize(
    ("body", "outcome", "passed", "skipped"),
    [
        ("def test_a(): pass", "passed", 1, 0),
        ("def test_a(): pass\ndef test_b(): pytest.skip('no server')", "incomplete", 1, 1),
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
    # The run prints the reason of each skip, even if no test failed.
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


@pytest.mark.parametrize(
    ("reason", "code"),
    [("root reads everything", 0), ("kcat is not installed", 1), ("not so: root reads", 1)],
)
def test_the_long_form_has_passed_only_without_skips_but_those_allowed(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    reason: str,
    code: int,
) -> None:
    folder = tmp_path / "tests" / "part"
    folder.mkdir(parents=True)
    (folder / "test_one.py").write_text(
        f"import pytest\ndef test_a(): pass\ndef test_b(): pytest.skip({reason!r})\n"
    )
    monkeypatch.setattr(test_all, "ROOT", tmp_path)
    monkeypatch.setattr(test_all, "read_record", dict)
    monkeypatch.setattr(test_all, "write_record", lambda record: None)
    assert test_all.main(["part"]) == code
    told = capfd.readouterr().out
    assert (f"not run in part: {reason}\n" in told) == bool(code)
    assert told.endswith("not passed: part (incomplete)\n") == bool(code)


def test_a_part_of_which_nothing_ran_does_not_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "tests" / "part"
    folder.mkdir(parents=True)
    (folder / "test_one.py").write_text("import pytest\npytest.skip('x', allow_module_level=True)")
    monkeypatch.setattr(test_all, "ROOT", tmp_path)
    monkeypatch.setattr(test_all, "read_record", dict)
    monkeypatch.setattr(test_all, "write_record", lambda record: None)
    assert test_all.main(["part"]) == 1
