"""`stop` and `restart` refuse if the brokers report that the broker's replicas are needed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from appliance.cli import needed
from appliance.cli.needed import refuse_needed_broker
from appliance.mill.home import Home, find_home
from appliance.operate import lifecycle
from appliance.output import CommandError, Exit
from appliance.supervisor import copies as asked
from appliance.supervisor.copies import NeededReplicas, ReplicaReport, copies_by, readiness
from appliance.supervisor.effects import Readiness
from protocol.status import StatusUnavailable

THREE = ("broker-1", "broker-2", "broker-3")
ADDRESSES = {name: ("127.0.0.1", port) for port, name in enumerate(THREE, 8093)}
ALL_IN_SYNC = ReplicaReport(0, {})
TWO_NEEDED = ReplicaReport(
    3, {name: NeededReplicas(12, ("logs.access-0", "logs.access-1")) for name in THREE[:2]}
)


def told(offset: int, count: int, *, controls: bool = False, **needs: int) -> dict[str, Any]:
    """Return the details of a broker's status with this number of partitions out of sync."""
    return {
        "metadata_offset": offset,
        "is_controller": controls,
        "copies": {
            "not_in_sync": count,
            "needed": {
                node_id.removeprefix("n"): {"count": one, "partitions": ["t-0"]}
                for node_id, one in needs.items()
            },
        },
    }


def test_the_newest_metadata_count() -> None:
    found = copies_by([told(7, 0), told(9, 2, n2=4), {"cluster_waits_for": [1]}])
    assert found == ReplicaReport(2, {"broker-2": NeededReplicas(4, ("t-0",))})
    assert str(NeededReplicas(4, ("t-0",))) == "t-0 and 3 more"
    assert str(NeededReplicas(1, ("t-0",))) == "t-0"
    assert copies_by([{"cluster_waits_for": [1]}]) is None


def test_a_turn_waits_for_the_word_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: dict[str, Any] = dict.fromkeys(THREE, told(7, 0))
    answers["broker-2"] = told(7, 0, controls=True)
    monkeypatch.setattr(asked, "statuses", lambda addresses: answers)
    assert readiness(ADDRESSES) == Readiness(0, "", "broker-2")
    # A former controller reports that it is still active. With two reports, the controller is
    # unknown.
    answers["broker-3"] = told(9, 5, controls=True)
    assert readiness(ADDRESSES) == Readiness(5, "", None)
    answers["broker-1"] = {"cluster_waits_for": [3]}
    assert readiness(ADDRESSES) == Readiness(None, "broker-1, which is not in service yet")
    answers["broker-1"] = StatusUnavailable("no answer within 2 s")
    assert readiness(ADDRESSES) == Readiness(None, "the status of broker-1 (no answer within 2 s)")


def with_voters(*rows: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Return the details of the only broker of a host, in a cluster of three voters."""
    return {**told(7, 0), "voters": [1, 2, 3], "brokers": list(rows), **more}


def row(number: int, *, fenced: bool = False, stopping: bool = False) -> dict[str, Any]:
    return {"node_id": number, "is_fenced": fenced, "is_stopping": stopping}


@pytest.mark.parametrize(
    ("details", "found"),
    [
        (with_voters(row(1), row(2), row(3)), Readiness(0)),
        (
            with_voters(row(1), row(2), row(3, fenced=True)),
            Readiness(None, "broker-3, which is out of service"),
        ),
        (
            with_voters(row(1), row(2, stopping=True)),
            Readiness(None, "broker-2, which is stopping, broker-3, which is out of service"),
        ),
        (
            with_voters(row(1), row(2), row(3), is_current=False),
            Readiness(None, "broker-1, which has no connection to the controller"),
        ),
    ],
)
def test_a_turn_waits_for_the_voters_of_other_hosts(
    details: dict[str, Any], found: Readiness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A host's supervisor asks its own broker only. That broker knows the others."""
    monkeypatch.setattr(asked, "statuses", lambda addresses: {"broker-1": details})
    assert readiness({"broker-1": ADDRESSES["broker-1"]}) == found


class Mill:
    """The scripted status of the supervisor and the brokers, one report for each request."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **states: str) -> None:
        self.parts = [
            {
                "part": name,
                "state": states.get(name.replace("-", ""), "healthy"),
                "address": f"127.0.0.1:{port}",
            }
            for name, (_, port) in ADDRESSES.items()
        ]
        self.looks: list[ReplicaReport | None] = []
        self.asked: list[list[str]] = []
        monkeypatch.setattr(lifecycle, "snapshot", lambda home: {"parts": self.parts})
        monkeypatch.setattr(needed, "copies", self._look)
        monkeypatch.setattr(needed, "LOOK_EVERY_S", 0.0)

    def _look(self, addresses: dict[str, tuple[str, int]]) -> ReplicaReport | None:
        assert all(ADDRESSES[name] == where for name, where in addresses.items())
        self.asked.append(list(addresses))
        return self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return find_home({"MILLRACE_HOME": str(tmp_path)})


def test_a_broker_without_which_nothing_is_written_is_not_stopped(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    mill = Mill(monkeypatch, broker3="backing off")
    mill.looks = [TWO_NEEDED]
    with pytest.raises(CommandError) as refused:
        refuse_needed_broker(home, "broker-2", "restarted")
    assert refused.value.code is Exit.CONDITION
    assert str(refused.value) == (
        "broker-2 was not restarted: without it 12 partitions have too few in-sync replicas for "
        "writes (logs.access-0, logs.access-1 and 10 more), because broker-3 does not run; run "
        "`./millrace start broker-3` first, or add --force"
    )
    # The check asks only the brokers that run. The broker that is down may be restarted.
    assert mill.asked == [["broker-1", "broker-2"]]
    with pytest.raises(CommandError, match=r"`\./millrace start broker-3` first$"):
        refuse_needed_broker(home, "broker-2", "moved", has_force=False)
    refuse_needed_broker(home, "broker-3", "restarted")
    refuse_needed_broker(home, "stream", "stopped")
    assert len(mill.asked) == 2


def test_brokers_that_catch_up_are_waited_for(
    home: Home, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    mill = Mill(monkeypatch)
    mill.looks = [TWO_NEEDED, TWO_NEEDED, ALL_IN_SYNC]
    refuse_needed_broker(home, "broker-2", "restarted")
    assert len(mill.asked) == 3
    assert capsys.readouterr().err == "waiting for 3 partitions that are not in sync\n"


def test_they_are_not_waited_for_for_ever(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    mill = Mill(monkeypatch)
    mill.looks = [TWO_NEEDED]
    monkeypatch.setattr(needed, "IN_SYNC_WAIT_S", 0.0)
    with pytest.raises(CommandError, match="other replicas are not in sync yet"):
        refuse_needed_broker(home, "broker-1", "stopped")
    refuse_needed_broker(home, "broker-3", "stopped")


def test_a_broker_without_any_status_is_stopped(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    mill = Mill(monkeypatch)
    mill.looks = [None]
    refuse_needed_broker(home, "broker-1", "stopped")
