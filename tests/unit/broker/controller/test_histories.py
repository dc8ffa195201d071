"""Random histories of one partition, checked against a model of its disks. Each rule is also
removed, and then the model must find a lost record.

The model commits a record when enough replicas are in sync. Then all in-sync replicas have the
record. The replicas of a pending proposal have it too, because they can be in sync without the
leader's knowledge (decision 0029). Replay a seed with `history(SEED)`.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from copy import copy
from dataclasses import replace
from typing import Any

import pytest

from broker.controller import alter_partition as altering
from broker.controller import leadership, registration
from broker.controller.alter_partition import alter_partition
from broker.controller.leadership import Election, WantedChange, elect_by_order
from broker.controller.registration import fence, register, stop, unfence
from broker.controller.registration_checks import RegistrationFacts
from broker.metadata.image import MetadataImage
from broker.metadata.partition_image import PartitionImage
from broker.metadata.records import TOPIC_RESOURCE, ConfigRecord, MetadataRecord
from protocol.errors import ApiError
from protocol.messages.membership import (
    AlterPartitionRequest,
    AlterPartitionRequestPartition,
    AlterPartitionRequestTopic,
    BrokerState,
)
from protocol.types import NO_NODE, Uuid
from tests.unit.broker.controller.kit import (
    CLUSTER,
    CONFIG,
    NODES,
    ONE,
    THREE,
    TOPIC_ID,
    TWO,
    after,
    image_of,
    one_of,
    partition,
)
from tests.unit.broker.controller.kit import (
    registration as request_of,
)

SEEDS = range(40)
STEPS = 80
CHECK, IS_ELIGIBLE = altering._check, altering._is_eligible
ANYTHING = RegistrationFacts(CLUSTER, is_live=False, voter_directory=None)


class Model:
    """The metadata image, and how many records each broker's disk holds."""

    def __init__(self, chance: random.Random, is_flushed: bool, min_isr: int) -> None:
        self.chance = chance
        self.is_flushed = is_flushed
        self.min_isr = min_isr
        settings = {} if self.is_flushed else {"flush.messages": "1000"}
        self.image: MetadataImage = image_of(partition(), min_isr=self.min_isr, settings=settings)
        self.held = dict.fromkeys(NODES, 0)
        self.committed = 0
        self.led: dict[int, int] = {}
        """Node id to the leader epoch in which its last life led."""
        self.lives = dict.fromkeys(NODES, 0)
        self.disks = 0x9000
        self.epochs_seen: dict[int, int] = {}
        self.delayed: list[AlterPartitionRequest] = []

    @property
    def partition(self) -> PartitionImage:
        return one_of(self.image)

    def replay(self, records: Any) -> None:
        before = self.partition
        self.image = after(self.image, records)
        one = self.partition
        assert one.leader == before.leader or one.leader_epoch > before.leader_epoch
        self.check()

    def check(self) -> None:
        one = self.partition
        in_sync, eligible = set(one.in_sync_replicas), set(one.eligible_leader_replicas)
        assert not in_sync & eligible
        assert not eligible or len(in_sync) < self.min_isr
        for node_id in in_sync | eligible:
            assert self.held[node_id] >= self.committed, f"{node_id} lacks what was acknowledged"
        for node_id in in_sync:
            assert self.image.brokers[node_id].is_active
        if one.leader != NO_NODE:
            assert one.leader in in_sync
            assert self.epochs_seen.setdefault(one.leader_epoch, one.leader) == one.leader
            assert one.leader_epoch > self.led.get(one.leader, -1), "two histories in one epoch"

    def write(self) -> None:
        """Let the leader append. The record is committed if enough replicas are in sync and all of
        them have it."""
        one = self.partition
        if one.leader == NO_NODE or len(one.in_sync_replicas) < self.min_isr:
            return
        joining = self.joining()
        epochs = {one.node_id: one.broker_epoch for one in self.image.brokers.values()}
        if any(epochs[one.broker_id] != one.broker_epoch for one in joining):
            # The proposal names an earlier process of a replica. That process does not fetch any
            # more, so the leader cannot commit.
            return
        self.committed += 1
        for node_id in (*one.in_sync_replicas, *(one.broker_id for one in joining)):
            self.held[node_id] = self.committed
        self.check()

    def joining(self) -> list[BrokerState]:
        """Return the replicas that the leader must wait for, because a pending proposal can add
        them to the ISR."""
        one = self.partition
        return [
            member
            for request in self.delayed
            for asked in request.topics[0].partitions
            if asked.leader_epoch == one.leader_epoch
            and asked.partition_epoch == one.partition_epoch
            for member in asked.new_isr_with_epochs
        ]

    def fence(self) -> None:
        node_id = self.chance.choice(NODES)
        broker = self.image.brokers[node_id]
        if broker.is_active:
            self.replay(self.chance.choice([fence, stop])(node_id, self.image, CONFIG))

    def unfence(self) -> None:
        node_id = self.chance.choice(NODES)
        broker = self.image.brokers[node_id]
        if broker.is_fenced and not broker.is_stopping:
            self.replay(unfence(node_id, self.image, CONFIG))

    def restart(self) -> None:
        """Restart a broker after a clean stop, after a crash, or with an empty disk."""
        node_id = self.chance.choice(NODES)
        known = self.image.brokers[node_id]
        request = request_of(node_id, directories=known.directory_ids)
        self.lives[node_id] += 1
        request.incarnation_id = Uuid(int=(1 << 32) + (self.lives[node_id] << 8) + node_id)
        how = self.chance.random()
        if how < 0.15:
            self.disks += 1
            request.log_dirs = [Uuid(int=self.disks)]
            self.held[node_id] = 0
        elif how < 0.5:
            request.previous_broker_epoch = known.broker_epoch
        elif not self.is_flushed:
            self.held[node_id] = self.chance.randint(0, self.held[node_id])
        if self.partition.leader == node_id:
            self.led[node_id] = self.partition.leader_epoch
        self.replay(register(request, self.image, CONFIG, ANYTHING).records)

    def propose(self) -> None:
        """Let followers catch up, and let the leader propose them. The proposal arrives immediately
        or later."""
        one = self.partition
        if one.leader == NO_NODE:
            return
        others = [node_id for node_id in one.replicas if node_id != one.leader]
        members = [one.leader, *self.chance.sample(others, self.chance.randint(0, 2))]
        request = self.proposal(members)
        if self.chance.random() < 0.7:
            self.deliver(request)

    def proposal(self, members: list[int]) -> AlterPartitionRequest:
        one = self.partition
        request = AlterPartitionRequest(
            broker_id=one.leader,
            broker_epoch=self.image.brokers[one.leader].broker_epoch,
            topics=[
                AlterPartitionRequestTopic(
                    topic_id=TOPIC_ID,
                    partitions=[
                        AlterPartitionRequestPartition(
                            partition_index=0,
                            leader_epoch=one.leader_epoch,
                            partition_epoch=one.partition_epoch,
                            new_isr_with_epochs=[
                                BrokerState(
                                    broker_id=node_id,
                                    broker_epoch=self.image.brokers[node_id].broker_epoch,
                                )
                                for node_id in members
                            ],
                        )
                    ],
                )
            ],
        )
        for node_id in members:
            self.held[node_id] = max(self.held[node_id], self.committed)
        self.delayed.append(request)
        return request

    def deliver_late(self) -> None:
        if self.delayed:
            self.deliver(self.chance.choice(self.delayed))

    def deliver(self, request: AlterPartitionRequest) -> None:
        with suppress(ApiError):
            self.replay(alter_partition(request, self.image, CONFIG).records)

    def set_min_isr(self) -> None:
        self.min_isr = self.chance.choice([1, 2, 3])
        record = ConfigRecord(
            resource_type=TOPIC_RESOURCE,
            resource_name="logs",
            name="min.insync.replicas",
            value=str(self.min_isr),
        )
        topic = self.image.topics["logs"]
        self.replay([record, *leadership.lowered_min_isr(self.image, topic, self.min_isr)])

    def choose(self) -> None:
        """Order an unclean election. The records that the new leader lacks are lost."""
        chosen = self.chance.choice(NODES)
        topic = self.image.topics["logs"]
        try:
            record = elect_by_order(topic, 0, self.image, Election.UNCLEAN, self.min_isr, chosen)
        except ApiError:
            return
        if self.partition.changed(record).leader_recovery_state:
            self.committed = min(self.committed, self.held[chosen])
            self.held = {one: min(held, self.committed) for one, held in self.held.items()}
        self.replay([record])


