"""`status` shows a part as stuck if the monitor finds no progress, even if the part reports
healthy."""

from pathlib import Path
from typing import Any

import pytest

from appliance.checks.startup import CheckLevel
from appliance.cli import context, doctor, status_command
from appliance.operate import lifecycle
from protocol.status import PartState, PartStatus, Problem


def row_of(part: str) -> dict[str, object]:
    return {"part": part, "state": "healthy", "address": "127.0.0.1:8090", "reason": ""}


@pytest.mark.parametrize(
    ("part", "code", "state"),
    [
        ("monitor", "part-stuck", "degraded"),
        # The other parts report this problem themselves, so the monitor's row does not repeat it.
        ("monitor", "brokers-away", "healthy"),
        ("stream", "poison", "degraded"),
        ("redis", "part-stuck", "healthy"),
    ],
)
def test_the_monitor_tells_of_stuck_parts(
    part: str, code: str, state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = Problem(code, "stream has made no progress for 80 s")
    answer = PartStatus(part, PartState.DEGRADED, True, 0, 0, problems=(problem,))
    monkeypatch.setattr(status_command, "fetch_status", lambda *_: answer)
    found = status_command._as_it_says_itself(row_of(part))
    assert found["state"] == state
    assert bool(found["reason"]) == (state == "degraded")


STUCK = "stream has made no progress for 80 s"


def mill_with_a_stuck_stream(monkeypatch: pytest.MonkeyPatch, *, tells_which: bool = True) -> None:
    """Make a mill appear to run. Its stream reports itself healthy, but its monitor finds it
    stuck."""
    problem = Problem("part-stuck", STUCK)
    details = {"stuck_parts": {"stream": STUCK}} if tells_which else {}
    answers = {
        8090: PartStatus(
            "monitor", PartState.DEGRADED, True, 0, 0, problems=(problem,), details=details
        ),
        8091: PartStatus("stream", PartState.RUNNING, True, 0, 0),
    }
    rows = [
        {**row_of(part), "pid": None, "uptime_ms": 1, "restarts": 0, "address": f"127.0.0.1:{port}"}
        for part, port in (("stream", 8091), ("monitor", 8090))
    ]
    monkeypatch.setattr(status_command, "fetch_status", lambda host, port, *_: answers[port])
    monkeypatch.setattr(lifecycle, "is_running", lambda home: True)
    monkeypatch.setattr(lifecycle, "snapshot", lambda home: {"parts": rows, "stopping": False})


def test_a_stuck_part_is_said_in_its_own_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MILLRACE_HOME", str(tmp_path))
    mill_with_a_stuck_stream(monkeypatch)
    rows, _ = status_command.part_rows()
    found = [(row["part"], row["state"], row["reason"]) for row in rows]
    assert found == [("stream", "degraded", STUCK), ("monitor", "healthy", "")]


def test_of_an_older_monitor_the_row_is_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MILLRACE_HOME", str(tmp_path))
    mill_with_a_stuck_stream(monkeypatch, tells_which=False)
    rows, _ = status_command.part_rows()
    found = [(row["part"], row["state"], row["reason"]) for row in rows]
    assert found == [("stream", "healthy", ""), ("monitor", "degraded", STUCK)]


def test_status_and_doctor_lead_to_the_log_of_the_part_that_is_stuck(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MILLRACE_HOME", str(tmp_path))
    mill_with_a_stuck_stream(monkeypatch)
    rows, errors = status_command.part_rows()
    status_command._print_status(rows, errors)
    assert "`./millrace logs stream` shows more" in capsys.readouterr().out
    checks = [one for one in doctor._parts(rows, errors) if one.level is CheckLevel.WARNING]
    assert [(one.what, one.found, one.remedy) for one in checks] == [
        ("stream", f"degraded: {STUCK}", "`./millrace logs stream` shows more")
    ]


def test_in_containers_the_log_is_that_of_the_container(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(context, "in_containers", lambda: True)
    row: dict[str, Any] = {**row_of("stream"), "pid": None, "uptime_ms": None, "restarts": None}
    row |= {"memory_bytes": None, "state": "degraded", "reason": STUCK, "is_stuck": True}
    status_command._print_status([row], [])
    assert "`docker compose logs stream` shows more" in capsys.readouterr().out
