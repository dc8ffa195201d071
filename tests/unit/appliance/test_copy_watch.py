"""The estimate of a plan's copies while its replicas get in sync one after the other."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from appliance.kafka import replica_copies
from appliance.kafka.reassign import ClusterReplicas
from appliance.kafka.replica_copies import SAMPLE_S, CopyWatch, DiskUse
from protocol.client.cluster import Cluster
from protocol.client.errors import RequestTimedOut
from protocol.client.reassignment_admin import Reassignment
from protocol.client.topic_details import PartitionDetails, TopicDetails
from protocol.copy_progress import CopyEstimate
from protocol.types import ZERO_UUID, TopicPartition

MB = 1_000_000
FULL = 1_000 * MB
TP, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)
REPLICAS: tuple[int, ...] = (1, 2, 3)


class Watched:
    """One partition of 1 GB that is copied to brokers 2 and 3, with a clock that does not run.

    With `has_other` another one is copied to broker 2 alone, and none of it has arrived yet.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, has_other: bool = False) -> None:
        self.now_s = 0.0
        self.sizes = {1: FULL, 2: 0, 3: 0}
        self.in_sync: tuple[int, ...] = (1,)
        self.adding: tuple[int, ...] = (2, 3)
        self.is_planned = True
        self.is_disk_use_known = True
        self._has_other = has_other
        self._watch = CopyWatch(lambda: self.now_s)

        async def disk_use(*_: object) -> DiskUse:
            if not self.is_disk_use_known:
                raise RequestTimedOut("no answer")
            sizes = {(TP, node): size for node, size in self.sizes.items()}
            return DiskUse(sizes, {TP: FULL, OTHER: FULL}, {})

        monkeypatch.setattr(replica_copies, "disk_use", disk_use)

    def look(self) -> CopyEstimate | None:
        """Let 30 MB be copied to each broker that copies, and return the estimate."""
        for node in self.adding:
            if node not in self.in_sync:
                self.sizes[node] += 30 * MB
        self.now_s += SAMPLE_S
        partitions = [PartitionDetails(0, 1, 0, REPLICAS, self.in_sync, (), (), ())]
        moving = {TP: Reassignment(REPLICAS, self.adding, ())}
        targets = {TP: REPLICAS} if self.is_planned else {}
        if self._has_other:
            partitions.append(PartitionDetails(1, 1, 0, (1, 2), (1,), (), (), ()))
            moving[OTHER] = Reassignment((1, 2), (2,), ())
            targets[OTHER] = (1, 2)
        topics = {"t": TopicDetails("t", ZERO_UUID, False, tuple(partitions))}
        found = ClusterReplicas({}, topics, moving)
        asyncio.run(self._watch.look(cast(Cluster, None), found, targets))
        return self._watch.estimate


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Watched:
    found = Watched(monkeypatch)
    for _ in range(6):
        found.look()
    return found


def test_the_time_stays_known_when_a_replica_is_in_sync(watched: Watched) -> None:
    watched.sizes[2] = FULL
    watched.in_sync = (1, 2)
    found = watched.look()
    assert found is not None
    assert found.to_go == FULL - 7 * 30 * MB
    assert found.eta_s is not None and found.rate is not None
    assert found.writes == 0


def test_the_time_stays_known_when_a_partition_is_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    """The plan does not have a partition any more that is complete."""
    watched = Watched(monkeypatch, has_other=True)
    for _ in range(6):
        watched.look()
    watched.is_planned = False
    found = watched.look()
    assert found is not None
    assert found.to_go == FULL
    assert found.eta_s is not None and found.rate is not None
    assert found.writes == 0


def test_a_complete_copy_leaves_the_sums_once(watched: Watched) -> None:
    """If the sizes cannot be read, the next look must not let the copy leave the sums again."""
    watched.sizes[2] = FULL
    watched.in_sync = (1, 2)
    watched.is_disk_use_known = False
    with pytest.raises(RequestTimedOut):
        watched.look()
    watched.is_disk_use_known = True
    found = watched.look()
    assert found is not None
    assert found.writes == 0


def test_samples_begin_again_when_a_copy_is_cancelled(watched: Watched) -> None:
    watched.adding = (3,)
    found = watched.look()
    assert found is not None
    assert (found.rate, found.eta_s) == (None, None)


def test_samples_begin_again_when_a_copy_is_added(watched: Watched) -> None:
    watched.in_sync = (1, 2)
    watched.look()
    watched.in_sync = (1,)
    found = watched.look()
    assert found is not None
    assert (found.rate, found.eta_s) == (None, None)


def test_nothing_is_estimated_when_the_plan_is_complete(watched: Watched) -> None:
    watched.is_planned = False
    assert watched.look() is None
