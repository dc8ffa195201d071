"""`millrace broker turns` waits as `restart --rolling` does, and prints the order of restarts."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from appliance.cli import broker_turns
from appliance.mill.parts import Part
from appliance.output import Exit
from appliance.supervisor.effects import ProbeResult, Readiness
from appliance.supervisor.turns import IN_SYNC_MS
from tests.unit.appliance.test_commands import config, run

HEALTHY = (ProbeResult.OK, "")


class Brokers:
    """Brokers that answer as the test says, and a clock that only moves when the command waits."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.probes: list[dict[str, tuple[ProbeResult, str]]] = [{}]
        """The answers of brokers that are not healthy, for each look; the last one remains."""
        self.answers = [Readiness(0, "", "broker-1")]
        self.waited = 0

    async def probe(self, part: Part, home: object) -> tuple[ProbeResult, str]:
        return self.probes[0].get(part.name, HEALTHY)

    def readiness(self, addresses: object) -> Readiness:
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]

    def sleep(self, seconds: float) -> None:
        self.waited += 1
        self.now_ms += round(seconds * 1000)
        if len(self.probes) > 1:
            self.probes.pop(0)


@pytest.fixture
def brokers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Brokers:
    found = Brokers()
    config(tmp_path, "cluster: {brokers: 3}\n")
    monkeypatch.setenv("MILLRACE_PUBLISHED", "loopback")
    monkeypatch.setattr(broker_turns, "probe", found.probe)
    monkeypatch.setattr(broker_turns, "readiness", found.readiness)
    monkeypatch.setattr(time, "sleep", found.sleep)
    monkeypatch.setattr(time, "monotonic_ns", lambda: found.now_ms * 1_000_000)
    return found


def test_the_active_controller_is_the_last(
    brokers: Brokers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out, _ = run(monkeypatch, tmp_path, "broker", "turns")
    assert (code, out, brokers.waited) == (0, ["broker-2", "broker-3", "broker-1"], 0)
    code, out, _ = run(monkeypatch, tmp_path, "broker", "turns", "broker-1", "broker-3")
    assert out == ["broker-3", "broker-1"]
    code, out, _ = run(monkeypatch, tmp_path, "broker", "turns", "--json")
    found = json.loads("\n".join(out))
    assert found["schema"] == "broker-turns/1"
    assert found["data"]["controller"] == "broker-1"


def test_it_waits_until_all_are_healthy_and_in_sync(
    brokers: Brokers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    brokers.probes = [{"broker-2": (ProbeResult.NOT_READY, "no quorum")}, {}]
    brokers.answers = [Readiness(4), Readiness(1), Readiness(0, "", "broker-3")]
    code, out, _ = run(monkeypatch, tmp_path, "broker", "turns")
    assert (code, out) == (0, ["broker-1", "broker-2", "broker-3"])
    assert brokers.waited == 3


def test_it_ends_when_nothing_has_become_better_for_five_minutes(
    brokers: Brokers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    brokers.answers = [Readiness(2)]
    code, out, err = run(monkeypatch, tmp_path, "broker", "turns")
    assert (code, out) == (Exit.CONDITION, [])
    assert "no broker may restart: still waiting for 2 partitions that are not in sync" in err[-1]
    assert "`docker compose run --rm cli broker describe`" in err[-1]
    assert brokers.now_ms == IN_SYNC_MS


def test_it_names_the_broker_that_it_waits_for(
    brokers: Brokers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    brokers.probes = [{"broker-2": (ProbeResult.SILENT, "broker-2:8094: Connection refused")}]
    _, _, err = run(monkeypatch, tmp_path, "broker", "turns")
    assert "waiting for broker-2 (broker-2:8094: Connection refused)" in err[-1]


def test_an_unknown_broker_is_refused(
    brokers: Brokers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, _, err = run(monkeypatch, tmp_path, "broker", "turns", "broker-4")
    assert code == Exit.NOT_FOUND
    assert "no broker 'broker-4', expected one of broker-1, broker-2, broker-3" in err[-1]
