"""Every request in every version: with its rights, without them, and before the login.

Each right in a row of the table is necessary. Without it, the response has the error of the missing
right. The rights of a row together are sufficient, so the response has no such error.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from broker.controller.outcome import CreateOwnTopic
from broker.metadata.image import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from broker.security.denials import Denial
from protocol.errors import ErrorCode
from protocol.messages import (
    cluster,
    configs,
    elections,
    group,
    log_dirs,
    offsets,
    producer_ids,
    topics,
    transactions,
)
from protocol.messages.api import SERVED, ApiKey, client_versions, request_class
from protocol.messages.cluster import ApiVersionsRequest
from protocol.security.acl import CLUSTER_NAME, AclEntry, AclOperation, AclPermission, AclResource
from protocol.wire.schema import Message
from tests.unit.broker.acl_rig import HOST, AclRig
from tests.unit.broker.handlers.test_every_request import NAME, UNKNOWN, Build, codes
from tests.unit.broker.login_rig import LoginRig
from tests.unit.broker.security.acls import entry

NONE = ErrorCode.NONE
T_REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
G_REFUSED = ErrorCode.GROUP_AUTHORIZATION_FAILED
C_REFUSED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
X_REFUSED = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
REFUSALS = {T_REFUSED, G_REFUSED, C_REFUSED, X_REFUSED}

OPEN_TO_ALL = {
    ApiKey.API_VERSIONS,
    ApiKey.SASL_HANDSHAKE,
    ApiKey.SASL_AUTHENTICATE,
    ApiKey.DESCRIBE_CLUSTER,
    ApiKey.LIST_GROUPS,
    ApiKey.LIST_TRANSACTIONS,
}
"""The requests that need no right. The answers to the last three leave out what the client may not
see (`test_hidden_names`)."""

BEFORE_LOGIN = {ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE}


def topic(operation: AclOperation) -> AclEntry:
    return entry(operation, NAME)


def of_group(operation: AclOperation) -> AclEntry:
    return entry(operation, "g", AclResource.GROUP)


def of_cluster(operation: AclOperation) -> AclEntry:
    return entry(operation, CLUSTER_NAME, AclResource.CLUSTER)


def of_transaction(operation: AclOperation) -> AclEntry:
    return entry(operation, "t", AclResource.TRANSACTIONAL_ID)


READ, WRITE, DELETE = AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE
CREATE, ALTER, DESCRIBE = AclOperation.CREATE, AclOperation.ALTER, AclOperation.DESCRIBE
DESCRIBE_CONFIGS, ALTER_CONFIGS = AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS

NEEDS: dict[ApiKey, tuple[tuple[AclEntry, ErrorCode], ...]] = {
    ApiKey.PRODUCE: ((topic(WRITE), T_REFUSED),),
    ApiKey.FETCH: ((topic(READ), T_REFUSED),),
    ApiKey.LIST_OFFSETS: ((topic(DESCRIBE), T_REFUSED),),
    ApiKey.METADATA: ((topic(DESCRIBE), T_REFUSED),),
    ApiKey.OFFSET_COMMIT: ((of_group(READ), G_REFUSED), (topic(READ), T_REFUSED)),
    ApiKey.OFFSET_FETCH: ((of_group(DESCRIBE), G_REFUSED), (topic(DESCRIBE), T_REFUSED)),
    ApiKey.FIND_COORDINATOR: ((of_group(DESCRIBE), G_REFUSED),),
    ApiKey.JOIN_GROUP: ((of_group(READ), G_REFUSED),),
    ApiKey.HEARTBEAT: ((of_group(READ), G_REFUSED),),
    ApiKey.LEAVE_GROUP: ((of_group(READ), G_REFUSED),),
    ApiKey.SYNC_GROUP: ((of_group(READ), G_REFUSED),),
    ApiKey.DESCRIBE_GROUPS: ((of_group(DESCRIBE), G_REFUSED),),
    ApiKey.CREATE_TOPICS: ((topic(AclOperation.ALL), T_REFUSED),),
    ApiKey.DELETE_TOPICS: ((topic(DELETE), T_REFUSED),),
    ApiKey.DELETE_RECORDS: ((topic(DELETE), T_REFUSED),),
    ApiKey.INIT_PRODUCER_ID: ((of_cluster(AclOperation.IDEMPOTENT_WRITE), C_REFUSED),),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: ((topic(DESCRIBE), T_REFUSED),),
    ApiKey.ADD_PARTITIONS_TO_TXN: ((of_transaction(WRITE), X_REFUSED), (topic(WRITE), T_REFUSED)),
    ApiKey.ADD_OFFSETS_TO_TXN: ((of_transaction(WRITE), X_REFUSED), (of_group(READ), G_REFUSED)),
    ApiKey.END_TXN: ((of_transaction(WRITE), X_REFUSED),),
    ApiKey.TXN_OFFSET_COMMIT: (
        (of_transaction(WRITE), X_REFUSED),
        (of_group(READ), G_REFUSED),
        (topic(READ), T_REFUSED),
    ),
    ApiKey.WRITE_TXN_MARKERS: ((of_cluster(ALTER), C_REFUSED),),
    ApiKey.DESCRIBE_ACLS: ((of_cluster(DESCRIBE), C_REFUSED),),
    ApiKey.CREATE_ACLS: ((of_cluster(ALTER), C_REFUSED),),
    ApiKey.DELETE_ACLS: ((of_cluster(ALTER), C_REFUSED),),
    ApiKey.DESCRIBE_CONFIGS: ((topic(DESCRIBE_CONFIGS), T_REFUSED),),
    ApiKey.ALTER_CONFIGS: ((topic(ALTER_CONFIGS), T_REFUSED),),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: ((topic(ALTER_CONFIGS), T_REFUSED),),
    ApiKey.ALTER_REPLICA_LOG_DIRS: ((of_cluster(ALTER), C_REFUSED),),
    ApiKey.DESCRIBE_LOG_DIRS: ((of_cluster(DESCRIBE), C_REFUSED),),
    ApiKey.CREATE_PARTITIONS: ((topic(ALTER), T_REFUSED),),
    ApiKey.DELETE_GROUPS: ((of_group(DELETE), G_REFUSED),),
    ApiKey.ELECT_LEADERS: ((of_cluster(ALTER), C_REFUSED),),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: ((of_cluster(ALTER), C_REFUSED),),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: ((of_cluster(DESCRIBE), C_REFUSED),),
    ApiKey.OFFSET_DELETE: ((of_group(DELETE), G_REFUSED),),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: ((of_cluster(DESCRIBE), C_REFUSED),),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: ((of_cluster(ALTER), C_REFUSED),),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: ((of_cluster(DESCRIBE_CONFIGS), C_REFUSED),),
    ApiKey.ALTER_CLIENT_QUOTAS: ((of_cluster(ALTER_CONFIGS), C_REFUSED),),
    ApiKey.DESCRIBE_QUORUM: ((of_cluster(DESCRIBE), C_REFUSED),),
    ApiKey.UPDATE_FEATURES: ((of_cluster(ALTER), C_REFUSED),),
    ApiKey.DESCRIBE_PRODUCERS: ((topic(READ), T_REFUSED),),
    ApiKey.UNREGISTER_BROKER: ((of_cluster(ALTER), C_REFUSED),),
    ApiKey.ADD_RAFT_VOTER: ((of_cluster(ALTER), C_REFUSED),),
    ApiKey.REMOVE_RAFT_VOTER: ((of_cluster(ALTER), C_REFUSED),),
    ApiKey.DESCRIBE_TRANSACTIONS: ((of_transaction(DESCRIBE), X_REFUSED),),
    ApiKey.LIST_CONFIG_RESOURCES: ((of_cluster(DESCRIBE_CONFIGS), C_REFUSED),),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: ((topic(DESCRIBE), T_REFUSED),),
}
"""The rights that each request needs, with the error of each missing right. If several rights are
missing, the answer has the first error."""


def _offset_fetch(version: int) -> Message:
    if version < 8:
        asked = offsets.OffsetFetchRequestTopic(name=NAME, partition_indexes=[0])
        return offsets.OffsetFetchRequest(group_id="g", topics=[asked])
    named = offsets.OffsetFetchRequestTopics(name=NAME, partition_indexes=[0])
    of_g = offsets.OffsetFetchRequestGroup(group_id="g", topics=[named])
    return offsets.OffsetFetchRequest(groups=[of_g])


def _find_coordinator(version: int) -> Message:
    if version < 4:
        return cluster.FindCoordinatorRequest(key="g")
    return cluster.FindCoordinatorRequest(coordinator_keys=["g"])


ASKED: dict[ApiKey, Build] = {
    **{key: build for key, (build, _) in UNKNOWN.items()},
    ApiKey.OFFSET_FETCH: _offset_fetch,
    ApiKey.FIND_COORDINATOR: _find_coordinator,
    # The session timeout is invalid, so the request is refused at once and never parked.
    ApiKey.JOIN_GROUP: lambda _: group.JoinGroupRequest(group_id="g", session_timeout_ms=1),
    ApiKey.CREATE_TOPICS: lambda _: topics.CreateTopicsRequest(
        topics=[topics.CreatableTopic(name=NAME, num_partitions=1, replication_factor=1)],
        validate_only=True,
    ),
    ApiKey.INIT_PRODUCER_ID: lambda _: producer_ids.InitProducerIdRequest(transactional_id=None),
    ApiKey.WRITE_TXN_MARKERS: lambda _: transactions.WriteTxnMarkersRequest(
        markers=[
            transactions.WritableTxnMarker(
                producer_id=1,
                topics=[transactions.WritableTxnMarkerTopic(name=NAME, partition_indexes=[0])],
            )
        ]
    ),
    ApiKey.DESCRIBE_LOG_DIRS: lambda _: log_dirs.DescribeLogDirsRequest(topics=None),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: lambda _: elections.ListPartitionReassignmentsRequest(
        topics=None
    ),
    ApiKey.LIST_CONFIG_RESOURCES: lambda _: configs.ListConfigResourcesRequest(),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: lambda _: configs.IncrementalAlterConfigsRequest(
        resources=[configs.AlterConfigsResource(resource_type=2, resource_name=NAME)]
    ),
}

MISSING = {
    ApiKey.CREATE_TOPICS: CREATE,
    ApiKey.WRITE_TXN_MARKERS: AclOperation.CLUSTER_ACTION,
}
"""The noted operation of requests that need one of several rights, or less than the table says."""

SILENT = {(ApiKey.DESCRIBE_LOG_DIRS, 1), (ApiKey.DESCRIBE_LOG_DIRS, 2)}
"""Versions whose answers have no field for the error. Without the right, these answers are
empty."""


@pytest.fixture(scope="module")
def rig() -> Iterator[AclRig]:
    rig = AclRig(auto_create_topics_enable=False)
    for name in (OFFSETS_TOPIC, TRANSACTIONS_TOPIC):
        rig.broker.parts.metadata.submit(CreateOwnTopic(name), lambda _: None, print)
    rig.flusher.sync()
    rig.turn()
    yield rig


def refusals(rig: AclRig, key: ApiKey, version: int, user: str = "shop") -> set[ErrorCode]:
    """Return the errors of missing rights in the response to a request of the table."""
    answer = rig.ask_as(ASKED[key](version), version, user)
    return codes(answer) & REFUSALS


def noted(key: ApiKey, missing: AclEntry) -> Denial:
    """Return what is noted when a request is refused because of this missing right."""
    operation = MISSING.get(key, missing.operation)
    kind, name = missing.resource_type, missing.resource_name
    return Denial("shop", HOST, operation, kind, name, key)


def test_pitfall_13_every_request_has_a_row() -> None:
    assert NEEDS.keys() | OPEN_TO_ALL == SERVED.keys()
    assert not NEEDS.keys() & OPEN_TO_ALL


@pytest.mark.parametrize("key", NEEDS, ids=lambda key: key.name.lower())
def test_pitfall_13_a_request_needs_its_rights_and_no_more(rig: AclRig, key: ApiKey) -> None:
    """Kafka CVE-2018-17196 and Redpanda CVE-2023-50976 did not check the transactional id."""
    rig.withdraw()
    needs = NEEDS[key]
    for version in client_versions(key):
        rig.withdraw()
        is_silent = (key, version) in SILENT
        first = set() if is_silent else {needs[0][1]}
        assert refusals(rig, key, version) == first, version
        # The rights of another user do not help.
        rig.allow(*(one._replace(principal="User:web") for one, _ in needs))
        assert refusals(rig, key, version) == first, version
        rig.allow(*(one for one, _ in needs))
        assert refusals(rig, key, version) == set(), version
        for one, code in needs:
            denial = one._replace(permission=AclPermission.DENY)
            rig.allow(denial)
            rig.denials.noted.clear()
            assert refusals(rig, key, version) == (set() if is_silent else {code}), version
            assert rig.denials.noted == [noted(key, one)], version
            rig.withdraw(denial)
        rig.denials.noted.clear()
        assert refusals(rig, key, version) == set(), version
        assert rig.denials.noted == [], version


@pytest.mark.parametrize("key", NEEDS, ids=lambda key: key.name.lower())
def test_without_a_login_nothing_is_needed_and_a_super_user_needs_nothing(key: ApiKey) -> None:
    rig = AclRig(super_users="User:admin;User:other", auto_create_topics_enable=False)
    rig.allow(
        *(one._replace(principal="User:*", permission=AclPermission.DENY) for one, _ in NEEDS[key])
    )
    version = client_versions(key)[-1]
    assert not codes(rig.ask(ASKED[key](version), version)) & REFUSALS
    assert refusals(rig, key, version, "admin") == set()


@pytest.mark.parametrize(
    "key", sorted(SERVED.keys() - BEFORE_LOGIN), ids=lambda key: key.name.lower()
)
def test_before_the_login_a_request_closes_the_connection_undecoded(key: ApiKey) -> None:
    rig = LoginRig()
    for version in (client_versions(key)[0], client_versions(key)[-1]):
        client = rig.connect()
        client.ask(ApiVersionsRequest(client_software_name="c", client_software_version="1"), 3)
        sent = len(client.link.sent)
        client.send(request_class(key)(), version)
        assert client.is_closed and len(client.link.sent) == sent
