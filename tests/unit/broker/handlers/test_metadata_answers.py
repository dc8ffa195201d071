"""Metadata answers: the topics listed, their fields, and the topics created by the request."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from broker.handlers.reachable import controller_on
from broker.metadata.broker_image import BrokerImage
from broker.metadata.image import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, MetadataImage
from protocol.errors import ErrorCode
from protocol.messages.api import ApiKey
from protocol.messages.cluster import DescribeClusterRequest
from protocol.messages.headers import decode_response_header
from protocol.messages.metadata import (
    DescribeTopicPartitionsRequest,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    TopicRequest,
)
from protocol.types import NO_NODE, Uuid
from tests.unit.broker.rig import Rig
from tests.unit.broker.txn_rig import make_coordinators
from tests.unit.protocol.test_oracle_kafka_python import their_class, to_theirs

VERSIONS = range(13)
CONSENT_SINCE = 4
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.fixture
def rig() -> Iterator[Rig]:
    rig = Rig()
    rig.create("a", 2)
    rig.create("b")
    yield rig


def ask(rig: Rig, version: int, *names: str, consents: bool = True) -> MetadataResponse:
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=name) for name in names],
        allow_auto_topic_creation=consents,
    )
    answer: MetadataResponse = rig.ask(request, version)
    return answer


def names_in(answer: MetadataResponse) -> list[str | None]:
    return [topic.name for topic in answer.topics]


def exists(rig: Rig, name: str) -> bool:
    return name in rig.broker.parts.metadata.image.topics


@pytest.mark.parametrize("version", VERSIONS)
def test_no_topics_are_asked_for_by_an_empty_list_and_all_by_none(rig: Rig, version: int) -> None:
    """Version 0 has no null, so an empty list asks for all topics there."""
    assert names_in(ask(rig, version)) == ([] if version else ["a", "b"])
    if version:
        assert names_in(rig.ask(MetadataRequest(topics=None), version)) == ["a", "b"]
    assert names_in(ask(rig, version, "b")) == ["b"]


@pytest.mark.parametrize("version", VERSIONS)
def test_pitfall_17_a_missing_topic_is_made_at_once_for_who_consents(
    rig: Rig, version: int
) -> None:
    """The response already has the topic, because clients give up after a few UNKNOWN responses in
    a row."""
    (topic,) = ask(rig, version, "made").topics
    assert (topic.name, topic.error_code, len(topic.partitions)) == ("made", ErrorCode.NONE, 1)
    assert topic.partitions[0].leader_id == 1
    assert exists(rig, "made")


@pytest.mark.parametrize("version", [one for one in VERSIONS if one >= CONSENT_SINCE])
def test_no_topic_is_made_for_who_does_not_consent(rig: Rig, version: int) -> None:
    (topic,) = ask(rig, version, "made", consents=False).topics
    assert (topic.name, topic.error_code) == ("made", UNKNOWN)
    assert not exists(rig, "made")


@pytest.mark.parametrize("version", VERSIONS)
def test_no_topic_is_made_where_the_node_does_not_allow_it(version: int) -> None:
    rig = Rig(auto_create_topics_enable=False)
    (topic,) = ask(rig, version, "made").topics
    assert (topic.name, topic.error_code) == ("made", UNKNOWN)
    assert not exists(rig, "made")


@pytest.mark.parametrize("version", VERSIONS)
def test_no_topic_is_made_whose_name_collides_with_another(rig: Rig, version: int) -> None:
    rig.create("a.b")
    (topic,) = ask(rig, version, "a_b").topics
    assert (topic.name, topic.error_code) == ("a_b", ErrorCode.INVALID_TOPIC_EXCEPTION)
    assert not exists(rig, "a_b")


def test_no_topic_is_made_by_asking_for_all(rig: Rig) -> None:
    assert names_in(rig.ask(MetadataRequest(topics=None), 9)) == ["a", "b"]
    assert names_in(rig.ask(MetadataRequest(topics=[]), 0)) == ["a", "b"]


def test_one_request_makes_only_so_many_topics() -> None:
    rig = Rig(max_auto_created_topics=2)
    names = [f"made{number}" for number in range(5)]
    codes = [topic.error_code for topic in ask(rig, 9, *names).topics]
    assert codes == [ErrorCode.NONE] * 2 + [UNKNOWN] * 3
    # Each further request creates two more topics.
    ask(rig, 9, *names)
    assert {topic.error_code for topic in ask(rig, 9, *names).topics} == {ErrorCode.NONE}


def test_a_topic_that_the_disk_refuses_has_no_leader_yet(rig: Rig) -> None:
    rig.disk.refuses = lambda path, operation: operation == "write" and "_metadata-0" in path
    (topic,) = ask(rig, 9, "made").topics
    assert ErrorCode(topic.error_code) is ErrorCode.LEADER_NOT_AVAILABLE
    assert not exists(rig, "made")
    rig.disk.refuses = None
    assert ask(rig, 9, "made").topics[0].error_code == ErrorCode.NONE


@pytest.mark.parametrize("version", [one for one in VERSIONS if one])
def test_pitfall_16_the_internal_topics_are_flagged_as_such(rig: Rig, version: int) -> None:
    """Clients that subscribe by a pattern skip exactly the topics with this flag."""
    make_coordinators(rig)
    topics = rig.ask(MetadataRequest(topics=None), version).topics
    found = {one.name: one.is_internal for one in topics}
    assert found == {OFFSETS_TOPIC: True, TRANSACTIONS_TOPIC: True, "a": False, "b": False}


def test_pitfall_16_the_internal_topics_are_flagged_page_by_page(rig: Rig) -> None:
    make_coordinators(rig)
    names = [TopicRequest(name=name) for name in ("a", OFFSETS_TOPIC, TRANSACTIONS_TOPIC)]
    page = rig.ask(DescribeTopicPartitionsRequest(topics=names), 0)
    found = {one.name: one.is_internal for one in page.topics}
    assert found == {"a": False, OFFSETS_TOPIC: True, TRANSACTIONS_TOPIC: True}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("version", range(9, 13))
def test_pitfall_42_another_client_reads_our_flexible_answers_to_the_byte(
    rig: Rig, version: int
) -> None:
    """kafka-python has compiled Kafka's own schema, so it must decode exactly our fields."""
    make_coordinators(rig)
    asked = rig.send(MetadataRequest(topics=None), version)
    frame = b"".join(bytes(chunk) for chunk in asked.slot.answer or ())[4:]  # type: ignore[call-overload]  # bytes-like
    _, position = decode_response_header(frame, ApiKey.METADATA, version)
    target = their_class(MetadataResponse)
    read = target.decode(frame[position:], version=version)
    written = to_theirs(asked.answer, target, version).encode(version=version)
    assert bytes(written) == frame[position:]
    parts = rig.broker.parts
    image = parts.metadata.image
    assert [(one.node_id, one.host, one.port, one.rack) for one in read.brokers] == [
        (1, "host", 1, None)
    ]
    assert (read.cluster_id, read.controller_id) == (rig.broker.settings.config.cluster_id, 1)
    assert len(read.topics) == 4
    for topic in read.topics:
        known = image.topics[topic.name]
        assert (topic.error_code, topic.is_internal) == (0, known.is_internal)
        assert version < 10 or topic.topic_id == known.topic_id
        found = [
            (one.error_code, one.partition_index, one.leader_id, one.leader_epoch,
             list(one.replica_nodes), list(one.isr_nodes), list(one.offline_replicas))
            for one in topic.partitions
        ]  # fmt: skip
        assert found == [
            (0, index, 1, one.leader_epoch, [1], [1], [])
            for index, one in enumerate(known.partitions)
        ]


