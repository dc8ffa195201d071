"""`stream dry-run`: which records of a file it sends, with which keys, and how it ends.

A small Python process plays the stream here. `tests/interop/test_stream_check` tests what the real
stream counts.
"""

import gzip
import json
import subprocess
import sys
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from appliance.cli import stream_commands
from appliance.output import Exit
from tests.unit.appliance.test_commands import config, run

SAYS_WHAT_IT_IS_TOLD = "import sys; print(*sys.argv[1:], sys.stdin.read())"
RUNS_AWAY = "import time; time.sleep(600)"
REFUSES = "import sys; sys.stderr.write('a\\nfound nothing\\n'); sys.exit(1)"


SECTIONS = """
topics: [{name: foreign}]
collector:
  inputs:
    - {paths: ["watched/access/**"], topic: logs.access}
    - {paths: ["watched/slow/**"], topic: logs.slow, multiline: {start: '^# Time:'}}
    - {paths: ["watched/wide/**"], topic: logs.wide, encoding: utf-16}
    - {paths: ["watched/apps/*/*.log"], topic: "logs.{1}", line_end: nul}
stream:
  from:
    access: {topic: logs.access, format: raw}
    slow: {topic: logs.slow, format: raw}
    wide: {topic: logs.wide, format: raw}
    web: {topic: logs.web, format: raw}
    foreign: {topic: foreign, format: raw}
"""
SLOW = "# Time: 1\nSELECT 1;\n# Time: 2\nSELECT 2\n FROM t;\n"
EVENTS = ["# Time: 1\nSELECT 1;", "# Time: 2\nSELECT 2\n FROM t;"]


class Room:
    """A double of the stream's process. It runs `code` with the arguments that the stream would
    get."""

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
    config(tmp_path, "stream: {from: {access: {topic: logs.access, format: raw}}}")
    (tmp_path / "watched" / "access").mkdir(parents=True)
    return tmp_path


def tried(
    monkeypatch: pytest.MonkeyPatch, home: Path, room: Room, file: Path, *options: str
) -> tuple[int, list[str], list[str]]:
    monkeypatch.setattr(stream_commands, "room_process", room)
    return run(monkeypatch, home, "stream", "dry-run", str(file), *options)


def samples(
    monkeypatch: pytest.MonkeyPatch, home: Path, file: Path, *options: str
) -> list[tuple[str, str, list[str]]]:
    """Return the arguments for each sample: the input, the key, and the records that the stream
    gets."""
    code, out, err = tried(monkeypatch, home, Room(SAYS_WHAT_IT_IS_TOLD), file, *options)
    assert code == 0, err
    (said,) = out
    assert said.startswith("--dry-run ")
    return [
        (one["name"], one["key"], [b64decode(record).decode() for record in one["records"]])
        for one in json.loads(said.removeprefix("--dry-run "))
    ]


def written(home: Path, name: str, data: bytes) -> Path:
    file = home / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(data)
    return file


@pytest.fixture
def told(tmp_path: Path) -> Path:
    config(tmp_path, SECTIONS)
    return tmp_path


def test_of_a_long_file_it_says_which_lines_are_tried(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = home / "watched" / "access" / "a.log"
    file.write_text("x\n" * 1_500)
    code, _, err = tried(monkeypatch, home, Room(SAYS_WHAT_IT_IS_TOLD), file)
    assert code == 0
    assert err[0] == "only the last 1,000 of 1,500 lines are tried"
    assert err[1].startswith("nothing was stored (")
    file.write_text("x\n" * 1_000)
    _, _, err = tried(monkeypatch, home, Room(SAYS_WHAT_IT_IS_TOLD), file)
    assert len(err) == 1


@pytest.mark.parametrize(
    ("name", "data", "given"),
    [
        ("watched/slow/a.log", SLOW.encode(), ("slow", "slow/a.log", EVENTS)),
        (
            "watched/wide/a.log",
            "é\r\nb\r\n".encode("utf-16"),
            ("wide", "wide/a.log", ["é", "b"]),
        ),
        (
            "watched/access/a.gz",
            gzip.compress(b"a\nb\n", mtime=0),
            ("access", "access/a.gz", ["a", "b"]),
        ),
        ("watched/apps/web/a.log", b"a\0b\n\0", ("web", "apps/web/a.log", ["a", "b\n"])),
    ],
)
def test_a_file_is_read_as_its_input_reads_it(
    told: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    data: bytes,
    given: tuple[str, str, list[str]],
) -> None:
    assert samples(monkeypatch, told, written(told, name, data)) == [given]


def test_a_file_from_elsewhere_is_read_as_the_input_of_its_topic(
    told: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = written(tmp_path_factory.mktemp("elsewhere"), "b.log", SLOW.encode())
    lines = SLOW.splitlines()
    key = str(file)
    assert samples(monkeypatch, told, file, "--from", "slow") == [("slow", key, EVENTS)]
    assert samples(monkeypatch, told, file, "--topic", "logs.slow") == [("slow", key, EVENTS)]
    assert samples(monkeypatch, told, file, "--from", "foreign") == [("foreign", key, lines)]
    assert samples(monkeypatch, told, file, "--from", "slow", "--topic", "logs.access") == [
        ("slow", key, lines)
    ]


def test_a_file_in_a_folder_named_like_a_topic_is_tried_as_that(
    told: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = written(tmp_path_factory.mktemp("elsewhere"), "slow/b.log", SLOW.encode())
    assert samples(monkeypatch, told, file) == [("slow", str(file), EVENTS)]


def test_a_file_behind_a_link_is_one_of_its_input(
    told: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    written(elsewhere, "a.log", SLOW.encode())
    (told / "watched" / "slow").mkdir(parents=True)
    (told / "watched" / "slow" / "current").symlink_to(elsewhere)
    file = told / "watched" / "slow" / "current" / "a.log"
    assert samples(monkeypatch, told, file) == [("slow", "slow/current/a.log", EVENTS)]


@pytest.mark.parametrize(
    ("name", "data", "options", "words"),
    [
        ("watched/access/a.zip", b"PK\x03\x04rest\n", (), "zip archive"),
        ("watched/access/a.gz", gzip.compress(b"x\n" * 99, mtime=0)[:-9], (), "not complete yet"),
        ("watched/access/a", b"x\n", ("--from", "no"), "expected one of stream.from: access"),
        (
            "watched/access/a",
            b"x\n",
            ("--topic", "no"),
            "expected the topic of an input: logs.access",
        ),
        ("watched/apps/db/a.log", b"x\0", (), "no input of stream.from reads"),
    ],
)
def test_a_file_that_is_not_read_is_refused_with_the_reason(
    told: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    data: bytes,
    options: tuple[str, ...],
    words: str,
) -> None:
    file = written(told, name, data)
    code, _, err = tried(monkeypatch, told, Room(SAYS_WHAT_IT_IS_TOLD), file, *options)
    assert code == Exit.USAGE
    assert words in err[-1]


def test_what_is_left_out_is_said(told: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = written(told, "watched/access/a", b"x\nopen")
    _, _, err = tried(monkeypatch, told, Room(SAYS_WHAT_IT_IS_TOLD), file)
    assert err[0].startswith("the last 4 bytes are not tried, because they have no line end")


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
    assert err == ["millrace: the dry run failed: found no input, expected one"]


def test_what_the_stream_refuses_is_told_in_its_words(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = home / "watched" / "access" / "a.log"
    file.write_text("x\n")
    code, _, err = tried(monkeypatch, home, Room(REFUSES), file)
    assert code == Exit.USAGE
    assert err[-2:] == ["a", "found nothing"]
