"""Leadership changes at any moment: every request is answered, and no transaction is left
incomplete.

The broker keeps the same logs. Pending requests are refused when it resigns, and clients retry
them. The next leader finds decided records in the log.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from broker.coordinators.placing import shard_of
from broker.metadata.image import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, MetadataImage
from broker.metadata.records import PartitionChangeRecord
from broker.shards.shard_driver import COMMIT_MS_MAX
from protocol.errors import ApiError, ErrorCode
from protocol.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
)
from protocol.messages.topics import DeleteTopicsRequest
from protocol.messages.transactions import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from protocol.types import NO_NODE, TopicPartition
from tests.harness.history import Outcome
from tests.harness.seed import seeded
from tests.harness.wire import batch_of, fetch_request, produce_request
from tests.unit.broker.rig import Asked, Rig
from tests.unit.broker.txn_rig import A, B, TxnProducer, code_of, read_stable, settle, txn_rig
from tests.unit.broker.txn_world import PLACES, TxnWorld

ME, OTHER = 1, 2

RETRY_MS = 2_000
"""The time after which the sending of markers is retried."""


class Controller:
    """Writes the records of a controller that takes leaderships from this broker or gives them to
    it."""

    def __init__(self, rig: Rig) -> None:
        self._rig = rig
        self.taken: list[TopicPartition] = []

    @property
    def _image(self) -> MetadataImage:
        return self._rig.broker.parts.metadata.image

    def shard(self, topic: str, key: str) -> TopicPartition:
        """Return the partition of a coordinator's topic that serves a key."""
        return TopicPartition(topic, shard_of(key, len(self._image.topics[topic].partitions)))

    def take(self, place: TopicPartition) -> None:
        """Let another broker lead the partition."""
        self.change(place, leader=NO_NODE)
        self.taken.append(place)

    def give_back(self, place: TopicPartition) -> None:
        """Let this broker lead the partition again, in a later epoch."""
        self.taken.remove(place)
        self.change(place, leader=ME)

    def change(self, place: TopicPartition, **changes: Any) -> None:
        """Commit a change of one partition."""
        topic_id = self._image.topics[place.topic].topic_id
        self._rig.commit(
            PartitionChangeRecord(partition_id=place.partition, topic_id=topic_id, **changes)
        )


@pytest.fixture
def rig() -> Iterator[Rig]:
    with txn_rig() as rig:
        yield rig


@pytest.fixture
def controller(rig: Rig) -> Controller:
    return Controller(rig)


def commit_request(offset: int) -> OffsetCommitRequest:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    return OffsetCommitRequest(
        group_id="g", topics=[OffsetCommitRequestTopic(name="t", partitions=[partition])]
    )


def commit_code(asked: Asked) -> ErrorCode:
    return ErrorCode(asked.answer.topics[0].partitions[0].error_code)


def committed_offset(rig: Rig) -> int:
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)])
    group = rig.ask(request, 8).groups[0]
    assert group.error_code == 0
    return int(group.topics[0].partitions[0].committed_offset) if group.topics else -1


# What clients wait for.


def test_a_produce_under_way_is_refused_in_the_turn_in_which_the_leadership_ends(
    rig: Rig, controller: Controller
) -> None:
    asked = rig.send(produce_request("t", batch_of([b"x"])), 9)
    assert not asked.is_answered()
    controller.take(A)
    assert code_of(asked) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    refused = rig.send(produce_request("t", batch_of([b"x"])), 9)
    assert code_of(refused) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    controller.give_back(A)
    taken = rig.send(produce_request("t", batch_of([b"y"])), 9)
    settle(rig)
    assert code_of(taken) is ErrorCode.NONE


def test_each_partition_of_a_produce_has_its_own_code(rig: Rig, controller: Controller) -> None:
    request = produce_request("t", batch_of([b"x"]))
    more = produce_request("t", batch_of([b"y"]), partition=1)
    request.topic_data[0].partition_data += more.topic_data[0].partition_data
    asked = rig.send(request, 9)
    controller.take(A)
    assert not asked.is_answered()
    settle(rig)
    codes = [one.error_code for one in asked.answer.responses[0].partition_responses]
    assert codes == [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NONE]


