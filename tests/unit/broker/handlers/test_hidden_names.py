"""Names that a user may not see, and parts of answers that depend on rights, as in Kafka."""

from __future__ import annotations

from typing import Any

import pytest

from protocol.errors import ErrorCode
from protocol.messages.cluster import DescribeClusterRequest, FindCoordinatorRequest
from protocol.messages.configs import DescribeConfigsRequest, DescribeConfigsResource
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol.messages.group import DescribeGroupsRequest, ListGroupsRequest
from protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from protocol.messages.metadata import (
    Cursor,
    DescribeTopicPartitionsRequest,
    MetadataRequest,
    MetadataRequestTopic,
    TopicRequest,
)
from protocol.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from protocol.messages.producer_ids import InitProducerIdRequest
from protocol.messages.topics import (
    CreatableTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from protocol.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    DescribeTransactionsRequest,
    ListTransactionsRequest,
)
from protocol.security.acl import CLUSTER_NAME, AclOperation, AclResource
from protocol.types import ZERO_UUID, Uuid
from protocol.wire.schema import Message
from tests.unit.broker.acl_rig import AclRig
from tests.unit.broker.group_rig import prepare
from tests.unit.broker.security.acls import entry
from tests.unit.broker.txn_rig import make_coordinators

READ, WRITE, DESCRIBE = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE
CREATE, DELETE, ALL = AclOperation.CREATE, AclOperation.DELETE, AclOperation.ALL
GROUP, CLUSTER = AclResource.GROUP, AclResource.CLUSTER
TRANSACTION = AclResource.TRANSACTIONAL_ID
T_REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
NO_OPERATIONS = -(2**31)


@pytest.fixture
def rig() -> AclRig:
    rig = AclRig()
    prepare(rig)
    rig.create("secret", 2)
    return rig


def of_topics(name: str) -> dict[str, tuple[Message, int]]:
    """Return requests that name a topic, with their versions."""
    return {
        "metadata": (MetadataRequest(topics=[MetadataRequestTopic(name=name)]), 12),
        "pages": (DescribeTopicPartitionsRequest(topics=[TopicRequest(name=name)]), 0),
        "offsets": (
            ListOffsetsRequest(
                topics=[
                    ListOffsetsTopic(
                        name=name,
                        partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)],
                    )
                ]
            ),
            7,
        ),
        "fetch": (
            FetchRequest(
                max_wait_ms=0, topics=[FetchTopic(topic=name, partitions=[FetchPartition()])]
            ),
            12,
        ),
        "configs": (
            DescribeConfigsRequest(
                resources=[DescribeConfigsResource(resource_type=2, resource_name=name)]
            ),
            4,
        ),
        "deletion": (DeleteTopicsRequest(topics=[DeleteTopicState(name=name)]), 6),
        "creation": (CreateTopicsRequest(topics=[CreatableTopic(name=name)]), 7),
    }


@pytest.mark.parametrize("kind", of_topics(""))
def test_pitfall_19_a_topic_that_exists_looks_like_one_that_does_not(
    rig: AclRig, kind: str
) -> None:
    """Both answers have the same bytes except for the name, and no topic is created or deleted."""
    rig.allow(entry(ALL))
    found = []
    for name in ("secret", "absent"):
        asked = rig.start_as(*of_topics(name)[kind])
        rig.settle(asked)
        assert asked.slot.answer is not None
        sent = b"".join(bytes(chunk) for chunk in asked.slot.answer)  # type: ignore[call-overload]  # bytes-like
        found.append(sent.replace(name.encode(), b"<name>"))
    assert found[0] == found[1]
    topics = rig.broker.parts.metadata.image.topics
    assert "secret" in topics and "absent" not in topics


def metadata(rig: AclRig, *names: str, version: int = 8, **fields: Any) -> Any:
    topics = [MetadataRequestTopic(name=name) for name in names] or None
    return rig.ask_as(MetadataRequest(topics=topics, **fields), version)


