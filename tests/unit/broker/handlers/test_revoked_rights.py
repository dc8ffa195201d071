"""When a right ends, everything that was begun with it ends too (pitfalls 17 and 20)."""

from __future__ import annotations

import random
from typing import Any

import pytest

from protocol.errors import ErrorCode
from protocol.messages.acls import CreateAclsRequest, DeleteAclsRequest
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol.messages.group import DescribeGroupsRequest, HeartbeatRequest
from protocol.messages.produce import ProduceRequest
from protocol.messages.topics import CreatableTopic, CreateTopicsRequest
from protocol.security.acl import AclEntry, AclOperation, AclResource
from tests.harness.wire import batch_of, fetch_request, produce_request
from tests.unit.broker.acl_rig import AclRig, creation, exact_filter
from tests.unit.broker.group_rig import joining, prepare, syncing
from tests.unit.broker.login_rig import LoginClient, LoginRig
from tests.unit.broker.security.acls import entry

READ, WRITE, CREATE = AclOperation.READ, AclOperation.WRITE, AclOperation.CREATE
GROUP = AclResource.GROUP
T_REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
G_REFUSED = ErrorCode.GROUP_AUTHORIZATION_FAILED


class AclLoginRig(LoginRig, AclRig):
    """A broker with logins, whose user `shop` is no super user."""


@pytest.fixture
def rig() -> AclLoginRig:
    made = AclLoginRig(super_users="User:root")
    made.set_password("shop", "secret")
    made.create("logs")
    return made


def logged_in(rig: AclLoginRig) -> LoginClient:
    client = rig.connect()
    assert client.log_in().error_code == 0
    return client


def produce(rig: AclLoginRig, client: LoginClient) -> int:
    """Write one record. Return the error code."""
    client.send(produce_request("logs", batch_of([b"v"])), 9)
    rig.flusher.sync()
    rig.world.settle()
    (topic,) = client.answer(ProduceRequest, 9).responses
    return int(topic.partition_responses[0].error_code)


def test_a_user_without_acls_can_log_in_and_do_nothing(rig: AclLoginRig) -> None:
    client = logged_in(rig)
    assert produce(rig, client) == T_REFUSED
    answer = client.ask(fetch_request("logs"), 11)
    assert answer.responses[0].partitions[0].error_code == T_REFUSED
    assert not client.is_closed


def test_pitfall_20_the_fast_path_of_produce_knows_the_right(rig: AclLoginRig) -> None:
    """The third and the fourth Produce have the same bytes in front of the batch. So the fast path
    would accept the fourth."""
    rig.allow(entry(WRITE))
    client = logged_in(rig)
    for _ in range(3):
        assert produce(rig, client) == 0
    assert client.session.template is not None
    rig.withdraw(entry(WRITE))
    assert produce(rig, client) == T_REFUSED
    assert rig.broker.parts.replicas.find("logs", 0).log.log_end_offset == 3
    rig.allow(entry(WRITE))
    assert produce(rig, client) == 0
    rig.allow(entry(WRITE, denies=True))
    assert produce(rig, client) == T_REFUSED


def test_pitfall_20_a_parked_fetch_is_answered_when_its_right_ends(rig: AclLoginRig) -> None:
    rig.allow(entry(READ), entry(READ, user="web"))
    client = logged_in(rig)
    client.send(fetch_request("logs", max_wait_ms=60_000), 11)
    assert client.session.parked_fetch is not None
    rig.withdraw(entry(READ, user="web"))
    assert client.session.parked_fetch is not None
    rig.withdraw(entry(READ))
    rig.world.settle()
    answer = client.answer(FetchRequest, 11)
    assert answer.responses[0].partitions[0].error_code == T_REFUSED
    assert client.session.parked_fetch is None


def fetch(session_id: int, epoch: int, *names: str) -> FetchRequest:
    return FetchRequest(
        session_id=session_id,
        session_epoch=epoch,
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=1 << 20,
        topics=[
            FetchTopic(topic=name, partitions=[FetchPartition(partition_max_bytes=1 << 20)])
            for name in names
        ],
    )


def test_pitfall_20_an_open_fetch_session_loses_the_partition(rig: AclLoginRig) -> None:
    rig.create("more")
    rig.allow(entry(READ), entry(READ, "more"))
    client = logged_in(rig)
    opened = client.ask(fetch(0, 0, "logs", "more"), 12)
    assert opened.session_id
    assert client.ask(fetch(opened.session_id, 1), 12).responses == []
    rig.withdraw(entry(READ))
    answer = client.ask(fetch(opened.session_id, 2), 12)
    assert [(one.topic, one.partitions[0].error_code) for one in answer.responses] == [
        ("logs", T_REFUSED)
    ]
    rig.allow(entry(READ))
    answer = client.ask(fetch(opened.session_id, 3), 12)
    assert [(one.topic, one.partitions[0].error_code) for one in answer.responses] == [("logs", 0)]


