"""DescribeClientQuotas and AlterClientQuotas: Kafka's answers and errors, and the limits."""

from __future__ import annotations

import math
from random import Random
from typing import Any

import pytest

from broker.cluster.envelopes import opened, packed
from broker.controller import quotas as decided
from broker.metadata.features import LEVEL_4_0_IV1, METADATA_VERSION
from broker.metadata.image import MetadataImage
from broker.metadata.quota_changes import quota_record
from broker.metadata.records import FeatureLevelRecord
from protocol.errors import ErrorCode
from protocol.messages.quotas import (
    AlterClientQuotasRequest,
    AlteredQuota,
    DescribeClientQuotasRequest,
    QuotaEntityPart,
    QuotaFilterComponent,
    QuotaOperation,
)
from tests.unit.broker.acl_rig import AclRig
from tests.unit.broker.rig import Rig

INVALID = ErrorCode.INVALID_REQUEST
PRODUCE, FETCH, SHARE = "producer_byte_rate", "consumer_byte_rate", "request_percentage"
CONNECTIONS, MUTATIONS = "connection_creation_rate", "controller_mutation_rate"
USER, CLIENT, IP = "user", "client-id", "ip"


def change(
    values: dict[str, float | None], *entity: tuple[str, str | None], twice: bool = False
) -> AlteredQuota:
    """Return the changes of one entity; None removes a quota."""
    ops = [
        QuotaOperation(key=key, value=value or 0.0, remove=value is None)
        for key, value in values.items()
    ]
    parts = [QuotaEntityPart(entity_type=kind, entity_name=name) for kind, name in entity]
    return AlteredQuota(entity=parts, ops=ops * 2 if twice else ops)


def altered(rig: Rig, *entries: AlteredQuota, validate_only: bool = False) -> list[Any]:
    request = AlterClientQuotasRequest(entries=list(entries), validate_only=validate_only)
    return [(one.error_code, one.error_message) for one in rig.ask(request, 1).entries]


def described(
    rig: Rig, *components: tuple[str, int, str | None], strict: bool = False, version: int = 1
) -> Any:
    parts = [
        QuotaFilterComponent(entity_type=kind, match_type=match_type, match=name)
        for kind, match_type, name in components
    ]
    return rig.ask(DescribeClientQuotasRequest(components=parts, strict=strict), version)


def found(rig: Rig, *components: tuple[str, int, str | None], strict: bool = False) -> Any:
    answer = described(rig, *components, strict=strict)
    assert answer.error_code == 0, answer
    return {
        tuple((part.entity_type, part.entity_name) for part in one.entity): {
            value.key: value.value for value in one.values
        }
        for one in answer.entries
    }


@pytest.fixture
def rig() -> Rig:
    return Rig()


@pytest.fixture
def filled(rig: Rig) -> Rig:
    entries = [
        change({PRODUCE: 1.0}, (USER, "shop")),
        change({PRODUCE: 2.0}, (USER, None)),
        change({PRODUCE: 3.0, FETCH: 4.0}, (USER, "shop"), (CLIENT, "web")),
        change({PRODUCE: 5.0}, (CLIENT, None), (USER, "shop")),
        change({SHARE: 0.5}, (CLIENT, "web")),
    ]
    assert altered(rig, *entries) == [(0, None)] * 5
    return rig


@pytest.mark.parametrize(
    ("components", "strict", "entities"),
    [
        ([], False, 5),
        ([], True, 0),
        ([(USER, 0, "shop")], False, 3),
        ([(USER, 0, "shop")], True, 1),
        ([(USER, 1, None)], True, 1),
        ([(USER, 2, None)], False, 4),
        ([(USER, 2, None)], True, 2),
        ([(USER, 2, None), (CLIENT, 2, None)], True, 2),
        ([(USER, 0, "shop"), (CLIENT, 1, None)], True, 1),
        ([(CLIENT, 2, None)], False, 3),
        ([(IP, 2, None)], False, 0),
        ([(USER, 0, "absent")], False, 0),
    ],
)
def test_a_filter_selects_entities_as_in_kafka(
    filled: Rig, components: list[Any], strict: bool, entities: int
) -> None:
    assert len(found(filled, *components, strict=strict)) == entities