def history(seed: int) -> Model:
    chance = random.Random(seed)
    model = Model(chance, chance.random() < 0.6, chance.choice([1, 2, 2, 3]))
    steps: list[Callable[[], None]] = [
        *[model.write] * 8, *[model.propose] * 3, *[model.unfence] * 5, *[model.restart] * 2,
        model.fence, *[model.deliver_late] * 2, model.set_min_isr,
    ]  # fmt: skip
    for _ in range(STEPS):
        if chance.random() < 0.02:
            model.choose()
        chance.choice(steps)()
    return model


def test_every_possible_leader_has_all_acknowledged_records() -> None:
    committed = moves = 0
    for seed in SEEDS:
        try:
            model = history(seed)
        except AssertionError as error:
            raise AssertionError(f"history({seed})") from error
        committed += model.committed
        moves += len(model.epochs_seen)
    # The histories prove nothing unless records are committed and leaders change.
    assert committed > 5 * len(SEEDS)
    assert moves > 3 * len(SEEDS)


def everybody_who_left_is_eligible(
    one: PartitionImage, in_sync: tuple[int, ...], distrusted: frozenset[int], min_isr: int
) -> Any:
    left = {*one.eligible_leader_replicas, *one.in_sync_replicas} - set(in_sync) - distrusted
    return in_sync, tuple(sorted(left)), ()


