"""Denials in the broker's log: which requests leave one, and what a name that is only left out
does."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from broker.security.denials import INTERVAL_MS
from protocol.errors import ErrorCode
from protocol.messages.cluster import DescribeClusterRequest
from protocol.messages.configs import AlterConfigsResource, IncrementalAlterConfigsRequest
from protocol.messages.group import ListGroupsRequest
from protocol.messages.metadata import (
    DescribeTopicPartitionsRequest,
    MetadataRequest,
    MetadataRequestTopic,
)
from protocol.messages.offsets import OffsetFetchRequest, OffsetFetchRequestGroup
from protocol.messages.topics import CreatableTopic, CreateTopicsRequest
from protocol.messages.transactions import ListTransactionsRequest
from protocol.security.acl import CLUSTER_NAME, AclOperation, AclResource
from tests.harness.wire import fetch_request
from tests.unit.broker.acl_rig import AclRig
from tests.unit.broker.handlers.test_hidden_names import commit
from tests.unit.broker.security.acls import entry
from tests.unit.broker.txn_rig import make_coordinators

READ, ALL, CREATE = AclOperation.READ, AclOperation.ALL, AclOperation.CREATE
GROUP, CLUSTER = AclResource.GROUP, AclResource.CLUSTER


@pytest.fixture
def rig(caplog: pytest.LogCaptureFixture) -> AclRig:
    caplog.set_level(logging.INFO, "broker.sessions.audit")
    made = AclRig(super_users="User:admin")
    make_coordinators(made)
    made.create("logs", 3)
    return made


def lines(caplog: pytest.LogCaptureFixture) -> list[tuple[str, dict[str, Any]]]:
    return [
        (one.getMessage(), vars(one)["mill_fields"])
        for one in caplog.records
        if one.name == "broker.sessions.audit"
    ]


def test_a_denial_says_who_asked_for_what(rig: AclRig, caplog: pytest.LogCaptureFixture) -> None:
    rig.ask_as(fetch_request("logs"), 11)
    expected = {
        "user": "shop",
        "address": "127.0.0.1",
        "operation": "read",
        "resource": "topic:logs",
        "request": "fetch",
    }
    assert lines(caplog) == [("authorization denied", expected)]
    for _ in range(3):
        rig.ask_as(fetch_request("logs"), 11)
    assert len(lines(caplog)) == 1
    assert "millrace_broker_authorization_denied_total 4\n" in rig.broker.metrics.text({})
    rig.advance(INTERVAL_MS + 1_000)
    assert lines(caplog)[1:] == [("authorization denied again", expected | {"count": 3})]


def test_what_was_not_logged_is_told_when_the_broker_stops(
    rig: AclRig, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        rig.ask_as(fetch_request("logs"), 11)
    rig.broker.stop_serving()
    assert [text for text, _ in lines(caplog)] == [
        "authorization denied",
        "authorization denied again",
    ]


def test_a_user_that_asks_for_many_names_does_not_fill_the_log(
    rig: AclRig, caplog: pytest.LogCaptureFixture
) -> None:
    names = [MetadataRequestTopic(name=f"t-{number}") for number in range(500)]
    rig.ask_as(MetadataRequest(topics=names), 8)
    assert [text for text, _ in lines(caplog)] == ["authorization denied"] * 100
    rig.advance(INTERVAL_MS + 1_000)
    more = ("more authorizations denied", {"user": "shop", "count": 400})
    assert lines(caplog)[100:] == [more]


def test_a_name_that_is_left_out_is_no_denial(rig: AclRig) -> None:
    """Kafka passes logIfDenied=false where it filters, and for the operations in answers."""
    asks = {"include_cluster_authorized_operations": True}
    rig.ask(commit(rig, "g", "logs"), 8)
    rig.ask_as(MetadataRequest(topics=None, **asks), 8)
    rig.ask_as(DescribeTopicPartitionsRequest(), 0)
    rig.ask_as(ListGroupsRequest(), 4)
    rig.ask_as(ListTransactionsRequest(), 0)
    rig.ask_as(DescribeClusterRequest(**asks), 1)
    rig.allow(entry(READ, "g", GROUP))
    every = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)])
    assert rig.ask_as(every, 8).groups[0].topics == []
    assert rig.denials.noted == []


def test_a_right_of_which_another_is_enough_is_no_denial(rig: AclRig) -> None:
    """CREATE on the topic is enough without CREATE on the cluster, and settings of a topic need no
    right on the cluster. A created topic is described without the settings that its user may not
    see."""
    rig.allow(entry(CREATE, "new"), entry(ALL, "logs"))
    topics = [CreatableTopic(name="new", num_partitions=1, replication_factor=1)]
    (created,) = rig.ask_as(CreateTopicsRequest(topics=topics), 7).topics
    assert (created.error_code, created.configs) == (0, [])
    resource = AlterConfigsResource(resource_type=2, resource_name="logs")
    (altered,) = rig.ask_as(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses
    assert altered.error_code == 0
    assert rig.denials.noted == []


def test_a_partly_denied_request_names_what_was_denied(rig: AclRig) -> None:
    rig.allow(entry(READ), entry(READ, "g", GROUP))
    answer = rig.ask_as(commit(rig, "g", "logs", "secret"), 8)
    codes = [one.partitions[0].error_code for one in answer.topics]
    assert codes == [0, ErrorCode.TOPIC_AUTHORIZATION_FAILED]
    assert [(one.operation, one.name) for one in rig.denials.noted] == [(READ, "secret")]


def test_a_client_without_a_login_and_a_super_user_leave_no_denial(rig: AclRig) -> None:
    rig.allow(entry(ALL, CLUSTER_NAME, CLUSTER, user="*", denies=True))
    rig.ask(fetch_request("logs"), 11)
    rig.ask_as(fetch_request("logs"), 11, "admin")
    assert rig.denials.noted == []
