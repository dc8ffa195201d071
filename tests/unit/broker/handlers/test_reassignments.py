"""Requests that reassign partitions or list reassignments: slices, responses, and the list."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from broker.controller.active import BATCH_BYTES_MAX
from broker.controller.reassign import alter_reassignments
from broker.handlers.reassignments import ReassignmentHandlers, sliced
from broker.metadata.image import MetadataImage
from broker.metadata.records import encode_record
from broker.sessions.dispatch import refusal
from protocol.errors import ApiError, ErrorCode
from protocol.messages.elections import (
    AlterPartitionReassignmentsRequest,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
    ReassignablePartition,
    ReassignableTopic,
)
from protocol.security.acl import AclOperation
from protocol.wire.records import NewRecord, build_batch
from tests.unit.broker.controller.kit import CONFIG, after, image_of, partition
from tests.unit.broker.controller.moving import FIVE
from tests.unit.broker.rig import Rig

MANY = 6_000
MOVING = partition((1, 2), replicas=(3, 1, 2), adding=(3,), removing=(2,))
STILL = partition((1, 2), replicas=(1, 2))


def asked(count: int, replicas: list[int] | None) -> AlterPartitionReassignmentsRequest:
    """Return a request for `count` partitions of the topic `logs` and for one partition of another
    topic."""
    numbers = [
        ReassignablePartition(partition_index=one, replicas=replicas) for one in range(count)
    ]
    other = ReassignablePartition(partition_index=0, replicas=replicas)
    return AlterPartitionReassignmentsRequest(
        timeout_ms=7_000,
        allow_replication_factor_change=False,
        topics=[
            ReassignableTopic(name="logs", partitions=numbers),
            ReassignableTopic(name="other", partitions=[other]),
        ],
    )


class ScriptedMetadata:
    """A double of the metadata that decides orders by an image. It accepts `fails_at` orders and
    refuses all later ones."""

    def __init__(
        self, image: MetadataImage, fails_at: int = 1_000, *, is_elsewhere: bool = False
    ) -> None:
        """With `is_elsewhere` the controller is another node, so its refusals arrive as
        responses."""
        self.image = image
        self.orders: list[AlterPartitionReassignmentsRequest] = []
        self._fails_at = fails_at
        self._is_elsewhere = is_elsewhere

    def submit(
        self,
        order: AlterPartitionReassignmentsRequest,
        reply: Callable[[Any], None],
        refused: Callable[[ApiError], None],
        host: str | None,
        user: str | None = None,
    ) -> None:
        self.orders.append(order)
        if len(self.orders) > self._fails_at:
            error = ApiError(ErrorCode.REQUEST_TIMED_OUT, "no controller")
            if self._is_elsewhere:
                reply(refusal(order.api_key, error))
            else:
                refused(error)
            return
        outcome = alter_reassignments(order, self.image, CONFIG)
        batch = build_batch([NewRecord(None, encode_record(one), 0) for one in outcome.records])
        assert len(batch) <= BATCH_BYTES_MAX
        self.image = after(self.image, outcome.records)
        reply(outcome.reply)


class Session:
    peer_host = "127.0.0.1"


class AnswerTaker:
    """A double of a handler's call that stores the response."""

    session = Session()
    asker = ("127.0.0.1", None)

    def __init__(self) -> None:
        self.answers: list[Any] = []

    def need_of_cluster(self, operation: AclOperation) -> None:
        """The client may do everything."""

    def answer(self, response: Any) -> None:
        self.answers.append(response)


def altered(metadata: Any, request: AlterPartitionReassignmentsRequest) -> Any:
    call: Any = AnswerTaker()
    ReassignmentHandlers(metadata).alter_partition_reassignments(call, request)
    (answer,) = call.answers
    return answer


