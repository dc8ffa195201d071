"""Random histories of one partition that is reassigned between five brokers. Each rule is also
removed, and then the model must find a lost record.

The model knows how many records each replica has. A replica that leaves the assignment loses its
records, because its folder is deleted. The leader commits a record when enough replicas are in sync
and all of them have it. Replicas fetch, and a fetch can reach the leader late. Replay a seed with
`history(SEED)`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

from broker.controller import completion, leadership, reassign
from broker.controller.leadership import WantedChange, elect_by_order, lowered_min_isr
from broker.controller.registration import fence, stop
from broker.controller.topic_changes import create_partitions
from broker.metadata.partition_image import PartitionImage
from broker.metadata.records import (
    TOPIC_RESOURCE,
    ConfigRecord,
    MetadataRecord,
    RegisterBrokerRecord,
)
from protocol.errors import ApiError, ErrorCode
from protocol.messages.topics import CreatePartitionsRequest, CreatePartitionsTopic
from protocol.reassignment import effective_min_isr
from protocol.types import NO_NODE, Uuid
from tests.unit.broker.controller.kit import CONFIG, disk, partition
from tests.unit.broker.controller.moving import FIVE, Mover

SEEDS = range(150)
STEPS = 120
EXPECTED = (
    ErrorCode.NONE,
    ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
    # The controller returns this code if no replica that would stay is in sync.
    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
)


@dataclass(frozen=True, slots=True)
class SentFetch:
    """A fetch that has not arrived yet. Its sender has all records below `end` in the epoch that it
    names."""

    node_id: int
    leader_epoch: int
    end: int


class Model(Mover):
    """The metadata, and the number of records of each replica."""

    def __init__(self, chance: random.Random, min_isr: int) -> None:
        super().__init__(partition(), min_isr=min_isr)
        self.chance = chance
        self.min_isr = min_isr
        self.held = dict.fromkeys(FIVE, 0)
        self.committed = 0
        self.completed = 0
        self.cancelled = 0
        self.fetches: list[SentFetch] = []
        self.epochs_seen: dict[int, int] = {}

    def replay(self, records: Sequence[MetadataRecord]) -> PartitionImage:
        before = self.one
        one = super().replay(records)
        for node_id in set(before.replicas) - set(one.replicas):
            self.held[node_id] = 0
        if before.is_moving and not one.is_moving and one.replicas == before.target_replicas:
            self.completed += 1
            self.check_completion(before, one)
        assert one.leader == before.leader or one.leader_epoch > before.leader_epoch
        self.check()
        return one

    def check_completion(self, before: PartitionImage, one: PartitionImage) -> None:
        """Check I16: after a reassignment its target replicas have all committed records."""
        assert set(before.adding_replicas) <= set(one.in_sync_replicas), "an empty copy was kept"
        assert len(one.in_sync_replicas) >= min(self.min_isr, len(one.replicas)), "too few are left"
        assert not one.eligible_leader_replicas

    def check(self) -> None:
        one = self.one
        in_sync, eligible = set(one.in_sync_replicas), set(one.eligible_leader_replicas)
        # I15: the sets of replicas are consistent.
        assert len(set(one.replicas)) == len(one.replicas) == len(one.directories)
        assert one.directories == tuple(disk(node_id) for node_id in one.replicas)
        assert set(one.adding_replicas) <= set(one.target_replicas)
        assert not set(one.adding_replicas) & set(one.removing_replicas)
        assert one.original_replicas
        assert in_sync | eligible <= set(one.replicas)
        assert in_sync or eligible, "no replica may lead without a loss"
        # I8 and I13: in-sync and eligible replicas have all committed records.
        assert not in_sync & eligible
        assert not eligible or len(in_sync) < self.least(), "eligible, and not needed"
        for node_id in in_sync | eligible:
            assert self.held[node_id] >= self.committed, f"{node_id} lacks what was acknowledged"
        for node_id in in_sync:
            assert self.image.brokers[node_id].is_active
        if one.leader != NO_NODE:
            assert one.leader in in_sync
            assert self.epochs_seen.setdefault(one.leader_epoch, one.leader) == one.leader

    def least(self) -> int:
        """Return the number of replicas that a commit needs (guard 48)."""
        return effective_min_isr(self.min_isr, self.one.replicas, self.one.adding_replicas)

    def write(self) -> None:
        one = self.one
        if one.leader == NO_NODE or len(one.in_sync_replicas) < self.least():
            return
        self.committed += 1
        for node_id in one.in_sync_replicas:
            self.held[node_id] = self.committed
        self.check()

    def copy(self) -> None:
        """Let a replica that is not in sync copy all records. Its fetch reaches the leader now or
        later."""
        one = self.one
        others = [node_id for node_id in one.replicas if node_id not in one.in_sync_replicas]
        others = [node_id for node_id in others if self.image.brokers[node_id].is_active]
        if one.leader == NO_NODE or not others:
            return
        node_id = self.chance.choice(others)
        self.held[node_id] = self.committed
        fetch = SentFetch(node_id, one.leader_epoch, self.committed)
        if self.chance.random() < 0.7:
            self.fetched(fetch)
        else:
            self.fetches.append(fetch)

    def fetched(self, fetch: SentFetch) -> None:
        """Let the leader accept a fetch of its own epoch and propose the follower."""
        one = self.one
        if (
            one.leader != NO_NODE
            and fetch.leader_epoch == one.leader_epoch
            and fetch.node_id in one.replicas
            and fetch.node_id not in one.in_sync_replicas
            and fetch.end >= self.committed
            and self.image.brokers[fetch.node_id].is_active
        ):
            self.propose(*one.in_sync_replicas, fetch.node_id)

    def fetch_late(self) -> None:
        if self.fetches:
            self.fetched(self.fetches.pop(self.chance.randrange(len(self.fetches))))

    def shrink(self) -> None:
        one = self.one
        lagging = [node_id for node_id in one.in_sync_replicas if node_id != one.leader]
        if one.leader != NO_NODE and lagging:
            out = self.chance.choice(lagging)
            self.propose(*(node_id for node_id in one.in_sync_replicas if node_id != out))

    def die(self) -> None:
        node_id = self.chance.choice(FIVE)
        if self.image.brokers[node_id].is_active:
            self.replay(self.chance.choice([fence, stop])(node_id, self.image, CONFIG))

    def return_(self) -> None:
        """Bring a broker back with its old disk. After a clean stop it registers again, otherwise
        it is only unfenced."""
        node_id = self.chance.choice(FIVE)
        broker = self.image.brokers[node_id]
        if broker.is_stopping:
            record = RegisterBrokerRecord(
                broker_id=node_id, incarnation_id=Uuid(int=self.image.end_offset + 1_000),
                broker_epoch=self.image.end_offset, fenced=True, log_dirs=[disk(node_id)],
            )  # fmt: skip
            self.replay([record])
        elif broker.is_fenced:
            self.unfence(node_id)

    def reassign(self) -> None:
        self.move(self.chance.sample(FIVE, self.chance.choice((1, 2, 2, 3, 3))))
        assert self.code() in EXPECTED

    def cancel(self) -> None:
        was_moving = self.one.is_moving
        self.move(None)
        assert self.code() in EXPECTED
        self.cancelled += was_moving and self.code() is ErrorCode.NONE

    def elect(self) -> None:
        topic = self.image.topics["logs"]
        try:
            record = elect_by_order(
                topic, 0, self.image, leadership.Election.PREFERRED, self.min_isr
            )
        except ApiError:
            return
        self.replay([record])

    def set_min_isr(self) -> None:
        self.min_isr = self.chance.choice([1, 2, 3])
        record = ConfigRecord(
            resource_type=TOPIC_RESOURCE, resource_name="logs",
            name="min.insync.replicas", value=str(self.min_isr),
        )  # fmt: skip
        self.replay([record, *lowered_min_isr(self.image, self.image.topics["logs"], self.min_isr)])

    def grow(self) -> None:
        """Add partitions. They get as many replicas as the original ones have."""
        count = len(self.image.topics["logs"].partitions) + 1
        wanted = CreatePartitionsTopic(name="logs", count=count, assignments=None)
        outcome = create_partitions(CreatePartitionsRequest(topics=[wanted]), self.image, CONFIG)
        factor = len(self.one.original_replicas)
        self.replay(outcome.records)
        if outcome.records:
            assert len(self.image.topics["logs"].partitions[-1].replicas) == factor

    def heal(self) -> None:
        """Bring all brokers back. Then every reassignment must complete (I25)."""
        for _ in range(2):
            for node_id in FIVE:
                if self.image.brokers[node_id].is_stopping:
                    record = RegisterBrokerRecord(
                        broker_id=node_id, incarnation_id=Uuid(int=node_id), fenced=True,
                        broker_epoch=self.image.end_offset, log_dirs=[disk(node_id)],
                    )  # fmt: skip
                    self.replay([record])
                if self.image.brokers[node_id].is_fenced:
                    self.unfence(node_id)
        assert self.one.leader != NO_NODE
        for node_id in self.one.replicas:
            one = self.one
            if node_id in one.replicas and node_id not in one.in_sync_replicas:
                self.held[node_id] = self.committed
                self.propose(*one.in_sync_replicas, node_id)
        self.look()
        assert not self.one.is_moving


def history(seed: int) -> Model:
    chance = random.Random(seed)
    model = Model(chance, chance.choice([1, 2, 2, 3]))
    steps: list[Callable[[], Any]] = [
        *[model.write] * 8, *[model.copy] * 8, *[model.return_] * 5, *[model.reassign] * 4,
        *[model.fetch_late] * 3, *[model.die] * 2, model.shrink, model.cancel, model.set_min_isr,
        model.elect, model.look,
    ]  # fmt: skip
    for _ in range(STEPS):
        if chance.random() < 0.01:
            model.grow()
        chance.choice(steps)()
    model.heal()
    return model


def test_no_acknowledged_record_is_lost_wherever_a_partition_moves() -> None:
    committed = completed = cancelled = 0
    for seed in SEEDS:
        try:
            model = history(seed)
        except AssertionError as error:
            raise AssertionError(f"history({seed}): {error}") from error
        committed += model.committed
        completed += model.completed
        cancelled += model.cancelled
    # The histories prove nothing unless records are committed and moves end in both ways.
    assert committed > 5 * len(SEEDS)
    assert completed > 2 * len(SEEDS)
    assert cancelled > len(SEEDS) // 3


# Each rule is removed once.


def all_replicas_count(min_isr: int, replicas: Sequence[int], adding: Any) -> int:
    return min(min_isr, len(replicas))


def nothing_needs_to_be_copied(one: PartitionImage) -> bool:
    return True


def any_number_may_be_left(one: PartitionImage, min_isr: int) -> bool:
    return True


def the_epoch_stays(one: PartitionImage) -> bool:
    return False


def a_cancellation_without_an_epoch(*args: Any) -> WantedChange:
    return replace(CANCELLATION(*args), begins_epoch=False)


def an_unclean_cancellation(name: str, one: PartitionImage, to: Any) -> WantedChange:
    return WantedChange(assignment=to, begins_epoch=True)


CANCELLATION = reassign._cancellation


@pytest.mark.parametrize(
    ("place", "name", "instead", "fault"),
    [
        pytest.param(
            leadership, "effective_min_isr", all_replicas_count, "lacks what|not needed",
            id="48 min over the original replicas",
        ),
        pytest.param(
            completion, "_has_copied", nothing_needs_to_be_copied, "an empty copy",
            id="49 added replicas in sync",
        ),
        pytest.param(
            completion, "_is_enough_left", any_number_may_be_left, "too few are left",
            id="50 enough replicas left",
        ),
        pytest.param(
            leadership, "takes_replicas_away", the_epoch_stays, "lacks what was acknowledged",
            id="51 leader epoch at a completion",
        ),
        pytest.param(
            reassign, "_shrink", an_unclean_cancellation, "without a loss",
            id="53 no cancellation without a replica in sync",
        ),
    ],
)  # fmt: skip
def test_without_a_rule_some_history_goes_wrong(
    place: Any, name: str, instead: Any, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(place, name, instead)
    with pytest.raises(AssertionError, match=fault):
        for seed in SEEDS:
            history(seed)


def a_fetch_of_a_cancelled_copy_comes_when_the_replica_is_added_again() -> None:
    """Broker 4 had all records before the cancellation deleted its copy. So its late fetch must not
    count when broker 4 is added again."""
    model = Model(random.Random(0), min_isr=2)
    model.write()
    model.move((4, 1, 2))
    model.held[4] = model.committed
    late = SentFetch(4, model.one.leader_epoch, model.committed)
    model.move(None)
    model.move((4, 1, 2))
    model.fetched(late)
    assert (model.committed, model.held[4]) == (1, 0)


def test_guard_52_the_epoch_rises_at_a_cancellation(monkeypatch: pytest.MonkeyPatch) -> None:
    a_fetch_of_a_cancelled_copy_comes_when_the_replica_is_added_again()
    monkeypatch.setattr(reassign, "_cancellation", a_cancellation_without_an_epoch)
    with pytest.raises(AssertionError, match="4 lacks"):
        a_fetch_of_a_cancelled_copy_comes_when_the_replica_is_added_again()
