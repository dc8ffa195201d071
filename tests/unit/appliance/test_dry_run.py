"""`stream dry-run`: which lines are tried, under which key, and that it ends.

The stream's process is a small one of Python's here; what it counts is tried in
`tests/interop/test_stream_check`.
"""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from appliance.cli import stream_commands
from appliance.cli.output import Exit
from tests.unit.appliance.test_commands import config, run

SAYS_WHAT_IT_IS_TOLD = "import os, sys; print(os.getcwd(), *sys.argv[1:])"
RUNS_AWAY = "import time; time.sleep(600)"
REFUSES = "import sys; sys.stderr.write('a\\nfound nothing\\n'); sys.exit(1)"


class Room:
    """Stands in for the stream: runs `code` with the arguments that the stream would get."""

    def __init__(self, code: str) -> None:
        self.code = code
        self.process: subprocess.Popen[bytes] | None = None

    @contextmanager
    def __call__(
        self, mill: object, room: str, arguments: list[str], settings: object, **options: Any
    ) -> Iterator[subprocess.Popen[bytes]]:
        assert room == "stream"
        command = [sys.executable, "-c", self.code, *arguments]
        self.process = subprocess.Popen(command, **options)
        try:
            yield self.process
        finally:
            self.process.kill()
            self.process.wait()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    config(tmp_path, "")
    (tmp_path / "watched" / "access").mkdir(parents=True)
    return tmp_path


def tried(
    monkeypatch: pytest.MonkeyPatch, home: Path, room: Room, file: Path, *options: str
) -> tuple[int, list[str], list[str]]:
    monkeypatch.setattr(stream_commands, "room_process", room)
    return run(monkeypatch, home, "stream", "dry-run", str(file), *options)


def test_of_a_long_file_it_says_which_lines_are_tried(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = home / "watched" / "access" / "a.log"
    file.write_text("x\n" * 1_500)
    code, out, err = tried(monkeypatch, home, Room(SAYS_WHAT_IT_IS_TOLD), file)
    assert code == 0
    assert err[0] == "of 1,500 lines the last 1,000 are tried"
    assert err[1].startswith("nothing was stored (")
    # The stream sees the file under the key that its records have.
    assert out == [f"{home}/watched --dry-run access/a.log"]
    file.write_text("x\n" * 1_000)
    _, _, err = tried(monkeypatch, home, Room(SAYS_WHAT_IT_IS_TOLD), file)
    assert len(err) == 1


def test_a_file_from_elsewhere_keeps_its_path(
    home: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path_factory.mktemp("elsewhere") / "b.log"
    file.write_text("x\n")
    room = Room(SAYS_WHAT_IT_IS_TOLD)
    _, out, _ = tried(monkeypatch, home, room, file, "--from", "access")
    assert out == [f"{home} --dry-run {file} --from access"]


def test_a_pattern_that_runs_away_ends_with_the_time(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = home / "watched" / "access" / "a.log"
    file.write_text("x\n")
    room = Room(RUNS_AWAY)
    code, out, err = tried(monkeypatch, home, room, file, "--timeout", "1")
    assert (code, out) == (Exit.TIMEOUT, [])
    assert "takes too long on one of these lines" in err[-1]
    assert room.process is not None
    assert room.process.returncode is not None


def test_a_fault_that_the_stream_names_is_told_without_its_log(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = home / "watched" / "access" / "a.log"
    file.write_text("x\n")
    record = "2026-08-01T10:00:00.000Z ERROR stream found no input, expected one"
    names = Room(f"import sys; sys.stderr.write({record!r}); sys.exit(2)")
    code, _, err = tried(monkeypatch, home, names, file)
    assert code == Exit.USAGE
    assert err == ["millrace: the lines could not be tried: found no input, expected one"]


def test_what_the_stream_refuses_is_told_in_its_words(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = home / "watched" / "access" / "a.log"
    file.write_text("x\n")
    code, _, err = tried(monkeypatch, home, Room(REFUSES), file)
    assert code == Exit.USAGE
    assert err[-2:] == ["a", "found nothing"]