def test_all_values_of_an_entity_are_described(filled: Rig) -> None:
    both = found(filled, (USER, 0, "shop"), (CLIENT, 0, "web"), strict=True)
    assert both == {((CLIENT, "web"), (USER, "shop")): {PRODUCE: 3.0, FETCH: 4.0}}


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize(
    ("components", "code", "text"),
    [
        ([("", 0, "a")], INVALID, "Invalid empty entity type."),
        (
            [(USER, 0, "a"), (USER, 1, None)],
            INVALID,
            "Entity type user cannot appear more than once in the filter.",
        ),
        ([("team", 0, "a")], ErrorCode.UNSUPPORTED_VERSION, "Entity type team is not supported."),
        ([(USER, 9, None)], INVALID, "Unknown match type 9"),
        (
            [(USER, 0, None)],
            INVALID,
            "Request specified MATCH_TYPE_EXACT, but set match string to null.",
        ),
        (
            [(USER, 2, "a")],
            INVALID,
            "Request specified MATCH_TYPE_SPECIFIED, but also specified a match string.",
        ),
        (
            [(USER, 2, None), (IP, 2, None)],
            INVALID,
            "Invalid entity filter component combination, IP filter component should not be used"
            " with user or clientId filter component.",
        ),
    ],
)
def test_a_wrong_filter_has_kafkas_error(
    rig: Rig, components: list[Any], code: ErrorCode, text: str, version: int
) -> None:
    answer = described(rig, *components, version=version)
    assert (answer.error_code, answer.error_message, answer.entries) == (code, text, None)


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        (change({PRODUCE: 1.0}), "Invalid empty client quota entity"),
        (change({PRODUCE: 1.0}, ("team", "a")), "Unhandled client quota entity type: team"),
        (change({PRODUCE: 1.0}, (USER, "")), "Empty user not supported"),
        (
            change({PRODUCE: 1.0}, (USER, "a"), (USER, "b")),
            "Duplicate client quota entity type: user",
        ),
        (
            change({CONNECTIONS: 1.0}, (IP, "10.0.0.7"), (USER, "a")),
            "Invalid quota entity combination, IP entity should not be combined with User or"
            " ClientId",
        ),
        (
            change({CONNECTIONS: 1.0}, (IP, "mill.example.org")),
            "mill.example.org is not a valid IP or resolvable host.",
        ),
        (
            change({CONNECTIONS: 1.0}, (IP, "::ffff:10.0.0.7")),
            "found the address ::ffff:10.0.0.7, expected it as 10.0.0.7",
        ),
        (change({PRODUCE: 1.0}, (IP, None)), f"Invalid configuration key {PRODUCE}"),
        (change({CONNECTIONS: 0.0}, (IP, None)), f"Quota {CONNECTIONS} must be greater than 0"),
        (change({CONNECTIONS: 1.5}, (IP, None)), f"{CONNECTIONS} cannot be a fractional value."),
        (
            change({CONNECTIONS: 3e9}, (IP, None)),
            f"Proposed value for {CONNECTIONS} is too large for an INT.",
        ),
        (change({MUTATIONS: 1.0}, (IP, None)), f"Invalid configuration key {MUTATIONS}"),
        (change({MUTATIONS: 0.0}, (USER, "a")), f"Quota {MUTATIONS} must be greater than 0"),
        (change({CONNECTIONS: 1.0}, (USER, "a")), f"Invalid configuration key {CONNECTIONS}"),
        (change({"producer_rate": 1.0}, (USER, "a")), "Invalid configuration key producer_rate"),
        (change({PRODUCE: -1.0}, (USER, "a")), f"Quota {PRODUCE} must be greater than 0"),
        (change({PRODUCE: 1.5}, (USER, "a")), f"{PRODUCE} cannot be a fractional value."),
        (
            change({PRODUCE: 1e19}, (USER, "a")),
            f"Proposed value for {PRODUCE} is too large for a LONG.",
        ),
    ],
)  # fmt: skip
def test_a_wrong_change_has_kafkas_error(rig: Rig, entry: AlteredQuota, text: str) -> None:
    right = change({SHARE: 0.25}, (CLIENT, "c"))
    assert altered(rig, entry, right) == [(INVALID, text), (0, None)]
    assert list(found(rig)) == [((CLIENT, "c"),)]


@pytest.mark.parametrize("value", [math.nan, math.inf, 0.0])
def test_pitfall_38_a_quota_is_a_number_above_zero(rig: Rig, value: float) -> None:
    """Kafka compares `value <= 0`, so NaN becomes a quota that no rate exceeds."""
    entry = change({SHARE: 1.0}, (USER, "a"))
    entry.ops[0].value = value
    ((code, text),) = altered(rig, entry)
    assert code == INVALID and SHARE in text
    assert not found(rig)


def test_pitfall_38_an_entity_or_a_key_that_is_named_twice_is_refused(rig: Rig) -> None:
    one = change({PRODUCE: 1.0}, (USER, "a"), (CLIENT, "b"))
    same = change({PRODUCE: 2.0}, (CLIENT, "b"), (USER, "a"))
    assert (
        altered(rig, one, same)
        == [(INVALID, "the request names this entity twice: name it once, with all its quotas")] * 2
    )
    doubled = change({PRODUCE: 1.0}, (USER, "a"), twice=True)
    assert altered(rig, doubled) == [(INVALID, f"the request names {PRODUCE} twice for one entity")]
    assert not found(rig)


