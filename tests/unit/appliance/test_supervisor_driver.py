"""The supervisor's driver: its lock, and how it logs on a full disk."""

import asyncio
import os
import threading
from pathlib import Path

import pytest

from appliance.mill.home import Home
from appliance.operate.lifecycle import is_running
from appliance.supervisor import driver as drivers
from appliance.supervisor.driver import Driver, MillAlreadyRunning, take_lock
from appliance.supervisor.following import ConfigFollower


def test_logs_are_kept_small_after_one_that_could_not_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    home = Home(tmp_path, tmp_path / "millrace.yaml")
    home.logs.mkdir(parents=True)
    for name in ("a", "b"):
        home.part_log(name).touch()
    asked: list[str] = []

    def rotate(path: Path) -> bool:
        asked.append(path.name)
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr(drivers, "rotate", rotate)
    monkeypatch.setattr(drivers, "ROTATE_EVERY_S", 0.01)

    async def run() -> None:
        driver = Driver(home, [], version="test", following=ConfigFollower(home, "test"))
        keeping = asyncio.create_task(driver._keep_logs_small())
        async with asyncio.timeout(20):
            while not keeping.done() and len(asked) < 4:
                await asyncio.sleep(0.01)
        assert not keeping.done()
        keeping.cancel()

    asyncio.run(run())
    assert set(asked) == {"a.log", "b.log"}
    assert caplog.text.count("could not be rotated") == 2, "once of each"


def test_looking_if_a_mill_runs_blocks_no_start(tmp_path: Path) -> None:
    home = Home(tmp_path, tmp_path / "millrace.yaml")
    os.close(take_lock(home))
    enough = threading.Event()
    found: list[bool] = []

    def look() -> None:
        while not enough.is_set():
            found.append(is_running(home))

    lookers = [threading.Thread(target=look) for _ in range(2)]
    for looker in lookers:
        looker.start()
    while len(found) < 20_000:
        os.sched_yield()
    none_ran = found.copy()
    try:
        for _ in range(300):
            os.close(take_lock(home))
        held = take_lock(home)
    finally:
        enough.set()
        for looker in lookers:
            looker.join()
    assert not any(none_ran)
    assert is_running(home)
    with pytest.raises(MillAlreadyRunning):
        take_lock(home)
    os.close(held)
