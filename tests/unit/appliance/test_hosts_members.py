"""A broker on a fourth host is added, and one on another host is removed, by their commands."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from appliance.operate import lifecycle
from appliance.output import Exit
from protocol.messages.cluster import DescribeClusterResponse
from protocol.types import Uuid
from protocol.wire.schema import Message
from tests.unit.appliance.fake_quorum import FakeQuorum
from tests.unit.appliance.hosted import STATED, TEXT
from tests.unit.appliance.reassign_desk import Desk, main_host_desk

FOUR_HOSTS = STATED.replace("}", ", 4: mill-4.example.org}")
FOUR = TEXT.replace(f"brokers: 3, {STATED}", f"brokers: [1, 2, 3, 4], {FOUR_HOSTS}")


@dataclass
class FourthHost(FakeQuorum):
    """A cluster of three brokers. Broker 4 starts, or stops, when it was asked for often enough."""

    changes_after: int = 3
    starts: bool = True

    def _cluster(self, request: Any) -> Message:
        self.changes_after -= 1
        if self.changes_after == 0 and self.starts:
            self.brokers[4] = None
        elif self.changes_after == 0:
            del self.brokers[4]
            self.fenced.add(4)
        found = super()._cluster(request)
        assert isinstance(found, DescribeClusterResponse)
        return found


def three_voters() -> dict[int, Uuid]:
    return {one: Uuid(int=one) for one in (1, 2, 3)}


@pytest.fixture
def adding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    cluster = FourthHost(dict.fromkeys((1, 2, 3)), voters=three_voters())
    cluster.topic("logs", [1, 2, 3])
    with cluster.serving():
        yield main_host_desk(cluster, tmp_path, monkeypatch, FOUR)


@pytest.fixture
def removing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    brokers = dict.fromkeys((1, 2, 3, 4))
    cluster = FourthHost(brokers, voters=three_voters(), starts=False, changes_after=6)
    cluster.topic("logs", [1, 2, 3])
    with cluster.serving():
        yield main_host_desk(cluster, tmp_path, monkeypatch, FOUR)


def test_a_broker_of_a_fourth_host_is_waited_for(adding: Desk) -> None:
    code, _, err = adding.run_here("broker", "add", "4", "--yes")
    said = "\n".join(err)
    assert code == 0, said
    assert "on mill-1.example.org: `./millrace enrol broker 4`, and copy the file to mill-4" in said
    assert "`./millrace join broker-4.join` and `./millrace up`" in said
    assert err[-1].startswith("broker 4 is in the cluster")


def test_a_broker_without_a_host_is_refused(adding: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifecycle, "is_running", lambda home: True)
    monkeypatch.setattr(lifecycle, "snapshot", lambda home: {"parts": [{"part": "broker-1"}]})
    code, _, err = adding.run_here("broker", "add", "5", "--yes")
    assert code == Exit.CONDITION
    assert "`brokers: [1, 2, 3, 4, 5]`, and the host of broker 5 in `hosts`" in err[-1]
    assert "the file of each host, run `./millrace up --apply` there" in err[-1]


def test_a_broker_of_another_host_is_stopped_there(removing: Desk) -> None:
    code, _, err = removing.run_here("broker", "remove", "4", "--yes")
    said = "\n".join(err)
    assert code == 0, said
    assert "on mill-4.example.org: `./millrace down`. This command waits until broker 4" in said
    assert said.index("`./millrace down`") < said.index("unregister broker 4")
    assert "Take the id out of `cluster.brokers` and `cluster.hosts`" in err[-1]


def test_the_broker_of_the_main_host_cannot_be_removed(removing: Desk) -> None:
    code, _, err = removing.run_here("broker", "remove", "1", "--yes")
    assert code == Exit.CONDITION
    assert "broker 1 is on the main host" in err[-1]
    assert isinstance(removing.cluster, FourthHost)
    assert removing.cluster.asked_for() == []