def test_pitfall_38_a_removed_quota_is_gone_and_removing_it_again_succeeds(filled: Rig) -> None:
    removal = change({PRODUCE: None}, (USER, "shop"), (CLIENT, "web"))
    assert altered(filled, removal, change({SHARE: None}, (CLIENT, "web"))) == [(0, None)] * 2
    assert found(filled, (USER, 2, None), (CLIENT, 0, "web")) == {
        ((CLIENT, "web"), (USER, "shop")): {FETCH: 4.0}
    }
    end_offset = filled.broker.parts.metadata.image.end_offset
    assert altered(filled, removal) == [(0, None)]
    assert filled.broker.parts.metadata.image.end_offset == end_offset


def test_quotas_of_addresses_are_set_and_found(filled: Rig) -> None:
    entries = [
        change({CONNECTIONS: 20.0}, (IP, "10.0.0.7")),
        change({CONNECTIONS: 5.0}, (IP, None)),
    ]
    assert altered(filled, *entries) == [(0, None)] * 2
    own, default = {((IP, "10.0.0.7"),): {CONNECTIONS: 20.0}}, {((IP, None),): {CONNECTIONS: 5.0}}
    assert found(filled, (IP, 0, "10.0.0.7"), strict=True) == own
    assert found(filled, (IP, 1, None), strict=True) == default
    assert found(filled, (IP, 2, None), strict=True) == own | default


def test_quotas_of_addresses_alone_give_requests_no_charge(rig: Rig) -> None:
    before = rig.broker.listeners.receptions["HOST"].dispatcher
    altered(rig, change({CONNECTIONS: 5.0}, (IP, None)))
    assert rig.broker.listeners.receptions["HOST"].dispatcher is before
    altered(rig, change({PRODUCE: 5.0}, (USER, None)))
    assert rig.broker.listeners.receptions["HOST"].dispatcher is not before


def test_only_changes_are_written_and_validate_only_writes_nothing(filled: Rig) -> None:
    end_offset = filled.broker.parts.metadata.image.end_offset
    same = change({PRODUCE: 1.0}, (USER, "shop"))
    assert altered(filled, same) == [(0, None)]
    other = change({PRODUCE: 9.0}, (USER, "shop"))
    wrong = change({PRODUCE: 0.0}, (USER, "shop"), (CLIENT, "x"))
    assert altered(filled, other, wrong, validate_only=True) == [
        (0, None),
        (INVALID, f"Quota {PRODUCE} must be greater than 0"),
    ]
    assert filled.broker.parts.metadata.image.end_offset == end_offset
    assert found(filled, (USER, 0, "shop"), strict=True) == {((USER, "shop"),): {PRODUCE: 1.0}}


def test_the_number_of_entities_is_bounded(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decided, "ENTITIES_MAX", 2)
    three = [change({PRODUCE: 1.0}, (USER, name)) for name in "abc"]
    results = altered(rig, *three)
    assert [code for code, _ in results] == [0, 0, ErrorCode.POLICY_VIOLATION]
    assert results[2][1] == (
        "the cluster already has quotas for 2 entities, which is the limit: remove some"
    )
    # An entity that is there can change.
    assert altered(rig, change({PRODUCE: 2.0}, (USER, "a"))) == [(0, None)]


def test_quotas_need_a_level(rig: Rig) -> None:
    rig.commit(FeatureLevelRecord(name=METADATA_VERSION, feature_level=LEVEL_4_0_IV1))
    ((code, text),) = altered(rig, change({PRODUCE: 1.0}, (USER, "a")))
    assert code == ErrorCode.UNSUPPORTED_VERSION
    assert text.startswith("client quotas need metadata.version 24 (4.0-IV2)")


def test_quotas_are_there_after_a_restart(filled: Rig) -> None:
    before = found(filled)
    filled.power_cut(Random(1))
    assert found(filled) == before


def test_quotas_are_judged_by_the_controller() -> None:
    """The right that counts is that of the image against which the change is decided."""
    rig = AclRig()
    request = AlterClientQuotasRequest(entries=[change({PRODUCE: 1.0}, (USER, "a"))])
    (denied,) = rig.ask_as(request, 1).entries
    assert denied.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert [part.entity_name for part in denied.entity] == ["a"]
    assert rig.ask_as(DescribeClientQuotasRequest(), 1).entries is None


def test_a_change_is_forwarded_in_an_envelope() -> None:
    request = AlterClientQuotasRequest(entries=[change({PRODUCE: 1.0}, (USER, "a"))])
    envelope = opened(packed(request, 1, "10.0.0.1", "shop"))
    assert envelope.order == request and envelope.user == "shop"


def test_a_decision_is_made_from_the_image_alone() -> None:
    request = AlterClientQuotasRequest(entries=[change({PRODUCE: 1.0}, (USER, "a"))])
    image = MetadataImage()
    decision = decided.alter_quotas(request, image)
    assert decision.records == [quota_record(((USER, "a"),), PRODUCE, 1.0)]
