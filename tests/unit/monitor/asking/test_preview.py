"""Previews of files in `watched/`: which names are refused, and how the output of the command is
used."""

import asyncio
import json
import sys
from pathlib import Path

import pytest

from monitor.asking import preview
from monitor.asking.preview import (
    FILES_OFFERED_MAX,
    NAME_CHARACTERS_MAX,
    Detector,
    PreviewFailed,
    files_to_preview,
    relative_name,
)
from monitor.config.settings import PreviewSettings

ECHO = "import json,sys; print(json.dumps({'data': {'file': sys.argv[1]}})); sys.exit(3)"


def detector(folder: Path, code: str = ECHO) -> Detector:
    return Detector(PreviewSettings(folder=folder, command=(sys.executable, "-c", code)))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("access/a.log", "access/a.log"),
        ("watched/access/a.log", "access/a.log"),
        ("./a b.log", "a b.log"),
        ("watched/watched/a", "watched/a"),
    ],
)
def test_names_with_and_without_the_folder(name: str, expected: str) -> None:
    assert relative_name(name) == expected


@pytest.mark.parametrize(
    "name",
    ["", ".", "watched", "/etc/passwd", "../data/secrets/x", "watched/../x", "a/../../x", "a\0b",
     "a" * (NAME_CHARACTERS_MAX + 1)],
)  # fmt: skip
def test_names_that_lead_out_of_the_folder_are_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="expected a file in watched/"):
        asyncio.run(detector(tmp_path).preview(name))


def test_the_command_gets_the_file(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("x\n")
    found = asyncio.run(detector(tmp_path).preview("watched/a.log"))
    assert found == {"file": str(tmp_path / "a.log")}


def test_only_regular_files_are_previewed(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    for name in ("folder", "missing.log"):
        with pytest.raises(ValueError, match=f"no file {name} in watched/"):
            asyncio.run(detector(tmp_path).preview(name))


def test_a_failure_says_why(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("x\n")
    with pytest.raises(PreviewFailed, match="a fault of the file"):
        asyncio.run(
            detector(tmp_path, "import sys; sys.exit('a fault of the file')").preview("a.log")
        )


def test_users_wait_for_each_other_at_most_for_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preview, "TIMEOUT_S", 1.0)
    (tmp_path / "a.log").write_text("x\n")
    one = detector(tmp_path, "import time; time.sleep(600)")

    async def both() -> list[object]:
        found = await asyncio.gather(
            one.preview("a.log"), one.preview("a.log"), return_exceptions=True
        )
        return list(found)

    failures = asyncio.run(both())
    assert all(isinstance(failure, PreviewFailed) for failure in failures)
    assert any("a.log was not previewed within 1 s" in str(failure) for failure in failures)


def test_files_without_an_input_come_first() -> None:
    rows = [{"file": "access/odd.log"}, {"file": "/var/log/x"}, {"reason": "none"}]
    found = files_to_preview({"unmatched": ["watched/new/app.log"]}, rows)
    assert found == ["watched/new/app.log", "watched/access/odd.log"]
    many = {"unmatched": [f"watched/{number}.log" for number in range(100)]}
    assert len(files_to_preview(many, [])) == FILES_OFFERED_MAX


def test_the_answer_is_the_commands_data(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("x\n")
    text = json.dumps({"data": {"format": "json"}})
    assert asyncio.run(detector(tmp_path, f"print({text!r})").preview("a.log")) == {
        "format": "json"
    }