def test_a_fetch_that_waits_learns_it_at_once(rig: Rig, controller: Controller) -> None:
    asked = rig.send(fetch_request("t", max_wait_ms=10_000), 12)
    assert not asked.is_answered()
    controller.take(A)
    part = asked.answer.responses[0].partitions[0]
    assert part.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_acks_1_waits_for_the_leaders_disk_and_acks_all_for_everybody_in_sync(
    rig: Rig, controller: Controller
) -> None:
    controller.change(A, replicas=[ME, OTHER], isr=[ME, OTHER])
    alone = rig.send(produce_request("t", batch_of([b"x"]), required_acks=1), 9)
    everybody = rig.send(produce_request("t", batch_of([b"y"]), timeout_ms=2_000), 9)
    assert not alone.is_answered()
    settle(rig)
    assert code_of(alone) is ErrorCode.NONE
    assert not everybody.is_answered()
    rig.advance(2_000)
    assert code_of(everybody) is ErrorCode.REQUEST_TIMED_OUT
    # No client may read records that can still be lost.
    part = rig.ask(fetch_request("t"), 12).responses[0].partitions[0]
    assert (part.high_watermark, len(part.records)) == (0, 0)


def test_with_too_few_in_sync_acks_all_is_refused_and_acks_1_is_not(rig: Rig) -> None:
    rig.create("strict", min_insync_replicas="2")
    place = TopicPartition("strict", 0)
    Controller(rig).change(place, replicas=[ME, OTHER], isr=[ME])
    refused = rig.send(produce_request("strict", batch_of([b"x"])), 9)
    assert code_of(refused) is ErrorCode.NOT_ENOUGH_REPLICAS
    taken = rig.send(produce_request("strict", batch_of([b"x"]), required_acks=1), 9)
    settle(rig)
    assert code_of(taken) is ErrorCode.NONE


