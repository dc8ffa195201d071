"""Every API in every version: missing objects get the right error code, and malformed requests do
no harm."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from broker.controller.outcome import CreateOwnTopic
from broker.metadata.image import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from protocol.errors import ErrorCode, WireError
from protocol.messages import (
    acls,
    configs,
    elections,
    features,
    fetch,
    group,
    list_offsets,
    log_dirs,
    membership,
    metadata,
    offsets,
    produce,
    quotas,
    sasl,
    scram,
    topics,
    transactions,
    voters,
)
from protocol.messages.api import SERVED, ApiKey, client_versions, request_class
from protocol.messages.headers import encode_request
from protocol.types import Uuid
from protocol.wire.records import NewRecord, build_batch
from protocol.wire.schema import Message, Struct
from tests.unit.broker.rig import Asked, Rig
from tests.unit.protocol.examples import Examples
from tests.unit.storage.kit import NOW

NAME = "not.there"
NONE = ErrorCode.NONE
NO_TOPIC = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
NO_MEMBER = ErrorCode.UNKNOWN_MEMBER_ID
NO_MAPPING = ErrorCode.INVALID_PRODUCER_ID_MAPPING
INVALID = ErrorCode.INVALID_REQUEST

WILD_REQUESTS = 12
"""Random requests per API and version."""

Build = Callable[[int], Message]


def _group_commit(_: int) -> Message:
    partition = offsets.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    topic = offsets.OffsetCommitRequestTopic(name=NAME, partitions=[partition])
    return offsets.OffsetCommitRequest(group_id="g", topics=[topic])


def _group_fetch(version: int) -> Message:
    if version < 8:
        return offsets.OffsetFetchRequest(group_id="g", topics=[])
    return offsets.OffsetFetchRequest(groups=[offsets.OffsetFetchRequestGroup(group_id="g")])


def _leave(version: int) -> Message:
    if version < 3:
        return group.LeaveGroupRequest(group_id="g", member_id="m")
    return group.LeaveGroupRequest(group_id="g", members=[group.MemberIdentity(member_id="m")])


def _delete_topics(version: int) -> Message:
    if version < 6:
        return topics.DeleteTopicsRequest(topic_names=[NAME])
    return topics.DeleteTopicsRequest(topics=[topics.DeleteTopicState(name=NAME)])


def _metadata(_: int) -> Message:
    return metadata.MetadataRequest(topics=[metadata.MetadataRequestTopic(name=NAME)])


def _produce(version: int) -> Message:
    batch = build_batch([NewRecord(None, b"v", NOW)])
    data = produce.PartitionProduceData(index=0, records=batch)
    topic = produce.TopicProduceData(name=NAME, partition_data=[data])
    return produce.ProduceRequest(acks=-1, timeout_ms=0, topic_data=[topic])


def _fetch(_: int) -> Message:
    asked = fetch.FetchTopic(topic=NAME, partitions=[fetch.FetchPartition(partition=0)])
    return fetch.FetchRequest(max_wait_ms=0, topics=[asked])


def _list_offsets(_: int) -> Message:
    partition = list_offsets.ListOffsetsPartition(partition_index=0, timestamp=-1)
    topic = list_offsets.ListOffsetsTopic(name=NAME, partitions=[partition])
    return list_offsets.ListOffsetsRequest(replica_id=-1, topics=[topic])


def _epochs(_: int) -> Message:
    partition = list_offsets.OffsetForLeaderPartition(partition=0, leader_epoch=0)
    topic = list_offsets.OffsetForLeaderTopic(topic=NAME, partitions=[partition])
    return list_offsets.OffsetForLeaderEpochRequest(topics=[topic])


def _txn_partitions(_: int) -> Message:
    topic = transactions.AddPartitionsToTxnTopic(name=NAME, partitions=[0])
    return transactions.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="t",
        v3_and_below_producer_id=7,
        v3_and_below_producer_epoch=0,
        v3_and_below_topics=[topic],
    )


def _txn_commit(_: int) -> Message:
    partition = transactions.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    topic = transactions.TxnOffsetCommitRequestTopic(name=NAME, partitions=[partition])
    return transactions.TxnOffsetCommitRequest(
        transactional_id="t", group_id="g", producer_id=7, producer_epoch=0, topics=[topic]
    )


UNKNOWN: dict[ApiKey, tuple[Build, set[ErrorCode]]] = {
    ApiKey.PRODUCE: (_produce, {NO_TOPIC}),
    ApiKey.FETCH: (_fetch, {NO_TOPIC, NONE}),
    ApiKey.LIST_OFFSETS: (_list_offsets, {NO_TOPIC}),
    ApiKey.METADATA: (_metadata, {NO_TOPIC}),
    ApiKey.OFFSET_COMMIT: (_group_commit, {NO_TOPIC}),
    ApiKey.OFFSET_FETCH: (_group_fetch, {NONE}),
    ApiKey.HEARTBEAT: (
        lambda _: group.HeartbeatRequest(group_id="g", generation_id=1, member_id="m"),
        {NO_MEMBER},
    ),
    ApiKey.LEAVE_GROUP: (_leave, {NO_MEMBER, NONE}),
    ApiKey.SYNC_GROUP: (
        lambda _: group.SyncGroupRequest(
            group_id="g",
            generation_id=1,
            member_id="m",
            protocol_type="consumer",
            protocol_name="range",
        ),
        {NO_MEMBER},
    ),
    ApiKey.DESCRIBE_GROUPS: (lambda _: group.DescribeGroupsRequest(groups=["g"]), {NONE}),
    ApiKey.DELETE_TOPICS: (_delete_topics, {NO_TOPIC}),
    ApiKey.DELETE_RECORDS: (
        lambda _: topics.DeleteRecordsRequest(
            topics=[
                topics.DeleteRecordsTopic(
                    name=NAME, partitions=[topics.DeleteRecordsPartition(partition_index=0)]
                )
            ]
        ),
        {NO_TOPIC},
    ),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: (_epochs, {NO_TOPIC}),
    ApiKey.ADD_PARTITIONS_TO_TXN: (_txn_partitions, {NO_TOPIC}),
    ApiKey.ADD_OFFSETS_TO_TXN: (
        lambda _: transactions.AddOffsetsToTxnRequest(
            transactional_id="t", producer_id=7, producer_epoch=0, group_id="g"
        ),
        {NO_MAPPING},
    ),
    ApiKey.END_TXN: (
        lambda _: transactions.EndTxnRequest(
            transactional_id="t", producer_id=7, producer_epoch=0, committed=True
        ),
        {NO_MAPPING},
    ),
    ApiKey.TXN_OFFSET_COMMIT: (_txn_commit, {NO_MAPPING}),
    ApiKey.DESCRIBE_ACLS: (
        lambda _: acls.DescribeAclsRequest(resource_type_filter=99),
        {INVALID},
    ),
    ApiKey.CREATE_ACLS: (
        lambda _: acls.CreateAclsRequest(creations=[acls.AclCreation(resource_type=99)]),
        {INVALID},
    ),
    ApiKey.DELETE_ACLS: (
        lambda _: acls.DeleteAclsRequest(filters=[acls.DeleteAclsFilter()]),
        {INVALID},
    ),
    ApiKey.DESCRIBE_CONFIGS: (
        lambda _: configs.DescribeConfigsRequest(
            resources=[configs.DescribeConfigsResource(resource_type=2, resource_name=NAME)]
        ),
        {NO_TOPIC},
    ),
    ApiKey.ALTER_CONFIGS: (
        lambda _: configs.AlterConfigsRequest(
            resources=[configs.AlterConfigsRequestResource(resource_type=2, resource_name=NAME)]
        ),
        {NO_TOPIC},
    ),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: (
        lambda _: configs.IncrementalAlterConfigsRequest(
            resources=[configs.AlterConfigsResource(resource_type=99, resource_name=NAME)]
        ),
        {INVALID},
    ),
    ApiKey.ALTER_REPLICA_LOG_DIRS: (
        lambda _: log_dirs.AlterReplicaLogDirsRequest(
            dirs=[
                log_dirs.AlterReplicaLogDir(
                    path="/nowhere",
                    topics=[log_dirs.AlterReplicaLogDirTopic(name=NAME, partitions=[0])],
                )
            ]
        ),
        {ErrorCode.LOG_DIR_NOT_FOUND},
    ),
    ApiKey.CREATE_PARTITIONS: (
        lambda _: topics.CreatePartitionsRequest(
            topics=[topics.CreatePartitionsTopic(name=NAME, count=2)]
        ),
        {NO_TOPIC},
    ),
    ApiKey.DELETE_GROUPS: (
        lambda _: group.DeleteGroupsRequest(groups_names=["g"]),
        {ErrorCode.GROUP_ID_NOT_FOUND},
    ),
    ApiKey.ELECT_LEADERS: (
        lambda _: elections.ElectLeadersRequest(
            topic_partitions=[elections.TopicPartitions(topic=NAME, partitions=[0])]
        ),
        {NO_TOPIC, NONE},
    ),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: (
        lambda _: elections.AlterPartitionReassignmentsRequest(
            topics=[
                elections.ReassignableTopic(
                    name=NAME, partitions=[elections.ReassignablePartition(partition_index=0)]
                )
            ]
        ),
        {NO_TOPIC, NONE},
    ),
    ApiKey.OFFSET_DELETE: (
        lambda _: offsets.OffsetDeleteRequest(group_id="g"),
        {ErrorCode.GROUP_ID_NOT_FOUND},
    ),
    ApiKey.DESCRIBE_PRODUCERS: (
        lambda _: transactions.DescribeProducersRequest(
            topics=[transactions.ProducersTopicRequest(name=NAME, partition_indexes=[0])]
        ),
        {NO_TOPIC},
    ),
    ApiKey.DESCRIBE_TRANSACTIONS: (
        lambda _: transactions.DescribeTransactionsRequest(transactional_ids=["t"]),
        {ErrorCode.TRANSACTIONAL_ID_NOT_FOUND},
    ),
    ApiKey.DESCRIBE_QUORUM: (
        lambda _: voters.DescribeQuorumRequest(
            topics=[
                voters.DescribeQuorumRequestTopic(
                    topic_name=NAME, partitions=[voters.DescribeQuorumRequestPartition()]
                )
            ]
        ),
        {NO_TOPIC},
    ),
    ApiKey.UNREGISTER_BROKER: (
        lambda _: membership.UnregisterBrokerRequest(broker_id=99),
        {ErrorCode.BROKER_ID_NOT_REGISTERED},
    ),
    ApiKey.ADD_RAFT_VOTER: (
        lambda _: voters.AddRaftVoterRequest(cluster_id=None, voter_id=99),
        {ErrorCode.INVALID_REQUEST},
    ),
    ApiKey.REMOVE_RAFT_VOTER: (
        lambda _: voters.RemoveRaftVoterRequest(cluster_id=None, voter_id=99),
        {ErrorCode.VOTER_NOT_FOUND},
    ),
    ApiKey.UPDATE_FEATURES: (
        lambda _: features.UpdateFeaturesRequest(
            feature_updates=[features.FeatureUpdateKey(feature=NAME, max_version_level=1)]
        ),
        {ErrorCode.INVALID_UPDATE_VERSION},
    ),
    ApiKey.SASL_HANDSHAKE: (
        lambda _: sasl.SaslHandshakeRequest(mechanism=NAME),
        {ErrorCode.ILLEGAL_SASL_STATE},
    ),
    ApiKey.SASL_AUTHENTICATE: (
        lambda _: sasl.SaslAuthenticateRequest(),
        {ErrorCode.ILLEGAL_SASL_STATE},
    ),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: (
        lambda _: quotas.DescribeClientQuotasRequest(
            components=[quotas.QuotaFilterComponent(entity_type=NAME)]
        ),
        {ErrorCode.UNSUPPORTED_VERSION},
    ),
    ApiKey.ALTER_CLIENT_QUOTAS: (
        lambda _: quotas.AlterClientQuotasRequest(entries=[quotas.AlteredQuota()]),
        {INVALID},
    ),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: (
        lambda _: scram.DescribeUserScramCredentialsRequest(users=[scram.UserName(name=NAME)]),
        {ErrorCode.RESOURCE_NOT_FOUND, NONE},
    ),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: (
        lambda _: scram.AlterUserScramCredentialsRequest(
            deletions=[scram.ScramCredentialDeletion(name=NAME, mechanism=1)]
        ),
        {ErrorCode.RESOURCE_NOT_FOUND},
    ),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: (
        lambda _: metadata.DescribeTopicPartitionsRequest(
            topics=[metadata.TopicRequest(name=NAME)]
        ),
        {NO_TOPIC},
    ),
}

NAMELESS = {
    ApiKey.FIND_COORDINATOR,
    ApiKey.JOIN_GROUP,
    ApiKey.LIST_GROUPS,
    ApiKey.API_VERSIONS,
    ApiKey.CREATE_TOPICS,
    ApiKey.INIT_PRODUCER_ID,
    ApiKey.WRITE_TXN_MARKERS,
    ApiKey.DESCRIBE_LOG_DIRS,
    ApiKey.LIST_PARTITION_REASSIGNMENTS,
    ApiKey.DESCRIBE_CLUSTER,
    ApiKey.LIST_TRANSACTIONS,
    ApiKey.LIST_CONFIG_RESOURCES,
}
"""APIs that name no object, or that create the named one. Other tests cover them."""


def spoken(key: ApiKey) -> range:
    """Return the versions of an API that have a format. Produce versions below 3 are advertised but
    refused (pitfall 1)."""
    return client_versions(key)


@pytest.fixture(scope="module")
def rig() -> Iterator[Rig]:
    rig = Rig(auto_create_topics_enable=False)
    for topic in (OFFSETS_TOPIC, TRANSACTIONS_TOPIC):
        rig.broker.parts.metadata.submit(CreateOwnTopic(topic), lambda _: None, print)
    rig.flusher.sync()
    rig.turn()
    yield rig


def codes(value: object) -> set[ErrorCode]:
    """Return all error codes anywhere in a response."""
    if isinstance(value, list):
        return set().union(*(codes(one) for one in value))
    if not isinstance(value, Struct):
        return set()
    found: set[ErrorCode] = set()
    for field in value.fields:
        inner: Any = getattr(value, field.name)
        found |= {ErrorCode(inner)} if field.name.endswith("error_code") else codes(inner)
    return found


def test_every_api_is_in_the_sweep() -> None:
    assert UNKNOWN.keys() | NAMELESS == SERVED.keys()


@pytest.mark.parametrize("key", UNKNOWN, ids=lambda key: key.name.lower())
def test_what_is_not_there_has_its_code_in_every_version(rig: Rig, key: ApiKey) -> None:
    build, wanted = UNKNOWN[key]
    for version in spoken(key):
        found = codes(rig.ask(build(version), version))
        if wanted - {NONE}:
            found -= {NONE}
        # In some versions, a response has error codes only for its parts, and no code for the whole
        # request.
        assert found == wanted - {NONE} or found == wanted, (version, found)


@pytest.mark.parametrize("key", SERVED, ids=lambda key: key.name.lower())
def test_a_cut_request_closes_its_connection_and_nothing_else(rig: Rig, key: ApiKey) -> None:
    examples = Examples(int(key))
    for version in spoken(key):
        request = examples.message(request_class(key), version)
        whole = encode_request(request, version, 1, "rig")[4:]
        body_start = len(encode_request(request_class(key)(), version, 1, "rig")[4:])
        for end in {len(whole) - 1, len(whole) // 2, min(body_start, len(whole) - 1)}:
            asked = Asked(request_class(key)(), version, "HOST")
            frame = memoryview(bytearray(whole[:end]))
            try:
                rig.broker.listeners.clients.start(asked.session, asked.slot, frame)
            except WireError:
                continue
            # A request that is cut where an optional part begins can be complete, so it is served.
            settle(rig, asked)


@pytest.mark.parametrize("key", SERVED, ids=lambda key: key.name.lower())
def test_pitfall_07_wild_requests_are_answered_parked_or_refused(rig: Rig, key: ApiKey) -> None:
    """All values are random, and every response can be decoded in the version of the request.

    `Asked.answer` also checks for null arrays, in every test that uses the rig.
    """
    examples = Examples(1000 + int(key))
    for version in spoken(key):
        for _ in range(WILD_REQUESTS):
            request = examples.message(request_class(key), version)
            try:
                asked = rig.send(request, version)
            except WireError:
                continue
            settle(rig, asked)
            if asked.is_answered() and asked.slot.answer != ():
                assert asked.answer is not None


def settle(rig: Rig, asked: Asked) -> None:
    """Write, sync and replay everything that the request has started."""
    if asked.session.has_staged:
        asked.session.has_staged = False
        rig.broker.parts.produces.settle()
    for _ in range(3):
        rig.flusher.sync()
        rig.turn()


@pytest.mark.parametrize("version", [10, 11])
def test_metadata_by_topic_id_is_refused_until_its_version(rig: Rig, version: int) -> None:
    by_id = metadata.MetadataRequestTopic(name=None, topic_id=Uuid(int=7))
    answer = rig.ask(metadata.MetadataRequest(topics=[by_id]), version)
    assert [(one.name, one.error_code) for one in answer.topics] == [("", INVALID)]