def test_all_topics_are_those_that_the_user_may_see(rig: AclRig) -> None:
    assert metadata(rig).topics == []
    rig.allow(entry(READ, "lo", prefixed=True))
    answer = metadata(rig)
    assert [one.name for one in answer.topics] == ["logs"]
    assert len(answer.brokers) == 1, "brokers are shown to everybody"
    page = rig.ask_as(DescribeTopicPartitionsRequest(), 0)
    assert [one.name for one in page.topics] == ["logs"]
    named = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=name) for name in ("logs", "secret")]
    )
    answer = rig.ask_as(named, 0)
    assert [(one.name, one.error_code, len(one.partitions)) for one in answer.topics] == [
        ("logs", 0, 3),
        ("secret", T_REFUSED, 0),
    ]
    after = DescribeTopicPartitionsRequest(cursor=Cursor(topic_name="secret", partition_index=1))
    assert rig.ask_as(after, 0).topics == []


def test_a_hidden_topic_is_not_named_for_its_id(rig: AclRig) -> None:
    topic_id = rig.broker.parts.metadata.image.topics["secret"].topic_id
    by_id = MetadataRequest(topics=[MetadataRequestTopic(name=None, topic_id=topic_id)])
    (topic,) = rig.ask_as(by_id, 12).topics
    assert (topic.name, topic.topic_id, topic.error_code) == (None, topic_id, T_REFUSED)
    assert topic.partitions == []
    unknown = MetadataRequest(topics=[MetadataRequestTopic(name=None, topic_id=Uuid(int=5))])
    (topic,) = rig.ask_as(unknown, 12).topics
    assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_ID


def deleted_by_id(rig: AclRig, topic_id: Uuid) -> tuple[str | None, int]:
    request = DeleteTopicsRequest(topics=[DeleteTopicState(topic_id=topic_id)])
    (one,) = rig.ask_as(request, 6).responses
    assert one.topic_id == topic_id
    return one.name, one.error_code


def test_pitfall_19_deletion_by_id_names_only_what_may_be_seen(rig: AclRig) -> None:
    topic_id = rig.broker.parts.metadata.image.topics["secret"].topic_id
    assert deleted_by_id(rig, topic_id) == (None, T_REFUSED)
    rig.allow(entry(DESCRIBE, "secret"))
    assert deleted_by_id(rig, topic_id) == ("secret", T_REFUSED)
    assert deleted_by_id(rig, Uuid(int=5)) == (None, ErrorCode.UNKNOWN_TOPIC_ID)
    rig.allow(entry(DELETE, "secret"))
    assert deleted_by_id(rig, topic_id) == ("secret", 0)


def test_a_topic_is_created_by_its_name_only_with_the_right_to_create_it(rig: AclRig) -> None:
    rig.allow(entry(WRITE, "new"))
    (topic,) = metadata(rig, "new").topics
    assert (topic.error_code, topic.topic_id) == (T_REFUSED, ZERO_UUID)
    without = metadata(rig, "new", allow_auto_topic_creation=False)
    assert without.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    rig.allow(entry(CREATE, "new"))
    assert metadata(rig, "new").topics[0].error_code == 0
    rig.allow(entry(CREATE, CLUSTER_NAME, CLUSTER))
    # CREATE on the cluster lets the user create a topic, but not see it.
    assert metadata(rig, "other").topics[0].error_code == T_REFUSED
    rig.allow(entry(READ, "other"))
    assert metadata(rig, "other").topics[0].error_code == 0


