"""The requests that clients may send about the quorum, and the answers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from broker.cluster.describe_quorum import describe_quorum
from broker.controller.features import (
    SAFE_DOWNGRADE,
    UNSAFE_DOWNGRADE,
    UPGRADE,
    FeatureUpdate,
    update_features,
)
from broker.interbroker.envelope import envelope_handlers
from broker.metadata.broker_image import BrokerImage
from broker.metadata.features import METADATA_LEVEL, METADATA_VERSION
from broker.metadata.image import METADATA_TOPIC, MetadataImage
from broker.quorum.quorum_status import QuorumReplicaStatus, QuorumStatus
from broker.quorum.voters import Endpoint, ReplicaKey, Voter
from protocol.errors import ApiError, ErrorCode
from protocol.messages.api import ApiKey, response_class
from protocol.messages.features import FeatureUpdateKey, UpdateFeaturesRequest
from protocol.messages.headers import decode_response_header, encode_request
from protocol.messages.membership import (
    EnvelopeRequest,
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)
from protocol.messages.topics import DeleteTopicsRequest, DeleteTopicState
from protocol.messages.voters import (
    AddRaftVoterRequest,
    DescribeQuorumRequest,
    DescribeQuorumRequestPartition,
    DescribeQuorumRequestTopic,
    QuorumListener,
    QuorumNode,
    RemoveRaftVoterRequest,
)
from protocol.types import ZERO_UUID, Uuid, uuid_from_base64
from tests.unit.broker.rig import Rig
from tests.unit.storage.kit import NOW

UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
ONE, TWO, THREE, FOUR = (ReplicaKey(number, Uuid(int=number)) for number in (1, 2, 3, 4))


def asking(*partitions: tuple[str, int]) -> DescribeQuorumRequest:
    return DescribeQuorumRequest(
        topics=[
            DescribeQuorumRequestTopic(
                topic_name=name,
                partitions=[DescribeQuorumRequestPartition(partition_index=index)],
            )
            for name, index in partitions
        ]
    )


THE_LOG = asking((METADATA_TOPIC, 0))

STANDING = QuorumStatus(
    leader_id=2,
    epoch=7,
    committed_offset=90,
    voters=(
        QuorumReplicaStatus(ONE, 88, 400, 1_200),
        QuorumReplicaStatus(TWO, 91, 0, 0),
        QuorumReplicaStatus(THREE, -1, None, None),
    ),
    observers=(QuorumReplicaStatus(FOUR, 12, 5, None),),
    members=(
        Voter(ONE, (Endpoint("BROKER", "one", 29_092),)),
        Voter(TWO),
        Voter(THREE, (Endpoint("BROKER", "three", 3),)),
    ),
)
IMAGE = MetadataImage(
    brokers={
        number: BrokerImage(
            number, Uuid(int=9), 5, {"BROKER": ("new", 1), "HOST": ("h", 9092)}, None, False
        )
        for number in (1, 2)
    }
)


def test_the_answer_has_everybodys_end_and_times_in_unix_time() -> None:
    answer = describe_quorum(THE_LOG, STANDING, IMAGE, NOW)
    (topic,) = answer.topics
    (one,) = topic.partitions
    assert (topic.topic_name, one.partition_index, one.error_code) == (METADATA_TOPIC, 0, 0)
    assert (one.leader_id, one.leader_epoch, one.high_watermark) == (2, 7, 90)
    states = [
        (
            state.replica_id,
            state.replica_directory_id,
            state.log_end_offset,
            state.last_fetch_timestamp,
            state.last_caught_up_timestamp,
        )
        for state in [*one.current_voters, *one.observers]
    ]
    assert states == [
        (1, ONE.directory_id, 88, NOW - 400, NOW - 1_200),
        (2, TWO.directory_id, 91, NOW, NOW),
        (3, THREE.directory_id, -1, -1, -1),
        (4, FOUR.directory_id, 12, NOW - 5, -1),
    ]
    assert len(one.current_voters) == 3


def test_a_voter_has_the_address_of_the_voter_set_and_else_that_of_its_registration() -> None:
    answer = describe_quorum(THE_LOG, STANDING, IMAGE, NOW)
    assert answer.nodes == [
        QuorumNode(node_id=1, listeners=[QuorumListener(name="BROKER", host="one", port=29092)]),
        QuorumNode(node_id=2, listeners=[QuorumListener(name="BROKER", host="new", port=1)]),
        QuorumNode(node_id=3, listeners=[QuorumListener(name="BROKER", host="three", port=3)]),
    ]


@pytest.mark.parametrize(
    "partitions",
    [[("logs", 0)], [(METADATA_TOPIC, 1)], [(METADATA_TOPIC, 0), ("logs", 0)]],
    ids=str,
)
def test_nothing_but_the_metadata_log_has_a_quorum(partitions: list[tuple[str, int]]) -> None:
    answer = describe_quorum(asking(*partitions), STANDING, IMAGE, NOW)
    found = [
        (topic.topic_name, one.partition_index, one.error_code)
        for topic in answer.topics
        for one in topic.partitions
    ]
    assert found == [(name, index, UNKNOWN) for name, index in partitions]
    assert answer.nodes == []


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_broker_that_is_alone_describes_itself_in_every_version(version: int) -> None:
    rig = Rig()
    answer = rig.ask(THE_LOG, version)
    (one,) = answer.topics[0].partitions
    assert (answer.error_code, one.error_code, one.leader_id) == (0, 0, 1)
    assert one.high_watermark == rig.broker.parts.metadata.image.end_offset
    (voter,) = one.current_voters
    assert (voter.replica_id, voter.log_end_offset) == (1, one.high_watermark)
    assert voter.last_caught_up_timestamp == (NOW if version else -1)
    assert (voter.replica_directory_id == ZERO_UUID) == (version < 2)
    assert [node.node_id for node in answer.nodes] == ([1] if version > 1 else [])


def test_a_broker_in_service_is_not_forgotten_and_one_that_is_unknown_has_its_code() -> None:
    rig = Rig()
    refused = rig.ask(UnregisterBrokerRequest(broker_id=1), 0)
    assert refused.error_code == ErrorCode.INVALID_REQUEST
    assert "stop it first" in refused.error_message
    assert 1 in rig.broker.parts.metadata.image.brokers
    unknown = rig.ask(UnregisterBrokerRequest(broker_id=8), 0)
    assert unknown.error_code == ErrorCode.BROKER_ID_NOT_REGISTERED


VOTER_ID = uuid_from_base64("AAAAAAAAAAAAAAAAAAAABQ")


def adding(**fields: Any) -> AddRaftVoterRequest:
    listeners = [QuorumListener(name="BROKER", host="five", port=9_192)]
    given = {
        "cluster_id": None,
        "voter_id": 5,
        "voter_directory_id": VOTER_ID,
        "listeners": listeners,
    }
    return AddRaftVoterRequest(**{**given, **fields})


def removing(node_id: int, directory_id: Uuid) -> RemoveRaftVoterRequest:
    return RemoveRaftVoterRequest(
        cluster_id=None, voter_id=node_id, voter_directory_id=directory_id
    )


@pytest.mark.parametrize("version", [0, 1])
def test_a_node_that_does_not_observe_is_not_added(version: int) -> None:
    answer = Rig().ask(adding(), version)
    assert answer.error_code == ErrorCode.REQUEST_TIMED_OUT
    assert "has not caught up" in answer.error_message


@pytest.mark.parametrize(
    ("fields", "code", "why"),
    [
        ({"cluster_id": "other"}, ErrorCode.INCONSISTENT_CLUSTER_ID, "for cluster other"),
        ({"listeners": []}, ErrorCode.INVALID_REQUEST, "are none; expected BROKER once"),
        (
            {"listeners": [QuorumListener(name=one) for one in ("BROKER", "HOST", "HOST")]},
            ErrorCode.INVALID_REQUEST,
            "BROKER, HOST, HOST",
        ),
        ({"voter_id": 1}, ErrorCode.DUPLICATE_VOTER, "is already a voter, with directory"),
    ],
    ids=str,
)
def test_a_voter_that_cannot_be_added(fields: Any, code: ErrorCode, why: str) -> None:
    answer = Rig().ask(adding(**fields), 1)
    assert answer.error_code == code
    assert why in answer.error_message


def test_a_voter_that_cannot_be_removed() -> None:
    rig = Rig()
    unknown = rig.ask(removing(5, VOTER_ID), 0)
    assert unknown.error_code == ErrorCode.VOTER_NOT_FOUND
    (voter,) = rig.ask(THE_LOG, 2).topics[0].partitions[0].current_voters
    only = rig.ask(removing(1, voter.replica_directory_id), 0)
    assert only.error_code == ErrorCode.INVALID_REQUEST and "only voter" in only.error_message


FEATURES = [
    (METADATA_VERSION, METADATA_LEVEL, UPGRADE, None),
    (METADATA_VERSION, METADATA_LEVEL + 1, UPGRADE, "is not supported"),
    (METADATA_VERSION, METADATA_LEVEL - 1, UPGRADE, "request a downgrade"),
    (METADATA_VERSION, METADATA_LEVEL - 1, UNSAFE_DOWNGRADE, "restore a backup"),
    (METADATA_VERSION, METADATA_LEVEL, 9, "upgrade type 9"),
    (METADATA_VERSION, -1, UPGRADE, "found level -1"),
    ("transaction.version", 2, UPGRADE, "is not supported"),
    ("transaction.version", 0, SAFE_DOWNGRADE, None),
]


@pytest.mark.parametrize(("feature", "level", "kind", "why"), FEATURES)
def test_a_feature_has_its_level_or_the_reason_why_not(
    feature: str, level: int, kind: int, why: str | None
) -> None:
    update = FeatureUpdateKey(feature=feature, max_version_level=level, upgrade_type=kind)
    image = MetadataImage(features={METADATA_VERSION: METADATA_LEVEL})
    order = FeatureUpdate(UpdateFeaturesRequest(feature_updates=[update]), [])
    outcome = update_features(order, image)
    (result,) = outcome.reply.results
    assert outcome.records == [] and result.feature == feature
    assert result.error_code == (ErrorCode.INVALID_UPDATE_VERSION if why else ErrorCode.NONE)
    assert (result.error_message is None) == (why is None)
    assert (why or "") in (result.error_message or "")


@pytest.mark.parametrize(("allows", "why"), [(True, ""), (False, "request a downgrade")])
def test_version_0_asks_for_a_safe_downgrade_in_its_own_word(allows: bool, why: str) -> None:
    update = FeatureUpdateKey(
        feature=METADATA_VERSION, max_version_level=METADATA_LEVEL - 1, allow_downgrade=allows
    )
    (result,) = Rig().ask(UpdateFeaturesRequest(feature_updates=[update]), 0).results
    assert (why in (result.error_message or "")) and (result.error_message is None) == allows


def passed_on(request: Any, key: ApiKey, error: ApiError) -> Any:
    """Return the response in the envelope when the controller refuses a forwarded order."""
    version = key.valid_versions[-1]
    answers: list[Any] = []
    metadata: Any = SimpleNamespace(
        controller=SimpleNamespace(is_active=True),
        decide=lambda order, reply, refused, host, user: refused(error),
    )
    call: Any = SimpleNamespace(answer=answers.append)
    frame = encode_request(request, version, 3, None)[4:]
    request_in_envelope = EnvelopeRequest(request_data=frame, request_principal=None)
    envelope_handlers(metadata)[ApiKey.ENVELOPE](call, request_in_envelope)
    (envelope,) = answers
    if envelope.response_data is None:
        return envelope
    data = bytes(envelope.response_data)
    _, position = decode_response_header(data, key, version)
    return response_class(key).decode(data, version, position)[0]


def test_the_words_of_a_refusal_come_back_through_the_envelope_where_an_answer_has_room() -> None:
    order = UnregisterBrokerRequest(broker_id=2)
    error = ApiError(ErrorCode.INVALID_REQUEST, "stop it first")
    assert passed_on(order, ApiKey.UNREGISTER_BROKER, error) == UnregisterBrokerResponse(
        error_code=ErrorCode.INVALID_REQUEST, error_message="stop it first"
    )
    topics = DeleteTopicsRequest(topics=[DeleteTopicState(name="t")])
    refused = passed_on(topics, ApiKey.DELETE_TOPICS, error)
    assert (refused.error_code, refused.response_data) == (ErrorCode.INVALID_REQUEST, None)


def test_an_order_that_was_lost_with_its_controller_may_be_carried_out_yet() -> None:
    order = UnregisterBrokerRequest(broker_id=2)
    lost = passed_on(order, ApiKey.UNREGISTER_BROKER, ApiError(ErrorCode.NOT_CONTROLLER))
    assert (lost.error_code, lost.response_data) == (ErrorCode.NETWORK_EXCEPTION, None)
