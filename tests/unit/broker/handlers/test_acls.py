"""DescribeAcls, CreateAcls and DeleteAcls: Kafka's answers and errors, and the limits."""

from __future__ import annotations

from struct import pack
from types import SimpleNamespace
from typing import Any

import pytest

from broker.cluster.envelopes import opened, packed
from broker.controller import acls
from broker.interbroker.envelope import envelope_handlers
from protocol.errors import ApiError, ErrorCode
from protocol.messages.acls import (
    AclCreation,
    CreateAclsRequest,
    DeleteAclsFilter,
    DeleteAclsRequest,
    DescribeAclsRequest,
)
from protocol.messages.api import ApiKey
from protocol.messages.membership import EnvelopeRequest
from protocol.security.acl import (
    CLUSTER_NAME,
    AclEntry,
    AclOperation,
    AclPermission,
    AclResource,
    PatternType,
)
from tests.unit.broker.acl_rig import AclRig, anything, creation, exact_filter
from tests.unit.broker.security.acls import entry

READ, WRITE = AclOperation.READ, AclOperation.WRITE
INVALID = ErrorCode.INVALID_REQUEST


@pytest.fixture
def rig() -> AclRig:
    return AclRig()


def created(rig: AclRig, *wanted: AclCreation) -> list[int]:
    answer = rig.ask(CreateAclsRequest(creations=list(wanted)), 3)
    return [one.error_code for one in answer.results]


def every_acl(**fields: Any) -> DescribeAclsRequest:
    """Return a request for all ACLs, unless `fields` select some."""
    any_one = {
        "resource_type_filter": 1,
        "resource_name_filter": None,
        "pattern_type_filter": 1,
        "principal_filter": None,
        "host_filter": None,
        "operation": 1,
        "permission_type": 1,
    }
    return DescribeAclsRequest(**(any_one | fields))


def described(rig: AclRig, **fields: Any) -> list[AclEntry]:
    answer = rig.ask(every_acl(**fields), 3)
    assert answer.error_code == 0
    return [
        AclEntry(
            AclResource(resource.resource_type),
            resource.resource_name,
            PatternType(resource.pattern_type),
            one.principal,
            one.host,
            AclOperation(one.operation),
            AclPermission(one.permission_type),
        )
        for resource in answer.resources
        for one in resource.acls
    ]


def test_what_is_created_is_described_by_pattern(rig: AclRig) -> None:
    entries = [
        entry(READ),
        entry(WRITE),
        entry(READ, prefixed=True),
        entry(READ, "g", AclResource.GROUP, host="10.0.0.1"),
        entry(AclOperation.ALTER, CLUSTER_NAME, AclResource.CLUSTER, user="*", denies=True),
    ]
    assert created(rig, *map(creation, entries)) == [0] * 5
    assert sorted(described(rig)) == sorted(entries)
    assert described(rig, principal_filter="User:*") == entries[-1:]
    assert described(rig, resource_type_filter=3, resource_name_filter="g") == [entries[3]]
    matching = {"resource_name_filter": "logs.web", "pattern_type_filter": 2}
    assert described(rig, resource_type_filter=2, **matching) == [entries[2]]
    answer = rig.ask(every_acl(resource_type_filter=2, pattern_type_filter=3), 1)
    assert [len(one.acls) for one in answer.resources] == [2]


def test_an_entry_that_is_there_is_a_success_and_no_second_one(rig: AclRig) -> None:
    """A second record of the same ACL would survive the removal of the first one."""
    twice = creation(entry(READ))
    assert created(rig, twice, twice) == [0, 0]
    assert created(rig, twice) == [0]
    assert described(rig) == [entry(READ)]


@pytest.mark.parametrize(
    ("field", "value", "why"),
    [
        ("resource_type", 0, "found resource type 0"),
        ("resource_type", 1, "found resource type 1"),
        ("resource_type", 8, "found resource type 8"),
        ("resource_name", "", "the name of the resource is empty"),
        ("resource_pattern_type", 1, "found pattern type 1"),
        ("resource_pattern_type", 2, "MATCH"),
        ("operation", 1, "found operation 1"),
        ("operation", 15, "found operation 15"),
        ("permission_type", 1, "found permission type 1"),
        ("permission_type", 4, "found permission type 4"),
        ("principal", "shop", "expected User:NAME"),
        ("principal", "User:", "expected User:NAME"),
        ("principal", ":shop", "expected User:NAME"),
        ("host", "", "expected an address or *"),
        ("resource_name", "n" * (acls.TEXT_LENGTH_MAX + 1), "more than 1024 characters"),
    ],
)
def test_entries_without_a_clear_meaning_are_refused(
    rig: AclRig, field: str, value: Any, why: str
) -> None:
    wrong = creation(entry(READ))
    setattr(wrong, field, value)
    answer = rig.ask(CreateAclsRequest(creations=[creation(entry(WRITE)), wrong]), 3)
    assert [one.error_code for one in answer.results] == [0, INVALID]
    assert why in answer.results[1].error_message
    assert described(rig) == [entry(WRITE)]


def test_the_cluster_has_one_name(rig: AclRig) -> None:
    wrong = creation(entry(AclOperation.ALTER, "kafka", AclResource.CLUSTER))
    answer = rig.ask(CreateAclsRequest(creations=[wrong]), 3)
    assert answer.results[0].error_code == INVALID
    assert CLUSTER_NAME in answer.results[0].error_message


def deleted(rig: AclRig, *filters: DeleteAclsFilter) -> list[Any]:
    results: list[Any] = rig.ask(DeleteAclsRequest(filters=list(filters)), 3).filter_results
    return results