def test_a_fetch_session_belongs_to_its_user(rig: AclLoginRig) -> None:
    """Otherwise another user could read the topic names of the session, or close the session."""
    rig.allow(entry(READ))
    rig.set_password("web", "secret")
    client, other = logged_in(rig), rig.connect()
    assert other.log_in("web").error_code == 0
    opened = client.ask(fetch(0, 0, "logs"), 12)
    answer = other.ask(fetch(opened.session_id, 1), 12)
    assert answer.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND and not answer.responses
    other.ask(fetch(opened.session_id, -1), 12)
    assert client.ask(fetch(opened.session_id, 1), 12).error_code == 0


@pytest.fixture
def groups() -> AclRig:
    rig = AclRig(group_initial_rebalance_delay_ms=0)
    prepare(rig)
    return rig


def joined_as(rig: AclRig, user: str, **changes: Any) -> Any:
    """Let a member of this user join. Return the response."""
    answer = rig.ask_as(joining(**changes), 9, user)
    if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
        answer = rig.ask_as(joining(answer.member_id, **changes), 9, user)
    return answer


def members_of(rig: AclRig) -> list[str]:
    (group,) = rig.ask(DescribeGroupsRequest(groups=["g"]), 5).groups
    return [one.member_id for one in group.members]


def test_pitfall_20_a_member_leaves_its_group_with_its_right(groups: AclRig) -> None:
    """The partitions of the removed member go to the others at once, and not after the session
    timeout."""
    shop, web = entry(READ, "g", GROUP), entry(READ, "g", GROUP, user="web")
    groups.allow(shop, web)
    first = joined_as(groups, "shop")
    assert first.error_code == 0
    assert groups.ask_as(syncing(first, 5, b"all"), 5).error_code == 0
    assert members_of(groups) == [first.member_id]
    groups.withdraw(web)
    assert members_of(groups) == [first.member_id]
    groups.withdraw(shop)
    assert members_of(groups) == []
    beat = HeartbeatRequest(
        group_id="g", generation_id=first.generation_id, member_id=first.member_id
    )
    assert groups.ask_as(beat, 4).error_code == G_REFUSED
    assert joined_as(groups, "shop").error_code == G_REFUSED


def test_pitfall_20_a_join_that_waits_is_refused_when_its_right_ends(groups: AclRig) -> None:
    shop, web = entry(READ, "g", GROUP), entry(READ, "g", GROUP, user="web")
    groups.allow(shop, web)
    first = joined_as(groups, "shop")
    assert groups.ask_as(syncing(first, 5, b"all"), 5).error_code == 0
    known = groups.ask_as(joining(), 9, "web").member_id
    waiting = groups.start_as(joining(known), 9, "web")
    assert not waiting.is_answered()
    groups.withdraw(web)
    assert groups.settle(waiting).error_code == G_REFUSED
    assert members_of(groups) == [first.member_id]


def test_a_member_without_a_login_stays_whatever_the_acls_say(groups: AclRig) -> None:
    answer = groups.ask(joining(), 9)
    answer = groups.ask(joining(answer.member_id), 9)
    assert answer.error_code == 0
    groups.allow(entry(AclOperation.ALL, "*", GROUP, user="*", denies=True))
    assert members_of(groups) == [answer.member_id]


def test_pitfall_17_a_right_that_is_being_withdrawn_gives_no_more(rig: AclLoginRig) -> None:
    """The withdrawal is decided but not yet committed when CreateTopics arrives
    (CVE-2026-100235)."""
    right = entry(CREATE, "new")
    rig.allow(right)
    removal = rig.send(DeleteAclsRequest(filters=[exact_filter(right)]), 3)
    topic = CreatableTopic(name="new", num_partitions=1, replication_factor=1)
    order = rig.start_as(CreateTopicsRequest(topics=[topic]), 7)
    assert not removal.is_answered() and not order.is_answered()
    assert right in rig.broker.parts.metadata.image.acls.ids
    assert rig.settle(order).topics[0].error_code == T_REFUSED
    grant = rig.send(CreateAclsRequest(creations=[creation(right)]), 3)
    order = rig.start_as(CreateTopicsRequest(topics=[topic]), 7)
    assert not grant.is_answered()
    assert rig.settle(order).topics[0].error_code == 0


def everything(user: str) -> list[AclEntry]:
    return [entry(AclOperation.ALL, "*", kind, user=user) for kind in (AclResource.TOPIC, GROUP)]


def test_pitfall_16_acls_survive_a_restart_and_removed_ones_do_not(rig: AclLoginRig) -> None:
    rig.allow(*everything("shop"), entry(READ, user="web"))
    rig.withdraw(entry(READ, user="web"))
    rig.power_cut(random.Random(1))
    assert set(rig.broker.parts.metadata.image.acls.ids) == set(everything("shop"))
    client = logged_in(rig)
    assert produce(rig, client) == 0
