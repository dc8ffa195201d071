"""The quota for partitions that are created and deleted (KIP-599): what is refused, what pauses,
and what does not count."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from broker.metadata.quota_changes import quota_record
from protocol.errors import ApiError, ErrorCode
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from protocol.messages.topics import (
    CreatableTopic,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from protocol.security.acl import AclOperation
from protocol.security.quota import MUTATION_RATE
from protocol.wire.schema import Message
from tests.unit.broker.acl_rig import AclRig
from tests.unit.broker.login_rig import LoginClient, LoginRig
from tests.unit.broker.security.acls import entry

QUOTA = 1.0
BURST = 11
"""The partitions that a client can change at once."""
OVER = ErrorCode.THROTTLING_QUOTA_EXCEEDED
NONE = ErrorCode.NONE


class MutationRig(LoginRig, AclRig):
    """A broker with a quota for each client id, and a client on the listener HOST."""

    def __init__(self) -> None:
        super().__init__(super_users="User:root")
        self.create("t", 4)
        self.commit(quota_record((("client-id", None),), MUTATION_RATE, QUOTA))
        self.client = self.connect("HOST")

    def changed(self, message: Message, version: int, client: LoginClient | None = None) -> Any:
        """Send a request, let its commit become durable, and return the answer."""
        client = client or self.client
        client.send(message, version)
        for _ in range(3):
            self.flusher.sync()
            self.world.settle()
        return client.answer(type(message), version)

    def created(self, topics: Mapping[str, int], version: int = 7, **more: Any) -> Any:
        request = CreateTopicsRequest(
            topics=[
                CreatableTopic(name=name, num_partitions=count, replication_factor=1)
                for name, count in topics.items()
            ],
            **more,
        )
        return self.changed(request, version)


def codes(answer: Any) -> dict[str, ErrorCode]:
    results = getattr(answer, "topics", None) or getattr(answer, "results", None)
    return {one.name: ErrorCode(one.error_code) for one in results or answer.responses}


@pytest.fixture
def rig() -> MutationRig:
    return MutationRig()


def test_topics_above_the_quota_are_refused_and_the_others_created(rig: MutationRig) -> None:
    answer = rig.created({"a": 10, "b": 5, "c": 1})
    assert codes(answer) == {"a": NONE, "b": NONE, "c": OVER}
    # Eleven are there at once, so four of the fifteen are missing.
    assert answer.throttle_time_ms == 4_000
    topics = rig.broker.parts.metadata.image.topics
    assert {"a", "b"} <= topics.keys() and "c" not in topics
    # The connection pauses as long as the answer says.
    assert rig.changed(MetadataRequest(topics=[]), 12) is None
    rig.let_time_pass(4_000)
    assert rig.client.answer(MetadataRequest, 12).brokers
    assert codes(rig.created({"c": 1})) == {"c": NONE}


def test_an_earlier_version_has_no_error_and_pauses(rig: MutationRig) -> None:
    answer = rig.created({"a": 10, "b": 5, "c": 1}, 5)
    assert set(codes(answer).values()) == {NONE}
    assert answer.throttle_time_ms == 5_000
    assert rig.changed(MetadataRequest(topics=[]), 12) is None


def test_a_request_of_which_nothing_is_left_is_answered_at_once(rig: MutationRig) -> None:
    rig.created({"a": 12})
    answer = rig.created({"b": 1})
    assert codes(answer) == {"b": OVER}
    assert answer.throttle_time_ms == 1_000
    assert "quota" in answer.topics[0].error_message


def test_what_is_not_changed_does_not_count(rig: MutationRig) -> None:
    for _ in range(5):
        assert codes(rig.created({"t": 9})) == {"t": ErrorCode.TOPIC_ALREADY_EXISTS}
        assert codes(rig.created({"new": 9}, validate_only=True)) == {"new": NONE}
        gone = DeleteTopicsRequest(topics=[DeleteTopicState(name="absent")])
        assert codes(rig.changed(gone, 6)) == {"absent": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert codes(rig.created({"a": BURST, "b": 1, "c": 1})) == {"a": NONE, "b": NONE, "c": OVER}


@pytest.mark.parametrize(
    ("version", "code"), [(2, NONE), (3, OVER)], ids=["before KIP-599", "since"]
)
def test_more_partitions_count_only_the_new_ones(
    rig: MutationRig, version: int, code: ErrorCode
) -> None:
    def grown(count: int) -> Any:
        topic = CreatePartitionsTopic(name="t", count=count, assignments=None)
        return rig.changed(CreatePartitionsRequest(topics=[topic]), version)

    first = grown(4 + BURST + 1)
    assert codes(first) == {"t": NONE}
    if version == 3:
        second = grown(4 + BURST + 2)
        assert codes(second) == {"t": code} and second.throttle_time_ms == 1_000
    else:
        assert first.throttle_time_ms == 1_000


@pytest.mark.parametrize("by_id", [False, True])
def test_a_deleted_topic_counts_its_partitions(rig: MutationRig, by_id: bool) -> None:
    rig.created({"a": BURST + 1})
    rig.create("u")
    topic_id = rig.broker.parts.metadata.image.topics["t"].topic_id
    state = DeleteTopicState(topic_id=topic_id) if by_id else DeleteTopicState(name="t")
    answer = rig.changed(DeleteTopicsRequest(topics=[state]), 6)
    assert codes(answer) == {"t": OVER} and answer.throttle_time_ms == 1_000
    rig.let_time_pass(1_000)
    assert codes(rig.changed(DeleteTopicsRequest(topics=[state]), 6)) == {"t": NONE}
    answer = rig.changed(DeleteTopicsRequest(topic_names=["u"]), 4)
    assert codes(answer) == {"u": NONE} and answer.throttle_time_ms == 5_000


def test_an_order_without_a_result_stays_counted_and_names_all_topics(
    rig: MutationRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = ApiError(ErrorCode.REQUEST_TIMED_OUT, "too late")
    with monkeypatch.context() as patch:
        metadata = rig.broker.parts.metadata
        patch.setattr(metadata, "submit", lambda order, reply, refused, *_: refused(late))
        answer = rig.created({"a": BURST + 1, "b": 1})
    assert codes(answer) == {"a": ErrorCode.REQUEST_TIMED_OUT, "b": OVER}
    rig.let_time_pass(500)
    assert rig.client.session.is_throttled


def test_a_topic_that_metadata_would_create_counts(rig: MutationRig) -> None:
    rig.created({"a": BURST + 1})
    asked = MetadataRequest(topics=[MetadataRequestTopic(name="auto")])
    (topic,) = rig.changed(asked, 9).topics
    assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    rig.let_time_pass(2_000)
    (topic,) = rig.changed(asked, 9).topics
    assert topic.error_code == NONE


def test_pitfall_19_a_quota_tells_nothing_of_hidden_topics(rig: MutationRig) -> None:
    """A user that is over its quota gets the same error for topics that exist and others."""
    rig.set_password("root", "secret")
    rig.set_password("shop", "secret")
    rig.allow(entry(AclOperation.CREATE, "mine"))
    client = rig.connect()
    assert client.log_in().error_code == 0
    mine = CreatableTopic(name="mine", num_partitions=BURST + 1, replication_factor=1)
    assert codes(rig.changed(CreateTopicsRequest(topics=[mine]), 7, client)) == {"mine": NONE}
    refused = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    states = [DeleteTopicState(name=name) for name in ("t", "absent")]
    answer = rig.changed(DeleteTopicsRequest(topics=states), 6, client)
    assert codes(answer) == {"t": refused, "absent": refused}
    more = [
        CreatePartitionsTopic(name=name, count=99, assignments=None) for name in ("t", "absent")
    ]
    answer = rig.changed(CreatePartitionsRequest(topics=more), 3, client)
    assert codes(answer) == {"t": refused, "absent": refused}


def test_the_mills_own_parts_have_no_quota(rig: MutationRig) -> None:
    rig.client = rig.connect("MILL")
    assert codes(rig.created({"a": 100, "b": 100})) == {"a": NONE, "b": NONE}