def any_member_in_service(member: BrokerState, one: PartitionImage, broker: Any) -> bool:
    return broker is not None and bool(broker.is_active)


def the_fenced_too(member: BrokerState, one: PartitionImage, broker: Any) -> bool:
    return broker is not None and IS_ELIGIBLE(member, one, replace(broker, is_fenced=False))


def the_stopping_too(member: BrokerState, one: PartitionImage, broker: Any) -> bool:
    return broker is not None and IS_ELIGIBLE(member, one, replace(broker, is_stopping=False))


def a_restart_changes_nothing(*_: Any) -> WantedChange:
    return WantedChange()


def every_disk_is_trusted(request: Any, known: Any, one: PartitionImage, *_: Any) -> WantedChange:
    others = [node_id for node_id in one.in_sync_replicas if node_id != request.broker_id]
    return WantedChange(others)


def no_clearing(*_: Any) -> list[MetadataRecord]:
    return []


def anybody(one: PartitionImage, node_id: int, brokers: Any) -> bool:
    return node_id in brokers


def unchecked(*epochs: str) -> Callable[..., None]:
    """Return a check of proposals that ignores these epochs."""

    def check(asked: AlterPartitionRequestPartition, sender: int, one: PartitionImage) -> None:
        believed = copy(asked)
        for epoch in epochs:
            setattr(believed, epoch, getattr(one, epoch))
        CHECK(believed, sender, one)

    return check


