"""`millrace upgrade` and `upgrade finalize`, beside a scripted cluster."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from appliance.cli import mill_commands
from appliance.operate import lifecycle
from appliance.output import Exit
from appliance.supervisor import control
from tests.harness.ports import free_ports
from tests.unit.appliance.fake_cluster import NODE_IDS, FakeCluster
from tests.unit.appliance.hosted import TEXT, joined
from tests.unit.appliance.test_commands import config, run

BROKERS = ["broker-1", "broker-2", "broker-3"]


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCluster]:
    fake = FakeCluster(
        dict.fromkeys((1, 2, 3)), supported=dict.fromkeys(NODE_IDS, (23, 24)), level=23
    )
    with fake.serving():
        monkeypatch.setattr(
            "appliance.cli.cluster.asked_cluster", lambda asked: asked or fake.address
        )
        yield fake


class Supervisor:
    """A double of the supervisor that records each request."""

    def __init__(self, parts: list[str], *, is_released: bool = False) -> None:
        self.parts = parts
        self.is_released = is_released
        self.asked: list[str] = []
        self.interrupts_at = ""

    def ask(self, path: Path, request: dict[str, Any]) -> dict[str, Any]:
        command = request["command"]
        if command == "restart-in-turns" and self.is_released:
            return {"ok": False, "error": "not understood"}
        self.asked.append(f"{command} {request.get('part', '')}".strip())
        if self.interrupts_at and self.asked[-1].endswith(self.interrupts_at):
            raise KeyboardInterrupt
        return {"ok": True, "brokers": [one for one in self.parts if "broker" in one]}

    def snapshot(self, home: Any) -> dict[str, Any]:
        rows = [{"part": one, "state": "healthy", "address": "127.0.0.1:1"} for one in self.parts]
        return {"parts": rows}


def supervised(
    monkeypatch: pytest.MonkeyPatch, parts: list[str], *, is_released: bool = False
) -> Supervisor:
    supervisor = Supervisor(parts, is_released=is_released)
    monkeypatch.setattr(control, "ask", supervisor.ask)
    monkeypatch.setattr(lifecycle, "snapshot", supervisor.snapshot)
    monkeypatch.setattr(lifecycle, "wait_healthy", lambda home, *rest: supervisor.snapshot(home))
    needed: list[str] = []
    monkeypatch.setattr(
        mill_commands, "refuse_needed_broker", lambda home, part, verb, **_: needed.append(part)
    )
    return supervisor


def test_the_brokers_restart_in_turns_and_then_the_other_parts(
    cluster: FakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config(tmp_path, "")
    mill = supervised(monkeypatch, ["redis", *BROKERS, "collector", "stream", "monitor"])
    code, _, err = run(monkeypatch, tmp_path, "upgrade", "--dry-run")
    assert (code, mill.asked) == (0, [])
    assert "the cluster is at metadata.version 23 (4.0-IV1)" in err
    assert err[-1].endswith("broker-1, broker-2, broker-3, collector, stream, monitor")
    code, _, err = run(monkeypatch, tmp_path, "upgrade")
    assert code == 0, err
    assert mill.asked == [
        "restart-in-turns", "restart collector", "restart stream", "restart monitor",
    ]  # fmt: skip
    assert any("./millrace upgrade finalize" in line for line in err)


def test_it_is_data_on_request(
    cluster: FakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config(tmp_path, "")
    supervised(monkeypatch, BROKERS)
    code, out, err = run(monkeypatch, tmp_path, "upgrade", "--dry-run", "--json")
    data = json.loads(out[0])["data"]
    assert (code, err, data["finalised"]) == (0, [], 23)
    assert data["supported"] == {"oldest": 23, "newest": 24}


def test_a_supervisor_of_the_released_version_has_no_turns(
    cluster: FakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config(tmp_path, "")
    mill = supervised(monkeypatch, BROKERS, is_released=True)
    code, _, err = run(monkeypatch, tmp_path, "upgrade")
    assert code == 0, err
    assert mill.asked == [f"restart {name}" for name in BROKERS]
    mill.asked.clear()
    mill.interrupts_at = "broker-2"
    code, _, err = run(monkeypatch, tmp_path, "upgrade")
    assert code == Exit.INTERRUPTED
    assert (
        "broker-1 was restarted; run the same command again to restart the brokers from the first"
        in err
    )


def test_ctrl_c_after_the_brokers_says_what_is_left(
    cluster: FakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config(tmp_path, "")
    mill = supervised(monkeypatch, [*BROKERS, "collector"])
    mill.interrupts_at = "collector"
    code, _, err = run(monkeypatch, tmp_path, "upgrade")
    assert code == Exit.INTERRUPTED
    assert any("`./millrace restart PART` restarts the others" in line for line in err)


def test_the_only_broker_of_a_host_waits_for_its_turn(
    cluster: FakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The brokers of the other hosts serve clients in the meantime, if all replicas are in sync."""
    config(tmp_path, f"{TEXT}ports: {{broker_status: {free_ports(3)}}}\n")
    joined(tmp_path, 2)
    mill = supervised(monkeypatch, ["broker-2"])
    code, out, _ = run(monkeypatch, tmp_path, "upgrade", "--json")
    assert code == 0
    assert mill.asked == ["restart-in-turns"]
    assert [row["broker"] for row in json.loads(out[0])["data"]["other_hosts"]] == [1, 3]
    code, _, err = run(monkeypatch, tmp_path, "upgrade")
    assert err[-1] == (
        "left: broker 1 on mill-1.example.org, then broker 3 on mill-3.example.org. Type there"
        " `./millrace upgrade`, on one host after the other"
    )
    code, _, err = run(monkeypatch, tmp_path, "restart", "--rolling")
    assert code == 0
    assert "Type there `./millrace restart --rolling`" in err[-1]