def test_the_operations_in_answers_are_those_of_the_user(rig: AclRig) -> None:
    asks = {
        "include_topic_authorized_operations": True,
        "include_cluster_authorized_operations": True,
    }
    rig.allow(entry(READ))
    answer = metadata(rig, "logs", "secret", **asks)
    assert [one.topic_authorized_operations for one in answer.topics] == [
        1 << READ | 1 << DESCRIBE,
        NO_OPERATIONS,
    ]
    assert answer.cluster_authorized_operations == 0
    described = DescribeClusterRequest(include_cluster_authorized_operations=True)
    assert rig.ask_as(described, 1).cluster_authorized_operations == 0
    rig.allow(entry(CREATE, CLUSTER_NAME, CLUSTER), entry(DESCRIBE, CLUSTER_NAME, CLUSTER))
    both = 1 << CREATE | 1 << DESCRIBE
    assert metadata(rig, **asks).cluster_authorized_operations == both
    assert rig.ask_as(described, 1).cluster_authorized_operations == both
    rig.allow(entry(READ, "g", GROUP))
    asked = DescribeGroupsRequest(groups=["g"], include_authorized_operations=True)
    (group,) = rig.ask_as(asked, 5).groups
    assert group.authorized_operations == 1 << READ | 1 << DESCRIBE
    (page,) = rig.ask_as(
        DescribeTopicPartitionsRequest(topics=[TopicRequest(name="logs")]), 0
    ).topics
    assert page.topic_authorized_operations == 1 << READ | 1 << DESCRIBE


def commit(rig: AclRig, group: str, *names: str) -> OffsetCommitRequest:
    return OffsetCommitRequest(
        group_id=group,
        topics=[
            OffsetCommitRequestTopic(
                name=name,
                partitions=[OffsetCommitRequestPartition(partition_index=0, committed_offset=7)],
            )
            for name in names
        ],
    )


def codes_of(topics: Any) -> dict[str, int]:
    return {one.name: one.partitions[0].error_code for one in topics}


def test_groups_that_the_user_may_see_are_listed(rig: AclRig) -> None:
    for group in ("g", "h"):
        rig.ask(commit(rig, group, "logs"), 8)
    assert rig.ask_as(ListGroupsRequest(), 4).groups == []
    rig.allow(entry(READ, "h", GROUP))
    assert [one.group_id for one in rig.ask_as(ListGroupsRequest(), 4).groups] == ["h"]
    rig.allow(entry(DESCRIBE, CLUSTER_NAME, CLUSTER))
    assert {one.group_id for one in rig.ask_as(ListGroupsRequest(), 4).groups} == {"g", "h"}


def test_offsets_of_topics_that_the_user_may_not_read(rig: AclRig) -> None:
    rig.allow(entry(READ), entry(ALL, "g", GROUP))
    answer = rig.ask_as(commit(rig, "g", "logs", "secret", "absent"), 8)
    assert codes_of(answer.topics) == {"logs": 0, "secret": T_REFUSED, "absent": T_REFUSED}
    rig.ask(commit(rig, "g", "secret"), 8)

    named = OffsetFetchRequestGroup(
        group_id="g",
        topics=[
            OffsetFetchRequestTopics(name=name, partition_indexes=[0])
            for name in ("logs", "secret")
        ],
    )
    (group,) = rig.ask_as(OffsetFetchRequest(groups=[named]), 8).groups
    assert codes_of(group.topics) == {"logs": 0, "secret": T_REFUSED}
    assert [one.partitions[0].committed_offset for one in group.topics] == [7, -1]
    every = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)])
    assert codes_of(rig.ask_as(every, 8).groups[0].topics) == {"logs": 0}
    assert len(rig.ask(every, 8).groups[0].topics) == 2

    doomed = OffsetDeleteRequest(
        group_id="g",
        topics=[
            OffsetDeleteRequestTopic(
                name=name, partitions=[OffsetDeleteRequestPartition(partition_index=0)]
            )
            for name in ("logs", "secret")
        ],
    )
    assert codes_of(rig.ask_as(doomed, 0).topics) == {"logs": 0, "secret": T_REFUSED}
    assert codes_of(rig.ask(every, 8).groups[0].topics) == {"secret": 0}


def test_an_error_of_the_whole_group_hides_no_missing_right(rig: AclRig) -> None:
    rig.allow(entry(READ), entry(READ, "g", GROUP))
    request = commit(rig, "g", "logs", "secret")
    request.generation_id_or_member_epoch, request.member_id = 3, "stranger"
    codes = codes_of(rig.ask_as(request, 8).topics)
    assert codes["secret"] == T_REFUSED and codes["logs"] not in (0, T_REFUSED)