def test_what_was_refused_for_too_few_in_sync_comes_before_what_was_sent_behind_it(
    rig: Rig,
) -> None:
    """The log does not know the producer yet, so it would accept any sequence. The broker must
    remember that it refused sequence 0."""
    rig.create("strict", min_insync_replicas="2")
    place = TopicPartition("strict", 0)
    controller = Controller(rig)
    controller.change(place, replicas=[ME, OTHER], isr=[ME])

    def sent(sequence: int) -> Asked:
        batch = batch_of([b"x"], producer_id=7, producer_epoch=0, base_sequence=sequence)
        return rig.send(produce_request("strict", batch), 9)

    assert code_of(sent(0)) is ErrorCode.NOT_ENOUGH_REPLICAS
    controller.change(place, replicas=[ME], isr=[ME])
    assert code_of(sent(1)) is ErrorCode.NOT_ENOUGH_REPLICAS, "it only has to wait"
    again = [sent(0), sent(1)]
    settle(rig)
    assert [code_of(one) for one in again] == [ErrorCode.NONE, ErrorCode.NONE]
    # The log knows the producer now. Batches behind a refused one must wait as before.
    controller.change(place, replicas=[ME, OTHER], isr=[ME])
    assert code_of(sent(2)) is ErrorCode.NOT_ENOUGH_REPLICAS
    controller.change(place, replicas=[ME], isr=[ME])
    assert [code_of(sent(3)), code_of(sent(4))] == [ErrorCode.NOT_ENOUGH_REPLICAS] * 2
    again = [sent(2), sent(3), sent(4)]
    settle(rig)
    assert [code_of(one) for one in again] == [ErrorCode.NONE] * 3
    assert code_of(sent(6)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "5 was never sent"


def test_the_epoch_is_judged_before_the_role(rig: Rig, controller: Controller) -> None:
    controller.take(A)
    request = fetch_request("t")
    for known, code in ((0, ErrorCode.FENCED_LEADER_EPOCH), (9, ErrorCode.UNKNOWN_LEADER_EPOCH)):
        request.topics[0].partitions[0].current_leader_epoch = known
        part = rig.ask(request, 12).responses[0].partitions[0]
        assert part.error_code == code


# What coordinators wait for.


def test_a_commit_under_way_is_refused_when_its_shard_is_dropped(
    rig: Rig, controller: Controller
) -> None:
    """If this commit got no answer, later requests of the same connection would get none either."""
    asked = rig.send(commit_request(7), 8)
    assert not asked.is_answered()
    controller.take(controller.shard(OFFSETS_TOPIC, "g"))
    assert commit_code(asked) is ErrorCode.NOT_COORDINATOR


def test_a_decision_is_replayed_though_its_client_was_told_that_it_came_too_late(
    rig: Rig, controller: Controller
) -> None:
    asked = rig.send(commit_request(7), 8)
    rig.advance(COMMIT_MS_MAX)
    assert commit_code(asked) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    settle(rig)
    assert committed_offset(rig) == 7


def test_markers_follow_a_commit_whose_client_was_told_that_it_came_too_late(rig: Rig) -> None:
    producer = TxnProducer(rig).ready()
    producer.add(A)
    assert producer.put(A, b"x") is ErrorCode.NONE
    asked = rig.send(producer.end_request(is_commit=True), 3)
    rig.advance(COMMIT_MS_MAX)
    assert asked.answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert read_stable(rig, "t") == []
    settle(rig)
    assert read_stable(rig, "t") == [b"x"]


def test_a_shard_serves_when_all_that_it_has_read_is_committed(
    rig: Rig, controller: Controller
) -> None:
    """Records above the high watermark can disappear with their leader, so the shard does not use
    them yet."""
    place = controller.shard(OFFSETS_TOPIC, "g")
    rig.send(commit_request(7), 8)
    controller.take(place)
    controller.give_back(place)
    rig.turn()
    refused = rig.send(commit_request(8), 8)
    assert commit_code(refused) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    settle(rig)
    assert committed_offset(rig) == 7


def test_a_topic_made_again_while_nobody_leads_the_offsets_begins_without_them(
    rig: Rig, controller: Controller
) -> None:
    """Pitfall 45: while the partition has no leader, no coordinator learns of the deletion. So the
    next one must drop the offsets."""
    rig.ask(commit_request(7), 8)
    place = controller.shard(OFFSETS_TOPIC, "g")
    controller.take(place)
    rig.ask(DeleteTopicsRequest(topic_names=["t"]), 5)
    rig.create("t", 2)
    controller.give_back(place)
    settle(rig)
    assert committed_offset(rig) == -1


@pytest.mark.parametrize("topic", [OFFSETS_TOPIC, TRANSACTIONS_TOPIC])
def test_a_shard_is_loaded_when_its_log_has_been_cut(
    rig: Rig, controller: Controller, topic: str
) -> None:
    """The shard becomes active when the truncation ends, although no metadata record is committed
    at that moment."""
    parts = rig.broker.parts
    coordinator = parts.groups if topic == OFFSETS_TOPIC else parts.transactions
    place = controller.shard(topic, "g")
    replica = parts.replicas.find_held(*place)
    controller.take(place)
    replica.is_busy = True
    controller.give_back(place)
    with pytest.raises(ApiError, match=ErrorCode.NOT_COORDINATOR.name):
        coordinator.find("g")
    parts.replicas.end_truncation(replica)
    rig.turn()
    assert coordinator.find("g").replica is replica


def test_a_marker_of_a_partition_that_moves_is_written_again(
    rig: Rig, controller: Controller
) -> None:
    """A partition that is not led here still exists, so its marker must not be skipped."""
    producer = TxnProducer(rig).ready()
    producer.add(A, B)
    assert [producer.put(A, b"a"), producer.put(B, b"b")] == [ErrorCode.NONE] * 2
    rig.send(producer.end_request(is_commit=True), 3)
    rig.flusher.sync()
    controller.take(A)
    settle(rig)
    transactions = rig.broker.parts.transactions
    state = transactions.shard("id").transactions["id"].state
    assert state.is_preparing
    controller.give_back(A)
    rig.advance(RETRY_MS)
    settle(rig)
    assert not transactions.shard("id").transactions["id"].state.is_preparing
    assert (read_stable(rig, "t"), read_stable(rig, "t", 1)) == ([b"a"], [b"b"])


def test_markers_go_out_under_the_epoch_in_which_the_shard_was_loaded(
    rig: Rig, controller: Controller
) -> None:
    """A deposed coordinator that sent markers under its successor's epoch would pass every
    check."""
    place = controller.shard(TRANSACTIONS_TOPIC, "id")
    loaded = rig.broker.parts.transactions.find("id")
    controller.take(place)
    controller.give_back(place)
    rig.turn()
    reloaded = rig.broker.parts.transactions.find("id")
    assert reloaded is not loaded
    assert reloaded.leader_epoch == loaded.leader_epoch + 2 == reloaded.replica.leader_epoch


def test_markers_asked_for_by_others_are_not_waited_for_too_long(rig: Rig) -> None:
    producer = TxnProducer(rig).ready()
    producer.add(A)
    assert producer.put(A, b"a") is ErrorCode.NONE
    asked = rig.send(markers_request(producer), 1)
    rig.advance(1_000)
    (topic,) = asked.answer.markers[0].topics
    assert topic.partitions[0].error_code == ErrorCode.REQUEST_TIMED_OUT


def markers_request(producer: TxnProducer) -> WriteTxnMarkersRequest:

    return WriteTxnMarkersRequest(
        markers=[
            WritableTxnMarker(
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
                transaction_result=False,
                topics=[WritableTxnMarkerTopic(name="t", partition_indexes=[0])],
                coordinator_epoch=0,
            )
        ]
    )


# All of it, at random.


class Moves:
    """Takes a leadership, or gives one back, at a random step."""

    def __init__(self) -> None:
        self._controller: Controller | None = None
        self._places: list[TopicPartition] = []

    def __call__(self, world: TxnWorld) -> None:
        if self._controller is None:
            controller = self._controller = Controller(world.rig)
            shards = {controller.shard(TRANSACTIONS_TOPIC, one): None for one in ("one", "two")}
            for actor in world.actors:
                shards[controller.shard(OFFSETS_TOPIC, actor.group_id)] = None
            self._places = [*PLACES, *shards]
        controller, chance = self._controller, world.chance
        free = [place for place in self._places if place not in controller.taken]
        if not free or (controller.taken and chance.random() < 0.6):
            controller.give_back(chance.choice(controller.taken))
        else:
            controller.take(chance.choice(free))

    def end(self) -> None:
        """Give all leaderships back."""
        if self._controller is not None:
            for place in list(self._controller.taken):
                self._controller.give_back(place)


def campaign(name: str, moves_count: int) -> None:
    chance = seeded(name)
    moved = committed = 0
    while moved < moves_count:
        moves = Moves()
        world = TxnWorld(random.Random(chance.random()), moves)
        world.run(700)
        moves.end()
        world.finish()
        world.judge()
        for actor in world.actors:
            assert actor.is_answered(), f"{actor.name} waits forever"
        moved += world.fault_count
        ends = [end for actor in world.actors for end in actor.log.ends.values()]
        committed += ends.count(Outcome.OK)
    print(f"{moved} moves of leaderships, {committed} transactions known as committed")
    # On average one transaction in five moves is known as committed. Far fewer would prove nothing.
    assert committed > moved / 50


def test_leaderships_that_move_at_random_leave_nothing_open_and_nothing_torn() -> None:
    campaign("leaderships", 200)


@pytest.mark.slow
@pytest.mark.timeout(1_800)
def test_a_thousand_such_moves() -> None:
    campaign("many leaderships", 1_000)