@pytest.mark.parametrize(
    ("fenced", "leader_id", "named"),
    [
        ((), 2, 2),
        ((), 1, 1),
        ((), NO_NODE, 1),
        ((2,), 2, 1),
        ((1,), NO_NODE, 2),
        ((1,), 1, 2),
        ((1, 2, 3), 1, NO_NODE),
    ],
)
def test_a_controller_is_named_that_is_among_the_brokers_of_the_answer(
    fenced: tuple[int, ...], leader_id: int, named: int
) -> None:
    """The answer must not name a controller that the client cannot reach, because the client would
    wait for it."""
    brokers = {
        number: BrokerImage(
            number, Uuid(int=number), 5, {"HOST": ("h", number)}, None, number in fenced
        )
        for number in (1, 2, 3)
    }
    image = MetadataImage(brokers=brokers)
    assert controller_on(image, "HOST", leader_id, own_id=1) == named
    assert controller_on(image, "OTHER", leader_id, own_id=1) == NO_NODE


def test_without_brokers_on_the_listener_no_controller_is_named(rig: Rig) -> None:
    for request, version in ((MetadataRequest(topics=[]), 12), (DescribeClusterRequest(), 0)):
        assert rig.send(request, version, listener="OTHER").answer.controller_id == NO_NODE
        assert rig.send(request, version).answer.controller_id == 1


def test_the_rack_of_the_last_start_is_named() -> None:
    rig = Rig()
    for rack in (None, "hall-1", "hall-2"):
        rig.rack = rack
        rig.power_cut(random.Random(1))
        (broker,) = rig.send(MetadataRequest(topics=[]), 12).answer.brokers
        (described,) = rig.send(DescribeClusterRequest(), 0).answer.brokers
        assert broker.rack == described.rack == rack
