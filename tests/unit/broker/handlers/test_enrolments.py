"""Credentials of join files: what they allow, when they end, and who wins if two use one."""

from __future__ import annotations

import random
from typing import Any

import pytest

from broker.controller import credentials
from broker.controller.controller import Controller
from protocol.errors import ApiError, ErrorCode
from protocol.messages.acls import CreateAclsRequest
from protocol.messages.metadata import MetadataRequest
from protocol.messages.scram import (
    AlterUserScramCredentialsRequest,
    DescribeUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
    UserName,
)
from protocol.messages.topics import CreatableTopic, CreateTopicsRequest
from protocol.security.acl import CLUSTER_NAME, AclOperation, AclResource
from protocol.security.scram import Mechanism, salted_password
from tests.unit.broker.acl_rig import creation
from tests.unit.broker.login_rig import ITERATIONS, SALT, LoginClient, LoginRig
from tests.unit.broker.security.acls import NotedDenials, entry
from tests.unit.storage.kit import broker_config

USER = "collector.web-7"
DAY_MS = 24 * 3_600_000
REFUSED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
FAILED = ErrorCode.SASL_AUTHENTICATION_FAILED


def upsertion(
    password: str,
    user: str = USER,
    *,
    enrolment_ms: int = 0,
    mechanism: Mechanism = Mechanism.SHA_512,
) -> ScramCredentialUpsertion:
    return ScramCredentialUpsertion(
        name=user,
        mechanism=mechanism,
        iterations=ITERATIONS,
        salt=SALT,
        salted_password=salted_password(password, SALT, ITERATIONS, mechanism.digest),
        enrolment_ms=enrolment_ms,
    )


def changing(*upsertions: ScramCredentialUpsertion) -> AlterUserScramCredentialsRequest:
    return AlterUserScramCredentialsRequest(upsertions=list(upsertions))


def code_of(answer: Any) -> ErrorCode:
    """Return the error code of the only user in an answer."""
    (result,) = answer.results
    return ErrorCode(result.error_code)


def enrol(rig: LoginRig, user: str = USER, valid_ms: int = DAY_MS) -> None:
    answer = rig.ask(changing(upsertion("of the file", user, enrolment_ms=valid_ms)), 0)
    assert code_of(answer) is ErrorCode.NONE


def entered(rig: LoginRig, password: str = "of the file", user: str = USER) -> LoginClient:
    """Return a client that has logged in."""
    client = rig.connect()
    assert client.log_in(user, password).error_code == 0
    return client


def commit(rig: LoginRig) -> None:
    """Sync the metadata log, so that the decisions so far are committed."""
    rig.flusher.sync()
    rig.turn()


def ends_of(rig: LoginRig, user: str = USER) -> list[int]:
    request = DescribeUserScramCredentialsRequest(users=[UserName(name=user)])
    (result,) = rig.ask(request, 0).results
    return [one.enrolment_ends_ms for one in result.credential_infos]


@pytest.fixture
def rig() -> LoginRig:
    made = LoginRig()
    enrol(made)
    return made


def test_a_host_replaces_the_secret_of_its_join_file(
    rig: LoginRig, caplog: pytest.LogCaptureFixture
) -> None:
    """Its session ends with the change, and the enrolment too. This holds after a restart. The log
    says when and from where."""
    caplog.set_level("INFO")
    assert ends_of(rig) == [rig.clock.now_ms() + DAY_MS]
    rig.power_cut(random.Random(1))
    assert ends_of(rig) == [rig.clock.now_ms() + DAY_MS]
    client = entered(rig)
    client.send(changing(upsertion("its own")), 0)
    commit(rig)
    assert client.is_closed
    assert ends_of(rig) == [0]
    assert [one.message for one in caplog.records if "joined" in one.message] == [
        "a host has joined"
    ]
    assert rig.connect().log_in(USER, "of the file").error_code == FAILED
    entered(rig, "its own")


