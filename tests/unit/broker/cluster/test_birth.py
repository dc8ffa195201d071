"""The part of one broker in the creation of a cluster, event by event."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from broker.cluster.birth import (
    ASK_INTERVAL_MS,
    Birth,
    BirthDone,
    BirthPhase,
    BirthTick,
    Effect,
    RefuseStart,
    RejectQuestion,
    ReportFailed,
    ReportReceived,
    ReportRequested,
    RequestReport,
    SendReport,
    StartBirth,
    StoreVoters,
    VotersStored,
)
from broker.cluster.found import DiskReport
from broker.cluster.reports import BrokerReport, ReportedReplica, in_order
from broker.quorum.voters import ReplicaKey
from protocol.types import Uuid

IDS = (1, 2, 3)


def key(node_id: int, disk: int = 0) -> ReplicaKey:
    return ReplicaKey(node_id, Uuid(int=100 * node_id + disk))


ALL = tuple(key(node_id) for node_id in IDS)


def empty(node_id: int, disk: int = 0) -> BrokerReport:
    return BrokerReport("cluster", key(node_id, disk), IDS)


def named(node_id: int, voters: tuple[ReplicaKey, ...] = ALL) -> BrokerReport:
    return replace(empty(node_id), voters=voters)


class Broker:
    """A broker with an empty disk, and the requests it has sent."""

    def __init__(self, node_id: int) -> None:
        self.birth = Birth(DiskReport(empty(node_id)))
        self.now_ms = 0
        self.asked: dict[int, int] = {}
        """The id of the pending request to each broker."""
        self.told = self.step(StartBirth())

    def step(self, event: object) -> Sequence[Effect]:
        effects = self.birth.step(event, self.now_ms)  # type: ignore[arg-type]  # any event
        self.asked.update(
            {one.node_id: one.question_id for one in effects if isinstance(one, RequestReport)}
        )
        return effects

    def hear(self, report: BrokerReport, question_id: int | None = None) -> Sequence[Effect]:
        number = self.asked.pop(report.me.node_id) if question_id is None else question_id
        return self.step(ReportReceived(number, report))

    def wait(self) -> Sequence[Effect]:
        assert self.birth.next_deadline_ms is not None
        self.now_ms = self.birth.next_deadline_ms
        return self.step(BirthTick())


def test_the_lowest_id_asks_twice_and_then_makes_the_set() -> None:
    one = Broker(1)
    assert one.told == [RequestReport(0, 2), RequestReport(1, 3)]
    assert one.hear(empty(3)) == ()
    assert one.birth.waits_for == [2]
    assert one.hear(empty(2)) == [RequestReport(2, 2), RequestReport(3, 3)]
    assert one.birth.waits_for == [2, 3]
    assert one.hear(empty(2)) == ()
    assert one.hear(empty(3)) == [StoreVoters(ALL)]
    assert one.step(VotersStored()) == [BirthDone(ALL)]
    assert (one.birth.waits_for, one.birth.next_deadline_ms) == ([], None)


@pytest.mark.parametrize(
    "found",
    [
        DiskReport(empty(2), joins=True),
        DiskReport(empty(2), 5, is_newcomer=True),
        DiskReport(named(2, (key(1), key(3))), 5),
    ],
    ids=["it joins", "it has joined", "it was removed"],
)
def test_an_observer_stores_no_voters_and_never_reports(found: DiskReport) -> None:
    birth = Birth(found)
    assert birth.step(StartBirth(), 0) == [StoreVoters(())]
    assert birth.step(ReportRequested(7, 1), 0) == [RejectQuestion(7)]
    assert birth.step(VotersStored(), 0) == [BirthDone(())]
    assert birth.step(ReportRequested(8, 1), 0) == [RejectQuestion(8)]
    assert birth.next_deadline_ms is None


def test_another_id_only_waits_for_a_set() -> None:
    two = Broker(2)
    for _ in range(3):
        assert two.hear(empty(1)) == ()
        assert two.hear(empty(3)) == ()
        assert (two.birth.phase, two.birth.waits_for) == (BirthPhase.ASKING, [1])
        assert {type(one) for one in two.wait()} == {RequestReport}
    assert two.hear(named(3)) == [StoreVoters(ALL)]
    assert two.step(VotersStored()) == [BirthDone(ALL)]


def test_who_does_not_answer_is_asked_again() -> None:
    one = Broker(1)
    one.hear(empty(2))
    one.step(ReportFailed(one.asked[3]))
    one.now_ms = ASK_INTERVAL_MS - 1
    assert one.step(BirthTick()) == []
    assert one.wait() == [RequestReport(2, 3)]
    # Request 1 to broker 3 has failed, so broker 1 ignores a late report with that id.
    assert one.hear(empty(3), question_id=1) == ()
    assert one.hear(empty(3)) == [RequestReport(3, 2), RequestReport(4, 3)]


def test_a_disk_exchanged_between_the_rounds_begins_them_anew() -> None:
    one = Broker(1)
    one.hear(empty(2))
    one.hear(empty(3))
    one.hear(empty(2))
    assert one.hear(empty(3, disk=9)) == [RequestReport(4, 2)]
    assert one.birth.phase is BirthPhase.ASKING
    assert one.hear(empty(2)) == [RequestReport(5, 2), RequestReport(6, 3)]
    one.hear(empty(2))
    assert one.hear(empty(3, disk=9)) == [StoreVoters((key(1), key(2), key(3, disk=9)))]


def test_two_brokers_can_begin_anew_as_well() -> None:
    both = (1, 2)
    birth = Birth(DiskReport(replace(empty(1), configured_ids=both)))
    birth.step(StartBirth(), 0)
    assert birth.step(ReportReceived(0, replace(empty(2), configured_ids=both)), 0) == [
        RequestReport(1, 2)
    ]
    exchanged = replace(empty(2, disk=9), configured_ids=both)
    assert birth.step(ReportReceived(1, exchanged), 0) == [RequestReport(2, 2)]
    assert birth.step(ReportReceived(2, exchanged), 0) == [StoreVoters((key(1), key(2, disk=9)))]


def test_the_lowest_id_takes_a_set_that_stands_anywhere() -> None:
    one = Broker(1)
    one.hear(empty(2))
    assert one.hear(named(3)) == [StoreVoters(ALL)]


def test_what_was_asked_before_telling_the_lowest_id_of_an_empty_disk_does_not_count() -> None:
    two = Broker(2)
    assert two.step(ReportRequested(7, 1)) == [SendReport(7, empty(2))]
    assert two.hear(named(3)) == [RequestReport(2, 3)]
    assert two.hear(named(3)) == [StoreVoters(ALL)]


def test_telling_anybody_else_changes_nothing() -> None:
    two = Broker(2)
    assert two.step(ReportRequested(7, 3)) == [SendReport(7, empty(2))]
    assert two.hear(named(3)) == [StoreVoters(ALL)]


def test_nothing_is_reported_from_the_decision_until_the_set_is_durable() -> None:
    two = Broker(2)
    two.hear(named(3))
    assert two.step(ReportRequested(7, 1)) == [RejectQuestion(7)]
    two.step(VotersStored())
    assert two.step(ReportRequested(8, 1)) == [SendReport(8, named(2))]


def test_a_set_on_the_own_disk_is_stored_again_before_it_is_reported() -> None:
    birth = Birth(DiskReport(named(2), vote_epoch=1))
    assert birth.step(StartBirth(), 0) == [StoreVoters(ALL)]
    assert birth.step(ReportRequested(7, 1), 0) == [RejectQuestion(7)]
    assert birth.step(VotersStored(), 0) == [BirthDone(ALL)]
    assert birth.step(ReportRequested(8, 1), 0) == [SendReport(8, named(2))]


def test_one_that_is_configured_alone_names_itself() -> None:
    birth = Birth(DiskReport(BrokerReport("cluster", key(1), (1,))))
    assert birth.step(StartBirth(), 0) == [StoreVoters((key(1),))]


def test_an_address_may_for_a_moment_be_another_brokers() -> None:
    one = Broker(1)
    assert one.hear(empty(3), question_id=one.asked[2]) == ()
    assert one.wait() == [RequestReport(2, 2)]


def refusal(effects: Sequence[Effect]) -> str:
    (one,) = effects
    assert isinstance(one, RefuseStart)
    return one.text


@pytest.mark.parametrize(
    ("report", "says"),
    [
        (named(3, in_order([key(1), key(2, disk=8), key(3)])), "emptied or replaced"),
        (named(3, (key(1), key(3))), "broker 2 is none of them"),
        (replace(empty(3), cluster_id="other"), "belongs to cluster other"),
        (replace(empty(3), configured_ids=(3,)), "configured among brokers 3,"),
        (replace(empty(3), me=ReplicaKey(3, key(2).directory_id)), "one is a copy"),
        (replace(empty(3), metadata_end_offset=5), "the broker was configured alone before"),
        (replace(empty(3), snapshot_end_offset=5), "the broker was configured alone before"),
        (
            replace(empty(3), replicas=(ReportedReplica(Uuid(int=1), 0, 0, 0),)),
            "the broker was configured alone before",
        ),
    ],
)
def test_what_is_refused(report: BrokerReport, says: str) -> None:
    two = Broker(2)
    text = refusal(two.hear(report))
    # The refusal gives the reason and names broker 3.
    assert says in text
    assert "broker 3" in text or "brokers 2 and 3" in text
    assert two.birth.next_deadline_ms is None
    assert two.step(ReportRequested(7, 1)) == [RejectQuestion(7)]
    assert two.hear(named(1)) == ()


def test_two_others_with_copies_of_one_folder_are_no_voters() -> None:
    one = Broker(1)
    copy = replace(empty(3), me=ReplicaKey(3, key(2).directory_id))
    for _ in range(2):
        one.hear(empty(2))
        told = one.hear(copy)
    assert "brokers 2 and 3 both have data folder" in refusal(told)
