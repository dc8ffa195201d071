"""The rights of one client, and how they follow the ACLs."""

from __future__ import annotations

import pytest

from broker.security import rights as module
from broker.security.acl_table import NO_ACLS, AclTable
from broker.security.denials import Denial
from broker.security.rights import (
    EVERYTHING,
    NOTHING,
    RequestRights,
    UserRights,
    operation_bits,
)
from protocol.messages.api import ApiKey
from protocol.security.acl import CLUSTER_NAME, AclOperation, AclResource
from tests.unit.broker.security.acls import NotedDenials, entry, table_of

READ, WRITE, ALTER = AclOperation.READ, AclOperation.WRITE, AclOperation.ALTER
TOPIC, CLUSTER = AclResource.TOPIC, AclResource.CLUSTER


class Tables:
    """The ACLs in force, and the number of decisions that they have made."""

    def __init__(self) -> None:
        self.table = NO_ACLS

    def __call__(self) -> AclTable:
        return self.table


def test_a_right_ends_with_the_table_that_gave_it() -> None:
    tables = Tables()
    shop = UserRights("shop", "::ffff:10.0.0.1", tables, (), NotedDenials())
    assert not shop.allows(READ, TOPIC, "logs")
    tables.table = table_of([entry(READ, host="10.0.0.1")])
    assert shop.allows(READ, TOPIC, "logs") and shop.allows(READ, TOPIC, "logs")
    assert not shop.allows(WRITE, TOPIC, "logs") and shop.allows_any(READ, TOPIC)
    tables.table = NO_ACLS
    assert not shop.allows(READ, TOPIC, "logs") and not shop.allows_any(READ, TOPIC)


def test_decisions_are_kept_up_to_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CACHED_MAX", 3)
    tables = Tables()
    shop = UserRights("shop", "h", tables, (), NotedDenials())
    for number in range(20):
        assert not shop.allows(READ, TOPIC, f"logs-{number}")
        assert len(shop._cached) <= 3


def test_a_super_user_may_do_everything_in_spite_of_a_deny() -> None:
    table = table_of([entry(AclOperation.ALL, "*", user="*", denies=True)])
    admin = UserRights("admin", "h", lambda: table, {"admin"}, NotedDenials())
    assert admin.allows(ALTER, CLUSTER, CLUSTER_NAME) and admin.allows_any(WRITE, TOPIC)
    assert not UserRights("Admin", "h", lambda: table, {"admin"}, NotedDenials()).allows(
        READ, TOPIC, "logs"
    )


def test_the_bits_of_operations_are_those_of_kafka() -> None:
    assert operation_bits(EVERYTHING, TOPIC, "logs") == 0b1101_1111_1000
    assert operation_bits(NOTHING, TOPIC, "logs") == 0
    reader = UserRights("shop", "h", lambda: table_of([entry(READ)]), (), NotedDenials())
    assert operation_bits(reader, TOPIC, "logs") == 1 << READ | 1 << AclOperation.DESCRIBE


def test_a_denial_is_noted_once_for_each_request() -> None:
    denials = NotedDenials()
    shop = UserRights("shop", "::ffff:10.0.0.1", Tables(), (), denials)
    first, second = (RequestRights(shop, ApiKey.FETCH) for _ in range(2))
    for _ in range(3):
        assert not first.may(READ, TOPIC, "logs")
    assert not second.may(READ, TOPIC, "logs")
    assert not second.may(READ, TOPIC, "seen", is_logged=False)
    denial = Denial("shop", "10.0.0.1", READ, TOPIC, "logs", ApiKey.FETCH)
    assert denials.noted == [denial, denial]


def test_what_is_allowed_is_not_noted() -> None:
    denials = NotedDenials()
    admin = UserRights("admin", "h", Tables(), {"admin"}, denials)
    reader = UserRights("shop", "h", lambda: table_of([entry(READ)]), (), denials)
    assert all(RequestRights(one, ApiKey.FETCH).may(READ, TOPIC, "logs") for one in (admin, reader))
    assert RequestRights(EVERYTHING, ApiKey.FETCH).may(READ, TOPIC, "logs")
    assert denials.noted == []
