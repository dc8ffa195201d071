"""What a restore of the main host asks the brokers on the other hosts."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from appliance.backup.main_host import RemainingCluster
from appliance.backup.remaining_brokers import ask
from appliance.output import CommandError
from protocol.errors import ErrorCode
from protocol.messages.api import ApiKey
from protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from protocol.messages.metadata import MetadataResponse
from protocol.security.cluster_security import ClusterEntry
from protocol.types import EARLIEST_TIMESTAMP, Uuid
from protocol.wire.schema import Message
from tests.unit.appliance.fake_quorum import FakeQuorum
from tests.unit.client.scripted_server import Received

START, END = 40, 90


@dataclass
class LeftBrokers(FakeQuorum):
    """Brokers 2 and 3 of the cluster `ours`. Each partition has the offsets START to END."""

    fault: ErrorCode = ErrorCode.NONE

    def _answer(self, node_id: int, request: Received) -> Message:
        if request.api_key == ApiKey.LIST_OFFSETS:
            return self._offsets(request.message)
        answer = super()._answer(node_id, request)
        if isinstance(answer, MetadataResponse):
            answer.cluster_id = "ours"
        return answer

    def _offsets(self, request: Any) -> Message:
        return ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(
                    name=topic.name,
                    partitions=[
                        ListOffsetsPartitionResponse(
                            partition_index=one.partition_index,
                            error_code=self.fault,
                            offset=START if one.timestamp == EARLIEST_TIMESTAMP else END,
                        )
                        for one in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )


@pytest.fixture
def left() -> Iterator[LeftBrokers]:
    found = LeftBrokers(
        dict.fromkeys((2, 3)),
        voters={one: Uuid(int=one) for one in (2, 3)},
        fenced={1},
        controller=2,
    )
    found.topic("logs", [2, 3], [3, 2])
    found.topic("other", [2, 3])
    with found.serving():
        yield found


def test_the_brokers_tell_who_serves_who_votes_and_what_they_have(left: LeftBrokers) -> None:
    found = ask(ClusterEntry(left.address), 1, ("logs", "not made yet"))
    places = [("logs", 0), ("logs", 1)]
    assert found == RemainingCluster(
        "ours",
        frozenset({2, 3}),
        frozenset({2, 3}),
        dict.fromkeys(places, START),
        dict.fromkeys(places, END),
    )


def test_offsets_that_are_unknown_are_not_taken_for_none(left: LeftBrokers) -> None:
    left.fault = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    with pytest.raises(CommandError, match="logs-0: its offsets are unknown"):
        ask(ClusterEntry(left.address), 1, ("logs",))