def test_many_coordinators_are_told_key_by_key(rig: AclRig) -> None:
    rig.allow(entry(DESCRIBE, "g", GROUP))
    request = FindCoordinatorRequest(key_type=0, coordinator_keys=["g", "h"])
    found = {one.key: one.error_code for one in rig.ask_as(request, 4).coordinators}
    assert found == {"g": 0, "h": ErrorCode.GROUP_AUTHORIZATION_FAILED}
    request = FindCoordinatorRequest(key_type=1, key="x")
    refused = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert rig.ask_as(request, 3).error_code == refused
    rig.allow(entry(WRITE, "x", TRANSACTION))
    assert rig.ask_as(request, 3).error_code != refused


@pytest.mark.parametrize(
    ("key_type", "topic"), [(0, "__consumer_offsets"), (1, "__transaction_state")]
)
def test_a_question_about_no_coordinator_creates_no_topic(key_type: int, topic: str) -> None:
    """Found by fuzz: a user without rights created the internal topic with an empty list."""
    rig = AclRig()
    before = rig.broker.parts.metadata.image
    request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[])
    assert rig.ask_as(request, 4).coordinators == []
    rig.world.settle()
    assert topic not in before.topics
    assert rig.broker.parts.metadata.image is before


def test_a_producer_id_needs_a_topic_to_write_to(rig: AclRig) -> None:
    """KIP-679: the user needs IDEMPOTENT_WRITE on the cluster, or WRITE on a topic that no DENY
    covers."""
    refused = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    request = InitProducerIdRequest(transactional_id=None)
    assert rig.ask_as(request, 4).error_code == refused
    rig.allow(entry(WRITE, "logs.web"))
    assert rig.ask_as(request, 4).error_code == 0
    rig.allow(entry(WRITE, "logs.", prefixed=True, denies=True))
    assert rig.ask_as(request, 4).error_code == refused
    rig.allow(entry(WRITE, "*"))
    assert rig.ask_as(request, 4).error_code == 0
    rig.allow(entry(WRITE, "*", denies=True))
    assert rig.ask_as(request, 4).error_code == refused
    with_id = InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=60_000)
    needs_id = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert rig.ask_as(with_id, 4).error_code == needs_id
    rig.allow(entry(WRITE, "x", TRANSACTION))
    assert rig.ask_as(with_id, 4).error_code != needs_id


def test_transactions_that_the_user_may_see(rig: AclRig) -> None:
    make_coordinators(rig)
    for name in ("x", "y"):
        init = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)
        given = rig.ask(init, 4)
        assert given.error_code == 0
        added = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=name,
            v3_and_below_producer_id=given.producer_id,
            v3_and_below_producer_epoch=given.producer_epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name=topic, partitions=[0]) for topic in ("logs", "secret")
            ],
        )
        rig.ask(added, 3)
    assert rig.ask_as(ListTransactionsRequest(), 1).transaction_states == []
    rig.allow(entry(DESCRIBE, "x", TRANSACTION), entry(READ))
    listed = rig.ask_as(ListTransactionsRequest(), 1).transaction_states
    assert [one.transactional_id for one in listed] == ["x"]
    (state,) = rig.ask_as(
        DescribeTransactionsRequest(transactional_ids=["x"]), 0
    ).transaction_states
    assert [one.topic for one in state.topics] == ["logs"]


def test_the_settings_of_a_new_topic_are_shown_with_their_own_right(rig: AclRig) -> None:
    rig.allow(entry(CREATE, "new"))
    request = CreateTopicsRequest(
        topics=[CreatableTopic(name="new", num_partitions=2, replication_factor=1)]
    )
    (result,) = rig.ask_as(request, 7).topics
    assert (result.error_code, result.topic_config_error_code) == (0, T_REFUSED)
    assert (result.num_partitions, result.replication_factor, result.configs) == (-1, -1, [])
    rig.allow(entry(ALL, "newer"))
    request.topics[0].name = "newer"
    (result,) = rig.ask_as(request, 7).topics
    assert (result.topic_config_error_code, result.num_partitions) == (0, 2)
    assert result.configs