def test_each_filter_names_what_it_deleted(rig: AclRig) -> None:
    entries = [entry(READ), entry(WRITE), entry(READ, "g", AclResource.GROUP)]
    created(rig, *map(creation, entries))
    topics = anything()
    topics.resource_type_filter = AclResource.TOPIC
    wrong = anything()
    wrong.operation = 0
    results = deleted(rig, exact_filter(entry(READ)), topics, wrong, exact_filter(entry(READ, "x")))
    assert [one.error_code for one in results] == [0, 0, INVALID, 0]
    operations = [sorted(acl.operation for acl in one.matching_acls) for one in results]
    assert operations == [[READ], [READ, WRITE], [], []]
    assert results[0].matching_acls[0].principal == "User:shop"
    assert described(rig) == entries[2:]


@pytest.mark.parametrize("field", ["resource_type_filter", "pattern_type_filter", "operation"])
@pytest.mark.parametrize("value", [0, 99])
def test_a_filter_with_an_unknown_word_selects_nothing(rig: AclRig, field: str, value: int) -> None:
    created(rig, creation(entry(READ)))
    answer = rig.ask(every_acl(**{field: value}), 3)
    assert (answer.error_code, answer.resources) == (INVALID, [])
    wrong = anything()
    setattr(wrong, field, value)
    assert [one.error_code for one in deleted(rig, wrong)] == [INVALID]
    assert described(rig) == [entry(READ)]


def test_the_number_of_acls_is_bounded(rig: AclRig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acls, "ACLS_MAX", 2)
    three = [creation(entry(READ, name)) for name in "abc"]
    answer = rig.ask(CreateAclsRequest(creations=three), 3)
    assert [one.error_code for one in answer.results] == [0, 0, ErrorCode.POLICY_VIOLATION]
    assert answer.results[2].error_message == (
        "the cluster already has 2 ACLs, which is the limit: delete some"
    )
    assert created(rig, three[0]) == [0]


def test_a_request_for_too_many_acls_changes_nothing(
    rig: AclRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acls, "WANTED_MAX", 2)
    three = [creation(entry(READ, name)) for name in "abc"]
    answer = rig.ask(CreateAclsRequest(creations=three), 3)
    assert len(answer.results) == 3 and described(rig) == []
    assert all(one.error_code for one in answer.results)
    assert "at most 2" in answer.results[0].error_message
    created(rig, *three[:2])
    created(rig, three[2])
    (result,) = deleted(rig, anything())
    assert result.error_code and "at most 2" in result.error_message
    assert len(described(rig)) == 3


def test_pitfall_15_an_envelope_has_the_user_whose_rights_count() -> None:
    order = CreateAclsRequest(creations=[creation(entry(READ))])
    for user in ("shop", None):
        envelope = packed(order, 3, "10.0.0.1", user)
        found = opened(EnvelopeRequest.decode(envelope.encode(0), 0)[0])
        assert (found.user, found.host, found.order) == (user, "10.0.0.1", order)
    # Kafka's DefaultPrincipalData, version 0.
    principal = packed(order, 3, "10.0.0.1", "shop").request_principal
    assert principal is not None
    assert principal.hex(" ") == "00 00 05 55 73 65 72 05 73 68 6f 70 00 00"


@pytest.mark.parametrize(
    "principal", [b"\0", b"\0\1\5User\5shop\0\0", b"\0\0\6Group\5shop\0\0", b"\0\0\5User"]
)
def test_an_envelope_whose_user_cannot_be_read_is_refused(principal: bytes) -> None:
    envelope = packed(CreateAclsRequest(), 3, "10.0.0.1", "shop")
    envelope.request_principal = principal
    with pytest.raises(ApiError) as raised:
        opened(envelope)
    assert raised.value.code is INVALID


@pytest.mark.parametrize(
    ("key", "version", "code"),
    [
        (ApiKey.CREATE_ACLS, 4, ErrorCode.UNSUPPORTED_VERSION),
        (ApiKey.CREATE_ACLS, 2, ErrorCode.UNSUPPORTED_VERSION),
        (ApiKey.METADATA, 12, INVALID),
        (30_000, 0, INVALID),
    ],
)
def test_an_envelope_with_an_unknown_version_is_told_from_a_malformed_one(
    key: int, version: int, code: ErrorCode
) -> None:
    header = pack(">hhihb", key, version, 0, -1, 0)
    with pytest.raises(ApiError) as raised:
        opened(EnvelopeRequest(request_data=header, client_host_address=b""))
    assert raised.value.code is code


def test_a_broker_of_1_0_0_rc1_forwards_with_an_empty_principal() -> None:
    envelope = packed(CreateAclsRequest(), 3, "10.0.0.1")
    envelope.request_principal = b""
    assert opened(envelope).user is None


def test_pitfall_15_an_order_in_an_envelope_has_the_rights_of_its_user() -> None:
    """The broker that logged the client in writes the user's name into the envelope. Clients cannot
    send envelopes."""
    decided: list[Any] = []
    metadata: Any = SimpleNamespace(
        controller=SimpleNamespace(is_active=True), decide=lambda *args: decided.append(args)
    )
    handler = envelope_handlers(metadata)[ApiKey.ENVELOPE]
    for user in ("shop", None):
        handler(SimpleNamespace(), packed(CreateAclsRequest(), 3, "10.0.0.1", user))  # type: ignore[arg-type]  # no call
    assert [one[3:] for one in decided] == [("10.0.0.1", "shop"), ("10.0.0.1", None)]
