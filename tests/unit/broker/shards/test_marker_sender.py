"""Markers sent to other brokers: retried until they are written, and never sent for a shard that is
gone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from broker.sessions.peers import LinkKind
from broker.shards.marker_sender import (
    AGAIN_MS_MAX,
    AGAIN_MS_MIN,
    ANSWER_MS_MAX,
    REQUEST_MARKERS_MAX,
    MarkerSender,
    WantedMarker,
)
from broker.shards.markers import TxnMarker
from broker.world import End
from protocol.errors import ErrorCode
from protocol.messages.transactions import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from protocol.types import NO_NODE, TopicPartition
from tests.sim.world import SimWorld

P, Q, R = (TopicPartition("t", index) for index in range(3))
ONE, TWO = TxnMarker(1, 0, True, 4), TxnMarker(2, 0, False, 4)


class Request:
    """A pending WriteTxnMarkers request."""

    def __init__(
        self,
        node_id: int,
        kind: LinkKind,
        message: WriteTxnMarkersRequest,
        deadline_ms: int,
        answered: Callable[[Any], None],
        failed: Callable[[End], None],
    ) -> None:
        assert kind is LinkKind.MARKERS
        self.node_id = node_id
        self.deadline_ms = deadline_ms
        self.message = message
        self.failed = failed
        self._answered = answered

    @property
    def markers(self) -> list[tuple[TxnMarker, str, list[int]]]:
        return [
            (
                TxnMarker(
                    one.producer_id,
                    one.producer_epoch,
                    one.transaction_result,
                    one.coordinator_epoch,
                ),
                topic.name,
                topic.partition_indexes,
            )
            for one in self.message.markers
            for topic in one.topics
        ]

    def answer(self, code: ErrorCode = ErrorCode.NONE, **codes: ErrorCode) -> None:
        """Answer with one code for all partitions, or with a code per partition index: `p0=...`."""
        self._answered(
            WriteTxnMarkersResponse(
                markers=[
                    WritableTxnMarkerResult(
                        producer_id=one.producer_id,
                        topics=[
                            WritableTxnMarkerTopicResult(
                                name=topic.name,
                                partitions=[
                                    WritableTxnMarkerPartitionResult(
                                        partition_index=index,
                                        error_code=codes.get(f"p{index}", code),
                                    )
                                    for index in topic.partition_indexes
                                ],
                            )
                            for topic in one.topics
                        ],
                    )
                    for one in self.message.markers
                ]
            )
        )


class Wait:
    """The results of one marker."""

    def __init__(self) -> None:
        self.ends: list[ErrorCode] = []
        self.refusals: list[ErrorCode] = []

    def reached(self) -> None:
        self.ends.append(ErrorCode.NONE)

    def lost(self, code: ErrorCode) -> None:
        self.ends.append(code)


class Scene:
    """A marker sender and its requests. Broker 2 leads every partition that `leaders` does not
    name."""

    def __init__(self) -> None:
        self.world = SimWorld(1)
        self.requests: list[Request] = []
        self.leaders: dict[TopicPartition, int | None] = {}
        self.serves = True
        self.sender = MarkerSender(
            self.world,
            self,  # type: ignore[arg-type]  # no links, only `ask`
            lambda one: self.leaders.get(one, 2),
        )

    def ask(self, *asked: Any) -> int:
        self.requests.append(Request(*asked))
        return 0

    def send(self, partition: TopicPartition, marker: TxnMarker = ONE, node_id: int = 2) -> Wait:
        wait = Wait()
        self.sender.send(
            node_id,
            WantedMarker(
                partition,
                marker,
                wait,
                lambda: self.serves,
                lambda code: wait.refusals.append(code),
            ),
        )
        return wait

    def take(self) -> Request:
        """Return the only pending request."""
        self.world.run_for(1)
        (request,) = self.requests
        self.requests.clear()
        return request


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_what_is_wanted_in_one_turn_goes_out_together_by_transaction(scene: Scene) -> None:
    waits = [scene.send(P), scene.send(Q), scene.send(P, TWO)]
    request = scene.take()
    assert request.markers == [(ONE, "t", [0, 1]), (TWO, "t", [0])]
    assert request.deadline_ms == scene.world.clock.monotonic_ms() - 1 + ANSWER_MS_MAX
    request.answer()
    assert [one.ends for one in waits] == [[ErrorCode.NONE]] * 3


def test_one_request_to_a_broker_is_under_way_and_others_do_not_wait_for_it(scene: Scene) -> None:
    scene.send(P)
    request = scene.take()
    late = [scene.send(Q), scene.send(R)]
    elsewhere = scene.send(P, TWO, node_id=3)
    other = scene.take()
    assert other.node_id == 3
    other.answer()
    assert elsewhere.ends == [ErrorCode.NONE]
    request.answer()
    assert scene.take().markers == [(ONE, "t", [1, 2])]
    assert [one.ends for one in late] == [[], []]


def test_each_partition_has_its_own_end_and_one_that_is_late_is_sent_again(scene: Scene) -> None:
    waits = [scene.send(one) for one in (P, Q, R)]
    scene.take().answer(
        p0=ErrorCode.NONE, p1=ErrorCode.REQUEST_TIMED_OUT, p2=ErrorCode.INVALID_PRODUCER_EPOCH
    )
    assert [one.ends for one in waits] == [
        [ErrorCode.NONE], [], [ErrorCode.INVALID_PRODUCER_EPOCH]
    ]  # fmt: skip
    assert waits[1].refusals == [ErrorCode.REQUEST_TIMED_OUT]
    scene.world.run_for(AGAIN_MS_MIN)
    scene.take().answer()
    assert waits[1].ends == [ErrorCode.NONE]


def test_it_is_tried_again_for_ever_and_ever_more_seldom(scene: Scene) -> None:
    wait = scene.send(P)
    request, gaps = scene.take(), []
    for _ in range(9):
        before_ms = scene.world.clock.monotonic_ms()
        request.failed(End.RESET)
        while not scene.requests:
            scene.world.run_for(1)
        gaps.append(scene.world.clock.monotonic_ms() - before_ms)
        request = scene.requests.pop()
    doubling = [min(AGAIN_MS_MIN << number, AGAIN_MS_MAX) for number in range(9)]
    assert all(0 <= gap - wanted <= 1 for gap, wanted in zip(gaps, doubling, strict=True)), gaps
    assert wait.ends == []


def test_a_marker_that_waits_for_its_next_try_holds_no_other_back(scene: Scene) -> None:
    scene.send(P)
    scene.take().answer(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    other = scene.send(Q)
    scene.take().answer()
    assert other.ends == [ErrorCode.NONE]


@pytest.mark.parametrize("is_resting", [False, True])
def test_what_another_broker_leads_by_now_is_given_back(scene: Scene, is_resting: bool) -> None:
    first = scene.send(P)
    request = scene.take()
    if is_resting:
        request.answer(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        wait = first
    else:
        wait = scene.send(P, TWO)
    scene.leaders[P] = 3
    scene.sender.moved()
    assert wait.ends == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    scene.world.run_for(AGAIN_MS_MAX)
    assert not scene.requests, "sent to the old leader"


def test_what_is_under_way_when_the_leader_changes_waits_for_its_answer(scene: Scene) -> None:
    """The marker can still arrive, so it counts as unwritten only after the connection has
    closed."""
    wait = scene.send(P)
    request = scene.take()
    scene.leaders[P] = NO_NODE
    scene.sender.moved()
    assert wait.ends == []
    request.failed(End.RESET)
    assert wait.ends == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


def test_a_broker_that_does_not_know_a_partition_does_not_say_that_it_is_gone(
    scene: Scene,
) -> None:
    wait = scene.send(P)
    scene.take().answer(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert wait.ends == []
    scene.leaders[P] = None
    scene.sender.moved()
    assert wait.ends == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


def test_nothing_is_sent_for_a_shard_that_is_dropped(scene: Scene) -> None:
    scene.send(P)
    scene.send(Q)
    scene.serves = False
    scene.world.run_for(1)
    assert not scene.requests
    scene.serves = True
    scene.send(R)
    request = scene.take()
    scene.serves = False
    request.answer(ErrorCode.REQUEST_TIMED_OUT)
    scene.world.run_for(AGAIN_MS_MAX)
    assert not scene.requests


def test_a_request_has_so_many_markers_and_the_next_one_the_others(scene: Scene) -> None:
    waits = [scene.send(TopicPartition("t", index)) for index in range(REQUEST_MARKERS_MAX + 1)]
    request = scene.take()
    assert request.markers == [(ONE, "t", list(range(REQUEST_MARKERS_MAX)))]
    request.answer()
    scene.take().answer()
    assert all(one.ends == [ErrorCode.NONE] for one in waits)


def test_two_markers_of_one_producer_for_one_partition_go_one_after_the_other(
    scene: Scene,
) -> None:
    """A response names the producer but not the transaction, so the second marker waits for the
    first."""
    scene.send(P)
    second = scene.send(P, ONE._replace(coordinator_epoch=5))
    scene.take().answer(ErrorCode.TRANSACTION_COORDINATOR_FENCED)
    scene.take().answer()
    assert second.ends == [ErrorCode.NONE]


def test_nothing_is_sent_by_a_broker_that_stops(scene: Scene) -> None:
    scene.send(P)
    request = scene.take()
    scene.sender.stop()
    request.failed(End.CLOSED)
    scene.world.run_for(2 * AGAIN_MS_MAX)
    assert not scene.requests
