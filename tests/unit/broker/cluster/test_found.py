"""The data on a broker's disk that allow the broker to start."""

from __future__ import annotations

from dataclasses import replace

import pytest

from broker.cluster.found import DiskRefused, DiskReport, observes, voters_found
from broker.cluster.reports import (
    BrokerReport,
    ReportedReplica,
    report_from,
    request_by,
    response_of,
)
from broker.quorum.voters import ReplicaKey
from protocol.messages.replica_report import ReplicaReportRequest, ReplicaReportResponse
from protocol.types import Uuid

ME = ReplicaKey(2, Uuid(int=22))
ALL = (ReplicaKey(1, Uuid(int=11)), ME, ReplicaKey(3, Uuid(int=33)))
EMPTY = BrokerReport("cluster", ME, (1, 2, 3))
NAMED = replace(EMPTY, voters=ALL)
PARTITION = ReportedReplica(Uuid(int=5), 1, 3, 70)


@pytest.mark.parametrize("vote_epoch", [None, 1])
def test_an_empty_disk_must_ask(vote_epoch: int | None) -> None:
    """This includes a disk on which the creation of the cluster was interrupted after the vote file
    was written."""
    assert voters_found(DiskReport(EMPTY, vote_epoch)) == ()


def test_a_voter_goes_on() -> None:
    assert voters_found(DiskReport(NAMED, 1)) == ALL
    at_work = replace(NAMED, metadata_end_offset=90, metadata_last_epoch=7)
    assert voters_found(DiskReport(at_work, 7)) == ALL


def test_a_broker_that_was_alone_goes_on_among_others() -> None:
    """Other brokers were configured later. They become voters only by an order, so this broker is
    still the only voter."""
    assert voters_found(DiskReport(replace(EMPTY, voters=(ME,)), 1)) == (ME,)


def test_a_voter_that_no_file_names_is_a_voter() -> None:
    four = ReplicaKey(4, Uuid(int=44))
    assert voters_found(DiskReport(replace(NAMED, voters=(*ALL, four)), 4)) == (*ALL, four)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (DiskReport(EMPTY), False),
        (DiskReport(EMPTY, joins=True), True),
        (DiskReport(EMPTY, 1, joins=True), True),
        (DiskReport(EMPTY, 7, is_newcomer=True), True),
        (DiskReport(replace(EMPTY, metadata_end_offset=3), 7, is_newcomer=True), True),
        (DiskReport(replace(NAMED, voters=(ALL[0], ALL[2])), 4), True),
        (DiskReport(NAMED, 4, joins=True), False),
        (DiskReport(EMPTY, 2, joins=True), False),
        (DiskReport(replace(EMPTY, replicas=(PARTITION,)), joins=True), False),
    ],
)
def test_who_observes(found: DiskReport, expected: bool) -> None:
    assert observes(found) is expected


def test_who_is_configured_alone_observes_nobody() -> None:
    lone = replace(NAMED, voters=(ALL[0], ALL[2]), configured_ids=(2,))
    with pytest.raises(DiskRefused, match="configured alone"):
        observes(DiskReport(lone, 4))


def test_fewer_voters_than_brokers_may_stand_there_for_a_while() -> None:
    assert voters_found(DiskReport(replace(NAMED, voters=ALL[:2]), 4)) == ALL[:2]


@pytest.mark.parametrize(
    ("found", "says"),
    [
        (DiskReport(EMPTY, 2), "is in epoch 2, but no snapshot"),
        (DiskReport(replace(EMPTY, replicas=(PARTITION,))), "there are partitions"),
    ],
)
def test_a_disk_that_has_lost_something_is_refused(found: DiskReport, says: str) -> None:
    with pytest.raises(DiskRefused, match=says) as refused:
        voters_found(found)
    assert "damaged" in str(refused.value)


@pytest.mark.parametrize(
    ("report", "says"),
    [
        (replace(NAMED, configured_ids=(2,)), "voters 1, 2, 3, but broker 2 is configured alone"),
        (
            replace(NAMED, voters=(ALL[0], ReplicaKey(2, Uuid(int=9)), ALL[2])),
            "emptied or replaced",
        ),
        (replace(NAMED, voters=(ALL[0], ALL[2])), "broker 2 is none of them"),
    ],
)
def test_a_folder_of_another_cluster_is_refused(report: BrokerReport, says: str) -> None:
    with pytest.raises(DiskRefused, match=says):
        voters_found(DiskReport(report, 1))


def test_a_report_comes_through_the_wire_as_it_was() -> None:
    damaged = ReportedReplica(Uuid(int=4), 0, 2, 10, "cut below 12")
    sent = replace(
        NAMED,
        metadata_end_offset=90,
        metadata_last_epoch=7,
        snapshot_end_offset=60,
        replicas=(damaged, PARTITION, PARTITION._replace(partition=2)),
    )
    for report in (sent, EMPTY):
        frame = response_of(report).encode(0)
        response, _ = ReplicaReportResponse.decode(frame, 0)
        assert report_from(response) == report
    asked, _ = ReplicaReportRequest.decode(request_by(sent).encode(0), 0)
    assert (asked.broker_id, asked.directory_id, asked.topics) == (*ME, None)
    assert asked.configured_ids == [1, 2, 3]