def test_a_lone_broker_takes_no_turns(
    cluster: FakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config(tmp_path, "cluster: {brokers: 1}")
    mill = supervised(monkeypatch, ["broker-1", "monitor"])
    code, _, err = run(monkeypatch, tmp_path, "upgrade")
    assert (code, mill.asked) == (0, ["restart broker-1", "restart monitor"]), err


@pytest.mark.parametrize(
    ("level", "way"), [(25, "restore a backup"), (22, "upgrade over the version between")]
)
def test_a_version_that_cannot_run_at_the_level_restarts_nothing(
    cluster: FakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, level: int, way: str
) -> None:
    """The cases are a downgrade after finalising, and an upgrade that skips a version."""
    config(tmp_path, "")
    cluster.level = level
    mill = supervised(monkeypatch, BROKERS)
    code, _, err = run(monkeypatch, tmp_path, "upgrade")
    assert (code, mill.asked) == (Exit.CONDITION, [])
    assert way in err[-1]


def test_a_mill_on_another_cluster_has_no_brokers_to_upgrade(
    cluster: FakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config(tmp_path, f"cluster: {{bootstrap_servers: '{cluster.address}'}}")
    supervised(monkeypatch, ["collector"])
    code, _, err = run(monkeypatch, tmp_path, "upgrade")
    assert code == Exit.CONDITION
    assert "there are no brokers to upgrade" in err[-1]


def test_in_containers_it_shows_the_levels_and_restarts_nothing(
    cluster: FakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`bin/compose-roll` asks for this before it restarts anything."""
    config(tmp_path, "cluster: {brokers: 3}\nstream: {metrics: []}\n")
    monkeypatch.setenv("MILLRACE_PUBLISHED", "loopback")
    code, _, err = run(monkeypatch, tmp_path, "upgrade", "--dry-run")
    assert code == Exit.OK
    assert "broker-1: supports metadata.version 23 to 24" in err
    assert (
        err[-1] == "would restart, in this order: broker-1, broker-2, broker-3, collector, monitor"
    )
    cluster.level = 25
    code, _, err = run(monkeypatch, tmp_path, "upgrade", "--dry-run")
    assert code == Exit.CONDITION
    assert "nothing was restarted" in err[-1]


def test_finalize_asks_raises_the_level_and_says_so_again(
    cluster: FakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config(tmp_path, "")
    code, _, err = run(monkeypatch, tmp_path, "upgrade", "finalize", "--dry-run")
    assert (code, cluster.level) == (0, 23)
    assert "from 23 (4.0-IV1) to 24 (4.0-IV2)" in err[-1]
    code, _, err = run(monkeypatch, tmp_path, "upgrade", "finalize")
    assert (code, cluster.level) == (Exit.USAGE, 23), "no consent was given"
    code, out, _ = run(monkeypatch, tmp_path, "upgrade", "finalize", "--yes", "--json")
    assert (code, cluster.level) == (0, 24)
    assert json.loads(out[0])["data"] == {"from": 23, "to": 24}
    code, _, err = run(monkeypatch, tmp_path, "upgrade", "finalize")
    assert (code, err) == (0, ["the cluster is at metadata.version 24 (4.0-IV2) already"])


def test_finalize_is_refused_with_the_controllers_reason(
    cluster: FakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config(tmp_path, "")
    cluster.supported[3] = 23, 23
    code, _, err = run(monkeypatch, tmp_path, "upgrade", "finalize", "--yes")
    assert (code, cluster.level) == (Exit.CONDITION, 23)
    assert err[-1] == "millrace: nothing was changed: broker 3 cannot follow"


def test_finalize_beside_the_released_version_names_the_first_step(
    cluster: FakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config(tmp_path, "")
    cluster.level = None
    code, _, err = run(monkeypatch, tmp_path, "upgrade", "finalize", "--yes")
    assert code == Exit.CONDITION
    assert "./millrace upgrade" in err[-1]
