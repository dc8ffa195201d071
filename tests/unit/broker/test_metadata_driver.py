"""Commits of the metadata log, in order, however many wait for one sync."""

from collections.abc import Iterator

import pytest

from broker.controller.outcome import AllocateProducerIds
from protocol.errors import ApiError
from tests.unit.broker.rig import Rig


@pytest.fixture
def rig() -> Iterator[Rig]:
    rig = Rig()
    yield rig
    rig.stop()


def test_thousands_of_commits_wait_for_one_sync(rig: Rig) -> None:
    metadata = rig.broker.services.metadata
    node_id = rig.broker.config.node_id
    order = AllocateProducerIds(node_id, metadata.image.brokers[node_id].broker_epoch)
    replies: list[object] = []

    def refused(error: ApiError) -> None:
        raise error

    for _ in range(3_000):
        metadata.submit(order, replies.append, refused)
    assert replies == []
    rig.flusher.sync()
    rig.turn()
    assert len(replies) == len(set(replies)) == 3_000
