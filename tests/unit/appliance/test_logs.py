"""`logs` merges the lines of all parts by time, and reads the time formats of all parts."""

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.unit.appliance.test_commands import run

LINES = {
    "mysql": [
        "2026-08-01  9:00:03 0 [Note] mariadbd: ready for connections.",
        "Version: '10.11.19-MariaDB'  port: 3307",
    ],
    "redis": ["6087:M 01 Aug 2026 09:00:01.358 * Ready to accept connections"],
    "stream": [
        "2026-08-01T07:00:02.000Z INFO stream begins",
        "2026-08-01T07:00:04.000Z INFO stream runs",
    ],
}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Write the logs. The machine's time zone is two hours ahead of UTC, and the servers log local
    time."""
    folder = tmp_path / "data" / "logs"
    folder.mkdir(parents=True)
    for name, lines in LINES.items():
        (folder / f"{name}.log").write_text("".join(f"{line}\n" for line in lines))
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "Europe/Berlin")
        time.tzset()
        yield tmp_path
    time.tzset()


def test_lines_of_all_parts_are_in_one_order(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code, out, _ = run(monkeypatch, home, "logs")
    assert code == 0
    assert [line.split("|")[0].strip() for line in out] == [
        "redis",
        "stream",
        "mysql",
        "mysql",
        "stream",
    ]
    _, out, _ = run(monkeypatch, home, "logs", "--json")
    assert [json.loads(line)["at"] for line in out] == [
        "2026-08-01T07:00:01.358Z",
        "2026-08-01T07:00:02.000Z",
        "2026-08-01T07:00:03.000Z",
        None,
        "2026-08-01T07:00:04.000Z",
    ]


def test_since_is_asked_of_every_part(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        time, "time", lambda: datetime(2026, 8, 1, 7, 0, 12, 500_000, UTC).timestamp()
    )
    added = "".join(f"2026-08-01T07:00:05.{n:03}Z INFO stream line\n" for n in range(200))
    with (home / "data" / "logs" / "stream.log").open("a") as file:
        file.write(added)
    _, out, _ = run(monkeypatch, home, "logs", "--since", "10s")
    assert [line.split("|")[0].strip() for line in out] == ["mysql", "mysql", *["stream"] * 201]