def test_an_enrolment_allows_nothing_else(rig: LoginRig) -> None:
    """Even ACLs that allow everything have no effect while the user has the credential of a join
    file: neither at the broker nor at the controller."""
    everything = [
        entry(AclOperation.ALL, "*", AclResource.TOPIC, user=USER),
        entry(AclOperation.ALL, CLUSTER_NAME, AclResource.CLUSTER, user=USER),
    ]
    rig.ask(CreateAclsRequest(creations=[creation(one) for one in everything]), 3)
    rig.set_password("shop", "of a person")
    client = entered(rig)
    made = client.ask(
        CreateTopicsRequest(topics=[CreatableTopic(name="mine", num_partitions=1)]), 7
    )
    assert made.topics[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    found = client.ask(MetadataRequest(topics=None), 12)
    assert found.brokers and not found.topics
    described = client.ask(DescribeUserScramCredentialsRequest(users=None), 0)
    assert described.error_code == REFUSED
    for request in (
        changing(upsertion("other", "shop")),
        changing(upsertion("other", "collector.web-8")),
        changing(upsertion("other"), upsertion("other", "shop")),
        changing(upsertion("other", mechanism=Mechanism.SHA_256)),
        changing(upsertion("other", enrolment_ms=DAY_MS)),
        AlterUserScramCredentialsRequest(
            deletions=[ScramCredentialDeletion(name=USER, mechanism=Mechanism.SHA_512)]
        ),
    ):
        answer = client.ask(request, 0)
        assert {one.error_code for one in answer.results} == {REFUSED}, request
    assert not client.is_closed
    assert ends_of(rig) == [rig.clock.now_ms() + DAY_MS]


def test_an_expired_join_file_is_refused_like_a_wrong_password(rig: LoginRig) -> None:
    """Its session ends too, and the controller refuses a change that was on its way."""
    rig.let_time_pass(DAY_MS - 5_000)
    client = rig.connect()
    answer = client.log_in(USER, "of the file")
    assert 0 < answer.session_lifetime_ms <= 5_000
    rig.let_time_pass(5_000)
    assert client.is_closed
    late, wrong = (rig.connect().log_in(USER, one) for one in ("of the file", "wrong"))
    assert late.error_code == wrong.error_code == FAILED
    assert late.error_message == wrong.error_message
    image = rig.broker.metadata.image
    change = changing(upsertion("its own"))
    change.login_key = image.credentials[USER, Mechanism.SHA_512].stored_key
    controller = Controller(broker_config({}), random.Random(1), NotedDenials())
    end_ms = rig.clock.now_ms()
    assert controller.handle(change, image, end_ms - 10_000, "10.0.0.7", USER).records
    with pytest.raises(ApiError, match="CLUSTER_AUTHORIZATION_FAILED"):
        controller.handle(change, image, end_ms, "10.0.0.7", USER)


def test_pitfall_35_of_two_that_use_a_join_file_at_once_one_wins(rig: LoginRig) -> None:
    """Both have logged in, and both changes are at the controller before the first one is
    committed. The second session logged in with a credential that the first decision has
    replaced, so its change is refused."""
    first, second = entered(rig), entered(rig)
    first.send(changing(upsertion("of the first")), 0)
    open_before = [not client.is_closed for client in (first, second)]
    assert code_of(second.ask(changing(upsertion("of the second")), 0)) is REFUSED
    commit(rig)
    closed_after = [client.is_closed for client in (first, second)]
    assert (open_before, closed_after) == ([True, True], [True, True])
    entered(rig, "of the first")
    assert rig.connect().log_in(USER, "of the second").error_code == FAILED


@pytest.mark.interpreted
def test_a_client_cannot_choose_the_key_of_its_login(rig: LoginRig) -> None:
    """Otherwise a session could replace a credential with which it has not logged in."""
    late = entered(rig)
    rig.broker.listeners.sessions.end_logins = lambda keys: None  # type: ignore[method-assign]
    enrol(rig, valid_ms=2 * DAY_MS)
    rig.ask(changing(upsertion("another", enrolment_ms=DAY_MS)), 0)
    image = rig.broker.metadata.image
    change = changing(upsertion("its own"))
    change.login_key = image.credentials[USER, Mechanism.SHA_512].stored_key
    assert code_of(late.ask(change, 0)) is REFUSED


def test_only_users_of_enrolled_hosts_change_their_own_password() -> None:
    """As in Kafka, another user needs ALTER on the cluster, also for its own password."""
    rig = LoginRig(super_users="User:root")
    rig.set_password("shop", "secret")
    rig.set_password(USER, "its own")
    shop, host = entered(rig, "secret", "shop"), entered(rig, "its own")
    assert code_of(shop.ask(changing(upsertion("other", "shop")), 0)) is REFUSED
    host.send(changing(upsertion("its next")), 0)
    commit(rig)
    assert host.is_closed
    entered(rig, "its next")


@pytest.mark.parametrize("valid_ms", [-1, credentials.ENROLMENT_MS_MAX + 1])
def test_the_life_of_a_join_file_is_bounded(valid_ms: int) -> None:
    answer = LoginRig().ask(changing(upsertion("a", enrolment_ms=valid_ms)), 0)
    assert code_of(answer) is ErrorCode.UNACCEPTABLE_CREDENTIAL
