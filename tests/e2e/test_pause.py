"""The supervisor pauses real processes and resumes them, even if one of them or the supervisor
dies."""

import signal
from pathlib import Path

import pytest

from appliance.backup.pause import PauseFailed, paused
from appliance.machine.processes import ProcessRecord
from appliance.supervisor import control
from appliance.supervisor.pausing import PAUSE_MS_MAX, stand_still
from tests.e2e.test_up_supervisor import DEADLINE_S, FakeMill, fake_mill
from tests.harness.wait import wait_until

pytestmark = pytest.mark.live


def is_still(record: ProcessRecord) -> bool:
    return stand_still({record.pid})


def is_awake(record: ProcessRecord) -> bool:
    return record.is_alive() and not is_still(record)


def pause(mill: FakeMill, *parts: str, for_ms: int) -> dict[str, object]:
    request = {"command": "pause", "parts": list(parts), "for_ms": for_ms}
    return control.ask(mill.home.socket, request)


def test_parts_stand_still_with_their_children_and_go_on(tmp_path: Path) -> None:
    child_file = tmp_path / "child"
    with fake_mill(
        tmp_path, {"name": "a", "modes": [f"child={child_file}"]}, {"name": "b"}
    ) as mill:
        mill.wait_healthy("a")
        mill.wait_healthy("b")
        with paused(mill.home, ["a"]) as found:
            # A part and its child are one process group, so both are stopped. The other part runs.
            assert is_still(mill.record("a"))
            assert not is_still(mill.record("b"))
            state = Path(f"/proc/{child_file.read_text()}/stat").read_text().split()[2]
            assert state == "T"
        assert found.length_ms > 0
        wait_until(lambda: is_awake(mill.record("a")), DEADLINE_S, "it goes on")
        assert mill.entry("a")["restarts"] == 0


def test_an_abandoned_pause_ends_automatically(tmp_path: Path) -> None:
    with fake_mill(tmp_path, {"name": "a"}) as mill:
        mill.wait_healthy()
        assert pause(mill, "a", for_ms=500)["ok"]
        refused = pause(mill, "a", for_ms=500)
        assert refused == {"ok": False, "error": "the mill is paused already"}
        wait_until(lambda: is_awake(mill.record()), DEADLINE_S, "it goes on")
        assert control.ask(mill.home.socket, {"command": "resume"}) == {"ok": True, "held": False}


def test_no_longer_pause_can_be_asked_for(tmp_path: Path) -> None:
    with fake_mill(tmp_path, {"name": "a"}) as mill:
        mill.wait_healthy()
        for for_ms in (0, -1, PAUSE_MS_MAX + 1):
            assert pause(mill, "a", for_ms=for_ms)["ok"] is False
            assert is_awake(mill.record())


def test_a_part_that_dies_in_a_pause_makes_it_void(tmp_path: Path) -> None:
    with fake_mill(tmp_path, {"name": "a"}, {"name": "b"}) as mill:
        mill.wait_healthy("a")
        mill.wait_healthy("b")
        with pytest.raises(PauseFailed, match="ended or started"), paused(mill.home, ["a", "b"]):
            pid = mill.record("a").pid
            mill.record("a").signal(signal.SIGKILL)
            wait_until(lambda: mill.entry("a")["pid"] != pid, DEADLINE_S, "its death is known")
        wait_until(lambda: is_awake(mill.record("b")), DEADLINE_S, "the other goes on")


def test_no_part_is_left_standing_still_by_a_supervisor_that_dies(tmp_path: Path) -> None:
    with fake_mill(tmp_path, {"name": "a"}) as mill:
        mill.wait_healthy()
        record = mill.record()
        with (
            pytest.raises(PauseFailed, match="the supervisor ended while the mill was paused"),
            paused(mill.home, ["a"]),
        ):
            mill.supervisor().kill()
            mill.supervisor().wait()
        wait_until(lambda: not record.is_alive(), DEADLINE_S, "the part has ended, too")
