"""The requests by which a partition leader verifies a transaction at its coordinator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from broker.produce.verification import Codes, Owner
from broker.sessions.peers import LinkKind
from broker.sessions.versions import OWN_VERSIONS
from broker.shards.verifier import VERIFY_MS_MAX, ClusterVerifier
from broker.world import End
from protocol.errors import ErrorCode
from protocol.messages.headers import encode_request
from protocol.messages.transactions import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)
from protocol.types import NO_NODE, TopicPartition
from tests.sim.clock import SimClock

ME, OTHER = 1, 2
OWNER = Owner("id", 7, 3)
PLACES = [TopicPartition("t", 0), TopicPartition("t", 2), TopicPartition("u", 0)]


class Scene:
    """A verifier without a broker. The test names the coordinator and records the requests."""

    def __init__(self) -> None:
        self.coordinator = OTHER
        self.clock = SimClock(0, 5_000)
        self.asked: list[tuple[int, LinkKind, AddPartitionsToTxnRequest, int]] = []
        self.answered: Callable[[Any], None]
        self.failed: Callable[[End], None]
        self.codes: list[Codes] = []
        self.verifier = ClusterVerifier(
            self,  # type: ignore[arg-type]  # only `coordinator_id`
            ME,
            self,  # type: ignore[arg-type]  # only `ask`
            self.clock,
        )

    def coordinator_id(self, key: str) -> int:
        assert key == OWNER.transactional_id
        return self.coordinator

    def ask(self, *asked: Any) -> int:
        *question, self.answered, self.failed = asked
        node_id, kind, request, deadline_ms = question
        self.asked.append((node_id, kind, request, deadline_ms))
        return 0


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_another_broker_is_elsewhere_and_so_is_none(scene: Scene) -> None:
    for coordinator, is_elsewhere in ((OTHER, True), (ME, False), (NO_NODE, True)):
        scene.coordinator = coordinator
        assert scene.verifier.is_elsewhere("id") is is_elsewhere


def test_a_question_is_an_add_that_adds_nothing(scene: Scene) -> None:
    scene.verifier.ask(OWNER, PLACES, scene.codes.append)
    ((node_id, kind, request, deadline_ms),) = scene.asked
    assert (node_id, kind) == (OTHER, LinkKind.QUICK)
    assert deadline_ms == 5_000 + VERIFY_MS_MAX
    (one,) = request.transactions
    assert one.verify_only
    assert (one.transactional_id, one.producer_id, one.producer_epoch) == OWNER
    assert [(topic.name, topic.partitions) for topic in one.topics] == [("t", [0, 2]), ("u", [0])]
    for version in OWN_VERSIONS[request.api_key]:
        assert encode_request(request, version, 1, None)


def test_the_answer_is_told_by_partition_and_no_answer_is_none(scene: Scene) -> None:
    scene.verifier.ask(OWNER, PLACES, scene.codes.append)
    results = [
        AddPartitionsToTxnTopicResult(
            name="t",
            results_by_partition=[
                AddPartitionsToTxnPartitionResult(partition_index=0),
                AddPartitionsToTxnPartitionResult(
                    partition_index=2, partition_error_code=ErrorCode.INVALID_TXN_STATE
                ),
            ],
        )
    ]
    scene.answered(
        AddPartitionsToTxnResponse(
            results_by_transaction=[
                AddPartitionsToTxnResult(transactional_id="id", topic_results=results)
            ]
        )
    )
    scene.verifier.ask(OWNER, PLACES, scene.codes.append)
    scene.failed(End.RESET)
    assert scene.codes == [
        {PLACES[0]: ErrorCode.NONE, PLACES[1]: ErrorCode.INVALID_TXN_STATE},
        {},
    ]
