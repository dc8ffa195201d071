"""A file that lists fewer brokers: `up --apply` stops only those that have left the cluster."""

from collections.abc import Iterator

import pytest

from appliance.cli.leaving import refuse_leaving_brokers
from appliance.output import CommandError, Exit
from protocol.types import Uuid
from tests.unit.appliance.fake_quorum import FakeQuorum


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeQuorum]:
    cluster = FakeQuorum(
        dict.fromkeys((1, 2, 3, 4)), voters={one: Uuid(int=one) for one in (1, 2, 3)}
    )
    cluster.topic("logs", [1, 2])
    with cluster.serving():
        monkeypatch.setattr(
            "appliance.cli.cluster.asked_cluster", lambda bootstrap: cluster.address
        )
        yield cluster


@pytest.mark.parametrize(
    ("broker", "said"),
    [
        (1, "broker 1 still has 1 replica"),
        (3, "broker 3 still has a vote in the metadata quorum"),
    ],
)
def test_a_broker_with_replicas_or_a_vote_is_not_stopped(
    cluster: FakeQuorum, broker: int, said: str
) -> None:
    with pytest.raises(CommandError, match=said) as found:
        refuse_leaving_brokers(["collector", f"broker-{broker}"])
    assert found.value.code is Exit.CONDITION
    assert f"`./millrace broker remove {broker}` first" in str(found.value)


def test_a_broker_that_has_left_is_stopped(cluster: FakeQuorum) -> None:
    refuse_leaving_brokers(["broker-4"])
    del cluster.brokers[4]
    refuse_leaving_brokers(["broker-4"])
    asked = len(cluster.asked)
    refuse_leaving_brokers(["collector"])
    assert len(cluster.asked) == asked, "no broker leaves, so no broker is asked"
