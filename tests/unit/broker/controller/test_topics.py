"""Rules for creating, deleting and growing topics. Each topic of a request is decided
independently."""

from typing import Any

import pytest

from broker.controller import placement
from broker.controller.outcome import AllocateProducerIds, CreateOwnTopic
from broker.controller.spreading import Racks, spread
from broker.controller.topics import SUGGESTION_COUNT_MAX
from broker.metadata.image import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from broker.metadata.names import check_topic_name
from protocol.errors import ApiError, ErrorCode
from protocol.messages.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from protocol.types import ZERO_UUID, Uuid
from tests.unit.broker.cluster.kit import Cluster, create_request


def code_of(result: Any) -> ErrorCode:
    return ErrorCode(result.error_code)


def test_a_topic_gets_an_id_partitions_and_its_settings() -> None:
    cluster = Cluster()
    result = cluster.create("logs", 3, retention_ms="1000")
    topic = cluster.image.topics["logs"]
    assert code_of(result) is ErrorCode.NONE
    assert (result.num_partitions, result.replication_factor) == (3, 1)
    assert result.topic_id == topic.topic_id
    assert [one.leader for one in topic.partitions] == [1, 1, 1]
    assert cluster.image.settings(2, "logs") == {"retention.ms": "1000"}


def test_pitfall_39_every_topic_has_an_id_of_its_own() -> None:
    cluster = Cluster()
    ids = {cluster.create(f"t{number}").topic_id for number in range(50)}
    cluster.submit(CreateOwnTopic("auto"))
    cluster.submit(CreateOwnTopic(OFFSETS_TOPIC))
    assert len(ids) == 50
    assert ZERO_UUID not in ids
    assert all(topic.topic_id != ZERO_UUID for topic in cluster.image.topics.values())


def test_defaults_of_the_node_stand_in_for_minus_one() -> None:
    cluster = Cluster(num_partitions=4)
    assert cluster.create("logs", -1).num_partitions == 4


@pytest.mark.parametrize(
    ("name", "is_good"),
    [
        ("a", True), ("A.b_c-9", True), ("x" * 249, True), ("", False), (".", False),
        ("..", False), ("x" * 250, False), ("a b", False), ("a/b", False), ("ä", False),
        ("a\n", False), ("a\x00", False),
    ],
)  # fmt: skip
def test_pitfall_14_names_that_cannot_be_folders_are_refused(name: str, is_good: bool) -> None:
    if is_good:
        assert check_topic_name(name) == name
        return
    with pytest.raises(ApiError) as refused:
        check_topic_name(name)
    assert refused.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert code_of(Cluster().create(name)) is ErrorCode.INVALID_TOPIC_EXCEPTION


def test_pitfall_14_a_wrong_setting_is_invalid_config_and_names_every_fault() -> None:
    result = Cluster().create("logs", retention_ms="soon", nonsense="1")
    assert code_of(result) is ErrorCode.INVALID_CONFIG
    assert "retention.ms" in result.error_message
    assert "Unknown topic config name: nonsense" in result.error_message


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        ({"num_partitions": 0}, ErrorCode.INVALID_PARTITIONS),
        ({"num_partitions": -2}, ErrorCode.INVALID_PARTITIONS),
        ({"num_partitions": 2**31 - 1}, ErrorCode.POLICY_VIOLATION),
        ({"replication_factor": 0}, ErrorCode.INVALID_REPLICATION_FACTOR),
        ({"replication_factor": 2}, ErrorCode.INVALID_REPLICATION_FACTOR),
        (
            {"configs": [CreatableTopicConfig(name="retention.ms", value=None)]},
            ErrorCode.INVALID_CONFIG,
        ),
        (
            {"assignments": [CreatableReplicaAssignment(partition_index=0, broker_ids=[1])]},
            ErrorCode.INVALID_REQUEST,
        ),
    ],
)
def test_a_wrong_topic_is_refused(topic: dict[str, Any], code: ErrorCode) -> None:
    cluster = Cluster()
    wanted = CreatableTopic(name="t", **({"num_partitions": 1, "replication_factor": 1} | topic))
    reply = cluster.submit(CreateTopicsRequest(topics=[wanted]))
    assert code_of(reply.topics[0]) is code
    assert not cluster.image.topics


