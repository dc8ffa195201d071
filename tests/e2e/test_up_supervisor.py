"""The real supervisor with small real processes that misbehave."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from appliance.machine.processes import ProcessRecord, read_record, record_of
from appliance.mill.home import CODE, Home, find_home
from appliance.operate import lifecycle
from appliance.supervisor import control
from tests.e2e.fake_mill import ALREADY_RUNNING
from tests.harness.ports import free_port
from tests.harness.wait import wait_until

pytestmark = pytest.mark.live

DEADLINE_S = 30.0


class FakeMill:
    """One supervisor with fake parts in a separate folder."""

    def __init__(self, folder: Path, spec: list[dict[str, Any]]) -> None:
        self.home: Home = find_home({"MILLRACE_HOME": str(folder)})
        for entry in spec:
            entry.setdefault("port", free_port())
        self.spec = spec
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.home.logs.mkdir(parents=True, exist_ok=True)
        with self.home.part_log("supervisor").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.e2e.fake_mill", json.dumps(self.spec)],
                cwd=CODE,
                env={**os.environ, "MILLRACE_HOME": str(self.home.folder)},
                stdout=log,
                stderr=log,
            )

    def entry(self, name: str = "a") -> dict[str, Any]:
        found: dict[str, Any] = next(
            part for part in lifecycle.snapshot(self.home)["parts"] if part["part"] == name
        )
        return found

    def wait_healthy(self, name: str = "a") -> dict[str, Any]:
        return (
            wait_until(
                lambda: (entry := self.entry(name))["state"] == "healthy" and entry,
                DEADLINE_S,
                f"{name} is healthy",
            )
            or {}
        )

    def record(self, name: str = "a") -> ProcessRecord:
        record = read_record(self.home.part_record(name))
        assert record is not None
        return record

    def supervisor(self) -> subprocess.Popen[bytes]:
        assert self.process is not None
        return self.process

    def log(self, name: str) -> str:
        return self.home.part_log(name).read_text()


@contextmanager
def fake_mill(folder: Path, *spec: dict[str, Any], starts: bool = True) -> Iterator[FakeMill]:
    mill = FakeMill(folder, list(spec))
    records: list[ProcessRecord] = []
    try:
        if starts:
            mill.start()
        yield mill
    finally:
        if mill.process is not None:
            mill.process.kill()
            mill.process.wait()
        records = [r for p in mill.home.run.glob("*.json") if (r := read_record(p))]
        for record in records:
            record.signal(signal.SIGKILL, group=True)


def test_parts_start_and_stop_in_order(tmp_path: Path) -> None:
    with fake_mill(
        tmp_path,
        {"name": "broker", "stop_rank": 2},
        {"name": "collector", "start_rank": 1, "stop_rank": 0},
    ) as mill:
        mill.wait_healthy("collector")
        mill.supervisor().terminate()
        assert mill.supervisor().wait(DEADLINE_S) == 0
        log = mill.log("supervisor")
        marks = [
            log.index("healthy part=broker"),
            log.index("part=collector"),
            log.index("healthy part=collector"),
            log.index("stopped (exit code 0)"),
            log.index("the mill is stopped"),
        ]
        assert marks == sorted(marks)
        first, last = log.split("stopped (exit code 0)")[1:]
        assert first.lstrip().startswith("part=collector")
        assert last.lstrip().startswith("part=broker")
    assert not mill.home.pid_file.exists()
    assert not mill.home.socket.exists()
    assert list(mill.home.run.glob("*.json")) == []


def test_a_deaf_part_is_killed_after_its_time(tmp_path: Path) -> None:
    with fake_mill(tmp_path, {"name": "a", "modes": ["deaf"], "stop_timeout_ms": 300}) as mill:
        mill.wait_healthy()
        mill.supervisor().terminate()
        assert mill.supervisor().wait(DEADLINE_S) == 0
        assert "did not stop in time" in mill.log("supervisor")
        assert "signal 9" in mill.log("supervisor")


def test_a_killed_part_comes_back_with_another_process(tmp_path: Path) -> None:
    with fake_mill(tmp_path, {"name": "a"}) as mill:
        first = mill.wait_healthy()
        for count in (1, 2):
            mill.record().signal(signal.SIGKILL)
            entry = wait_until(
                lambda count=count: (  # type: ignore[misc]
                    (e := mill.entry())["restarts"] == count and e["state"] == "healthy" and e
                ),
                DEADLINE_S,
                "the part is back",
            )
            assert entry
            assert entry["pid"] != first["pid"]
            assert mill.record().pid == entry["pid"]
        assert mill.log("a").count("begun") == 3


def test_a_crashing_part_is_tried_again_and_again(tmp_path: Path) -> None:
    with fake_mill(tmp_path, {"name": "a", "modes": ["exit=1"]}, {"name": "b"}) as mill:
        mill.wait_healthy("b")
        wait_until(lambda: mill.entry()["restarts"] >= 3, DEADLINE_S, "three restarts")
        assert mill.entry()["reason"] == "exit code 1"
        assert mill.entry("b")["restarts"] == 0
        assert mill.log("a").count("begun") >= 3


@pytest.mark.parametrize(("code", "word"), [(75, "another process"), (2, "settings")])
def test_a_part_that_must_not_restart_is_left_alone(tmp_path: Path, code: int, word: str) -> None:
    with fake_mill(tmp_path, {"name": "a", "modes": [f"exit={code}"]}, {"name": "b"}) as mill:
        wait_until(lambda: mill.entry()["state"] == "failed", DEADLINE_S, "it has given up")
        mill.wait_healthy("b")
        assert word in mill.entry()["reason"]
        with pytest.raises(lifecycle.StartFailed, match=word):
            lifecycle.wait_healthy(mill.home, DEADLINE_S)
        assert mill.log("a").count("begun") == 1


def test_a_part_that_waits_is_told_with_its_reason(tmp_path: Path) -> None:
    with fake_mill(tmp_path, {"name": "a", "modes": ["unready"]}) as mill:
        wait_until(
            lambda: mill.entry()["reason"] == "waits for something", DEADLINE_S, "its reason shows"
        )
        assert mill.entry()["state"] == "starting"
        with pytest.raises(TimeoutError, match="a: waits for something"):
            lifecycle.wait_healthy(mill.home, 0.3)


def test_a_restart_on_request_is_no_crash(tmp_path: Path) -> None:
    with fake_mill(tmp_path, {"name": "a"}) as mill:
        before = mill.wait_healthy()["pid"]
        assert control.ask(mill.home.socket, {"command": "restart", "part": "a"})["ok"]
        wait_until(
            lambda: (e := mill.entry())["state"] == "healthy" and e["pid"] != before,
            DEADLINE_S,
            "another process is healthy",
        )
        assert mill.entry()["restarts"] == 0
        assert not control.ask(mill.home.socket, {"command": "restart", "part": "absent"})["ok"]


def test_what_a_part_started_ends_with_it(tmp_path: Path) -> None:
    note = tmp_path / "child.pid"
    with fake_mill(tmp_path, {"name": "a", "modes": [f"child={note}"]}) as mill:
        mill.wait_healthy()
        child = record_of(int(note.read_text()))
        assert child is not None
        mill.record().signal(signal.SIGKILL)
        wait_until(lambda: not child.is_alive(), DEADLINE_S, "the grandchild has ended")


def test_parts_end_when_their_supervisor_is_killed(tmp_path: Path) -> None:
    with fake_mill(tmp_path, {"name": "a"}, {"name": "b"}) as mill:
        mill.wait_healthy("a")
        mill.wait_healthy("b")
        records = [mill.record("a"), mill.record("b")]
        mill.supervisor().kill()
        mill.supervisor().wait()
        for record in records:
            wait_until(lambda r=record: not r.is_alive(), DEADLINE_S, "the part has ended")  # type: ignore[misc]
        assert not lifecycle.is_running(mill.home)


@pytest.mark.parametrize("modes", [["orphan"], ["orphan", "deaf"]])
def test_an_orphan_is_stopped_before_its_successor_starts(tmp_path: Path, modes: list[str]) -> None:
    with fake_mill(tmp_path, {"name": "a", "modes": modes}) as mill:
        mill.wait_healthy()
        orphan = mill.record()
        mill.supervisor().kill()
        mill.supervisor().wait()
        assert orphan.is_alive()
        mill.start()
        entry = mill.wait_healthy()
        assert not orphan.is_alive()
        assert entry["pid"] != orphan.pid
        assert "a part of an earlier run still runs" in mill.log("supervisor")


def test_stopping_from_outside_ends_orphans_too(tmp_path: Path) -> None:
    with fake_mill(tmp_path, {"name": "a", "modes": ["orphan"]}) as mill:
        mill.wait_healthy()
        orphan = mill.record()
        mill.supervisor().kill()
        mill.supervisor().wait()
        assert lifecycle.stop(mill.home, DEADLINE_S)
        assert not orphan.is_alive()
        assert not lifecycle.stop(mill.home, DEADLINE_S)
        assert list(mill.home.run.glob("*.json")) == []


def test_there_is_never_a_second_supervisor(tmp_path: Path) -> None:
    with fake_mill(tmp_path, {"name": "a"}) as mill:
        mill.wait_healthy()
        second = FakeMill(tmp_path, mill.spec)
        second.start()
        assert second.supervisor().wait(DEADLINE_S) == ALREADY_RUNNING
        assert mill.entry()["state"] == "healthy"
        assert mill.log("a").count("begun") == 1


def test_stale_files_are_ignored(tmp_path: Path) -> None:
    """The supervisor must ignore the pid file of a dead process, even if a living process, which is
    unrelated, has the same id now."""
    with fake_mill(tmp_path, {"name": "a"}, starts=False) as mill:
        stranger = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        try:
            mill.home.run.mkdir(parents=True)
            real = record_of(stranger.pid)
            assert real is not None
            lie = ProcessRecord(real.pid, real.start_ticks - 7, real.boot_id)
            lie.write(mill.home.pid_file)
            lie.write(mill.home.part_record("a"))
            mill.home.socket.touch()
            assert not lifecycle.is_running(mill.home)
            mill.start()
            mill.wait_healthy()
            assert stranger.poll() is None
            lifecycle.stop(mill.home, DEADLINE_S)
            assert stranger.poll() is None
        finally:
            stranger.kill()
            stranger.wait()


def test_a_command_in_a_very_deep_folder(tmp_path: Path) -> None:
    """The address of a Unix socket has at most about a hundred bytes, but the folder's path may be
    longer."""
    deep = tmp_path / ("d" * 100) / ("e" * 100)
    deep.mkdir(parents=True)
    with fake_mill(deep, {"name": "a"}) as mill:
        mill.wait_healthy()
        assert len(str(mill.home.socket)) > 200


def test_a_restart_after_many_crashes_is_not_held_against_the_part(tmp_path: Path) -> None:
    """Earlier crashes of the part, or crashes of another part, must not prevent a restart that the
    user orders."""
    with fake_mill(tmp_path, {"name": "a"}, {"name": "b", "modes": ["exit=1"]}) as mill:
        mill.wait_healthy()
        for count in range(1, lifecycle.CRASHES_TO_GIVE_UP + 1):
            mill.record().signal(signal.SIGKILL)
            wait_until(
                lambda count=count: (  # type: ignore[misc]
                    (e := mill.entry())["restarts"] == count and e["state"] == "healthy"
                ),
                DEADLINE_S,
                "the part is back",
            )
        before = mill.entry()["pid"]
        assert control.ask(mill.home.socket, {"command": "restart", "part": "a"})["ok"]
        lifecycle.wait_healthy(mill.home, DEADLINE_S, parts=["a"])
        assert mill.entry()["pid"] != before


def test_a_part_stopped_by_hand_waits_to_be_started(tmp_path: Path) -> None:
    with fake_mill(tmp_path, {"name": "a"}, {"name": "b"}) as mill:
        mill.wait_healthy("a")
        mill.wait_healthy("b")
        lifecycle.stop_part(mill.home, "a", DEADLINE_S)
        assert (mill.entry()["pid"], mill.entry("b")["state"]) == (None, "healthy")
        assert mill.log("a").count("begun") == 1
        with pytest.raises(KeyError):
            lifecycle.stop_part(mill.home, "absent", DEADLINE_S)
        assert control.ask(mill.home.socket, {"command": "restart", "part": "a"})["ok"]
        mill.wait_healthy("a")
