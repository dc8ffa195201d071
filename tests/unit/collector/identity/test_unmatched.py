"""Finds files in the watched folder that no input matches."""

from pathlib import Path

import pytest

from collector.config.input_section import InputSection
from collector.identity import unmatched
from collector.identity.discovery import plan
from collector.identity.unmatched import unmatched_files


def found(home: Path, *inputs: dict[str, object]) -> list[str]:
    sections = [InputSection.model_validate({"topic": "t", **one}) for one in inputs]
    paths = unmatched_files(str(home), plan(sections, str(home)))
    return [path.removeprefix(f"{home}/watched/") for path in paths]


def made(home: Path, *names: str) -> None:
    for name in names:
        path = home / "watched" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x\n")


def test_files_of_no_input_are_named(tmp_path: Path) -> None:
    made(tmp_path, "access/a.log", "odd/b.log", "odd/deep/c.log", "d.log")
    access: dict[str, object] = {"paths": ["watched/access/**"]}
    assert found(tmp_path, access) == ["d.log", "odd/b.log", "odd/deep/c.log"]
    assert found(tmp_path, access, {"paths": ["watched/*.log", "watched/odd/**"]}) == []


def test_what_is_left_out_on_purpose_is_not_named(tmp_path: Path) -> None:
    made(tmp_path, "odd/.a.swp", "odd/b~", "odd/c.tmp", ".hidden/d.log", "text/e.gz")
    assert found(tmp_path, {"paths": ["watched/text/**"], "exclude": ["*.gz"]}) == []


def test_a_rotated_file_is_that_of_its_input(tmp_path: Path) -> None:
    made(tmp_path, "shop.log", "shop.log.1", "other.log")
    assert found(tmp_path, {"paths": ["watched/shop.log"]}) == ["other.log"]


def test_a_link_is_a_file_and_no_folder(tmp_path: Path) -> None:
    made(tmp_path, "text/a.log")
    (tmp_path / "watched" / "up").symlink_to(tmp_path)
    (tmp_path / "watched" / "one").symlink_to(tmp_path / "watched" / "text" / "a.log")
    assert found(tmp_path, {"paths": ["watched/text/**"]}) == ["one"]


def test_without_a_folder_there_is_none(tmp_path: Path) -> None:
    assert found(tmp_path, {"paths": ["watched/text/**"]}) == []


def test_a_look_has_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made(tmp_path, *(f"f{number}/a.log" for number in range(40)))
    monkeypatch.setattr(unmatched, "ENTRIES_MAX", 45)
    assert 0 < len(found(tmp_path)) < 10