@pytest.mark.parametrize(
    ("place", "name", "instead"),
    [
        pytest.param(altering, "_check", unchecked("partition_epoch"), id="11 partition epoch"),
        pytest.param(altering, "_is_eligible", the_fenced_too, id="14 fenced not into the ISR"),
        pytest.param(altering, "_is_eligible", the_stopping_too, id="14 nor stopping"),
        pytest.param(registration, "_after_restart", a_restart_changes_nothing, id="16 new life"),
        pytest.param(registration, "_after_restart", every_disk_is_trusted, id="19 disk"),
        pytest.param(
            leadership, "_with_eligible", everybody_who_left_is_eligible, id="18 ELR below min"
        ),
        pytest.param(
            leadership, "lowered_min_isr", no_clearing, id="20 ELR when min ISR is lowered"
        ),
        pytest.param(leadership, "may_lead", anybody, id="KAFKA-19522 fenced leader"),
    ],
)
def test_without_a_rule_some_history_goes_wrong(
    place: Any, name: str, instead: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(place, name, instead)
    with pytest.raises(AssertionError):
        for seed in SEEDS:
            history(seed)


def former_life_is_proposed() -> None:
    """Broker 3 catches up and is proposed. Before the proposal arrives, a power cut loses its page
    cache.

    The broker was neither in sync nor eligible, so only its broker epoch shows that it has
    restarted.
    """
    model = Model(random.Random(0), is_flushed=False, min_isr=2)
    model.deliver(model.proposal([ONE, TWO]))
    model.write()
    late = model.proposal([ONE, TWO, THREE])
    model.held[THREE] = 0
    model.replay(register(request_of(THREE), model.image, CONFIG, ANYTHING).records)
    model.replay(unfence(THREE, model.image, CONFIG))
    model.deliver(late)
    assert (model.committed, model.held[THREE]) == (1, 0)


def test_a_former_life_does_not_join(monkeypatch: pytest.MonkeyPatch) -> None:
    """Guard 13, KIP-903: without the check of broker epochs, the proposal is accepted and a record
    is lost. Random histories rarely produce this case."""
    former_life_is_proposed()
    monkeypatch.setattr(altering, "_is_eligible", any_member_in_service)
    with pytest.raises(AssertionError, match="3 lacks"):
        former_life_is_proposed()


def a_proposal_of_a_former_epoch_comes_when_its_sender_leads_again() -> None:
    """Broker 3 had all records when it was proposed, but not those that another leader has appended
    since. So the late proposal must be refused."""
    model = Model(random.Random(0), is_flushed=True, min_isr=1)
    model.deliver(model.proposal([ONE, TWO]))
    late = model.proposal([ONE, TWO, THREE])
    model.replay(fence(ONE, model.image, CONFIG))
    model.replay(unfence(ONE, model.image, CONFIG))
    model.write()
    model.deliver(model.proposal([ONE, TWO]))
    topic = model.image.topics["logs"]
    model.replay([elect_by_order(topic, 0, model.image, Election.PREFERRED, 1, NO_NODE)])
    assert (model.partition.leader, model.partition.in_sync_replicas) == (ONE, (ONE, TWO))
    model.deliver(late)
    assert (model.committed, model.held[THREE]) == (1, 0)


@pytest.mark.parametrize("epoch", ["partition_epoch", "leader_epoch"])
def test_leader_epoch_and_partition_epoch_hide_each_other(
    epoch: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guard 12: a new leader raises both epochs, so the check of either epoch refuses the late
    proposal."""
    monkeypatch.setattr(altering, "_check", unchecked(epoch))
    a_proposal_of_a_former_epoch_comes_when_its_sender_leads_again()


def test_a_proposal_of_a_former_epoch_counts_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the checks of both epochs (guards 11 and 12), the late proposal is accepted and a
    record is lost."""
    a_proposal_of_a_former_epoch_comes_when_its_sender_leads_again()
    monkeypatch.setattr(altering, "_check", unchecked("partition_epoch", "leader_epoch"))
    with pytest.raises(AssertionError, match="3 lacks"):
        a_proposal_of_a_former_epoch_comes_when_its_sender_leads_again()