@pytest.mark.parametrize(
    ("assignments", "code"),
    [
        ({0: [1, 2], 1: [2, 3]}, ErrorCode.NONE),
        ({0: [1], 2: [1]}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({0: [1], 1: [1, 2]}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({0: [1, 1]}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({0: [9]}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({0: []}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_replicas_chosen_by_hand(assignments: dict[int, list[int]], code: ErrorCode) -> None:
    cluster = Cluster(brokers=(1, 2, 3))
    topic = CreatableTopic(
        name="t",
        num_partitions=-1,
        replication_factor=-1,
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=ids)
            for index, ids in assignments.items()
        ],
    )
    reply = cluster.submit(CreateTopicsRequest(topics=[topic]))
    assert code_of(reply.topics[0]) is code


def test_one_refusal_leaves_the_others_of_a_request_alone() -> None:
    cluster = Cluster()
    cluster.create("old")
    topics = [
        CreatableTopic(name=name, num_partitions=1, replication_factor=1)
        for name in ("old", "twice", "twice", "new")
    ]
    reply = cluster.submit(CreateTopicsRequest(topics=topics))
    assert [(one.name, code_of(one), one.error_message) for one in reply.topics] == [
        ("old", ErrorCode.TOPIC_ALREADY_EXISTS, "Topic 'old' already exists."),
        ("twice", ErrorCode.INVALID_REQUEST, "Duplicate topic name."),
        ("new", ErrorCode.NONE, None),
    ]
    assert sorted(cluster.image.topics) == ["new", "old"]


def creatable(*names: str) -> list[CreatableTopic]:
    return [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names]


@pytest.mark.parametrize("validate_only", [False, True])
def test_names_that_differ_only_in_dots_and_underscores_collide(validate_only: bool) -> None:
    cluster = Cluster()
    cluster.create("a.b")
    topics = creatable("a_b", "a-b", "new_one", "new.one", "a.b")
    reply = cluster.submit(CreateTopicsRequest(topics=topics, validate_only=validate_only))
    collides = ErrorCode.INVALID_TOPIC_EXCEPTION
    assert [(one.name, code_of(one), one.error_message) for one in reply.topics] == [
        ("a_b", collides, "Topic 'a_b' collides with existing topic: a.b"),
        ("a-b", ErrorCode.NONE, None),
        ("new_one", ErrorCode.NONE, None),
        ("new.one", collides, "Topic 'new.one' collides with existing topic: new_one"),
        ("a.b", ErrorCode.TOPIC_ALREADY_EXISTS, "Topic 'a.b' already exists."),
    ]
    assert cluster.submit(CreateOwnTopic("a_b")) is collides
    cluster.submit(DeleteTopicsRequest(topic_names=["a.b"]))
    assert code_of(cluster.create("a_b")) is ErrorCode.NONE


def test_a_refused_topic_keeps_no_name_from_the_others_of_its_request() -> None:
    topics = creatable("a.b", "a_b")
    topics[0].num_partitions = 0
    reply = Cluster().submit(CreateTopicsRequest(topics=topics))
    codes = [code_of(one) for one in reply.topics]
    assert codes == [ErrorCode.INVALID_PARTITIONS, ErrorCode.NONE]


def test_no_name_a_client_chooses_keeps_the_broker_from_its_own_topics() -> None:
    cluster = Cluster()
    assert code_of(cluster.create("_.consumer_offsets")) is ErrorCode.NONE
    assert cluster.submit(CreateOwnTopic(OFFSETS_TOPIC)) is ErrorCode.NONE


def test_pitfall_05_created_settings_have_real_sources() -> None:
    cluster = Cluster(log_retention_hours=24)
    configs = {one.name: one for one in cluster.create("logs", segment_ms="5000").configs}
    assert (configs["segment.ms"].value, configs["segment.ms"].config_source) == ("5000", 1)
    assert (configs["retention.ms"].value, configs["retention.ms"].config_source) == (
        "86400000",
        4,
    )
    assert (configs["cleanup.policy"].value, configs["cleanup.policy"].config_source) == (
        "delete",
        5,
    )
    refused = cluster.create("logs")
    assert refused.configs == []


def test_validate_only_answers_the_same_and_changes_nothing() -> None:
    cluster = Cluster()
    request = create_request("logs", 2)
    request.validate_only = True
    result = cluster.submit(request).topics[0]
    assert (code_of(result), result.num_partitions) == (ErrorCode.NONE, 2)
    assert result.topic_id == ZERO_UUID
    assert not cluster.image.topics


def test_the_cluster_has_a_limit_of_topics_and_of_partitions() -> None:
    cluster = Cluster(max_topics=3)
    many = [
        CreatableTopic(name=f"t{number}", num_partitions=1, replication_factor=1)
        for number in range(4)
    ]
    results = cluster.submit(CreateTopicsRequest(topics=many)).topics
    assert [code_of(one) for one in results] == [ErrorCode.NONE] * 3 + [ErrorCode.POLICY_VIOLATION]
    assert "limit of 3 topics (max.topics)" in results[3].error_message
    assert cluster.submit(CreateOwnTopic("own")) is ErrorCode.POLICY_VIOLATION

    wide = Cluster(max_partitions=5)
    assert code_of(wide.create("a", 4)) is ErrorCode.NONE
    refused = wide.create("b", 2)
    assert code_of(refused) is ErrorCode.POLICY_VIOLATION
    assert "5 partitions (max.partitions), so you can create 1 more" in refused.error_message
    more = CreatePartitionsTopic(name="a", count=6, assignments=None)
    assert grow(wide, more) == [ErrorCode.POLICY_VIOLATION]
    assert code_of(wide.create("b", 1)) is ErrorCode.NONE


def test_what_is_beyond_the_limit_is_refused_before_it_is_laid_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Cluster()
    laid_out: list[int] = []

    def count(racks: Racks, partitions: int, *rest: Any) -> list[list[int]]:
        laid_out.append(partitions)
        return spread(racks, partitions, *rest)

    monkeypatch.setattr(placement, "spread", count)
    wide = [
        CreatableTopic(name=f"t{number}", num_partitions=3_000, replication_factor=1)
        for number in range(50)
    ]
    request = CreateTopicsRequest(topics=wide, validate_only=True)
    codes = [code_of(one) for one in cluster.submit(request).topics]
    assert codes == [ErrorCode.NONE] + [ErrorCode.POLICY_VIOLATION] * 49
    assert laid_out == [3_000]


def test_a_refused_topic_takes_nothing_from_the_others_of_its_request() -> None:
    cluster = Cluster(max_partitions=9)
    wide = [
        CreatableTopic(name="a", num_partitions=7, replication_factor=2),
        CreatableTopic(name="b", num_partitions=7, replication_factor=1),
    ]
    codes = [code_of(one) for one in cluster.submit(CreateTopicsRequest(topics=wide)).topics]
    assert codes == [ErrorCode.INVALID_REPLICATION_FACTOR, ErrorCode.NONE]
    cluster.create("c", 1)
    unknown = [CreatePartitionsAssignment(broker_ids=[9])]
    codes = grow(
        cluster,
        CreatePartitionsTopic(name="b", count=8, assignments=unknown),
        CreatePartitionsTopic(name="c", count=2, assignments=None),
    )
    assert codes == [ErrorCode.INVALID_REPLICA_ASSIGNMENT, ErrorCode.NONE]


def test_only_some_wrong_settings_of_a_request_are_compared_with_the_right_ones() -> None:
    request = create_request("t", retention_mss="1")
    wrong = request.topics[0].configs
    request.topics = [
        CreatableTopic(name=f"t{number}", num_partitions=1, replication_factor=1, configs=wrong)
        for number in range(SUGGESTION_COUNT_MAX + 5)
    ]
    results = Cluster().submit(request).topics
    assert {code_of(one) for one in results} == {ErrorCode.INVALID_CONFIG}
    suggested = ["did you mean retention.ms?" in one.error_message for one in results]
    assert suggested == [True] * SUGGESTION_COUNT_MAX + [False] * 5


def test_topics_are_deleted_by_name_and_by_id() -> None:
    cluster = Cluster()
    cluster.create("a")
    topic_id = cluster.create("b").topic_id
    asked = [
        DeleteTopicState(name="a"),
        DeleteTopicState(topic_id=topic_id),
        DeleteTopicState(name="c"),
        DeleteTopicState(topic_id=Uuid(int=99)),
        DeleteTopicState(),
    ]
    reply = cluster.submit(DeleteTopicsRequest(topics=asked))
    assert [code_of(one) for one in reply.responses] == [
        ErrorCode.NONE,
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INVALID_REQUEST,
    ]
    assert reply.responses[1].name == "b"
    assert not cluster.image.topics


TWICE_NAMED = ("t", "0", ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
TWICE_BY_ID = (None, "id", ErrorCode.INVALID_REQUEST, "Duplicate topic id.")
DELETED = ("t", "id", ErrorCode.NONE, None)
NAMED_TOO = (
    "t",
    "id",
    ErrorCode.INVALID_REQUEST,
    "The provided topic name maps to an ID that was already supplied.",
)


@pytest.mark.parametrize(
    ("asked", "answers"),
    [
        ("n", [DELETED]),
        ("i", [DELETED]),
        ("nn", [TWICE_NAMED]),
        ("nnn", [TWICE_NAMED]),
        ("ii", [TWICE_BY_ID]),
        ("ni", [NAMED_TOO]),
        ("in", [NAMED_TOO]),
        ("nii", [NAMED_TOO, TWICE_BY_ID]),
        ("iin", [TWICE_BY_ID, NAMED_TOO]),
        ("nni", [TWICE_NAMED, DELETED]),
        ("nnii", [TWICE_NAMED, TWICE_BY_ID]),
    ],
)
def test_a_topic_is_deleted_once_however_it_is_named(asked: str, answers: list[Any]) -> None:
    """The answers are those of ControllerApis in Kafka 3.5. In `asked`, `n` stands for the name of
    the topic, and `i` for its id."""
    cluster = Cluster()
    cluster.create("kept")
    topic_id = cluster.create("t").topic_id
    states = {"n": DeleteTopicState(name="t"), "i": DeleteTopicState(topic_id=topic_id)}
    request = DeleteTopicsRequest(topics=[states[one] for one in asked])
    reply = cluster.submit(request)
    shown = {ZERO_UUID: "0", topic_id: "id"}
    assert [
        (one.name, shown[one.topic_id], code_of(one), one.error_message) for one in reply.responses
    ] == answers
    assert ("t" in cluster.image.topics) is (DELETED not in answers)


def test_a_topic_is_deleted_by_a_name_or_an_id() -> None:
    cluster = Cluster()
    topic_id = cluster.create("t").topic_id
    asked = [
        DeleteTopicState(name="t", topic_id=topic_id),
        DeleteTopicState(),
        DeleteTopicState(name="none"),
        DeleteTopicState(topic_id=Uuid(int=99)),
    ]
    reply = cluster.submit(DeleteTopicsRequest(topics=asked))
    assert [(code_of(one), one.error_message) for one in reply.responses] == [
        (ErrorCode.INVALID_REQUEST, "You may not specify both topic name and topic id."),
        (ErrorCode.INVALID_REQUEST, "Neither topic name nor id were specified."),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition."),
        (ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID."),
    ]
    assert "t" in cluster.image.topics


def test_deleting_may_be_switched_off_and_internal_topics_stay() -> None:
    cluster = Cluster()
    cluster.submit(CreateOwnTopic(OFFSETS_TOPIC))
    reply = cluster.submit(DeleteTopicsRequest(topic_names=[OFFSETS_TOPIC]))
    assert code_of(reply.responses[0]) is ErrorCode.INVALID_REQUEST
    fixed = Cluster(delete_topic_enable=False)
    fixed.create("a")
    reply = fixed.submit(DeleteTopicsRequest(topic_names=["a"]))
    assert code_of(reply.responses[0]) is ErrorCode.TOPIC_DELETION_DISABLED


def grow(cluster: Cluster, *topics: CreatePartitionsTopic) -> list[ErrorCode]:
    reply = cluster.submit(CreatePartitionsRequest(topics=list(topics)))
    assert [one.name for one in reply.results] == [one.name for one in topics]
    return [code_of(one) for one in reply.results]


def test_pitfall_31_growing_answers_for_every_topic_asked() -> None:
    cluster = Cluster()
    cluster.create("a", 2)
    cluster.create("b", 1)
    codes = grow(
        cluster,
        CreatePartitionsTopic(name="a", count=5, assignments=None),
        CreatePartitionsTopic(name="b", count=1, assignments=None),
        CreatePartitionsTopic(name="c", count=2, assignments=None),
    )
    assert codes == [
        ErrorCode.NONE,
        ErrorCode.INVALID_PARTITIONS,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert len(cluster.image.topics["a"].partitions) == 5
    assert [one.leader_epoch for one in cluster.image.topics["a"].partitions] == [0] * 5


def test_growing_answers_a_repeated_name_once() -> None:
    cluster = Cluster()
    cluster.create("a", 2)
    topics = [
        CreatePartitionsTopic(name=name, count=count, assignments=None)
        for name, count in (("a", 3), ("a", 4), ("b", 2))
    ]
    reply = cluster.submit(CreatePartitionsRequest(topics=topics))
    assert [(one.name, code_of(one), one.error_message) for one in reply.results] == [
        ("a", ErrorCode.INVALID_REQUEST, "Duplicate topic name."),
        (
            "b",
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            "This server does not host this topic-partition.",
        ),
    ]
    assert len(cluster.image.topics["a"].partitions) == 2


def test_growing_by_hand_must_name_all_new_partitions() -> None:
    cluster = Cluster()
    cluster.create("a", 1)
    one = [CreatePartitionsAssignment(broker_ids=[1])]
    wrong = CreatePartitionsTopic(name="a", count=3, assignments=one)
    right = CreatePartitionsTopic(name="a", count=2, assignments=one)
    assert grow(cluster, wrong) == [ErrorCode.INVALID_REPLICA_ASSIGNMENT]
    assert grow(cluster, right) == [ErrorCode.NONE]


def test_own_topics_are_made_once_and_the_offsets_topic_is_compacted() -> None:
    cluster = Cluster(offsets_topic_num_partitions=4)
    assert cluster.submit(CreateOwnTopic(OFFSETS_TOPIC)) is ErrorCode.NONE
    assert not cluster.decide(CreateOwnTopic(OFFSETS_TOPIC)).records
    topic = cluster.image.topics[OFFSETS_TOPIC]
    assert topic.is_internal
    assert len(topic.partitions) == 4
    assert cluster.image.settings(2, OFFSETS_TOPIC)["cleanup.policy"] == "compact"
    assert cluster.submit(CreateOwnTopic("no good")) is ErrorCode.INVALID_TOPIC_EXCEPTION


def test_the_state_of_transactions_has_a_minimum_in_sync_of_its_own() -> None:
    """As in Kafka, the minimum is at most the replication factor. So a topic with one replica is
    not reported as under-replicated."""
    cases = {
        (3, None): "2",
        (3, 3): "3",
        (3, 1): "1",
        (1, None): "1",
    }
    for (copies, wanted), found in cases.items():
        stated = {} if wanted is None else {"transaction_state_log_min_isr": wanted}
        stated["transaction_state_log_replication_factor"] = copies
        cluster = Cluster((1, 2, 3), **stated)
        assert cluster.submit(CreateOwnTopic(TRANSACTIONS_TOPIC)) is ErrorCode.NONE
        assert cluster.image.settings(2, TRANSACTIONS_TOPIC)["min.insync.replicas"] == found


def test_the_offsets_have_the_minimum_of_any_topic() -> None:
    cluster = Cluster()
    assert cluster.submit(CreateOwnTopic(OFFSETS_TOPIC)) is ErrorCode.NONE
    assert "min.insync.replicas" not in cluster.image.settings(2, OFFSETS_TOPIC)


def test_producer_ids_come_in_blocks_that_never_overlap() -> None:
    cluster = Cluster()
    first = cluster.submit(AllocateProducerIds(1, 0))
    second = cluster.submit(AllocateProducerIds(1, 0))
    assert first.stop == second.start
    assert cluster.image.next_producer_id == second.stop
