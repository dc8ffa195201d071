"""`broker describe` and `kafka-metadata-quorum` print the state that the brokers report."""

from dataclasses import replace

import pytest

from appliance.kafka.standing import (
    ClusterState,
    broker_rows,
    counts,
    partition_rows,
    quorum_row,
)
from appliance.kafka.topics import DescribedTopic
from appliance.kafka_tools.metadata_quorum import replication_rows, status_lines
from protocol.client.metadata import BrokerInfo, ClusterMetadata
from protocol.client.quorum_admin import QuorumInfo, QuorumReplica
from protocol.client.topic_details import PartitionDetails, TopicDetails
from protocol.types import ZERO_UUID, Uuid

NOW = 1_700_000_000_000
LEADER = QuorumReplica(2, Uuid(int=2), 100, NOW - 10, NOW - 10)
NEAR = QuorumReplica(1, Uuid(int=1), 98, NOW - 300, NOW - 700)
SILENT = QuorumReplica(3, None, None, None, None)
OBSERVER = QuorumReplica(4, Uuid(int=4), 50, NOW - 20, None)
QUORUM = QuorumInfo(2, 7, 97, (NEAR, LEADER, SILENT), (OBSERVER,), {1: ("BROKER://one:1",), 2: ()})


def partition(
    number: int, leader: int | None, in_sync: tuple[int, ...], elr: tuple[int, ...] | None = ()
) -> PartitionDetails:
    return PartitionDetails(number, leader, 5, (1, 2, 3), in_sync, elr, elr, ())


PARTITIONS = (
    partition(0, 1, (1, 2, 3)),
    partition(1, 2, (2, 1)),
    partition(2, 2, (2,), (1,)),
    partition(3, None, ()),
)
TOPIC = DescribedTopic(TopicDetails("t", ZERO_UUID, False, PARTITIONS), {}, 2)
LIVE = ClusterMetadata(
    {1: BrokerInfo(1, "h", 9092, "r1"), 2: BrokerInfo(2, "h", 9093)}, 2, "a-cluster"
)
REGISTERED = [
    {"node_id": number, "broker_epoch": 10 + number, "incarnation_id": f"i{number}",
     "listeners": {"HOST": f"h:{number}"}, "rack": None, "is_fenced": number == 3,
     "is_stopping": number == 2}
    for number in (1, 2, 3)
]  # fmt: skip
TOLD = (
    {"metadata_offset": 80, "brokers": [], "partition_list": []},
    {
        "metadata_offset": 90,
        "brokers": REGISTERED,
        "partition_list": [
            {"topic": "t", "partition": 0, "partition_epoch": 8},
            {"topic": "gone", "partition": 0},
        ],
    },
)
STANDING = ClusterState(LIVE, QUORUM, (TOPIC,), TOLD)


def test_the_brokers_are_all_those_named_in_any_answer() -> None:
    rows = {row["broker"]: row for row in broker_rows(STANDING)}
    assert {number: row["state"] for number, row in rows.items()} == {
        1: "in service",
        2: "stopping",
        3: "fenced",
    }
    assert rows[2]["controller"] and not rows[1]["controller"]
    assert (rows[3]["epoch"], rows[3]["incarnation"], rows[3]["address"]) == (13, "i3", None)
    assert (rows[1]["address"], rows[1]["rack"], rows[1]["voter"]) == ("h:9092", "r1", True)
    tallied = [(row["leads"], row["replicas"], row["in_sync"]) for row in rows.values()]
    assert tallied == [(1, 4, 2), (2, 4, 3), (0, 4, 1)]


def test_of_another_cluster_what_only_ours_say_is_not_known() -> None:
    foreign = replace(STANDING, told=(), quorum=None)
    rows = broker_rows(foreign)
    assert [row["state"] for row in rows] == ["in service", "in service", "away"]
    assert {row["epoch"] for row in rows} == {row["voter"] for row in rows} == {None}
    assert [row["controller"] for row in rows] == [False, True, False]
    assert quorum_row(foreign, NOW) is None
    assert {row["partition_epoch"] for row in partition_rows(foreign)} == {None}
    without = replace(foreign, metadata=replace(LIVE, controller_id=-1))
    assert without.controller_id is None


