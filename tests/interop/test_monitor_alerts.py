"""A monitor's process sends one message to a webhook when a broker dies, and one when it is
back."""

import urllib.error
from pathlib import Path
from typing import Any

import pytest

from tests.harness.broker import BrokerProcess
from tests.harness.hook import Hook, hook
from tests.harness.monitor import MonitorProcess
from tests.harness.wait import wait_until

pytestmark = pytest.mark.live

WAIT_S = 30.0


def told(other: Hook) -> list[tuple[str, str]]:
    """Return state and subject of every alert that the webhook got, in order."""
    return [(one["state"], one["subject"]) for post in other.posts for one in post["alerts"]]


def looks(monitor: MonitorProcess) -> int:
    """Return the number of the monitor's last snapshot, or 0 before the monitor responds."""
    try:
        found: Any = monitor.get("/status")["details"]["snapshot"]
    except (OSError, urllib.error.URLError):
        return 0
    return int(found or 0)


def look_on(monitor: MonitorProcess, times: int) -> None:
    begun = looks(monitor)
    wait_until(lambda: looks(monitor) >= begun + times, WAIT_S, f"{times} more looks")


def test_a_broker_that_dies_is_told_once_over_a_restart_and_so_is_its_return(
    tmp_path: Path,
) -> None:
    rule = {"name": "down", "on": "part_down", "for": "0s", "clear": "0s"}
    with BrokerProcess(tmp_path) as broker, hook(statuses=[500, 204]) as other:
        alerts = {"webhook": other.url, "token": "t0ken", "rules": [rule]}

        def start() -> MonitorProcess:
            return MonitorProcess([broker], tmp_path / "m", refresh="200ms", alerts=alerts)

        monitor = start()
        try:
            look_on(monitor, 3)
            assert other.posts == []
            broker.kill9()
            wait_until(lambda: len(other.posts) == 1, WAIT_S, "the first try")
            problem = "alerts are not delivered: 127.0.0.1"
            wait_until(lambda: problem in str(monitor.get("/status")), WAIT_S, "it says so")
            assert other.url not in str(monitor.get("/status")), "the address may be the secret"
            wait_until(lambda: len(other.posts) == 2, WAIT_S, "the second try")
            wait_until(lambda: monitor.get("/status")["problems"] != [], WAIT_S, "still away")
            wait_until(lambda: monitor.rows("alerts")[0]["told_at_ms"], WAIT_S, "it was taken")
            look_on(monitor, 2)
            monitor.kill()
            monitor = start()
            wait_until(lambda: looks(monitor) >= 3, WAIT_S, "the next process looks")
            assert [row["subject"] for row in monitor.rows("alerts")] == ["broker-1"]
            broker.restart()
            wait_until(lambda: len(other.posts) == 3, WAIT_S, "it is back")
            look_on(monitor, 3)
            assert told(other) == [
                ("open", "broker-1"), ("open", "broker-1"), ("closed", "broker-1"),
            ]  # fmt: skip
            assert other.posts[0]["alerts"][0]["id"] == other.posts[2]["alerts"][0]["id"]
            assert set(other.tokens) == {"Bearer t0ken"}
            assert monitor.rows("alerts") == []
        finally:
            monitor.kill()