def test_a_large_request_goes_to_the_controller_in_slices() -> None:
    """The records of each slice fit into one batch of the metadata log, and the controller decides
    few partitions in one turn (the longest turn took 93 ms with four slices, and 25 ms with
    these)."""
    metadata = ScriptedMetadata(image_of(*[partition((1,), replicas=(1,))] * MANY, nodes=FIVE))
    request = asked(MANY, [5, 4, 3])
    request.allow_replication_factor_change = True
    answer = altered(metadata, request)
    sizes = [sum(len(one.partitions) for one in order.topics) for order in metadata.orders]
    assert 200 < max(sizes) < 500
    assert sum(sizes) == MANY + 1
    assert all(one.timeout_ms == 7_000 for one in metadata.orders)
    assert [topic.name for topic in answer.responses] == ["logs", "other"]
    codes = [(one.partition_index, one.error_code) for one in answer.responses[0].partitions]
    assert codes == [(number, ErrorCode.NONE) for number in range(MANY)]
    (unknown,) = answer.responses[1].partitions
    assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert all(len(numbers) == MANY for numbers in metadata.image.moving.values())


@pytest.mark.parametrize("is_elsewhere", [False, True])
def test_what_no_controller_decides_is_refused_and_the_rest_is_not_tried(
    is_elsewhere: bool,
) -> None:
    image = image_of(*[STILL] * MANY, nodes=FIVE)
    metadata = ScriptedMetadata(image, fails_at=1, is_elsewhere=is_elsewhere)
    answer = altered(metadata, asked(MANY, [2, 1]))
    assert len(metadata.orders) == 2
    codes = [one.error_code for one in answer.responses[0].partitions]
    done = codes.count(ErrorCode.NONE)
    assert done == len(metadata.orders[0].topics[0].partitions)
    assert codes == [ErrorCode.NONE] * done + [ErrorCode.REQUEST_TIMED_OUT] * (MANY - done)
    assert answer.responses[1].partitions[0].error_message == "no controller"


def test_a_small_request_is_one_order_with_all_its_fields() -> None:
    request = asked(2, None)
    (one,) = sliced(request, image_of(STILL))
    assert one == request


@pytest.mark.parametrize("version", [0, 1])
def test_a_lone_broker_answers_for_each_partition(version: int) -> None:
    rig = Rig()
    rig.create("logs", 2)
    request = asked(3, [1])
    request.allow_replication_factor_change = version == 0
    answer = rig.ask(request, version)
    assert answer.error_code == ErrorCode.NONE
    codes = [[one.error_code for one in topic.partitions] for topic in answer.responses]
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes == [[ErrorCode.NONE, ErrorCode.NONE, unknown], [unknown]]
    assert answer.allow_replication_factor_change == (version == 0)
    listed = rig.ask(ListPartitionReassignmentsRequest(topics=None), 0)
    assert (listed.error_code, listed.topics) == (ErrorCode.NONE, [])


@pytest.mark.parametrize(
    ("named", "expected"),
    [
        (None, [0, 2]),
        ({"logs": [1, 2, 7]}, [2]),
        ({"logs": [1]}, []),
        ({"none": [0]}, []),
    ],
)
def test_reassignments_under_way_are_listed(
    named: dict[str, list[int]] | None, expected: list[int]
) -> None:
    metadata: Any = ScriptedMetadata(image_of(MOVING, STILL, MOVING, nodes=FIVE))
    request = ListPartitionReassignmentsRequest(topics=None)
    if named is not None:
        request.topics = [
            ListPartitionReassignmentsTopics(name=name, partition_indexes=numbers)
            for name, numbers in named.items()
        ]
    call: Any = AnswerTaker()
    answer = ReassignmentHandlers(metadata).list_partition_reassignments(call, request)
    rows = [
        (
            topic.name, one.partition_index, one.replicas, one.adding_replicas,
            one.removing_replicas,
        )
        for topic in answer.topics
        for one in topic.partitions
    ]  # fmt: skip
    assert rows == [("logs", number, [3, 1, 2], [3], [2]) for number in expected]
