"""How long `up` waits for a start, and the progress that it reports. The test plays the
supervisor."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from appliance.cli import mill_commands
from appliance.mill.home import Home, find_home
from appliance.operate import lifecycle, starting
from appliance.operate.lifecycle import MillProgress, StartFailed, wait_healthy
from appliance.output import Exit
from tests.unit.appliance.test_commands import config, run

LOST = (
    "lines-lost: logs.access-0 is counted up to 20, but the broker has it only up to 9:"
    " was the topic created again?"
)
UP_S = 300.0


def part(name: str, state: str, reason: str = "") -> dict[str, Any]:
    return {"part": name, "state": state, "reason": reason, "restarts": 0, "starts_anew": False}


class Clock:
    """A clock that a sleep advances."""

    def __init__(self) -> None:
        self.now_s = 1_000.0

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    played = SimpleNamespace(monotonic=lambda: made.now_s, sleep=made.sleep)
    monkeypatch.setattr(lifecycle, "time", played)
    return made


@pytest.fixture
def home(clock: Clock) -> Home:
    return find_home({"MILLRACE_HOME": "/nowhere"})


def play(monkeypatch: pytest.MonkeyPatch, *looks: list[dict[str, Any]]) -> None:
    """Return these parts in the supervisor's status, one list per request. The last list is
    repeated."""
    left = list(looks)

    def snapshot(home: Home) -> dict[str, Any]:
        return {"parts": left.pop(0) if len(left) > 1 else left[0]}

    monkeypatch.setattr(lifecycle, "snapshot", snapshot)


def test_what_no_waiting_mends_is_not_waited_for(
    home: Home, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Waiting cannot repair damaged logs. So `up` must give up early and name the reason."""
    play(monkeypatch, [part("redis", "healthy"), part("stream", "starting", LOST)])
    began_s = clock.now_s
    with pytest.raises(StartFailed, match="counted up to 20, but the broker has it only up to 9"):
        wait_healthy(home, UP_S)
    assert clock.now_s - began_s == pytest.approx(lifecycle.IN_VAIN_S, abs=2 * lifecycle.POLL_S)


def test_lines_that_come_back_are_waited_for(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """Brokers that start together report fewer records until they know which records all of them
    have. So `up` must not give up."""
    most = int(lifecycle.IN_VAIN_S / lifecycle.POLL_S) - 1
    lost, away = part("stream", "starting", LOST), part("stream", "starting", "broker-away: no")
    looks = [[lost]] * most + [[away]] + [[lost]] * most
    play(monkeypatch, *looks, [part("stream", "healthy")])
    assert wait_healthy(home, UP_S)["parts"] == [part("stream", "healthy")]


@pytest.mark.parametrize(
    ("state", "reason", "expected"),
    [
        ("starting", "starting", "stream"),
        ("starting", "127.0.0.1:8092: Connection refused", "stream"),
        ("starting", "mysql-away: not now", "stream (mysql-away: not now)"),
        ("healthy", "starts again", "stream (starts again)"),
    ],
)
def test_what_a_part_waits_for_is_told(
    home: Home, monkeypatch: pytest.MonkeyPatch, state: str, reason: str, expected: str
) -> None:
    told: list[MillProgress] = []
    waiting = {**part("stream", state, reason), "starts_anew": state == "healthy"}
    play(monkeypatch, [waiting], [part("stream", "healthy")])
    wait_healthy(home, UP_S, told.append)
    assert told[0].waiting_for == expected


def test_a_reason_without_end_is_cut(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[MillProgress] = []
    play(monkeypatch, [part("a", "starting", f"x-away: {'y' * 500}")], [part("a", "healthy")])
    wait_healthy(home, UP_S, told.append)
    assert len(told[0].waiting_for) < lifecycle.REASON_CHARS_MAX + 10


def test_a_supervisor_that_does_not_start_is_told_in_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise StartFailed("the supervisor did not start")

    config(tmp_path, "")
    monkeypatch.setattr(mill_commands, "judge_expressions", lambda *_: None)
    monkeypatch.setattr(starting, "start", fail)
    code, _, err = run(monkeypatch, tmp_path, "up")
    assert (code, err[-1]) == (Exit.FAILED, "millrace: the supervisor did not start")