def test_partitions_have_their_epochs_and_who_may_lead() -> None:
    rows = partition_rows(STANDING)
    assert [row["leader"] for row in rows] == [1, 2, 2, None]
    assert [row["partition_epoch"] for row in rows] == [8, None, None, None]
    assert [row["elr"] for row in rows] == [[], [], [1], []]
    unknown = ClusterState(LIVE, None, (replace(TOPIC, details=replace(
        TOPIC.details, partitions=(partition(0, 1, (1,), None),))),))  # fmt: skip
    assert partition_rows(unknown)[0]["elr"] is None


def test_partitions_that_are_not_well_are_counted() -> None:
    assert counts(STANDING) == {
        "topics": 1,
        "partitions": 4,
        "under_replicated": 3,
        "under_min_isr": 2,
        "offline": 1,
    }


def test_the_quorum_with_lags_and_ages() -> None:
    row = quorum_row(STANDING, NOW)
    assert row is not None
    assert (row["leader"], row["epoch"], row["high_watermark"]) == (2, 7, 97)
    assert [
        (one["node"], one["role"], one["lag"], one["fetched_ago_ms"], one["caught_up_ago_ms"])
        for one in row["replicas"]
    ] == [
        (1, "voter", 2, 300, 700),
        (2, "leader", 0, 10, 10),
        (3, "voter", None, None, None),
        (4, "observer", 50, 20, None),
    ]
    later = quorum_row(STANDING, NOW - 5_000)
    assert later is not None
    assert later["replicas"][0]["fetched_ago_ms"] == 0, "a clock that is behind makes no future"


@pytest.mark.parametrize(
    ("voters", "lag", "lag_ms"),
    [
        ((LEADER,), 0, 0),
        ((NEAR, LEADER), 2, 690),
        ((NEAR, LEADER, SILENT), 101, -1),
        ((NEAR,), -1, -1),
    ],
    ids=["alone", "one behind", "one unknown", "no leader among them"],
)
def test_the_status_names_the_voter_that_is_furthest_behind(
    voters: tuple[QuorumReplica, ...], lag: int, lag_ms: int
) -> None:
    lines = list(status_lines(replace(QUORUM, voters=voters), "a-cluster"))
    assert lines[:6] == [
        "ClusterId:              a-cluster",
        "LeaderId:               2",
        "LeaderEpoch:            7",
        "HighWatermark:          97",
        f"MaxFollowerLag:         {lag}",
        f"MaxFollowerLagTimeMs:   {lag_ms}",
    ]


def test_voters_are_listed_with_what_is_known_of_them() -> None:
    *_, voters, observers = status_lines(QUORUM, None)
    assert voters == (
        'CurrentVoters:          [{"id": 1, "directoryId": "AAAAAAAAAAAAAAAAAAAAAQ", "endpoints": '
        '["BROKER://one:1"]}, {"id": 2, "directoryId": "AAAAAAAAAAAAAAAAAAAAAg"}, {"id": 3}]'
    )
    assert observers == (
        'CurrentObservers:       [{"id": 4, "directoryId": "AAAAAAAAAAAAAAAAAAAABA"}]'
    )


def test_the_leader_comes_first_and_times_are_moments_or_ages() -> None:
    zero = "A" * 22
    rows = list(replication_rows(QUORUM, None))
    assert [row[0] for row in rows] == ["2", "1", "3", "4"]
    assert rows[0][2:] == ("100", "0", str(NOW - 10), str(NOW - 10), "Leader")
    assert rows[2][1:] == (zero, "-1", "101", "-1", "-1", "Follower")
    assert rows[3][-1] == "Observer"
    assert list(replication_rows(QUORUM, NOW))[1][4:6] == ("300 ms ago", "700 ms ago")
