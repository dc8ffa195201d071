"""What a rolling restart on one host of several says of the other hosts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from appliance.cli import other_hosts
from appliance.cli.hosts_left import HostsRound, controller_of, hosts_round
from protocol.status import PartState, PartStatus, StatusUnavailable
from tests.unit.appliance.hosted import has_authority, joined, mill

OTHERS = {2: "mill-2.example.org", 3: "mill-3.example.org"}
COMMAND = "./millrace restart --rolling"


def test_the_active_controller_comes_last() -> None:
    found = HostsRound(OTHERS, {}, False)
    assert found.notes == []
    assert found.line(COMMAND, 2) == (
        "left: broker 3 on mill-3.example.org, then broker 2 on mill-2.example.org (the active"
        " controller, so last). Type there `./millrace restart --rolling`, on one host after the"
        " other"
    )


def test_a_start_that_can_have_been_in_this_round_is_told() -> None:
    """A broker can have started shortly before the round, for example with the whole mill."""
    found = HostsRound(OTHERS, {2: 240_000}, True)
    assert found.line(COMMAND, 1) == (
        "left: broker 2 on mill-2.example.org, unless its start 4m 0s ago was in this round, then"
        " broker 3 on mill-3.example.org. Type there `./millrace restart --rolling`, on one host"
        " after the other"
    )
    [note] = found.notes
    assert "take this host last, so that the controller changes only once" in note


def test_the_broker_of_the_host_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    joined(tmp_path, 2)
    details: dict[str, Any] = {
        "controller_id": 2,
        "brokers": [
            {"node_id": 1, "registered_ago_ms": 5_000},
            {"node_id": 2, "registered_ago_ms": None},
            {"node_id": 3, "registered_ago_ms": None},
        ],
    }
    status = PartStatus("broker-2", PartState.RUNNING, True, 0, 0, (), details)
    monkeypatch.setattr(other_hosts, "fetch_status", lambda host, port, timeout_s: status)
    found = hosts_round(mill(tmp_path))
    hosts = {1: "mill-1.example.org", 3: "mill-3.example.org"}
    assert found == HostsRound(hosts, {1: 5_000}, True)
    assert [row["registered_ago_ms"] for row in found.rows] == [5_000, None]
    assert controller_of(mill(tmp_path)) == 2


def test_without_an_answer_every_other_host_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent(host: str, port: int, timeout_s: float) -> PartStatus:
        raise StatusUnavailable("no answer")

    monkeypatch.setattr(other_hosts, "fetch_status", silent)
    has_authority(tmp_path)
    found = hosts_round(mill(tmp_path))
    assert found is not None
    assert ([row["broker"] for row in found.rows], found.notes) == ([2, 3], [])
    assert hosts_round(mill(tmp_path, "cluster: {brokers: 3}")) is None
